"""A loaded transformers model to a StepModel: paged if that provably works, else cached."""

from __future__ import annotations

import logging
from collections import abc
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel

from models.step import cache
from models.step.attention import PAGED, Recorder
from models.step.cached import CachedModel, bytes_per_sequence
from models.step.limits import context_limit, paged_objection
from models.step.model import Capacity, StepModel
from models.step.paged import PagedForward, PagedModel
from models.step.plain import PlainStepModel
from models.step.probe import (
    ProbeSpan,
    blocks_needed,
    disagreement,
    layers_objection,
    record,
)

log = logging.getLogger("stepserve")

VARLEN_BLOCK = 256  # tokens; the variable-length kernel that torch ships may take no other
WARM_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the configuration asks of a replica; None is to be found out."""

    attention: str = "auto"  # or sdpa, varlen
    max_context: int | None = None  # tokens
    block_size: int = 16  # tokens
    kv_cache_gib: float | None = None
    prefix_cache: bool = True
    slots: int = 32


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to attend to a pool of blocks."""

    name: str  # sdpa or varlen
    block_size: int


def assemble(
    model: PreTrainedModel, wishes: Wishes, facts: abc.Mapping[str, str] | None = None
) -> StepModel:
    """Raises ValueError if not a single KV block fits."""
    limit, note = context_limit(model.config, wishes.max_context)
    known = {**(facts or {}), "context": noted(f"{limit} tokens", note)}
    # Found out once: what one kernel's pool gave back may not be seen as free by the next.
    gib = cache.memory_budget(model.device, wishes.kv_cache_gib) / 2**30
    wishes = replace(wishes, kv_cache_gib=gib)
    seen, objection = _recorded(model, limit)
    failures: list[str] = []
    if seen is not None:
        for kernel in _kernels(model, wishes):
            made, objection = _paged(model, seen, kernel, wishes, limit, known, failures)
            if made is not None:
                return made
            failures.append(f"{kernel.name} (blocks of {kernel.block_size}): {objection}")
    log.warning("no paged attention for %s: %s", type(model).__name__, objection)
    return _cached(model, wishes, limit, known, objection)


def noted(fact: str, note: str) -> str:
    """The fact, and in brackets what explains it."""
    return f"{fact} ({note})" if note else fact


def _recorded(model: PreTrainedModel, limit: int) -> tuple[Recorder | None, str]:
    """What the attention layers cache, or why they cannot be served from paged blocks."""
    try:
        model.set_attn_implementation(PAGED)
        seen = record(model)
    except Exception as error:  # whatever an unknown architecture does, generate may serve it
        return None, f"{type(error).__name__}: {error}"
    objection = layers_objection(seen.layers)
    objection = objection or paged_objection(model.config, limit, seen.windows)
    return (None, objection) if objection else (seen, "")


def _kernels(model: PreTrainedModel, wishes: Wishes) -> list[Kernel]:
    """Ways to attend, best first."""
    sdpa = Kernel("sdpa", wishes.block_size)
    half = model.dtype in (torch.float16, torch.bfloat16)
    if wishes.attention == "sdpa" or model.device.type != "cuda" or not half:
        return [sdpa]
    sizes = dict.fromkeys((wishes.block_size, VARLEN_BLOCK))
    return [*(Kernel("varlen", size) for size in sizes), sdpa]


def _paged(
    model: PreTrainedModel,
    seen: Recorder,
    kernel: Kernel,
    wishes: Wishes,
    limit: int,
    facts: abc.Mapping[str, str],
    failures: abc.Sequence[str],
) -> tuple[StepModel | None, str]:
    """The model over this kernel, or why not."""
    block_bytes = kernel.block_size * sum(layer.bytes_per_token for layer in seen.layers)
    size = cache.size_pool(
        block_bytes,
        cache.memory_budget(model.device, wishes.kv_cache_gib),
        block_size=kernel.block_size,
        max_context=limit,
        slots=wishes.slots,
    )
    room = max(size.blocks, blocks_needed(kernel.block_size))
    cache.allocate(seen.layers, room, kernel.block_size, model.device)
    varlen = kernel.name == "varlen"
    try:
        forward = PagedForward(model, kernel.block_size, varlen=varlen)
        objection = disagreement(model, forward, kernel.block_size)
        if not objection:
            _warm_up(model, forward, min(size.blocks * kernel.block_size, size.max_context))
    except Exception as error:  # the next kernel, or generate, may serve it
        objection = f"{type(error).__name__}: {error}"
    if objection:
        cache.release(seen.layers)
        return None, objection
    capacity = Capacity(
        max_context=size.max_context,
        vocab_size=model.config.get_text_config(decoder=True).vocab_size,
        slots=wishes.slots,
        blocks=size.blocks,
        block_size=kernel.block_size,
        prefix_cache=wishes.prefix_cache,
    )
    described = {
        **facts,
        "attention": noted(f"paged, {kernel.name}", _why(kernel, wishes, failures)),
        "kv_cache": _pool_fact(size.blocks, kernel.block_size, block_bytes),
    }
    if size.note:
        log.warning("max_context is %d tokens (%s)", size.max_context, size.note)
        described["context"] = noted(f"{size.max_context} tokens", size.note)
    return PagedModel(model, capacity, forward, described), ""


def _why(kernel: Kernel, wishes: Wishes, failures: abc.Sequence[str]) -> str:
    if failures:
        return "; ".join(failures)
    if wishes.attention == "varlen" and kernel.name != "varlen":
        return "varlen needs CUDA and half precision"
    return ""


def _pool_fact(blocks: int, block_size: int, block_bytes: int) -> str:
    gib = blocks * block_bytes / 2**30
    return f"{blocks} blocks of {block_size}: {blocks * block_size} tokens, {gib:.2f} GiB"


@torch.inference_mode()
def _warm_up(model: PreTrainedModel, forward: PagedForward, most: int) -> None:
    """A prompt and a token, so that the first request finds kernels and buffers ready."""
    count = min(WARM_TOKENS, most)
    blocks = tuple(range(-(-count // forward.block_size)))
    for span in (ProbeSpan(0, count, blocks), ProbeSpan(count - 1, 1, blocks)):
        ids = torch.zeros(span.count, dtype=torch.int64, device=model.device)
        layout = forward.layout([span])
        logits = forward(layout, ids, layout.indices([span.count - 1]))
        logits.float().softmax(-1).argmax(-1).tolist()


def _cached(
    model: PreTrainedModel,
    wishes: Wishes,
    limit: int,
    facts: abc.Mapping[str, str],
    objection: str,
) -> StepModel:
    _attend_on_its_own(model)
    plain = CachedModel(model, limit)
    each = bytes_per_sequence(plain, limit)
    budget = cache.memory_budget(model.device, wishes.kv_cache_gib)
    held = max(1, min(budget // max(each, 1), wishes.slots))
    described = {
        **facts,
        "attention": noted("the model's own, one sequence at a time", objection),
        "kv_cache": f"{held} sequences of {limit} tokens, {each / 2**30:.2f} GiB each",
    }
    return PlainStepModel(
        plain, slots=wishes.slots, blocks=held, device=model.device, facts=described
    )


def _attend_on_its_own(model: PreTrainedModel) -> None:
    try:
        model.set_attn_implementation("sdpa")
    except ValueError:
        model.set_attn_implementation("eager")
