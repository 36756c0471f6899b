"""The threads that go through native calls together."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import abc
from ctypes import c_void_p
from typing import Any

from models.step.native.build import THIS_MACHINE, library


class Team:
    """One call at a time, in the process that made it. A stack and a sampler may share one.

    ``handle`` is what the library knows it by.
    """

    def __init__(self, threads: int, processor: str = THIS_MACHINE) -> None:
        """Raises NoNative if there is no library, MemoryError if there are no threads."""
        self.library = library(processor)
        self._lock = threading.Lock()
        self._process = os.getpid()
        self.handle = c_void_p()
        self.library.team_create(threads, ctypes.byref(self.handle))
        self.when_gone(self, self.library.team_destroy, self.handle)

    def call(self, function: abc.Callable[..., Any], *arguments: Any) -> None:
        """Raises MemoryError, and RuntimeError in a forked process: threads are not forked."""
        if os.getpid() != self._process:
            raise RuntimeError("native kernels do not survive a fork: make them in the process")
        with self._lock:
            function(*arguments)

    @property
    def multiplies_bfloat16(self) -> bool:
        """Whether the processor has instructions for it."""
        has: bool = self.library.stack_multiplies_bfloat16()
        return has

    def when_gone(
        self, holder: object, destroy: abc.Callable[[c_void_p], None], handle: c_void_p
    ) -> weakref.finalize[..., Any]:
        """Destroys what ``handle`` stands for with ``holder``, in this process only."""
        return weakref.finalize(holder, _destroy, self._process, destroy, handle)


def _destroy(process: int, destroy: abc.Callable[[c_void_p], None], handle: c_void_p) -> None:
    if os.getpid() == process:
        destroy(handle)
