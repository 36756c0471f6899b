"""An embedding model without weights: a vector tells how often each of four tokens occurs."""

from __future__ import annotations

import threading
from collections.abc import Sequence

VOCABULARY = 261  # of the tokenizer of bytes
COUNTED = b"abcd"
CURSED = ord("!")  # raises
NOT_A_NUMBER = ord("?")


class TallyModel:
    """``go`` holds up each batch until it is set; ``batches`` are the inputs of each so far."""

    vocab_size = VOCABULARY
    dimensions = len(COUNTED)

    def __init__(self, max_context: int = 64) -> None:
        self.max_context = max_context
        self.go = threading.Event()
        self.go.set()
        self.batches: list[list[bytes]] = []
        self.threads: set[int] = set()

    def embed(self, inputs: Sequence[Sequence[int]]) -> list[list[float]]:
        self.batches.append([bytes(ids) for ids in inputs])
        self.threads.add(threading.get_ident())
        self.go.wait(10)
        return [vector(ids) for ids in inputs]


def vector(ids: Sequence[int]) -> list[float]:
    if CURSED in ids:
        raise RuntimeError("this token is cursed")
    if NOT_A_NUMBER in ids:
        return [float("nan")] * len(COUNTED)
    return [float(list(ids).count(byte)) for byte in COUNTED]
