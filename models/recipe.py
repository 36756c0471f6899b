"""How a model folder says that vectors are made of its hidden states: sentence-transformers' files.

Reads JSON only, no weights. What the files ask for and nobody here can do is an error.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.text.config_file import read_config

POOLINGS = {"cls": "cls", "mean": "mean", "max": "max", "lasttoken": "last"}
OLD_FLAGS = {  # from before there was `pooling_mode`
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "lasttoken",
}
_ORDER = re.compile("Transformer Pooling( Dense)*( Normalize)?")
GENERATES = (
    "ForCausalLM",
    "LMHeadModel",
    "ForConditionalGeneration",
    "WithLMHead",
    "GenerationDecoder",
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """``dense`` are folders of linear layers behind the pooling, in order.

    ``max_tokens`` of one input are those that the model was trained for; ``most_tokens`` are those
    that its tokenizer names as the limit. None: not said.
    """

    pooling: str
    normalize: bool
    dense: tuple[Path, ...] = ()
    max_tokens: int | None = None
    most_tokens: int | None = None


def made_to_embed(folder: Path) -> bool:
    """Whether a folder holds an embedding model, and not one that generates text."""
    if (folder / "modules.json").is_file():
        return True
    architectures = read_config(folder / "config.json").get("architectures") or []
    return bool(architectures) and not any(name.endswith(GENERATES) for name in architectures)


def read_recipe(folder: Path) -> Recipe:
    """The folder's own recipe; for one that has none, the usual one of its architecture.

    Raises ValueError about what is not supported.
    """
    if not (folder / "modules.json").is_file():
        return Recipe(_usual_pooling(folder), True, most_tokens=_tokenizer_limit(folder))
    _check_prompts(read_config(folder / "config_sentence_transformers.json"))
    modules = [(one["type"].rpartition(".")[2], one["path"]) for one in _list(folder)]
    kinds = [kind for kind, _ in modules]
    if not _ORDER.fullmatch(" ".join(kinds)) or modules[0][1]:
        raise ValueError(f"modules.json: {', '.join(kinds)} are not supported together")
    return Recipe(
        _pooling(read_config(folder / modules[1][1] / "config.json")),
        kinds[-1] == "Normalize",
        tuple(folder / path for kind, path in modules if kind == "Dense"),
        read_config(folder / "sentence_bert_config.json").get("max_seq_length"),
        _tokenizer_limit(folder),
    )


def _pooling(config: dict[str, Any]) -> str:
    flags = [key for key, on in config.items() if key.startswith("pooling_mode_") and on is True]
    mode = config.get("pooling_mode") or [OLD_FLAGS.get(flag, flag) for flag in flags]
    modes = [mode] if isinstance(mode, str) else list(mode)
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise ValueError(f"the pooling {' with '.join(modes) or 'of no kind'} is not supported")
    return POOLINGS[modes[0]]


def _usual_pooling(folder: Path) -> str:
    architectures = read_config(folder / "config.json").get("architectures") or []
    return "last" if any(name.endswith(GENERATES) for name in architectures) else "mean"


def _check_prompts(config: dict[str, Any]) -> None:
    name = config.get("default_prompt_name")
    if name is not None and config.get("prompts", {}).get(name):
        raise ValueError(f"its default prompt {name!r} is not supported: send it with each text")


def _tokenizer_limit(folder: Path) -> int | None:
    limit = read_config(folder / "tokenizer_config.json").get("model_max_length")
    return limit if isinstance(limit, int) and 0 < limit < 10**9 else None


def _list(folder: Path) -> list[dict[str, Any]]:
    modules: list[dict[str, Any]] = json.loads((folder / "modules.json").read_text())
    return sorted(modules, key=lambda module: int(module["idx"]))
