"""A model's folder in Hugging Face's layout: what it must hold. Reads names, no weights."""

from __future__ import annotations

import json
from pathlib import Path

TOKENIZER_FILES = ("config.json", "tokenizer.json")


class SourceError(Exception):
    """A model's source cannot be had; the message says why and what to do."""


def missing(folder: Path, *, weights: bool = True) -> list[str]:
    """What ``folder`` lacks to be served: file names, empty if it is complete."""
    names = [name for name in TOKENIZER_FILES if not (folder / name).is_file()]
    return names + (_missing_weights(folder) if weights else [])


def require_complete(folder: Path, *, weights: bool = True) -> Path:
    """``folder`` itself. Raises SourceError that names each missing file."""
    if lacking := missing(folder, weights=weights):
        raise SourceError(f"{folder} is not a model folder: it lacks {', '.join(lacking)}")
    return folder


def size_text(size: float) -> str:
    """A number of bytes as people read it: ``92.9 MB``."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _missing_weights(folder: Path) -> list[str]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        return [shard for shard in shards if not (folder / shard).is_file()]
    return [] if any(folder.glob("*.safetensors")) else ["*.safetensors"]
