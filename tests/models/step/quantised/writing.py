"""Tiny checkpoints in each format, packed by its published layout, number by number.

Each comes with a checkpoint of the numbers that its codes stand for.
"""

from __future__ import annotations

import json
import shutil
from collections import abc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

NAME = "model.safetensors"
Parts = dict[str, Tensor]
Writer = abc.Callable[[Tensor], tuple[Parts, Tensor]]


@dataclass(frozen=True)
class Written:
    """``write`` makes of a weight its tensors, by the endings of their names, and its numbers."""

    told: dict[str, Any]
    write: Writer
    ending: str = ".weight"  # of what is quantised
    skipped: tuple[str, ...] = field(default=("embed", "norm", "lm_head", "router", ".gate."))


def write_checkpoints(folder: Path, model: PreTrainedModel, written: Written) -> tuple[Path, Path]:
    """The quantised one, and one of its numbers in float32."""
    plain, quantised = folder / "plain", folder / "quantised"
    model.save_pretrained(plain)
    whole, stored = load_file(plain / NAME), dict[str, Tensor]()
    for name, weight in list(whole.items()):
        if name.endswith(written.ending) and not any(part in name for part in written.skipped):
            parts, whole[name] = written.write(weight)
            stem = name.removesuffix(written.ending)
            stored.update({stem + end: tensor.contiguous() for end, tensor in parts.items()})
        else:
            stored[name] = weight
    assert len(stored) > len(whole)
    shutil.copytree(plain, quantised)
    save_file({name: tensor.contiguous() for name, tensor in whole.items()}, plain / NAME)
    save_file(stored, quantised / NAME)
    tell(quantised, written.told)
    return quantised, plain


def tell(folder: Path, told: dict[str, Any]) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = told
    (folder / "config.json").write_text(json.dumps(config))


def random_codes(shape: abc.Sequence[int], bits: int) -> numpy.ndarray[Any, Any]:
    return numpy.random.default_rng(0).integers(0, 2**bits, size=tuple(shape))


def random_scales(*shape: int) -> Tensor:
    """Of half precision, and not negative."""
    generator = torch.Generator().manual_seed(2)
    return (torch.rand(*shape, generator=generator) / 16 + 0.01).half()


def words(codes: numpy.ndarray[Any, Any], bits: int) -> Tensor:
    """[rows, columns] to words of 32 bits [rows, words], the first code lowest, one by one."""
    in_word = 32 // bits
    rows, columns = codes.shape
    packed = numpy.zeros((rows, -(-columns // in_word)), dtype=numpy.uint32)
    for row in range(rows):
        for column in range(columns):
            code = numpy.uint32(codes[row, column])
            packed[row, column // in_word] |= code << numpy.uint32(bits * (column % in_word))
    return torch.from_numpy(packed.view(numpy.int32))


def product(
    codes: numpy.ndarray[Any, Any], zeros: Any, scales: Tensor, groups: abc.Sequence[int]
) -> Tensor:
    """Of codes [outputs, inputs], zeros and scales [outputs, groups], each input's group told."""
    whole = torch.from_numpy(numpy.asarray(codes)) - torch.as_tensor(zeros)[:, list(groups)]
    return whole.float() * scales.float()[:, list(groups)]
