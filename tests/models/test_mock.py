from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from models.errors import Busy, Failed, Invalid, TimedOut, TooLong
from models.events import Event, Finished, FinishReason, Started, Text, Usage
from models.mock import MockEngine
from models.request import GenerateRequest, SamplingParams, TextPrompt, TokenPrompt
from models.script import split

WISHES = (
    "echo",
    "include_stop",
    "return_token_ids",
    "timeout_s",
    "truncate_prompt_tokens",
    "truncates_end",
)


def ask(*, n: int = 1, stop: tuple[str, ...] = (), **rest: Any) -> GenerateRequest:
    prompt = TextPrompt("one two")
    wishes = {name: rest.pop(name) for name in WISHES if name in rest}
    sampling = SamplingParams(**rest)
    return GenerateRequest(id="1", prompt=prompt, n=n, stop=stop, sampling=sampling, **wishes)


async def answer(
    engine: MockEngine, request: GenerateRequest, seen: list[Event] | None = None
) -> list[Event]:
    events = [] if seen is None else seen
    async for event in engine.generate(request):
        events.append(event)
    return events


def text(events: list[Event], choice: int = 0) -> str:
    deltas = [one for one in events if isinstance(one, Text) and one.choice == choice]
    return "".join(one.delta for one in deltas)


async def test_pieces_come_one_by_one() -> None:
    events = await answer(MockEngine("mock", pieces=["a", "b"], cached_tokens=1), ask())
    usage = Usage(2, 2, 1)
    assert events == [Started(2, 1), Text("a"), Text("b"), Finished(FinishReason.STOP, usage)]


async def test_a_text_is_cut_into_words() -> None:
    assert split("  A b\n c ") == ("  A", " b", "\n c", " ")
    assert text(await answer(MockEngine("mock", text="Hi you"), ask())) == "Hi you"


async def test_max_tokens_ends_by_length() -> None:
    events = await answer(MockEngine("mock", pieces=["a", "b"]), ask(max_tokens=2))
    assert events[-1] == Finished(FinishReason.LENGTH, Usage(2, 2))


async def test_the_context_ends_by_length() -> None:
    engine = MockEngine("mock", pieces=["a"], max_context=5)
    events = await answer(engine, ask(ignore_eos=True))
    assert events[-1] == Finished(FinishReason.LENGTH, Usage(2, 3))
    with pytest.raises(TooLong):
        await answer(MockEngine("mock", max_context=2), ask())


async def test_min_tokens_starts_the_script_over() -> None:
    events = await answer(MockEngine("mock", pieces=["a", "b"]), ask(min_tokens=3))
    assert text(events) == "aba"


async def test_stops_of_both_kinds() -> None:
    engine = MockEngine("mock", pieces=list("hello"))
    events = await answer(engine, ask(stop=("", "lo")))
    assert text(events) == "hel"
    assert events[-1] == Finished(FinishReason.STOP, Usage(2, 5), "lo")
    events = await answer(engine, ask(stop_token_ids=(2,)))
    assert text(events) == "he"
    assert events[-1] == Finished(FinishReason.STOP, Usage(2, 3), 2)


async def test_held_text_is_flushed() -> None:
    events = await answer(MockEngine("mock", pieces=list("hel")), ask(stop=("help",)))
    assert text(events) == "hel"
    assert events[-1] == Finished(FinishReason.STOP, Usage(2, 3))


async def test_choices_advance_in_turn() -> None:
    events = await answer(MockEngine("mock", pieces=["a", "b"]), ask(n=2))
    texts = [(one.choice, one.delta) for one in events if isinstance(one, Text)]
    assert texts == [(0, "a"), (1, "a"), (0, "b"), (1, "b")]
    assert [one.choice for one in events if isinstance(one, Finished)] == [0, 1]


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        ("invalid", Invalid),
        ("too_long", TooLong),
        ("busy", Busy),
        ("failed", Failed),
        ("crash", RuntimeError),
    ],
)
async def test_failures_on_demand(failure: Any, error: type[Exception]) -> None:
    engine = MockEngine("mock", pieces=["a", "b", "c"], failure=failure)
    with pytest.raises(error):
        await answer(engine, ask())
    late = MockEngine("mock", pieces=["a", "b", "c"], failure=failure, fail_after=2)
    seen: list[Event] = []
    with pytest.raises(error):
        await answer(late, ask(), seen)
    assert text(seen) == "ab"
    assert engine.live == late.live == 0


async def test_more_than_it_can_run_is_busy() -> None:
    engine = MockEngine("mock", max_running=1, retry_after=2.5)
    async with aclosing(engine.generate(ask())) as first:
        await anext(first)
        with pytest.raises(Busy) as caught:
            await answer(engine, ask())
        assert caught.value.retry_after == 2.5
    assert engine.live == 0
    await answer(engine, ask())


async def test_closing_and_cancelling_free_the_request() -> None:
    engine = MockEngine("mock", first_token_s=60)
    task = asyncio.create_task(answer(engine, ask()))
    await asyncio.sleep(0)
    assert engine.live == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.live == 0


async def test_token_prompts_count_their_ids() -> None:
    request = GenerateRequest(id="1", prompt=TokenPrompt((5, 6, 7)))
    events = await answer(MockEngine("mock"), request)
    assert events[0] == Started(3, 0)


async def test_logprobs_and_ids_come_with_the_text() -> None:
    engine = MockEngine("mock", pieces=["a", "S", "T", "b"])
    request = ask(stop=("STOP",), logprobs=2, return_token_ids=True, max_tokens=4)
    _, *texts, _ = await answer(engine, request)
    assert all(isinstance(one, Text) for one in texts)
    ids = [one.token_ids for one in texts if isinstance(one, Text)]
    assert ids == [(0,), (1, 2, 3)]
    first, *_ = [one for text in texts if isinstance(text, Text) for one in text.logprobs]
    assert (first.token, first.bytes, first.logprob, first.rank) == ("a", b"a", 0.0, 1)
    assert [(top.token, top.logprob) for top in first.top] == [("a", 0.0), ("S", -1.0)]


async def test_a_prompt_is_echoed_and_cut() -> None:
    engine = MockEngine("mock")
    started = (await answer(engine, ask(echo=True, prompt_logprobs=0, max_tokens=0)))[0]
    assert isinstance(started, Started)
    assert started.text == "one two"
    assert [one.logprob for one in started.logprobs] == [None, 0.0]
    started = (await answer(engine, ask(echo=True, truncate_prompt_tokens=1)))[0]
    assert started == Started(1, 0, " two")
    cut = ask(echo=True, truncate_prompt_tokens=1, truncates_end=True)
    assert (await answer(engine, cut))[0] == Started(1, 0, "one")


async def test_no_tokens_at_all() -> None:
    events = await answer(MockEngine("mock"), ask(max_tokens=0))
    assert events == [Started(2, 0), Finished(FinishReason.LENGTH, Usage(2, 0))]


async def test_a_stop_can_be_kept() -> None:
    events = await answer(
        MockEngine("mock", pieces=["a", "b"]), ask(stop=("b",), include_stop=True)
    )
    assert text(events) == "ab"


async def test_a_timeout() -> None:
    with pytest.raises(TimedOut):
        await answer(MockEngine("mock", first_token_s=60), ask(timeout_s=0.01))
    engine = MockEngine("mock", pieces=["a", "b"], inter_token_s=60)
    events = await answer(engine, ask(timeout_s=0.01))
    assert events == [Started(2, 0), Text("a"), Finished(FinishReason.LENGTH, Usage(2, 1))]
    assert engine.live == 0


async def test_what_a_script_cannot_heed_is_refused() -> None:
    for wish in ({"bad_words": ("a",)}, {"allowed_token_ids": (1,)}):
        with pytest.raises(Invalid):
            await answer(MockEngine("mock"), ask(**wish))
