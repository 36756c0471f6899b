"""A folder of quantised weights as tensors that are read when they are asked for."""

from __future__ import annotations

import json
from collections import abc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from models.quantisation import Config, method
from models.step.grouped import GroupedWeight, dequantised
from models.step.opened import WEIGHTS, opened
from models.step.quantised.bitsandbytes import bitsandbytes
from models.step.quantised.compressed import compressed_tensors
from models.step.quantised.floats import fbgemm_fp8, fp8, mxfp4
from models.step.quantised.gptq import auto_round, awq, gptq
from models.step.quantised.layout import Format, Layout, Stored
from models.step.quantised.torchao import torchao

FORMATS: abc.Mapping[str, abc.Callable[[Config], Format]] = {
    "fp8": fp8,
    "mxfp8": fp8,
    "fbgemm_fp8": fbgemm_fp8,
    "mxfp4": mxfp4,
    "compressed-tensors": compressed_tensors,
    "gptq": gptq,
    "awq": awq,
    "auto-round": auto_round,
    "bitsandbytes": bitsandbytes,
    "torchao": torchao,
}
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"


@dataclass(slots=True)
class StoredWeight:
    """Read anew each time it is asked for with ``[...]``, as transformers does with files.

    If it has a ``stand_in``, one number, and is in groups, these are kept, and that one takes the
    weight's place: in all its shape, but without its memory.
    """

    files: abc.Mapping[str, Any]  # an open file for each name of a tensor
    layout: Layout
    tensors: abc.Mapping[str, str]  # names by their endings
    stand_in: Tensor | None = None
    grouped: GroupedWeight | None = None

    def read(self) -> Stored:
        """Raises ValueError with its name."""
        parts = {end: self.files[n].get_tensor(n) for end, n in self.tensors.items()}
        try:
            return self.layout.read(parts)
        except Exception as error:  # whatever becomes of tensors that do not fit each other
            name = self.tensors[self.layout.codes]
            why = f"{type(error).__name__}: {error}"
            raise ValueError(
                f"{name} and what is beside it contradict each other ({why})"
            ) from error

    def __getitem__(self, all: object) -> Tensor:
        stored = self.read()
        if not isinstance(stored, GroupedWeight):
            return stored
        if self.stand_in is None:
            return dequantised(stored)
        self.grouped = stored
        return self.stand_in.expand(stored.codes.shape)


def format_of(told: Config) -> Format:
    return FORMATS[method(told)](told)


def stored_weights(folder: Path, format: Format) -> dict[str, Any]:
    """By the names of an unquantised checkpoint, what gives a tensor for ``[...]``.

    Raises ValueError if something that a weight is read from is missing, or stands alone.
    """
    files = {name: file for path in _paths(folder) for file, name in _names(path)}
    found: dict[str, Any] = {}
    read, used = set[str](), set[str]()
    for name, file in files.items():
        layouts = [] if name.endswith(format.beside) else _layouts(format, name, file)
        if layouts:
            weight = _weight(layouts, name, files)
            found[name.removesuffix(weight.layout.codes) + weight.layout.weight] = weight
            read.update(weight.tensors.values())
            used.update(weight.layout.needed)
    rest = files.keys() - read
    if alone := sorted(name for name in rest if used and name.endswith(tuple(used))):
        raise ValueError(f"{folder} has no codes of {format.name} beside {alone[0]}")
    plain = (name for name in rest if not name.endswith(format.unread))
    return found | {name: files[name].get_slice(name) for name in plain}


def _layouts(format: Format, name: str, file: Any) -> list[Layout]:
    kind = file.get_slice(name).get_dtype()
    return [layout for layout in format.layouts if layout.fits(name, kind)]


def _weight(layouts: list[Layout], name: str, files: abc.Mapping[str, Any]) -> StoredWeight:
    """By the first of ``layouts`` of which all is there."""
    missing: list[str] = []
    for layout in layouts:
        try:
            return StoredWeight(files, layout, layout.tensors(name, files))
        except KeyError as error:
            missing += error.args
    raise ValueError(f"a checkpoint has {name} but lacks {missing[0]}, which tells its numbers")


def _paths(folder: Path) -> list[Path]:
    index = folder / INDEX
    if index.is_file():
        shards = set(json.loads(index.read_text())["weight_map"].values())
        return [folder / shard for shard in sorted(shards)]
    single = folder / SINGLE
    return [single] if single.is_file() else sorted(folder.glob(WEIGHTS))


def _names(path: Path) -> abc.Iterator[tuple[Any, str]]:
    file = opened(path)
    for name in file.keys():  # noqa: SIM118
        yield file, name
