"""A model folder to a StepModel: device, precision and threads, each choice explained."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from transformers import AutoModelForCausalLM

from models.step.assemble import assemble
from models.step.checkpoint import load_checkpoint
from models.step.model import StepModel
from models.step.place import dtype_named, place_of
from models.step.wishes import Wishes

logger = logging.getLogger("stepserve")


def load_step_model(
    folder: Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    kernels: str = "auto",
    threads: int | None = None,
    max_context: int | None = None,
    block_size: int = 16,
    kv_cache_dtype: str = "auto",
    kv_cache_gib: float | None = None,
    sharing: int = 1,
    prefix_cache: bool = True,
    slots: int = 32,
    step_tokens: int = 2048,
    cuda_graphs: bool = True,
) -> StepModel:
    """Loads the transformers model in ``folder``, never from a network.

    Raises ValueError if the device is not there or has no int8, the architecture is not a causal
    language model, its cache cannot be of ``kv_cache_dtype``, or not a single KV block fits.
    """
    started = time.perf_counter()
    place, precision, facts = place_of(device, dtype, threads)
    logger.info("loading %s on %s as %s", folder, facts["device"], facts["dtype"])
    model = load_checkpoint(AutoModelForCausalLM, folder, place, precision.dtype)
    logger.info("loaded after %.1f s", time.perf_counter() - started)
    wishes = Wishes(
        kernels=kernels,
        max_context=max_context,
        block_size=block_size,
        int8=precision.int8,
        kv_cache_dtype=None if kv_cache_dtype == "auto" else dtype_named(kv_cache_dtype),
        kv_cache_gib=kv_cache_gib,
        sharing=sharing,
        prefix_cache=prefix_cache,
        slots=slots,
        step_tokens=step_tokens,
        cuda_graphs=cuda_graphs,
    )
    step_model = assemble(model, wishes, facts)
    for name, fact in step_model.describe().items():
        logger.info("%s: %s", name, fact)
    logger.info("ready after %.1f s", time.perf_counter() - started)
    return step_model
