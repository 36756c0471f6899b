"""Python's garbage collector, and what is never garbage."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_alone = threading.RLock()  # else one thread could find the collector as another left it


@contextmanager
def keeping() -> Iterator[None]:
    """What there is at its first end stays: it is looked through neither meanwhile nor later.

    Torch and transformers are half a million objects. Collections take a quarter of the time of
    their import, and each full one behind it would hold up a step.
    """
    with _alone:
        collecting = gc.isenabled()
        gc.disable()
        try:
            yield
            if not gc.get_freeze_count():  # again would keep what is dropped later
                gc.freeze()
        finally:
            if collecting:
                gc.enable()
