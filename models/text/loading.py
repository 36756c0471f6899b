"""A model's folder to its ``TextPipeline``, and the built-in one over bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from models.text.byte_tokenizer import BOS, CHAT_TEMPLATE, END, byte_tokenizer
from models.text.config_file import read_config
from models.text.pipeline import TextPipeline
from models.text.template import find_template


def load_pipeline(
    folder: Path,
    chat_template: str | None = None,
    *,
    reasoning: str = "auto",
    tool_format: str = "auto",
) -> TextPipeline:
    """From a Hugging Face folder; ``chat_template`` is a file that replaces the model's own.

    ``reasoning`` and ``tool_format`` name formats, ``auto`` the template's own.
    """
    config = read_config(folder / "tokenizer_config.json")
    model = read_config(folder / "config.json")
    generation = read_config(folder / "generation_config.json")
    tokens = read_config(folder / "special_tokens_map.json") | config
    return TextPipeline(
        Tokenizer.from_file(str(folder / "tokenizer.json")),
        reasoning=reasoning,
        tool_format=tool_format,
        special_tokens=_special_tokens(tokens),
        eos_token_ids=[*_eos_ids(model), *_eos_ids(generation)],
        chat_template=_override(chat_template) or find_template(folder, config),
        vocab_size=model.get("vocab_size") or model.get("text_config", {}).get("vocab_size"),
    )


def byte_pipeline(
    chat_template: str | None = None,
    *,
    reasoning: str = "auto",
    tool_format: str = "auto",
) -> TextPipeline:
    """Each byte of UTF-8 is its own token, beside a few control tokens."""
    return TextPipeline(
        byte_tokenizer(),
        reasoning=reasoning,
        tool_format=tool_format,
        special_tokens={"bos_token": BOS, "eos_token": END},
        chat_template=_override(chat_template) or CHAT_TEMPLATE,
    )


def _override(chat_template: str | None) -> str | None:
    return Path(chat_template).read_text(encoding="utf-8") if chat_template else None


def _eos_ids(config: Mapping[str, Any]) -> list[int]:
    value = config.get("eos_token_id")
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """``bos_token``, ``eos_token`` and their like, written as strings or as objects."""
    tokens = {
        name: token.get("content") if isinstance(token, dict) else token
        for name, token in config.items()
        if name.endswith("_token")
    }
    return {name: token for name, token in tokens.items() if isinstance(token, str)}
