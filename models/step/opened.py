"""Files of weights, opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

WEIGHTS = "*.safetensors"
CODES = ("F8", "F4", "I", "U")  # what types begin with that weights are computed in nowhere


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


def kinds(path: Path) -> Iterator[tuple[str, str]]:
    """The name and the type of each tensor of a file, as safetensors calls it."""
    with opened(path) as file:
        for name in file.keys():  # noqa: SIM118
            yield name, file.get_slice(name).get_dtype()


def require_numbers(folder: Path) -> None:
    """Raises ValueError about a weight whose codes would be taken for numbers without scales."""
    for path in folder.glob(WEIGHTS):
        for name, kind in kinds(path):
            if name.endswith(".weight") and kind.startswith(CODES):
                raise ValueError(
                    f"{name} is of {kind}, but config.json has no quantization_config that tells"
                    " what it stands for"
                )
