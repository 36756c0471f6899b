"""Decides which items join the same ``@serve.batch`` batch.

Bare, ``@serve.batch`` forms its next batch while the current one runs, so an item that arrives
during a batch never rejoins the others. Here asks wait in front of a gate; it opens when nothing
of the last batch is outstanding, lets in one batch of those who wait, and shuts behind it at once.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
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


@dataclass(slots=True, eq=False)
class _Ask(Generic[Item, Result]):
    item: Item
    answer: asyncio.Future[Result]  # cancelled together with the asking coroutine


class BatchGate(Generic[Item, Result]):
    """Turns single asks into batches; to be used on one event loop, inside a replica.

    ``run`` takes the items of a batch and returns their results in the same order. It marks or
    skips the ended ones itself: an ask whose caller went away during its batch stays in it.
    ``choose`` gives the next batch of the items that wait, at least one; without it, it is all.

    Invariant: ``_outstanding`` counts the items that ``@serve.batch`` holds. They belong to tasks
    of the gate's own, which nobody cancels, so every item leaves, whatever happens to its caller.
    """

    def __init__(
        self,
        run: Run[Item, Result],
        choose: Callable[[Iterable[Item]], list[Item]] = list,
    ) -> None:
        self._choose = choose
        self._asks: dict[Item, _Ask[Item, Result]] = {}
        self._outstanding = 0
        self._opening = False
        self._limit = 1
        batched = serve.batch(max_batch_size=1, batch_wait_timeout_s=0.0)(_handler(run))
        self._batched = cast(_Batched, batched)

    async def advance(self, item: Item) -> Result:
        """What its batch brought this item; cancelling the call is always safe."""
        ask: _Ask[Item, Result] = _Ask(item, asyncio.get_running_loop().create_future())
        self._asks[item] = ask
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
        self._asks = {item: ask for item, ask in self._asks.items() if not ask.answer.done()}
        batch = [self._asks.pop(item) for item in self._choose(self._asks)]
        self._outstanding = len(batch)
        self._fit(len(batch))
        for ask in batch:
            self._let_in(ask)

    def _fit(self, items: int) -> None:
        """A batch of exactly these items is full, so ``@serve.batch`` waits for no one else."""
        if items and items != self._limit:
            self._limit = items
            self._batched.set_max_batch_size(items)

    def _let_in(self, ask: _Ask[Item, Result]) -> None:
        # An empty context: a batch belongs to no single request, and Serve would split the batch
        # by the model id it finds there.
        item = asyncio.get_running_loop().create_task(
            self._batched(ask.item), context=contextvars.Context()
        )
        item.add_done_callback(functools.partial(self._leave, ask.answer))

    def _leave(self, answer: asyncio.Future[Result], item: asyncio.Task[Result]) -> None:
        self._outstanding -= 1
        _copy(item, answer)
        self._open_if_idle()


def _handler(
    run: Run[Item, Result],
) -> Callable[[list[Item]], Coroutine[Any, Any, list[Result]]]:
    async def run_batch(items: list[Item]) -> list[Result]:
        try:
            return await run(items)
        except asyncio.CancelledError:
            # @serve.batch would leave every caller hanging.
            raise Failed("The batch was cancelled.") from None

    # Spares @serve.batch the inspection of the function at every call.
    run_batch.__signature__ = inspect.signature(run_batch)  # type: ignore[attr-defined]
    return run_batch


def _copy(item: asyncio.Task[Result], answer: asyncio.Future[Result]) -> None:
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
