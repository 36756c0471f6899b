"""Where a model runs and in which precision, each choice explained."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from models.step.host import usable_cores


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


def dtype_of(wish: str, device: torch.device) -> tuple[torch.dtype, str]:
    if wish != "auto":
        dtype = getattr(torch, wish)
        assert isinstance(dtype, torch.dtype)
        return dtype, ""
    if device.type == "cpu":
        return torch.float32, "auto: half precision is slower on most processors"
    if torch.cuda.is_bf16_supported():
        return torch.bfloat16, "auto"
    return torch.float16, "auto: the device has no bfloat16"


def set_threads(wish: int | None) -> int:
    threads = wish or usable_cores()
    torch.set_num_threads(threads)
    return threads


def weights_of(model: PreTrainedModel) -> str:
    sizes = [(p.numel(), p.nbytes) for p in model.parameters()]
    millions = sum(count for count, _ in sizes) / 1e6
    gib = sum(size for _, size in sizes) / 2**30
    return f"{type(model).__name__}, {millions:.0f} M parameters, {gib:.2f} GiB"
