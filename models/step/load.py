"""A model folder to a StepModel: device, precision and threads, each choice explained."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from models.step.assemble import Wishes, assemble, noted
from models.step.host import usable_cores
from models.step.model import StepModel

log = logging.getLogger("stepserve")


def load_step_model(
    folder: Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    attention: str = "auto",
    threads: int | None = None,
    max_context: int | None = None,
    block_size: int = 16,
    kv_cache_gib: float | None = None,
    prefix_cache: bool = True,
    slots: int = 32,
) -> StepModel:
    """Loads the transformers model in ``folder``, never from a network.

    Raises ValueError if the device is not there, the architecture is not a causal language model,
    or not a single KV block fits.
    """
    started = time.perf_counter()
    place, place_note = _device(device)
    precision, precision_note = _dtype(dtype, place)
    facts = {"device": noted(_device_name(place), place_note)}
    if place.type == "cpu":
        facts["threads"] = str(_set_threads(threads))
    facts["dtype"] = noted(str(precision).removeprefix("torch."), precision_note)
    log.info("loading %s on %s as %s", folder, facts["device"], facts["dtype"])
    model = _load(folder, place, precision)
    facts["weights"] = _weights(model)
    log.info("loaded %s in %.1f s", facts["weights"], time.perf_counter() - started)
    wishes = Wishes(
        attention=attention,
        max_context=max_context,
        block_size=block_size,
        kv_cache_gib=kv_cache_gib,
        prefix_cache=prefix_cache,
        slots=slots,
    )
    step_model = assemble(model, wishes, facts)
    for name, fact in step_model.describe().items():
        log.info("%s: %s", name, fact)
    log.info("ready after %.1f s", time.perf_counter() - started)
    return step_model


def _device(wish: str) -> tuple[torch.device, str]:
    if wish == "auto":
        there = torch.cuda.is_available()
        return torch.device("cuda" if there else "cpu"), "" if there else "no CUDA device"
    if wish == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is set to cuda, but torch finds no CUDA device")
    return torch.device(wish), ""


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return f"cuda, {torch.cuda.get_device_name(device)}"
    return device.type


def _dtype(wish: str, device: torch.device) -> tuple[torch.dtype, str]:
    if wish != "auto":
        dtype = getattr(torch, wish)
        assert isinstance(dtype, torch.dtype)
        return dtype, ""
    if device.type == "cpu":
        return torch.float32, "auto: half precision is slower on most processors"
    if torch.cuda.is_bf16_supported():
        return torch.bfloat16, "auto"
    return torch.float16, "auto: the device has no bfloat16"


def _set_threads(wish: int | None) -> int:
    threads = wish or usable_cores()
    torch.set_num_threads(threads)
    return threads


def _load(folder: Path, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if config.is_encoder_decoder:
        raise ValueError(f"{config.model_type} is an encoder-decoder, not a causal language model")
    model = AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=dtype, local_files_only=True
    )
    assert isinstance(model, PreTrainedModel)
    model.to(device).eval()  # type: ignore[arg-type]
    return model


def _weights(model: PreTrainedModel) -> str:
    sizes = [(p.numel(), p.nbytes) for p in model.parameters()]
    millions = sum(count for count, _ in sizes) / 1e6
    gib = sum(size for _, size in sizes) / 2**30
    return f"{type(model).__name__}, {millions:.0f} M parameters, {gib:.2f} GiB"
