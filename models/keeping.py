"""Python's garbage collector, and what is never garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keeping() -> Iterator[None]:
    """What is made inside stays: it is looked through neither meanwhile nor later.

    Torch and transformers are a million objects. Collections take a third of the time of their
    import, and each full one behind it would hold up a step.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()
