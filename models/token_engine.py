"""Token ids in, token ids out: admission in front of the steps, one task a sequence.

The graph's Model replica and ``Scheduled`` differ only in how a sequence asks for its next step.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import abc, deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Protocol

from models.constrain.grammars import Grammars
from models.errors import Busy, Failed, Invalid, TimedOut, TooLong
from models.events import FinishReason
from models.metrics import LlmMetrics
from models.schedule.admission import Admission, Place
from models.schedule.sequence import Constraint, Sequence
from models.stepper import Progress, Stepper
from models.time_left import TimeLeft
from models.tokens import Admitted, Take, TokenRequest, Tokens, one_of_each_choice

logger = logging.getLogger("stepserve")


class Steps(Protocol):
    """How a sequence takes part in the next step."""

    async def advance(self, sequence: Sequence) -> Progress:
        """What one step brought this sequence. May be cancelled at any moment."""
        ...


class TokenEngine:
    """Many requests at once over one ``Stepper``. All calls on one event loop."""

    def __init__(
        self,
        stepper: Stepper,
        steps: Steps,
        admission: Admission,
        metrics: LlmMetrics,
        grammars: Grammars | None = None,
    ) -> None:
        self.stepper = stepper
        self.steps = steps
        self.admission = admission
        self.metrics = metrics
        self.max_context = stepper.model.capacity.max_context
        self._grammars = grammars
        self._answers: dict[str, _Answer] = {}

    async def generate(self, request: TokenRequest) -> AsyncGenerator[Admitted | Tokens, None]:
        """Yields ``Admitted``, then each choice's ``Tokens`` up to its ``finish``.

        Steps go on however slowly this is read. Raises ``EngineError``; closing it frees all that
        the request held. A timeout ends it by ``LENGTH``, or ``TimedOut`` before its first token.
        """
        async with self._answering(request) as answer:
            async for item in answer.items():
                yield item

    async def deliver(self, request: TokenRequest, take: Take) -> None:
        """As ``generate``, but hands each item over as soon as it is there.

        No task runs in between, so one turn of the loop takes the tokens of a whole step. What
        ``take`` raises ends the request.
        """
        async with self._answering(request) as answer:
            await answer.hand_over(take)

    @asynccontextmanager
    async def _answering(self, request: TokenRequest) -> AsyncGenerator[_Answer, None]:
        left = TimeLeft(request.timeout_s)
        self._check(request)
        answer = await self._enter(request, left)
        try:
            yield answer
        finally:
            del self._answers[request.id]
            answer.close()

    def _check(self, request: TokenRequest) -> None:
        if len(request.token_ids) >= self.max_context:
            raise TooLong(len(request.token_ids), self.max_context)
        self._check_known(request.token_ids, "prompt")
        self._check_known(request.sampling.allowed_token_ids or (), "allowed_token_ids")
        self._check_known(request.sampling.logit_bias, "logit_bias")
        if request.n > self.admission.max_running + self.admission.max_waiting:
            raise Invalid(f"n={request.n} is more than this server can ever take.", "n")

    async def _enter(self, request: TokenRequest, left: TimeLeft) -> _Answer:
        """Takes the places first: a request that is turned away costs nothing more."""
        places = self._places(request)
        try:
            constraints = await self._constraints(request, left)
            if request.id in self._answers:
                raise Failed(f"A request with the id {request.id} is already running.")
        except BaseException:
            for place in places:
                self.admission.leave(place)
            raise
        answer = self._answers[request.id] = _Answer(self, request, left, places, constraints)
        self.observe()
        return answer

    def _check_known(self, token_ids: abc.Iterable[int], param: str) -> None:
        vocabulary = self.stepper.model.capacity.vocab_size
        if (largest := max(token_ids, default=0)) >= vocabulary:
            message = f"Token id {largest} is outside the model's {vocabulary} tokens."
            raise Invalid(message, param)

    def _places(self, request: TokenRequest) -> list[Place]:
        try:
            return self.admission.enter(request.n, len(request.token_ids), request.priority)
        except Busy:
            self.metrics.rejected()
            raise

    async def _constraints(
        self, request: TokenRequest, left: TimeLeft
    ) -> abc.Sequence[Constraint | None]:
        grammar = request.grammar
        if grammar is None:
            return [None] * request.n
        if self._grammars is None:
            raise Invalid("This model follows no grammars.", grammar.param)
        async with left.bounds():
            return await self._grammars.start(grammar, request.stop_ids, request.n)

    def stop_choice(self, request_id: str, choice: int) -> None:
        """Ends one choice whose text matched a stop downstream. Idempotent."""
        if answer := self._answers.get(request_id):
            answer.lives[choice].stop()

    def abandon(self, reason: str) -> None:
        """Fails all requests, when no step will ever answer them."""
        for answer in self._answers.values():
            answer.put(Failed(reason))

    def close(self) -> None:
        """Fails what runs or waits with ``Closed``, and whatever is asked later.

        Ends the threads of the model and of grammars, after what they are doing.
        """
        self.stepper.close()
        if self._grammars:
            self._grammars.close()

    def observe(self) -> None:
        """Tells the metrics what the engine holds now."""
        pool = self.stepper.pool
        self.metrics.state(
            running=self.admission.running,
            waiting=self.admission.waiting,
            blocks_used=pool.used,
            blocks=pool.count,
        )
        self.metrics.paced(self.stepper.prompt_budget)


class _Answer:
    """The choices of one request, and what they produced that was not read yet."""

    def __init__(
        self,
        engine: TokenEngine,
        request: TokenRequest,
        left: TimeLeft,
        places: list[Place],
        constraints: abc.Sequence[Constraint | None],
    ) -> None:
        self._ready: deque[Tokens | Exception] = deque()
        self._wake = asyncio.Event()
        self._unfinished = request.n
        self._begun = False
        self._take_over: Take | None = None
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._call_off = left.when_over(self._expire)
        sequences = [
            _sequence(request, choice, engine.max_context, constraint)
            for choice, constraint in enumerate(constraints)
        ]
        self.lives = [
            _Life(engine, self, choice, *its)
            for choice, its in enumerate(zip(sequences, places, strict=True))
        ]

    async def items(self) -> AsyncGenerator[Admitted | Tokens, None]:
        while self._unfinished:
            await self._wake.wait()
            self._wake.clear()
            for item in self._next():
                yield item

    async def hand_over(self, take: Take) -> None:
        self._take_over = take
        await self._over

    def put(self, item: Tokens | Exception) -> None:
        self._ready.append(item)
        if self._take_over is None:
            self._wake.set()
        elif not self._over.done():
            self._hand_over(self._take_over)

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

    def close(self) -> None:
        self._call_off()
        for life in self.lives:
            life.end(FinishReason.CANCELLED)

    def _admitted(self) -> Admitted:
        first = self.lives[0].sequence
        scores = first.prompt_scores
        listed = () if first.unscored else tuple(scores[i] for i in range(len(scores)))
        return Admitted(first.prompt_length, first.cached or 0, listed)

    def _expire(self) -> None:
        if self._begun or (self._ready and not self._held):
            for life in self.lives:
                life.expire()
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


class _Life:
    """One sequence from the queue to its end, and the times that are measured on the way."""

    def __init__(
        self,
        engine: TokenEngine,
        answer: _Answer,
        choice: int,
        sequence: Sequence,
        place: Place,
    ) -> None:
        self.sequence = sequence
        self._engine = engine
        self._answer = answer
        self._choice = choice
        self._place = place
        self._arrived = time.monotonic()
        self._running: float | None = None
        self._first: float | None = None
        self._latest: float | None = None
        self._over = False
        # In a context of its own: a step belongs to no single request.
        self._task = asyncio.get_running_loop().create_task(self._run(), context=Context())
        self._task.add_done_callback(self._crashed)

    def stop(self) -> None:
        """A stop matched downstream."""
        if not self._over:
            self.end(FinishReason.STOP)
            self._answer.put(Tokens(self._choice, (), FinishReason.STOP))

    def expire(self) -> None:
        """The request's time is over."""
        if not self._over:
            self.end(FinishReason.LENGTH)
            self._answer.put(Tokens(self._choice, (), FinishReason.LENGTH))

    def end(self, reason: FinishReason) -> None:
        """Frees everything now, and records why. Only the first call counts."""
        if self._over:
            return
        self._over = True
        self._engine.stepper.remove(self.sequence)
        self._engine.admission.leave(self._place)
        if asyncio.current_task() is not self._task:
            self._task.cancel()
        self._record(reason)

    async def _run(self) -> None:
        await self._place.wait()
        self._running = time.monotonic()
        self._engine.stepper.add(self.sequence)
        while not self._over:
            self._deliver(await self._engine.steps.advance(self.sequence))

    def _deliver(self, progress: Progress) -> None:
        if progress.error:
            self.end(FinishReason.ERROR)
            self._answer.put(progress.error)
        elif progress.token_ids or progress.finish:
            self._time(len(progress.token_ids) + (progress.stop_id is not None))
            if progress.finish:
                self.end(progress.finish)
            self._answer.put(
                Tokens(
                    self._choice,
                    progress.token_ids,
                    progress.finish,
                    progress.stop_id,
                    progress.scores,
                )
            )

    def _time(self, count: int) -> None:
        if not count:
            return  # a grammar's end, by a token that does not count
        now = self._engine.stepper.last_progress  # equal gaps of a step's sequences are told as one
        self._engine.metrics.generated(count)
        if self._latest is None:
            self._first = now
        else:
            self._engine.metrics.inter_token((now - self._latest) / count, count)
        self._latest = now

    def _record(self, reason: FinishReason) -> None:
        def since_arrival(moment: float | None) -> float | None:
            return None if moment is None else moment - self._arrived

        self._engine.observe()
        self._engine.metrics.request_finished(
            reason,
            prompt_tokens=None if self._choice else self.sequence.prompt_length,
            completion_tokens=self.sequence.generated,
            queue_s=since_arrival(self._running),
            first_token_s=since_arrival(self._first),
            total_s=time.monotonic() - self._arrived,
        )

    def _crashed(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._over:
            return
        logger.error("a sequence could not take part in steps", exc_info=error)
        self.end(FinishReason.ERROR)
        self._answer.put(Failed(f"The request failed: {error!r}"))


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
    )
