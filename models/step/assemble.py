"""A loaded transformers model to a StepModel: paged if that provably works, else cached."""

from __future__ import annotations

import logging
from collections import abc
from typing import Any

import torch
from transformers import PreTrainedModel

from models.step import cache
from models.step.adapters import Adapter
from models.step.adapting import Adapting
from models.step.attention import PAGED
from models.step.cached import CachedModel, bytes_per_sequence, cached_objection
from models.step.capture import CudaCapture
from models.step.compiled import CompiledLayers
from models.step.draw import draw_from
from models.step.exact import can_be_exact, in_float32
from models.step.grouped import ungroup
from models.step.limits import context_limit, paged_objection
from models.step.model import Capacity, StepModel
from models.step.paged import Forward, PagedModel
from models.step.place import noted
from models.step.plain import PlainStepModel
from models.step.probe import Probe, ProbeSpan, blocks_needed
from models.step.trace import Trace
from models.step.ways import Way, ways
from models.step.weights import settled_weights
from models.step.widen import widen_for_good
from models.step.wishes import Wishes

logger = logging.getLogger("stepserve")

WARM_TOKENS = 64
# Relative errors of logits; more is no rounding. Of numbers that have nothing in common it is 1.4.
MOST_ROUNDED = 0.5
MOST_IN_FOUR_BITS = 1.0


def assemble(
    model: PreTrainedModel,
    wishes: Wishes,
    facts: abc.Mapping[str, str] | None = None,
    adapters: abc.Sequence[Adapter] = (),
) -> StepModel:
    """``model`` is already on the device, and in the type, that the wishes come to.

    Raises ValueError if not a single KV block fits, the wishes cannot be met, or transformers
    itself cannot generate with the model.
    """
    adapting = Adapting(model, adapters)
    limit, note = context_limit(model.config, wishes.max_context)
    known = {**(facts or {}), "context": noted(f"{limit} tokens", note)}
    trace, objection = _traced(model, limit)
    failures: list[str] = []
    names = (None, *(adapter.name for adapter in adapters))
    probes = [Probe(model, adapting, name) for name in names]
    for way in [] if trace is None else ways(model, trace, wishes, limit, adapting):
        if isinstance(way, str):
            failures.append(way)
            continue
        most = MOST_IN_FOUR_BITS if wishes.bits == 4 else MOST_ROUNDED
        adapting.attach()
        objection = _probed(model, probes, way, most)
        if not objection:
            # Only now: rounding would hide from the probe what is wrong.
            known["weights"] = way.settle()
            known["kernels"] = noted(f"paged, {way.name}", "; ".join(failures) or way.detail)
            if adapters:
                known["adapters"] = ", ".join(adapter.about for adapter in adapters)
            return _paged(model, way, wishes, limit, known, adapters)
        failures.append(f"{way.name} (blocks of {way.block_size}): {objection}")
    reason = "; ".join(failures) or objection
    if wishes.bits == 4:
        raise ValueError(f"dtype is set to int4, which only native kernels compute: {reason}")
    if wishes.kernels in ("native", "varlen"):
        raise ValueError(f"kernels is set to {wishes.kernels}, and cannot be: {reason}")
    if adapters:
        raise ValueError(
            f"adapters need paged attention, which does not serve this model: {reason}"
        )
    logger.warning("no paged attention for %s: %s", type(model).__name__, objection)
    return _cached(model, wishes, limit, known, objection)


def _traced(model: PreTrainedModel, limit: int) -> tuple[Trace | None, str]:
    """What the attention layers do, or why they cannot be served from paged blocks."""
    try:
        model.set_attn_implementation(PAGED)
        trace = Trace(model)
    except Exception as error:  # whatever an unknown architecture does, generate may serve it
        return None, f"{type(error).__name__}: {error}"
    objection = trace.objection or paged_objection(model.config, limit, trace.windows)
    return (None, objection) if objection else (trace, "")


def _probed(
    model: PreTrainedModel, probes: abc.Sequence[Probe], way: Way, most_rounded: float
) -> str:
    """Why this way cannot serve the model; empty if it can. Leaves no pool behind."""
    blocks = blocks_needed(way.block_size)
    try:
        forward = way.try_out(blocks)
        objection = _first(_compared(model, probe, way, forward, blocks) for probe in probes)
        if not objection and (rounded := way.try_rounded(blocks)) is not None:
            size = way.block_size
            objection = _first(probe.disagreement(rounded, size, most_rounded) for probe in probes)
        return objection
    except Exception as error:  # the next way, or generate, may serve it
        return f"{type(error).__name__}: {error}"
    finally:
        way.close()


def _first(objections: abc.Iterable[str]) -> str:
    """Empty if there are none."""
    return next(filter(None, objections), "")


def _compared(
    model: PreTrainedModel, probe: Probe, way: Way, forward: Forward[Any], blocks: int
) -> str:
    """Where it differs by no more than rounding might do, the same weights decide in float32.

    Not of a kernel that takes no float32: it would not be asked.
    """
    objection = probe.disagreement(forward, way.block_size)
    if not objection or not way.has_float32 or not can_be_exact(model):
        return objection
    if probe.disagreement(forward, way.block_size, MOST_ROUNDED):
        return objection
    with in_float32(model):
        return probe.anew().disagreement(way.try_in_float32(blocks), way.block_size)


def _paged(
    model: PreTrainedModel,
    way: Way,
    wishes: Wishes,
    limit: int,
    facts: abc.Mapping[str, str],
    adapters: abc.Sequence[Adapter],
) -> StepModel:
    block_bytes = way.block_size * way.bytes_per_token
    activations = _activations(model, way, wishes, limit)
    size = cache.size_pool(
        block_bytes,
        cache.kv_memory(model.device, wishes.kv_cache_gib, activations, sharing=wishes.sharing),
        block_size=way.block_size,
        max_context=limit,
        slots=wishes.slots,
    )
    forward = way.open(size.blocks)
    _warm_up(model, forward, min(size.blocks * way.block_size, size.max_context))
    capacity = Capacity(
        max_context=size.max_context,
        vocab_size=model.config.get_text_config(decoder=True).vocab_size,
        slots=wishes.slots,
        blocks=size.blocks,
        block_size=way.block_size,
        prefix_cache=wishes.prefix_cache,
        adapters=tuple(adapter.name for adapter in adapters),
        drafts=True,
    )
    described = {**facts, "kv_cache": _pool_fact(size, way, block_bytes)}
    if size.lowered:
        logger.warning("max_context is %d tokens (%s)", size.max_context, size.lowered)
        described["context"] = noted(f"{size.max_context} tokens", size.lowered)
    made = PagedModel(model.device, capacity, forward, described, way.row_kernels())
    if way.name == "varlen" and wishes.cuda_graphs:
        plain = CudaCapture(model.device)
        compiled = [CompiledLayers(plain, model)] if wishes.compile_layers else []
        made.record_decoding(*compiled, plain)
    return made


def _pool_fact(size: cache.PoolSize, way: Way, block_bytes: int) -> str:
    tokens, gib = size.blocks * way.block_size, size.blocks * block_bytes / 2**30
    kinds = ", ".join(str(dtype).removeprefix("torch.") for dtype in way.kv_dtypes)
    held = f"{size.blocks} blocks of {way.block_size}: {tokens} tokens in {kinds}, {gib:.2f} GiB"
    return noted(held, size.note)


@torch.inference_mode()
def _activations(model: PreTrainedModel, way: Way, wishes: Wishes, limit: int) -> int:
    """Bytes of a CUDA device that the largest step takes.

    That is the last tokens of a longest prompt, all scored, or a token sampled in every slot.
    """
    if model.device.type != "cuda" or wishes.kv_cache_gib is not None:
        return 0
    count = min(wishes.step_tokens, limit)
    forward = way.open(1)
    before = torch.cuda.memory_allocated(model.device)
    torch.cuda.reset_peak_memory_stats(model.device)
    # All its blocks are the same one: what is computed does not matter, only how much.
    blocks = (0,) * -(-limit // forward.block_size)
    layout = forward.layout([ProbeSpan(limit - count, count, blocks)])
    ids = torch.zeros(count, dtype=torch.int64, device=model.device)
    forward(layout, ids, layout.indices([*range(count)])).float().softmax(-1)
    way.close()
    vocab_size = model.config.get_text_config(decoder=True).vocab_size
    draw_from(torch.zeros(wishes.slots, vocab_size, device=model.device))
    return torch.cuda.max_memory_allocated(model.device) - before


@torch.inference_mode()
def _warm_up(model: PreTrainedModel, forward: Forward[Any], most: int) -> None:
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
    widen_for_good(model)
    ungroup(model)
    _attend_on_its_own(model)
    if wishes.kv_cache_dtype not in ("auto", str(model.dtype).removeprefix("torch.")):
        raise ValueError(
            f"kv_cache_dtype is set to {wishes.kv_cache_dtype}, but this model keeps a cache of its"
            f" own: {objection}"
        )
    plain, how = _taking_turns(model, limit)
    each = bytes_per_sequence(plain, limit)
    memory = cache.kv_memory(model.device, wishes.kv_cache_gib, sharing=wishes.sharing)
    held = max(1, min(memory.bytes // max(each, 1), wishes.slots))
    room = f"{held} sequences of {limit} tokens, {each / 2**30:.2f} GiB each"
    described = {
        **facts,
        "weights": settled_weights(model, int8=wishes.bits == 8),
        "kernels": noted(f"the model's own, one sequence at a time{how}", objection),
        "kv_cache": noted(room, memory.note if held < wishes.slots else ""),
    }
    return PlainStepModel(
        plain, slots=wishes.slots, blocks=held, device=model.device, facts=described
    )


def _taking_turns(model: PreTrainedModel, limit: int) -> tuple[CachedModel, str]:
    """The model over its cache, or without one, which people are told.

    Raises ValueError if neither works.
    """
    failures: list[str] = []
    for remembers in (True, False):
        plain = CachedModel(model, limit, remembers=remembers)
        try:
            failure = cached_objection(plain, model.dtype)
        except Exception as error:  # whatever an unknown architecture does
            failure = f"{type(error).__name__}: {error}"
        if not failure:
            return plain, "" if remembers else f" and all anew for each token, as {failures[0]}"
        failures.append(failure)
    raise ValueError(
        f"{type(model).__name__} cannot be served: {'; without a cache: '.join(failures)}"
    )


def _attend_on_its_own(model: PreTrainedModel) -> None:
    try:
        model.set_attn_implementation("sdpa")
    except ValueError:
        model.set_attn_implementation("eager")
