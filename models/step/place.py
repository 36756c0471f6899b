"""Where a model runs and in which precision, each choice explained."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from models.step.host import instructions, usable_cores
from models.step.wishes import BITS


def noted(fact: str, note: str) -> str:
    """The fact, and in brackets what explains it."""
    return f"{fact} ({note})" if note else fact


@dataclass(frozen=True, slots=True)
class Precision:
    """What a model computes in; with ``bits`` its linear layers' weights are rounded to so many."""

    dtype: torch.dtype
    note: str = ""
    bits: int | None = None

    def __str__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        name = f"int{self.bits} weights, {name}" if self.bits else name
        return noted(name, self.note)


def place_of(
    device: str, dtype: str, threads: int | None
) -> tuple[torch.device, Precision, dict[str, str]]:
    """What the wishes come to, and that as facts for people. Sets torch's threads on a CPU.

    Raises ValueError as ``device_of`` and ``precision_of`` do.
    """
    place, place_note = device_of(device)
    precision = precision_of(dtype, place)
    facts = {"device": noted(device_name(place), place_note)}
    if place.type == "cpu":
        facts["threads"] = str(set_threads(threads))
    facts["dtype"] = str(precision)
    return place, precision, facts


def device_of(wish: str) -> tuple[torch.device, str]:
    if wish == "auto":
        there = torch.cuda.is_available()
        return torch.device("cuda" if there else "cpu"), "" if there else "no CUDA device"
    if wish == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is set to cuda, but torch finds no CUDA device")
    return torch.device(wish), ""


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return f"cuda, {torch.cuda.get_device_name(device)}"
    return device.type


def precision_of(wish: str, device: torch.device) -> Precision:
    """Raises ValueError for rounded weights where there is nothing to compute with them."""
    if bits := BITS.get(wish):
        if device.type != "cpu":
            raise ValueError(f"dtype is set to {wish}, which runs on a CPU, not on {device.type}")
        return Precision(torch.float32, bits=bits)
    if wish != "auto":
        return Precision(dtype_named(wish))
    if device.type == "cpu":
        return _on_this_processor(instructions())
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return Precision(torch.bfloat16, "auto")
    return Precision(torch.float16, "auto: the device has no bfloat16")


def dtype_named(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def _on_this_processor(known: frozenset[str]) -> Precision:
    for name, units in (("amx_bf16", "AMX matrix units"), ("avx512_bf16", "AVX-512 products")):
        if name in known:
            return Precision(torch.bfloat16, f"auto: the processor has {units} of it")
    return Precision(torch.float32, "auto: the processor has no units for bfloat16")


def set_threads(wish: int | None) -> int:
    threads = wish or usable_cores()
    torch.set_num_threads(threads)
    return threads
