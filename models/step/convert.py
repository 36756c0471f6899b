"""A GGUF file becomes a Hugging Face folder: bf16 safetensors, tokenizer, chat template.

Run as ``python -m models.step.convert FILE.gguf FOLDER``, since torch must stay out of the
processes that only resolve a source.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

ENDS = frozenset({"<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "</s>"})


def convert(gguf: Path, folder: Path) -> None:
    """Writes ``folder``, which must not exist. Weights are dequantised in float32, kept in bf16.

    Raises ValueError if there are fewer weights than the model has: the others would be random.
    """
    folder.mkdir(parents=True)
    _save_model(gguf, folder)
    _save_tokenizer(gguf, folder)
    _set_ends(folder)


def _save_model(gguf: Path, folder: Path) -> None:
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
        output_loading_info=True,
    )
    model, found = loaded
    if missing := sorted(found["missing_keys"]):
        raise ValueError(f"{gguf.name} lacks {len(missing)} weights, such as {missing[0]}")
    model.to(torch.bfloat16).save_pretrained(folder)


def _save_tokenizer(gguf: Path, folder: Path) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    config = json.loads((folder / "config.json").read_text())
    tokenizer.model_max_length = config["max_position_embeddings"]
    tokenizer.save_pretrained(folder)
    if _pre_tokenizer(gguf) == "smollm":
        _split_digits(folder / "tokenizer.json")


def _pre_tokenizer(gguf: Path) -> str | None:
    field = GGUFReader(gguf).fields.get("tokenizer.ggml.pre")
    return None if field is None else str(field.contents())


def _split_digits(path: Path) -> None:
    """SmolLM's tokenizer takes each digit by itself, which transformers' reading of GGUF omits."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.save(str(path))


def _set_ends(folder: Path) -> None:
    """The model's own end of sequence first, then every other control token that ends an answer."""
    path = folder / "generation_config.json"
    config = json.loads(path.read_text())
    added = Tokenizer.from_file(str(folder / "tokenizer.json")).get_added_tokens_decoder()
    ends = {id for id, token in added.items() if token.content in ENDS}
    own = config["eos_token_id"]
    config.pop("_from_model_config", None)  # else generate() would take the model's own again
    config["eos_token_id"] = [own, *sorted(ends - {own})]
    path.write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
