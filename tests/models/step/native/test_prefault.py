from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from models.step.native.forward import NativeForward
from tests.models.step.native.stacking import (
    BLOCK,
    FITTING,
    logits_of,
    prompt,
    stack_of,
)
from tests.models.step.tiny import tiny

GIB = 2**30


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is taken ahead on Linux only")
def test_memory_of_the_pool_is_taken_two_gibibytes_ahead_of_its_use() -> None:
    model = tiny("llama", **FITTING)
    stack = stack_of(model)
    block_bytes = BLOCK * 2 * 2 * FITTING["head_dim"] * 2 * 4  # layers, heads; keys and values
    before = resident()
    stack.allocate(3 * GIB // block_bytes)
    try:
        wait_for_resident(before + 2 * GIB)
        half = GIB // 2 // block_bytes
        logits_of(NativeForward(stack, BLOCK), (0, prompt(5), (half,)))
        wait_for_resident(before + 2 * GIB + GIB // 2)
    finally:
        stack.allocate(0)


def resident() -> int:
    """Bytes of this process that are in memory."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def wait_for_resident(wanted: int) -> None:
    """And no more than that, even a while later."""
    end = time.monotonic() + 60
    while resident() < wanted - GIB // 16:
        assert time.monotonic() < end, f"{resident()} bytes in memory, not {wanted}"
        time.sleep(0.05)
    time.sleep(0.5)
    assert resident() < wanted + GIB // 16
