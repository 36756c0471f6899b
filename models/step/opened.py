"""Files of weights, opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

WEIGHTS = "*.safetensors"


def opened(path: Path) -> Any:
    """A file of safetensors. Raises ValueError with its name if it is none, or not whole."""
    try:
        return safe_open(path, "pt")
    except SafetensorError as error:
        raise ValueError(f"{path} is no file of safetensors, or not whole: {error}") from error


def require_whole(folder: Path) -> None:
    """Raises ValueError about a file of weights that was cut off, or is something else."""
    for path in folder.glob(WEIGHTS):
        opened(path)
