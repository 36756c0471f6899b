"""Sequences and their blocks in a pool."""

from __future__ import annotations

from collections.abc import Sequence as Tokens

from models.request import SamplingParams
from models.schedule.blocks import BlockPool
from models.schedule.sequence import Sequence


def a_sequence(tokens: Tokens[int]) -> Sequence:
    return Sequence("s", list(tokens), SamplingParams(), frozenset(), 1000, seed=0)


def computed(pool: BlockPool, tokens: Tokens[int]) -> Sequence:
    sequence = a_sequence(tokens)
    assert pool.admit(sequence)
    sequence.computed = len(sequence.tokens)
    pool.register(sequence)
    return sequence
