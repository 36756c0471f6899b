"""No step may wait for the device, or send it more than it must; checked without a device."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from models.request import SamplingParams
from models.schedule.sequence import Chunk, Ruling
from models.step.attention import PAGED
from models.step.cache import allocate
from models.step.graphs import DecodeGraphs
from models.step.model import Capacity
from models.step.paged import PagedForward, PagedModel
from models.step.trace import Trace
from models.step.waits import Waits, WithoutWaiting
from tests.models.step.absent_cuda import absent_cuda
from tests.models.step.driving import sequence
from tests.models.step.tiny import VOCAB, tiny

T = TypeVar("T")
SLOTS = 4
CAPACITY = Capacity(128, VOCAB, SLOTS, 32, 16, prefix_cache=True)
WISHES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "from all": {"temperature": 1.0},
    "filtered": {"temperature": 0.7, "top_p": 0.8, "top_k": 5, "min_p": 0.1},
    "penalties": {"frequency_penalty": 0.5, "presence_penalty": 0.5, "repetition_penalty": 1.2},
    "bias": {"logit_bias": {5: 3.0}, "min_tokens": 4},
    "allowed": {"allowed_token_ids": (5, 6, 7)},
    "logprobs": {"logprobs": 3},
}


class Sent(WithoutWaiting):  # type: ignore[no-untyped-call]
    """Counts copies to the device."""

    copies = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = super().__torch_dispatch__(func, types, args, kwargs)
        if func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
            source, target = args[func is torch.ops.aten.copy_.default], made
            self.copies += source.device.type == "cpu" and target.device.type == "cuda"
        return made


def forward_of(device: torch.device, varlen: bool) -> PagedForward:
    with device:
        model = tiny("llama", dtype=torch.bfloat16)
    model.set_attn_implementation(PAGED)
    allocate(Trace(model).layers, CAPACITY.blocks + 1, CAPACITY.block_size, device)
    return PagedForward(model, CAPACITY.block_size, varlen=varlen)


def served(forward: PagedForward) -> PagedModel:
    return PagedModel(forward._model.device, CAPACITY, forward, {})


def prefill(slot: int, wish: dict[str, Any], **given: Any) -> Chunk:
    one = sequence([4, 5, 6], SamplingParams(**wish))
    return Chunk(one, 0, 3, True, (4, 5, 6), False, slot, (slot,), (4, 5, 6), **given)


def decode(slot: int, wish: dict[str, Any], *, ahead: bool = False, **given: Any) -> Chunk:
    one = sequence([4, 5, 6], SamplingParams(**wish))
    known = () if ahead else (7,)
    return Chunk(one, 3, 1, True, known, ahead, slot, (slot, slot + 4), None, **given)


def ruling() -> Future[Ruling]:
    future: Future[Ruling] = Future()
    future.set_result(Ruling(bytes([255] * (-(-VOCAB // 8)))))
    return future


@pytest.mark.parametrize("varlen", [True, False])
@pytest.mark.parametrize("wish", WISHES.values(), ids=WISHES)
def test_no_step_waits(wish: dict[str, Any], varlen: bool) -> None:
    with absent_cuda() as device:
        paged = served(forward_of(device, varlen))
        with Sent():
            paged.launch([prefill(0, wish), prefill(1, {})])
            paged.launch([decode(0, wish), prefill(2, wish), decode(1, {}, ahead=True)])
            paged.launch([decode(0, wish, ahead=True), decode(1, {}), decode(2, wish)])


def test_no_grammar_no_ban_and_no_target_waits() -> None:
    with absent_cuda() as device:
        paged = served(forward_of(device, varlen=True))
        with Sent():
            paged.launch([prefill(0, {"prompt_logprobs": 2}, targets=(5, 6)), prefill(1, {})])
            paged.launch([decode(0, {}, ruling=ruling()), decode(1, {}, banned=(7, 8))])


def test_a_step_is_sent_as_one_copy() -> None:
    with absent_cuda() as device:
        paged = served(forward_of(device, varlen=True))
        greedy = WISHES["greedy"]
        with Sent() as sent:
            paged.launch([prefill(0, greedy), prefill(1, greedy)])
        assert sent.copies == 1
        with Sent() as sent:
            paged.launch([decode(0, greedy, ahead=True), prefill(2, greedy), decode(1, greedy)])
        assert sent.copies == 1


class Again:
    """A ``Capture`` that runs what it recorded."""

    note = ""

    def record(self, run: Callable[[], T]) -> tuple[T, Callable[[], None]]:
        return run(), lambda: None

    def memory_used(self) -> int:
        return 0


def test_a_recorded_step_is_sent_as_one_copy_and_one_of_new_blocks() -> None:
    with absent_cuda() as device:
        forward = forward_of(device, varlen=True)
        last = torch.zeros(SLOTS + 1, dtype=torch.int64, device=device)
        graphs = DecodeGraphs(forward, last, CAPACITY)
        assert graphs.record(Again()).startswith("1, 2, 4 sequences")
        chunks = [decode(0, {}), decode(1, {}, ahead=True), decode(2, {})]
        for expected in (2, 1):
            with Sent() as sent:
                step = graphs.run(chunks)
            assert sent.copies == expected
        assert step.logits.device == device
        assert step.logits.shape == (3, VOCAB)


WAITING: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "a branch": lambda x: 1 if x[0] > 0 else 2,
    "nonzero": lambda x: x.nonzero(),
    "a mask": lambda x: x[x > 0],
    "a mask that is written": lambda x: x.__setitem__(x > 0, x),
    "where": lambda x: torch.where(x > 0),
    "repeats": lambda x: x.repeat_interleave(x),
    "unique": lambda x: torch.unique_consecutive(x),
    "to the host": lambda x: x.cpu(),
    "from the host": lambda x: torch.tensor([1], device=x.device),
    "between devices": lambda x: torch.zeros(3, dtype=torch.int64).copy_(x),
}


@pytest.mark.parametrize("wait", WAITING.values(), ids=WAITING)
def test_what_waits_is_found(wait: Callable[[Tensor], object]) -> None:
    with absent_cuda() as device:
        values = torch.zeros(3, dtype=torch.int64, device=device)
        with pytest.raises(Waits), WithoutWaiting():
            wait(values)


def test_what_does_not_wait_passes() -> None:
    with absent_cuda() as device, WithoutWaiting():
        values = torch.zeros(3, dtype=torch.int64, device=device)
        values[values] = 5
        values[values > 2] = 0
        values.repeat_interleave(2)
        torch.where(values > 0, values, 1)
        values.to("cpu", non_blocking=True)
