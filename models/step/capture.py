"""Recording what a function launches, to launch it again with one call: CUDA graphs.

The one place that needs a GPU: whatever else there is to decoding by graphs knows ``Capture`` only.
"""

from __future__ import annotations

from collections import abc
from contextlib import contextmanager
from typing import Protocol, TypeVar

import torch

T = TypeVar("T")
Replay = abc.Callable[[], None]


class Capture(Protocol):
    """Records functions that read and write the same tensors whenever they run."""

    note: str  # what is special about what it records, for people

    def record(self, run: abc.Callable[[], T]) -> tuple[T, Replay]:
        """What ``run`` returned, and what fills that anew. Raises whatever speaks against it."""
        ...

    def memory_used(self) -> int:
        """Bytes of the device that are taken, by anybody."""
        ...


class CudaCapture:
    """CUDA graphs that share one memory pool: record the one that needs most of it first."""

    note = ""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def record(self, run: abc.Callable[[], T]) -> tuple[T, Replay]:
        self._warm_up(run)
        graph = torch.cuda.CUDAGraph()
        # The outer one gives the stream back even where a capture fails.
        with (
            torch.cuda.stream(torch.cuda.current_stream(self._device)),
            torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ),
        ):
            result = run()
        return result, graph.replay

    def memory_used(self) -> int:
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free

    def _warm_up(self, run: abc.Callable[[], object]) -> None:
        """What libraries set up at first use must not be recorded; nor may anything wait."""
        before = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(before)
        with torch.cuda.stream(self._stream):
            run()
            with _waiting_fails():
                run()
        before.wait_stream(self._stream)


@contextmanager
def _waiting_fails() -> abc.Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
