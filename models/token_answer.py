"""One request in the token engine: its choices, and what they produced that was not read yet."""

from __future__ import annotations

import asyncio
import secrets
from collections import abc, deque
from collections.abc import AsyncGenerator, Iterator

from models.errors import TimedOut
from models.events import FinishReason
from models.gathering import Gathering
from models.life import Life, Surroundings
from models.schedule.admission import Place
from models.schedule.sequence import Constraint, Sequence
from models.schedule.thinking import Thinking
from models.time_left import TimeLeft
from models.tokens import Admitted, Take, TokenRequest, Tokens, one_of_each_choice


class TokenAnswer:
    """Runs a request that has its places, and a constraint for each choice, until ``close``."""

    def __init__(
        self,
        around: Surroundings,
        request: TokenRequest,
        left: TimeLeft,
        places: list[Place],
        constraints: abc.Sequence[Constraint | None],
    ) -> None:
        self._ready: deque[Tokens | Exception] = deque()
        self._wake = asyncio.Event()
        self._unfinished = request.n
        interval = around.stream_interval
        self._gathering = Gathering(interval, request.n) if interval > 1 else None
        self._begun = False
        self._take_over: Take | None = None
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._call_off = left.when_over(self._expire)
        sequences = [
            _sequence(request, choice, around.stepper.model.capacity.max_context, constraint)
            for choice, constraint in enumerate(constraints)
        ]
        self.lives = [
            Life(around, choice, sequence, place, self.put)
            for choice, (sequence, place) in enumerate(zip(sequences, places, strict=True))
        ]

    async def items(self) -> AsyncGenerator[Admitted | Tokens, None]:
        """``Admitted``, then each choice's ``Tokens``; raises ``EngineError``."""
        while self._unfinished:
            await self._wake.wait()
            self._wake.clear()
            for item in self._next():
                yield item

    async def hand_over(self, take: Take) -> None:
        """The same items, each to ``take`` as soon as it is there."""
        self._take_over = take
        await self._over

    def put(self, item: Tokens | Exception) -> None:
        """An exception ends the answer, behind what is ready."""
        came = [item] if self._gathering is None else self._gathering.take(item)
        if not came:
            return
        self._ready.extend(came)
        if self._take_over is None:
            self._wake.set()
        elif not self._over.done():
            self._hand_over(self._take_over)

    def close(self) -> None:
        """Frees all that is held, at once."""
        self._call_off()
        for life in self.lives:
            life.end(FinishReason.CANCELLED)

    def _hand_over(self, take: Take) -> None:
        try:
            for item in self._next():
                take(item)
        except Exception as error:  # the request's, or the taker's, which ends the request
            self._over.set_exception(error)
        else:
            if not self._unfinished:
                self._over.set_result(None)

    def _next(self) -> Iterator[Admitted | Tokens]:
        """What is ready; raises an error once it is its turn."""
        for item in self._take():
            if isinstance(item, Exception):
                raise item
            if not self._begun:
                self._begun = True
                yield self._admitted()
            self._unfinished -= item.finish is not None
            yield item

    def _admitted(self) -> Admitted:
        first = self.lives[0].sequence
        scores = first.prompt_scores
        listed = () if first.unscored else tuple(scores[i] for i in range(len(scores)))
        return Admitted(first.prompt_length, first.cached or 0, listed)

    def _expire(self) -> None:
        if self._begun or (self._ready and not self._held):
            for life in self.lives:
                life.finish(FinishReason.LENGTH)
        else:
            self._ready.clear()
            self.put(TimedOut())
            self.close()

    @property
    def _held(self) -> bool:
        """Whether other choices are ready while the first still goes through their prompt."""
        first = self.lives[0].sequence
        return first.unscored and not first.ended

    def _take(self) -> list[Tokens | Exception]:
        """What is ready; all tokens of a choice as one item."""
        if self._held:
            return [item for item in self._ready if isinstance(item, Exception)]
        ready, self._ready = self._ready, deque()
        if len(ready) == 1:
            return [*ready]
        tokens: list[Tokens] = []
        for item in ready:
            if isinstance(item, Exception):
                return [*one_of_each_choice(tokens), item]
            tokens.append(item)
        return [*one_of_each_choice(tokens)]


def _sequence(
    request: TokenRequest, choice: int, max_context: int, constraint: Constraint | None
) -> Sequence:
    sampling = request.sampling
    length = len(request.token_ids)
    # With max_tokens 0 one token is sampled, and dropped: that is how a prompt gets computed.
    limit = max_context if sampling.max_tokens is None else length + max(sampling.max_tokens, 1)
    seed = secrets.randbits(64) if sampling.seed is None else sampling.seed + choice
    return Sequence(
        id=f"{request.id}/{choice}",
        tokens=list(request.token_ids),
        sampling=sampling,
        stop_ids=request.stop_ids,
        max_length=min(limit, max_context),
        seed=seed % 2**64,
        constraint=constraint,
        scores_prompt=sampling.prompt_logprobs is not None and choice == 0,
        bad_words=request.bad_words,
        thinking=Thinking(request.thinking, length) if request.thinking else None,
        background=request.user.background,
        salt=request.cache_salt,
        adapter=request.adapter,
    )
