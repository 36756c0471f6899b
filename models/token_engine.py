"""Token ids in, token ids out: admission in front of the steps, many requests at once.

The graph's Model replica and ``Scheduled`` differ only in how a sequence asks for its next step.
"""

from __future__ import annotations

from collections import abc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from models.constrain.grammars import Grammars
from models.errors import Busy, Failed, Invalid, TooLong
from models.events import FinishReason
from models.life import Steps, Surroundings
from models.metrics import LlmMetrics
from models.schedule.admission import Admission
from models.schedule.sequence import Constraint
from models.stepper import Stepper
from models.time_left import TimeLeft
from models.token_answer import TokenAnswer
from models.tokens import Admitted, Take, TokenRequest, Tokens


class TokenEngine:
    """Many requests at once over one ``Stepper``. All calls on one event loop."""

    def __init__(
        self,
        stepper: Stepper,
        steps: Steps,
        admission: Admission,
        metrics: LlmMetrics,
        grammars: Grammars | None = None,
        stream_interval: int = 1,
    ) -> None:
        """``stream_interval``: tokens of a choice that are handed on together, but the first."""
        self.stepper = stepper
        self.admission = admission
        self.metrics = metrics
        self.max_context = stepper.model.capacity.max_context
        self._adapters = stepper.model.capacity.adapters
        self._around = Surroundings(stepper, steps, admission, metrics, stream_interval)
        self._grammars = grammars
        self._answers: dict[str, TokenAnswer] = {}

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
    async def _answering(self, request: TokenRequest) -> AsyncGenerator[TokenAnswer, None]:
        left = TimeLeft(request.timeout_s)
        self._check(request)
        try:
            async with self._entered(request, left) as answer:
                yield answer
        except Busy:  # at once, or when it had to give way
            self.metrics.of(request.adapter).rejected()
            raise

    @asynccontextmanager
    async def _entered(
        self, request: TokenRequest, left: TimeLeft
    ) -> AsyncGenerator[TokenAnswer, None]:
        answer = await self._enter(request, left)
        try:
            yield answer
        finally:
            del self._answers[request.id]
            answer.close()

    def _check(self, request: TokenRequest) -> None:
        if len(request.token_ids) >= self.max_context:
            raise TooLong(len(request.token_ids), self.max_context)
        if request.adapter is not None and request.adapter not in self._adapters:
            raise Invalid(f"The model has no adapter {request.adapter!r}.", "model")
        self._check_known(request.token_ids, "prompt")
        self._check_known(request.sampling.allowed_token_ids or (), "allowed_token_ids")
        self._check_known(request.sampling.logit_bias, "logit_bias")
        if request.thinking:
            self._check_known((request.thinking.end,), "thinking_token_budget")
        if request.n > self.admission.max_running + self.admission.max_waiting:
            raise Invalid(f"n={request.n} is more than this server can ever take.", "n")

    async def _enter(self, request: TokenRequest, left: TimeLeft) -> TokenAnswer:
        """Takes the places first: a request that is turned away costs nothing more."""
        places = self.admission.enter(
            request.n, len(request.token_ids), request.priority, request.user
        )
        try:
            constraints = await self._constraints(request, left)
            if request.id in self._answers:
                raise Failed(f"A request with the id {request.id} is already running.")
        except BaseException:
            for place in places:
                self.admission.leave(place)
            raise
        answer = TokenAnswer(self._around, request, left, places, constraints)
        self._answers[request.id] = answer
        self.observe()
        return answer

    def _check_known(self, token_ids: abc.Iterable[int], param: str) -> None:
        vocabulary = self.stepper.model.capacity.vocab_size
        if (largest := max(token_ids, default=0)) >= vocabulary:
            message = f"Token id {largest} is outside the model's {vocabulary} tokens."
            raise Invalid(message, param)

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
            answer.lives[choice].finish(FinishReason.STOP)

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
        self._around.observe()
