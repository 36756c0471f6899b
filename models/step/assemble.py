"""A loaded transformers model to a StepModel: paged if that provably works, else cached."""

from __future__ import annotations

import logging
from collections import abc
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from models.step import cache
from models.step.attention import PAGED, Recorder
from models.step.cache import LayerShape
from models.step.cached import CachedModel, bytes_per_sequence
from models.step.int8 import quantise
from models.step.limits import context_limit, paged_objection
from models.step.model import Capacity, StepModel
from models.step.paged import PagedForward, PagedModel
from models.step.place import parameters_of, weights_of
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
    int8: bool = False  # weights of linear layers in 8 bits
    kv_cache_dtype: torch.dtype | None = None
    kv_cache_gib: float | None = None
    prefix_cache: bool = True
    slots: int = 32
    step_tokens: int = 256  # of the largest step


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to attend to a pool of blocks."""

    name: str  # sdpa or varlen
    block_size: int


def assemble(
    model: PreTrainedModel, wishes: Wishes, facts: abc.Mapping[str, str] | None = None
) -> StepModel:
    """Raises ValueError if not a single KV block fits, or the wishes cannot be met."""
    limit, note = context_limit(model.config, wishes.max_context)
    known = {**(facts or {}), "context": noted(f"{limit} tokens", note)}
    seen, objection = _recorded(model, limit)
    failures: list[str] = []
    for kernel in [] if seen is None else _kernels(model, wishes):
        assert seen is not None
        objection = _probed(model, seen, kernel)
        if not objection:
            # Only now: rounding to 8 bits would hide from the probe what is wrong.
            known["weights"] = _weights(model, wishes)
            known["attention"] = noted(f"paged, {kernel.name}", _why(kernel, wishes, failures))
            return _paged(model, seen, kernel, wishes, limit, known)
        failures.append(f"{kernel.name} (blocks of {kernel.block_size}): {objection}")
    log.warning("no paged attention for %s: %s", type(model).__name__, objection)
    known["weights"] = _weights(model, wishes)
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
    half = half and wishes.kv_cache_dtype in (None, model.dtype)
    if wishes.attention == "sdpa" or model.device.type != "cuda" or not half:
        return [sdpa]
    sizes = dict.fromkeys((wishes.block_size, VARLEN_BLOCK))
    return [*(Kernel("varlen", size) for size in sizes), sdpa]


def _probed(model: PreTrainedModel, seen: Recorder, kernel: Kernel) -> str:
    """Why this kernel cannot serve the model; empty if it can. Leaves no cache behind."""
    cache.allocate(seen.layers, blocks_needed(kernel.block_size), kernel.block_size, model.device)
    try:
        forward = PagedForward(model, kernel.block_size, varlen=kernel.name == "varlen")
        return disagreement(model, forward, kernel.block_size)
    except Exception as error:  # the next kernel, or generate, may serve it
        return f"{type(error).__name__}: {error}"
    finally:
        cache.release(seen.layers)


def _weights(model: PreTrainedModel, wishes: Wishes) -> str:
    """Quantises the weights where that is wished; what they are then."""
    parameters = parameters_of(model)
    note = quantise(model) if wishes.int8 else ""
    return noted(weights_of(model, parameters), note)


def _paged(
    model: PreTrainedModel,
    seen: Recorder,
    kernel: Kernel,
    wishes: Wishes,
    limit: int,
    facts: abc.Mapping[str, str],
) -> StepModel:
    layers = [layer.stored_as(wishes.kv_cache_dtype) for layer in seen.layers]
    forward = PagedForward(model, kernel.block_size, varlen=kernel.name == "varlen")
    block_bytes = kernel.block_size * sum(layer.bytes_per_token for layer in layers)
    activations = _activations(model, layers, forward, wishes, limit)
    budget = cache.memory_budget(model.device, wishes.kv_cache_gib, activations)
    size = cache.size_pool(
        block_bytes,
        budget,
        block_size=kernel.block_size,
        max_context=limit,
        slots=wishes.slots,
    )
    cache.allocate(layers, size.blocks, kernel.block_size, model.device)
    _warm_up(model, forward, min(size.blocks * kernel.block_size, size.max_context))
    capacity = Capacity(
        max_context=size.max_context,
        vocab_size=model.config.get_text_config(decoder=True).vocab_size,
        slots=wishes.slots,
        blocks=size.blocks,
        block_size=kernel.block_size,
        prefix_cache=wishes.prefix_cache,
    )
    described = {**facts, "kv_cache": _pool_fact(size, kernel, block_bytes, layers)}
    if size.lowered:
        log.warning("max_context is %d tokens (%s)", size.max_context, size.lowered)
        described["context"] = noted(f"{size.max_context} tokens", size.lowered)
    return PagedModel(model, capacity, forward, described)


def _why(kernel: Kernel, wishes: Wishes, failures: abc.Sequence[str]) -> str:
    if failures:
        return "; ".join(failures)
    if wishes.attention == "varlen" and kernel.name != "varlen":
        return "varlen needs CUDA, half precision and KV blocks of the same"
    return ""


def _pool_fact(
    size: cache.PoolSize, kernel: Kernel, block_bytes: int, layers: abc.Sequence[LayerShape]
) -> str:
    tokens, gib = size.blocks * kernel.block_size, size.blocks * block_bytes / 2**30
    kinds = ", ".join(dict.fromkeys(str(layer.dtype).removeprefix("torch.") for layer in layers))
    held = f"{size.blocks} blocks of {kernel.block_size}: {tokens} tokens in {kinds}, {gib:.2f} GiB"
    return noted(held, size.note)


@torch.inference_mode()
def _activations(
    model: PreTrainedModel,
    layers: abc.Sequence[LayerShape],
    forward: PagedForward,
    wishes: Wishes,
    limit: int,
) -> int:
    """Bytes of a CUDA device that the largest step takes: the last tokens of a longest prompt."""
    if model.device.type != "cuda" or wishes.kv_cache_gib is not None:
        return 0
    count = min(wishes.step_tokens, limit)
    cache.allocate(layers, 1, forward.block_size, model.device)
    before = torch.cuda.memory_allocated(model.device)
    torch.cuda.reset_peak_memory_stats(model.device)
    # All its blocks are the same one: what is computed does not matter, only how much.
    blocks = (0,) * -(-limit // forward.block_size)
    layout = forward.layout([ProbeSpan(limit - count, count, blocks)])
    ids = torch.zeros(count, dtype=torch.int64, device=model.device)
    forward(layout, ids, layout.indices([*range(count)])).float().softmax(-1)
    peak = torch.cuda.max_memory_allocated(model.device)
    cache.release(layers)
    return peak - before


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
    if wishes.kv_cache_dtype not in (None, model.dtype):
        raise ValueError(
            f"kv_cache_dtype is set to {str(wishes.kv_cache_dtype).removeprefix('torch.')}, but"
            f" this model keeps a cache of its own: {objection}"
        )
    plain = CachedModel(model, limit)
    each = bytes_per_sequence(plain, limit)
    budget = cache.memory_budget(model.device, wishes.kv_cache_gib)
    held = max(1, min(budget.bytes // max(each, 1), wishes.slots))
    room = f"{held} sequences of {limit} tokens, {each / 2**30:.2f} GiB each"
    described = {
        **facts,
        "attention": noted("the model's own, one sequence at a time", objection),
        "kv_cache": noted(room, budget.note if held < wishes.slots else ""),
    }
    return PlainStepModel(
        plain, slots=wishes.slots, blocks=held, device=model.device, facts=described
    )


def _attend_on_its_own(model: PreTrainedModel) -> None:
    try:
        model.set_attn_implementation("sdpa")
    except ValueError:
        model.set_attn_implementation("eager")
