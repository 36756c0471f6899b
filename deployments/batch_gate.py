"""Decides which items join the same ``@serve.batch`` batch.

Bare, ``@serve.batch`` forms its next batch while the current one runs, so an item that arrives
during a batch never rejoins the others. Here asks wait in front of a gate; it opens when nothing
of the last batch is left, lets in one batch of those who wait, and shuts behind it at once.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic, Protocol, TypeVar, cast

from ray import serve

from models.errors import Failed

QUIET_TURNS = 2  # of the event loop without a new ask, before the gate opens

Item = TypeVar("Item")
Result = TypeVar("Result")
Run = Callable[[list[Item]], Awaitable[list[Result]]]


class _Batched(Protocol):
    """What ``@serve.batch`` makes of a function."""

    def __call__(self, item: Any) -> Coroutine[Any, Any, Any]: ...

    def set_max_batch_size(self, new_max_batch_size: int) -> None: ...


class BatchGate(Generic[Item, Result]):
    """Turns single asks into batches; to be used on one event loop, inside a replica.

    ``run`` takes the items of a batch and returns their results in the same order. It marks or
    skips the ended ones itself: an ask whose caller went away during its batch stays in it.
    ``choose`` gives the next batch of the items that wait, at least one; without it, it is all.

    Invariant: ``_inside`` counts the callers who were let in and have not left yet, with a result
    or cancelled. The gate is shut as long as there is one, or a batch runs.
    """

    def __init__(
        self,
        run: Run[Item, Result],
        choose: Callable[[Iterable[Item]], list[Item]] = list,
    ) -> None:
        self._run = run
        self._choose = choose
        self._turns: dict[Item, asyncio.Future[None]] = {}  # of those who wait to be let in
        self._inside = 0
        self._running = False
        self._opening = False
        self._limit = 1
        batched = serve.batch(max_batch_size=1, batch_wait_timeout_s=0.0)(_described(self._batch))
        self._batched = cast(_Batched, batched)

    async def advance(self, item: Item) -> Result:
        """What its batch brought this item; cancelling the call is always safe.

        To be called in a context of its own: Serve would split a batch by the model ids that it
        finds in the contexts of requests.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns[item] = turn
        self._open_if_idle()
        try:
            await turn
            result: Result = await self._batched(item)
            return result
        finally:
            if turn.done() and not turn.cancelled():
                self._inside -= 1
                self._open_if_idle()

    async def _batch(self, items: list[Item]) -> list[Result]:
        self._running = True
        try:
            return await self._run(items)
        except asyncio.CancelledError:
            # @serve.batch would leave every caller hanging.
            raise Failed("The batch was cancelled.") from None
        finally:
            self._running = False
            self._open_if_idle()

    def _open_if_idle(self) -> None:
        if self._turns and not (self._inside or self._running or self._opening):
            self._opening = True
            self._settle(seen=0, quiet=0)

    def _settle(self, seen: int, quiet: int) -> None:
        """Opens once everybody who is about to ask, has: no timer, only turns of the loop."""
        if quiet == QUIET_TURNS:
            self._opening = False
            self._open()
        else:
            quiet = quiet + 1 if len(self._turns) == seen else 0
            asyncio.get_running_loop().call_soon(self._settle, len(self._turns), quiet)

    def _open(self) -> None:
        self._turns = {item: turn for item, turn in self._turns.items() if not turn.done()}
        batch = [self._turns.pop(item) for item in self._choose(self._turns)]
        self._inside = len(batch)
        self._fit(len(batch))
        for turn in batch:
            turn.set_result(None)

    def _fit(self, items: int) -> None:
        """A batch of exactly these items is full, so ``@serve.batch`` waits for no one else."""
        if items and items != self._limit:
            self._limit = items
            self._batched.set_max_batch_size(items)


def _described(run: Run[Item, Result]) -> Callable[[list[Item]], Coroutine[Any, Any, list[Result]]]:
    """The same function, whose signature ``@serve.batch`` need not inspect at every call."""

    async def run_batch(items: list[Item]) -> list[Result]:
        return await run(items)

    run_batch.__signature__ = inspect.signature(run_batch)  # type: ignore[attr-defined]
    return run_batch
