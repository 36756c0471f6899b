"""One answer's place in its grammar, followed off the event loop."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Executor, Future

from llguidance import LLMatcher

from models.constrain.translate import complaint, refusal
from models.errors import EngineError, Failed
from models.request import Grammar
from models.schedule.sequence import Ruling

logger = logging.getLogger("stepserve")

SLOW_S = 0.01  # for one ruling; most take a hundredth of it
MOST_S = 0.2  # of a processor, for one ruling: ambiguous grammars grow with their answer


class Matcher:
    """A ``Constraint``: ``ruling`` is on its way from the moment the last token is known.

    ``eos`` are the ids by which llguidance says that the answer may end, ``ends`` those by which
    this sequence does; ``width`` is how many tokens the model tells apart.
    """

    def __init__(
        self,
        grammar: Grammar,
        matcher: LLMatcher,
        *,
        eos: frozenset[int],
        ends: frozenset[int],
        width: int,
        threads: Executor,
    ) -> None:
        self._grammar = grammar
        self._matcher = matcher
        self._eos = _below(width, eos)
        self._ends = _below(width, ends)
        self._width = width
        self._threads = threads
        self._slow = False
        self._ruling = threads.submit(self._rule, None, None, time.monotonic())

    @property
    def ruling(self) -> Future[Ruling]:
        return self._ruling

    @property
    def late(self) -> bool:
        return self._slow and not self._ruling.done()

    def advance(self, token_id: int) -> None:
        asked = time.monotonic()
        self._ruling = self._threads.submit(self._rule, token_id, self._ruling, asked)

    def _rule(self, token_id: int | None, before: Future[Ruling] | None, asked: float) -> Ruling:
        if before is not None:
            before.result()
        ruling = self._guarded(token_id)
        self._slow = time.monotonic() - asked > SLOW_S
        return ruling

    def _guarded(self, token_id: int | None) -> Ruling:
        began = time.thread_time()
        try:
            ruling = self._judge(token_id)
            if ruling.error is None and time.thread_time() - began > MOST_S:
                return self._failed(refusal(self._grammar, "it takes too long to follow"))
            return ruling
        except BaseException as error:  # a panic in the library is not an Exception
            logger.exception("a grammar could not be followed")
            return self._failed(Failed(f"The grammar could not be followed: {error}"))

    def _judge(self, token_id: int | None) -> Ruling:
        matcher = self._matcher
        if token_id is not None and not matcher.consume_token(token_id):
            return self._failed(self._objection("the model left the grammar"))
        allowed = self._fit(bytearray(matcher.compute_bitmask()))
        if matcher.is_error():
            return self._failed(self._objection("no token is allowed"))
        return self._settle(allowed, accepts=matcher.is_accepting())

    def _settle(self, allowed: bytearray, *, accepts: bool) -> Ruling:
        """Where the answer may end, it may by the sequence's own ends, and by no others."""
        for token_id in self._eos:
            _put(allowed, token_id, False)
        if not any(allowed):
            if accepts:
                return Ruling(self._packed(self._ends), finished=True)
            return self._failed(self._objection("no token of this model can follow"))
        for token_id in self._ends if accepts else ():
            _put(allowed, token_id, True)
        return Ruling(bytes(allowed))

    def _fit(self, allowed: bytearray) -> bytearray:
        """Exactly the model's tokens: a last byte may hold bits beyond them."""
        size = -(-self._width // 8)
        allowed = allowed[:size].ljust(size, b"\0")
        allowed[-1] &= 0xFF >> (-self._width % 8)
        return allowed

    def _packed(self, token_ids: frozenset[int]) -> bytes:
        """Only these; all if there are none, for a row needs something to draw from."""
        allowed = bytearray(-(-self._width // 8))
        for token_id in token_ids:
            _put(allowed, token_id, True)
        return bytes(allowed) if token_ids else b"\xff" * len(allowed)

    def _failed(self, error: EngineError) -> Ruling:
        return Ruling(self._packed(frozenset()), error=error)

    def _objection(self, otherwise: str) -> EngineError:
        return refusal(self._grammar, complaint(self._matcher) or otherwise)


def _put(bits: bytearray, token_id: int, bit: bool) -> None:
    mask = 1 << token_id % 8
    bits[token_id // 8] = bits[token_id // 8] & ~mask | mask * bit


def _below(width: int, token_ids: frozenset[int]) -> frozenset[int]:
    return frozenset(token_id for token_id in token_ids if token_id < width)
