"""A model folder to a StepModel: device, precision and threads, each choice explained."""

from __future__ import annotations

import logging
import time
from collections import abc
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from models.lora import Lora
from models.step.adapters import load_adapters
from models.step.assemble import assemble
from models.step.checkpoint import load_checkpoint
from models.step.model import StepModel
from models.step.place import place_of
from models.step.widen import stored_half, widen
from models.step.wishes import Wishes

logger = logging.getLogger("stepserve")


def load_step_model(folder: Path, wishes: Wishes, loras: abc.Sequence[Lora] = ()) -> StepModel:
    """Loads the transformers model in ``folder``, never from a network.

    Raises AdapterError about an adapter that does not fit.
    Raises ValueError if the device is not there or has no int8, the architecture is not a causal
    language model, its cache cannot be of ``kv_cache_dtype``, or not a single KV block fits.
    """
    started = time.perf_counter()
    place, precision, facts = place_of(wishes.device, wishes.dtype, wishes.threads)
    logger.info("loading %s on %s as %s", folder, facts["device"], facts["dtype"])
    # Other ways than native kernels' compute with whole weights, which 8 bits are made of too.
    keep = place.type == "cpu" and wishes.kernels in ("auto", "native") and wishes.bits != 8
    model = _loaded(folder, place, precision.dtype, keep=keep)
    logger.info("loaded after %.1f s", time.perf_counter() - started)
    step_model = assemble(model, wishes, facts, load_adapters(loras, model, folder))
    for name, fact in step_model.describe().items():
        logger.info("%s: %s", name, fact)
    logger.info("ready after %.1f s", time.perf_counter() - started)
    return step_model


def _loaded(
    folder: Path, place: torch.device, dtype: torch.dtype, *, keep: bool
) -> PreTrainedModel:
    """Weights that a CPU computes with in float32 stay in a file of half precision till used."""
    if place.type == "cpu" and dtype == torch.float32 and (half := stored_half(folder)):
        model = load_checkpoint(AutoModelForCausalLM, folder, place, half)
        if widen(model):
            return model
    return load_checkpoint(AutoModelForCausalLM, folder, place, dtype, keep=keep)
