"""How the end of a step is waited for: on the model's thread, and then by the event loop."""

from __future__ import annotations

import asyncio
from collections import abc
from concurrent.futures import Future, wait
from typing import TypeVar

from models.schedule.sequence import Chunk, Scores
from models.step.model import InFlight

Read = tuple[list[int], list[Scores]]
"""What a step sampled, and what it scored if anybody asked."""

T = TypeVar("T")


def read(chunks: list[Chunk], launched: abc.Callable[[], InFlight]) -> Read:
    """Waits for a step, on the model's thread. Raises ValueError if it brought too much or little.

    By then it is known what grammars say of the tokens: a model may not ask.
    """
    flight, tokens = _landed(launched)
    samples = sum(chunk.sampled for chunk in chunks)
    asked = sum(chunk.scores for chunk in chunks)
    if len(tokens) != samples:
        raise ValueError(f"the model made {len(tokens)} tokens for {samples} sequences")
    scores = flight.scores() if asked else []
    if len(scores) != asked:
        raise ValueError(f"the model scored {len(scores)} tokens of {asked}")
    if rulings := [chunk.ruling for chunk in chunks if chunk.ruling]:
        wait(rulings)
    return tokens, scores


def _landed(launched: abc.Callable[[], InFlight]) -> tuple[InFlight, list[int]]:
    try:
        flight = launched()
        return flight, flight.tokens()
    except (SystemExit, KeyboardInterrupt) as error:  # of a model's: it would end our loop
        raise RuntimeError(f"the model raised {error!r}") from error


async def end_of(job: Future[T]) -> T:
    """Its result, for a coroutine. The job goes on, whoever stops waiting for it."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def tell(_: Future[T]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(_wake, ended)

    job.add_done_callback(tell)
    await ended
    return job.result()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
