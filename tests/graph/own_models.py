"""Models of one's own for a real graph without weights: factories that settings can name."""

from __future__ import annotations

import os
import time
from collections import abc
from dataclasses import replace
from pathlib import Path

from models.schedule.sequence import Chunk
from tests.models.recall import Ready, RecallModel, recall_model
from tests.models.tallying import TallyModel

BYTE_TOKENS = 261  # ids of the byte tokenizer
DEADLY, CURSED = 65, 66  # "A" and "B" in a prompt of bytes


def recall(seconds: float = 0.0, slots: int = 32, blocks: int = 1024) -> RecallModel:
    """Reads every byte and says those below 97: with the byte tokenizer, whole characters."""
    model = recall_model(blocks=blocks, slots=slots, max_context=512, seconds=seconds)
    model.capacity = replace(model.capacity, vocab_size=BYTE_TOKENS)
    return model


class FragileModel:
    """Dies with its process on a prompt's "A" while ``life`` lasts, and raises on a "B".

    ``life`` is a folder; each death takes one file of it, so that a next life can go on.
    """

    launch_ahead = False

    def __init__(self, life: str, seconds: float, slots: int) -> None:
        self._life = Path(life)
        self._inner = recall(seconds, slots)
        self._inner.fail_on = CURSED
        self.capacity = self._inner.capacity
        self.release = self._inner.release
        self.reset = self._inner.reset

    def launch(self, chunks: abc.Sequence[Chunk]) -> Ready:
        prompts = [c.sequence.tokens[: c.sequence.prompt_length] for c in chunks if c.samples]
        if any(DEADLY in prompt for prompt in prompts):
            self._die()
        return self._inner.launch(chunks)

    def describe(self) -> dict[str, str]:
        return {"pid": str(os.getpid())}

    def _die(self) -> None:
        for file in self._life.iterdir():
            file.unlink()
            os._exit(1)


def fragile(life: str, seconds: float = 0.0, slots: int = 2) -> FragileModel:
    return FragileModel(life, seconds, slots)


class SlowVectors(TallyModel):
    """Takes a while for each batch."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def embed(self, inputs: abc.Sequence[abc.Sequence[int]]) -> list[list[float]]:
        time.sleep(self._seconds)
        return super().embed(inputs)
