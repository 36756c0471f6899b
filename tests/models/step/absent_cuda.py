"""CUDA tensors on a machine without CUDA: shapes, types and devices, but no values.

Whatever needs a value raises, so code that runs here asks the device for nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

CUDA, META, TYPES = 1, 14, 20  # places in c10's registry of devices
REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"


class NoEvent:
    def record(self) -> None: ...


@contextmanager
def absent_cuda() -> Iterator[torch.device]:
    """Within it, tensors on the device given can be made and computed with."""
    with pytest.MonkeyPatch.context() as patch, FakeTensorMode(allow_non_fake_inputs=True):
        if not torch.cuda.is_available():
            _let_cuda_be_indexed()
            patch.setattr(torch.cuda, "Event", NoEvent)
        yield torch.device("cuda", 0)


def _let_cuda_be_indexed() -> None:
    """torch without CUDA does not know how to change to a CUDA device: that of meta does nothing.

    torch does the same by itself, but only where it was built with CUDA.
    """
    library = ctypes.CDLL(str(next((Path(torch.__file__).parent / "lib").glob("libc10.*"))))
    guards = (ctypes.c_void_p * TYPES).in_dll(library, REGISTRY)
    guards[CUDA] = guards[CUDA] or guards[META]
