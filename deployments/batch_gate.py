"""Makes every live sequence join the same ``@serve.batch`` batch.

Bare, ``@serve.batch`` forms its next batch while the current one runs, so a sequence that arrives
during a step never rejoins the others. Here asks wait in front of a gate; it opens when nothing of
the last batch is outstanding, lets in all who wait as one batch, and shuts behind them at once.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, cast

from ray import serve

from models.errors import Failed
from models.schedule.sequence import Sequence
from models.stepper import Progress

QUIET_TURNS = 2  # of the event loop without a new ask, before the gate opens

Step = Callable[[list[Sequence]], Awaitable[list[Progress]]]


class _Batched(Protocol):
    """What ``@serve.batch`` makes of a function."""

    def __call__(self, sequence: Sequence) -> Coroutine[Any, Any, Progress]: ...

    def set_max_batch_size(self, new_max_batch_size: int) -> None: ...


@dataclass(slots=True, eq=False)
class _Ask:
    sequence: Sequence
    answer: asyncio.Future[Progress]  # cancelled together with the asking coroutine


class StepGate:
    """Turns single asks into batched steps; to be used on one event loop, inside a replica.

    ``step`` takes the sequences that asked and returns their progress in the same order. It marks
    or skips the ended ones itself: an ask whose caller went away during its batch stays in it.

    Invariant: ``_outstanding`` counts the items that ``@serve.batch`` holds. They belong to tasks
    of the gate's own, which nobody cancels, so every item leaves, whatever happens to its caller.
    """

    def __init__(self, step: Step) -> None:
        self._asks: list[_Ask] = []
        self._outstanding = 0
        self._opening = False
        self._limit = 1
        batched = serve.batch(max_batch_size=1, batch_wait_timeout_s=0.0)(_handler(step))
        self._batched = cast(_Batched, batched)

    async def advance(self, sequence: Sequence) -> Progress:
        """The outcome of one step for this sequence; cancelling the call is always safe."""
        ask = _Ask(sequence, asyncio.get_running_loop().create_future())
        self._asks.append(ask)
        self._open_if_idle()
        return await ask.answer

    def _open_if_idle(self) -> None:
        if not self._outstanding and not self._opening and self._asks:
            self._opening = True
            self._settle(seen=0, quiet=0)

    def _settle(self, seen: int, quiet: int) -> None:
        """Opens once everybody who is about to ask, has: no timer, only turns of the loop."""
        if quiet == QUIET_TURNS:
            self._opening = False
            self._open()
        else:
            quiet = quiet + 1 if len(self._asks) == seen else 0
            asyncio.get_running_loop().call_soon(self._settle, len(self._asks), quiet)

    def _open(self) -> None:
        asks = [ask for ask in self._asks if not ask.answer.done()]
        self._asks.clear()
        self._outstanding = len(asks)
        self._fit(len(asks))
        for ask in asks:
            self._let_in(ask)

    def _fit(self, items: int) -> None:
        """A batch of exactly these items is full, so ``@serve.batch`` waits for no one else."""
        if items and items != self._limit:
            self._limit = items
            self._batched.set_max_batch_size(items)

    def _let_in(self, ask: _Ask) -> None:
        # An empty context: a step belongs to no single request, and Serve would split the batch
        # by the model id it finds there.
        item = asyncio.get_running_loop().create_task(
            self._batched(ask.sequence), context=contextvars.Context()
        )
        item.add_done_callback(functools.partial(self._leave, ask.answer))

    def _leave(self, answer: asyncio.Future[Progress], item: asyncio.Task[Progress]) -> None:
        self._outstanding -= 1
        _copy(item, answer)
        self._open_if_idle()


def _handler(step: Step) -> Callable[[list[Sequence]], Coroutine[Any, Any, list[Progress]]]:
    async def step_batch(sequences: list[Sequence]) -> list[Progress]:
        try:
            return await step(sequences)
        except asyncio.CancelledError:
            # @serve.batch would leave every caller hanging.
            raise Failed("The step was cancelled.") from None

    # Spares @serve.batch the inspection of the function at every call.
    step_batch.__signature__ = inspect.signature(step_batch)  # type: ignore[attr-defined]
    return step_batch


def _copy(item: asyncio.Task[Progress], answer: asyncio.Future[Progress]) -> None:
    if item.cancelled():
        answer.cancel()
        return
    error = item.exception()  # looked at in any case, or the loop reports it as forgotten
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(item.result())
