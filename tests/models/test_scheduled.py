"""``Scheduled`` from asyncio, from plain threads, from several callers at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress

import pytest

from configs.settings import EngineSettings, ModelSettings
from models.build import build_scheduled
from models.errors import Closed, Failed, Invalid
from models.events import Event, Finished, FinishReason, Started, Text, Usage
from models.request import ChatPrompt, GenerateRequest, SamplingParams, TextPrompt
from models.scheduled import Scheduled


@pytest.fixture
def counting() -> Iterator[Scheduled]:
    settings = ModelSettings(
        name="counting",
        factory="tests.models.counting:Counting",
        engine=EngineSettings(max_running=4),
    )
    with build_scheduled(settings) as engine:
        yield engine
        assert engine.engine.stepper.live == 0
        engine.engine.stepper.pool.check()


def ask(
    text: str, count: int = 5, *, stop: tuple[str, ...] = (), n: int = 1, name: str = ""
) -> GenerateRequest:
    return GenerateRequest(
        id=name or f"{text}-{threading.get_ident()}",
        prompt=TextPrompt(text),
        sampling=SamplingParams(max_tokens=count, temperature=0),
        stop=stop,
        n=n,
    )


def text_of(events: list[Event], choice: int = 0) -> str:
    return "".join(e.delta for e in events if isinstance(e, Text) and e.choice == choice)


async def test_from_asyncio(counting: Scheduled) -> None:
    events = [event async for event in counting.generate(ask("abc"))]
    assert events[0] == Started(3, 0)
    assert text_of(events) == "defgh"
    assert events[-1] == Finished(FinishReason.LENGTH, Usage(3, 5))


def test_from_a_plain_thread(counting: Scheduled) -> None:
    events = list(counting.stream(ask("abc")))
    assert text_of(events) == "defgh"


def test_from_many_threads_at_once(counting: Scheduled) -> None:
    starts = [chr(ord("a") + number % 20) for number in range(60)]
    with ThreadPoolExecutor(20) as pool:
        answers = list(
            pool.map(
                lambda pair: list(counting.stream(ask(pair[1], name=str(pair[0])))),
                enumerate(starts),
            )
        )
    for start, events in zip(starts, answers, strict=True):
        assert text_of(events) == "".join(chr(ord(start) + step) for step in range(1, 6))


def test_from_two_event_loops(counting: Scheduled) -> None:
    async def one(name: str) -> str:
        return text_of([event async for event in counting.generate(ask("m", name=name))])

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda name: asyncio.run(one(name)), ["x", "y"])) == ["nopqr"] * 2


async def test_a_text_stop_ends_the_answer_and_counts_up_to_it(counting: Scheduled) -> None:
    events = [event async for event in counting.generate(ask("a", 100, stop=("fg",)))]
    assert text_of(events) == "bcde"
    assert events[-1] == Finished(FinishReason.STOP, Usage(1, 6), "fg")


async def test_a_stop_of_one_token_is_reported_as_spelled(counting: Scheduled) -> None:
    events = [event async for event in counting.generate(ask("a", 100, stop=("f",)))]
    assert text_of(events) == "bcde"
    assert events[-1] == Finished(FinishReason.STOP, Usage(1, 5), "f")


async def test_a_held_partial_stop_is_released_at_the_end(counting: Scheduled) -> None:
    events = [event async for event in counting.generate(ask("a", 4, stop=("efg",)))]
    assert text_of(events) == "bcde"
    assert events[-1] == Finished(FinishReason.LENGTH, Usage(1, 4))


async def test_choices_come_apart_by_number(counting: Scheduled) -> None:
    events = [event async for event in counting.generate(ask("a", n=3))]
    assert [text_of(events, choice) for choice in range(3)] == ["bcdef"] * 3
    assert sorted(e.choice for e in events if isinstance(e, Finished)) == [0, 1, 2]


async def test_closing_the_iterator_cancels(counting: Scheduled) -> None:
    async with aclosing(counting.generate(ask("a", 100))) as events:
        await anext(events)
    answer = [event async for event in counting.generate(ask("b", name="next"))]
    assert text_of(answer) == "cdefg"
    assert counting.engine.stepper.live == 0


def test_leaving_a_blocking_iterator_cancels(counting: Scheduled) -> None:
    events = counting.stream(ask("a", 100))
    next(events)
    events.close()  # type: ignore[attr-defined]
    assert text_of(list(counting.stream(ask("b", name="next")))) == "cdefg"


async def test_errors_reach_the_caller(counting: Scheduled) -> None:
    request = GenerateRequest(
        id="bad", prompt=TextPrompt("a"), sampling=SamplingParams(stop_token_ids=(99999,))
    )
    with pytest.raises(Invalid, match="99999") as refused:
        await anext(counting.generate(request))
    assert refused.value.param == "stop_token_ids"


async def test_chat_goes_through_the_template(counting: Scheduled) -> None:
    request = GenerateRequest(
        id="chat",
        prompt=ChatPrompt(({"role": "user", "content": "hi"},)),
        sampling=SamplingParams(max_tokens=1, temperature=0),
    )
    events = [event async for event in counting.generate(request)]
    assert isinstance(events[0], Started)
    assert events[0].prompt_tokens > 2


def test_closing_fails_what_runs_and_what_comes_later(counting: Scheduled) -> None:
    events = counting.stream(ask("a", 100))
    next(events)
    counting.close()
    with pytest.raises(Closed):
        list(events)
    with pytest.raises(Closed):
        list(counting.stream(ask("b")))


def test_closing_leaves_no_thread() -> None:
    before = {*threading.enumerate()}
    settings = ModelSettings(name="counting", factory="tests.models.counting:Counting")
    with build_scheduled(settings) as engine:
        next(engine.stream(ask("a", 100)))
    assert {*threading.enumerate()} <= before


def test_a_call_that_races_the_end_is_refused_or_answered() -> None:
    settings = ModelSettings(name="counting", factory="tests.models.counting:Counting")
    for _ in range(20):
        engine = build_scheduled(settings)
        closing = threading.Thread(target=engine.close)
        closing.start()
        with suppress(Failed):
            list(engine.stream(ask("a")))
        closing.join()
