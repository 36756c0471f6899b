from __future__ import annotations

import os
import sys
import threading
import time
from collections import abc
from contextlib import contextmanager

import pytest

from models.step.native.forward import NativeForward
from tests.models.step.native.stacking import FITTING, forward_of, logits_of, prompt
from tests.models.step.tiny import tiny

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cores are kept to on Linux only")
TWO_CORES = pytest.mark.skipif(
    sys.platform == "linux" and len(os.sched_getaffinity(0)) < 2, reason="there is one core"
)

PATIENCE_S = 30


def threads() -> set[int]:
    return {int(thread) for thread in os.listdir("/proc/self/task")}


def step(forward: NativeForward) -> None:
    logits_of(forward, (0, prompt(40), (1, 2, 3)))


@contextmanager
def stepping(forward: NativeForward) -> abc.Iterator[int]:
    """A thread that takes steps all the time: its id."""
    leave = threading.Event()

    def go_on() -> None:
        while not leave.is_set():
            step(forward)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        assert thread.native_id
        yield thread.native_id
    finally:
        leave.set()
        thread.join(PATIENCE_S)


@TWO_CORES
def test_of_as_many_threads_as_cores_each_stays_on_its_own() -> None:
    cores = sorted(os.sched_getaffinity(0))
    before = threads()
    forward = forward_of(tiny("llama", **FITTING), threads=len(cores))
    with stepping(forward) as caller:
        end = time.monotonic() + PATIENCE_S
        while os.sched_getaffinity(caller) != {cores[0]}:
            assert time.monotonic() < end, "the caller is never kept on a core"
    started = [os.sched_getaffinity(thread) for thread in threads() - before]
    settled = sorted(core for kept in started if len(kept) == 1 for core in kept)
    assert settled == cores[1:]


def test_the_caller_may_use_all_cores_again_after_a_step() -> None:
    cores = os.sched_getaffinity(0)
    step(forward_of(tiny("llama", **FITTING), threads=len(cores)))
    assert os.sched_getaffinity(0) == cores


@TWO_CORES
def test_cores_that_were_changed_since_are_left_so() -> None:
    first, *others = sorted(os.sched_getaffinity(0))
    forward = forward_of(tiny("llama", **FITTING), threads=1 + len(others))
    seen: list[set[int]] = []

    def step_on(*choices: set[int]) -> None:
        for cores in choices:
            os.sched_setaffinity(0, cores)
            step(forward)
            seen.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=step_on, args=({first}, set(others)))
    thread.start()
    thread.join(PATIENCE_S)
    assert seen == [{first}, set(others)]


@TWO_CORES
def test_cores_that_are_changed_within_a_step_are_left_so() -> None:
    first, *others = sorted(os.sched_getaffinity(0))
    forward = forward_of(tiny("llama", **FITTING), threads=1 + len(others))
    with stepping(forward) as caller:
        end = time.monotonic() + PATIENCE_S
        while os.sched_getaffinity(caller) != set(others):
            assert time.monotonic() < end, f"it goes back to {first}"
            os.sched_setaffinity(caller, others)
            time.sleep(0.05)


def test_fewer_or_more_threads_than_cores_go_wherever_there_is_room() -> None:
    cores = os.sched_getaffinity(0)
    for count in {max(1, len(cores) - 1), len(cores) + 1}:
        before = threads()
        forward = forward_of(tiny("llama", **FITTING), threads=count)
        step(forward)
        assert all(os.sched_getaffinity(thread) == cores for thread in threads() - before)
