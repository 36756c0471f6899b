"""Token ids and scores to events: what is told of which token, and when."""

from __future__ import annotations

from typing import Any

from models.answer import Answer, token_request
from models.events import Event, Finished, FinishReason, Started, Text, Usage
from models.request import ChatPrompt, GenerateRequest, Prompt, SamplingParams, TextPrompt, User
from models.schedule.sequence import Scores
from models.text.loading import byte_pipeline
from models.tokens import Admitted, Tokens

PIPELINE = byte_pipeline()
ASKING = User("key", "name")
BOS, END, SYSTEM, USER, ASSISTANT = range(256, 261)
STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


def request(
    *stop: str,
    prompt: Prompt | None = None,
    sampling: SamplingParams | None = None,
    **fields: Any,
) -> GenerateRequest:
    fields = {"return_token_ids": True, **fields}
    return GenerateRequest(
        id="r",
        prompt=prompt or TextPrompt("p"),
        sampling=sampling or SamplingParams(logprobs=1),
        stop=stop,
        **fields,
    )


def answer(asked: GenerateRequest) -> Answer:
    return Answer(PIPELINE, PIPELINE.encode(asked), asked)


def score(token: int) -> Scores:
    return Scores(-float(token), 2, ((token + 1, -0.5),))


def tokens(
    ids: list[int], finish: FinishReason | None = None, stop_id: int | None = None
) -> Tokens:
    every = [*ids, *([] if stop_id is None else [stop_id])]
    return Tokens(0, tuple(ids), finish, stop_id, tuple(map(score, every)))


def told(events: list[Event]) -> list[tuple[str, list[int]]]:
    """The text and the ids of each event, having checked that its logprobs are of those ids."""
    rows = []
    for event in events:
        assert isinstance(event, Text | Finished)
        assert [one.token_id for one in event.logprobs] == list(event.token_ids)
        assert all(one.logprob == -float(one.token_id) for one in event.logprobs)
        text = event.delta if isinstance(event, Text) else ""
        rows.append((text, list(event.token_ids)))
    return rows


def test_logprobs_come_with_the_text_of_their_tokens() -> None:
    made = answer(request("xyz"))
    assert told(made.events(tokens([*b"ab", 0xE2]))) == [("ab", [*b"ab"])]
    assert told(made.events(tokens([0x82]))) == []
    assert told(made.events(tokens([0xAC, *b"xy"]))) == [("€", [*"€".encode()])]
    assert told(made.events(tokens([*b"a"]))) == [("xya", [*b"xya"])]


def test_a_token_is_told_in_full() -> None:
    (text,) = answer(request()).events(tokens([*b"a", 0xE2, 0x82, 0xAC]))
    assert isinstance(text, Text)
    first, second, *_ = text.logprobs
    assert (first.token, first.bytes, first.rank, first.offset) == ("a", b"a", 2, 0)
    assert (first.top[0].token, first.top[0].bytes, first.top[0].logprob) == ("b", b"b", -0.5)
    assert (second.token, second.bytes, second.offset) == ("\N{REPLACEMENT CHARACTER}", b"\xe2", 1)


def test_tokens_of_a_stop_come_at_the_end() -> None:
    events = answer(request("xy")).events(tokens([*b"axyz"]))
    assert told(events) == [("a", [*b"a"]), ("", [*b"xy"])]
    assert isinstance(events[-1], Finished)
    assert events[-1].usage == Usage(1, 3)


def test_so_does_the_token_that_ended_the_answer() -> None:
    events = answer(request()).events(tokens([*b"a"], STOP, END))
    assert told(events) == [("a", [*b"a"]), ("", [END])]
    assert isinstance(events[-1], Finished)
    assert (events[-1].usage, events[-1].stop) == (Usage(1, 2), None)
    events = answer(request("x")).events(tokens([*b"a"], STOP, ord("x")))
    assert told(events) == [("a", [*b"a"]), ("", [*b"x"])]


def test_an_answer_of_nothing_but_its_end() -> None:
    assert told(answer(request()).events(tokens([], STOP, END))) == [("", [END])]


def test_what_was_held_is_told_at_the_end() -> None:
    made = answer(request("xyz"))
    assert told(made.events(tokens([*b"ax"]))) == [("a", [*b"a"])]
    assert told(made.events(tokens([*b"y"], LENGTH))) == [("xy", [*b"xy"]), ("", [])]


def test_a_stop_can_be_left_in_the_text() -> None:
    for stop, ids in (("xy", tokens([*b"axyz"])), ("x", tokens([*b"a"], STOP, ord("x")))):
        events = answer(request(stop, include_stop=True)).events(ids)
        assert told(events) == [(f"a{stop}", [*f"a{stop}".encode()]), ("", [])]
        assert isinstance(events[-1], Finished)
        assert (events[-1].stop, events[-1].usage.completion_tokens) == (stop, len(stop) + 1)


def test_a_control_token_left_in_the_text_is_spelled_as_its_caller_did() -> None:
    events = answer(request("<|user|>", include_stop=True)).events(tokens([*b"a"], STOP, USER))
    assert told(events) == [("a<|user|>", [*b"a", USER]), ("", [])]


def test_an_end_of_sequence_left_in_the_text_shows_if_special_tokens_do() -> None:
    for skip, text in ((True, "a"), (False, "a<|end|>")):
        made = answer(request(include_stop=True, skip_special_tokens=skip))
        events = made.events(tokens([*b"a"], STOP, END))
        assert "".join(text for text, _ in told(events)) == text
        assert [i for _, ids in told(events) for i in ids] == [*b"a", END]
        assert isinstance(events[-1], Finished)
        assert events[-1].usage.completion_tokens == 2


def test_a_held_stop_in_the_text_comes_before_one_that_is_a_token() -> None:
    made = answer(request("ab", "abcd", include_stop=True, sampling=SamplingParams(logprobs=0)))
    events = made.events(tokens([*b"abc"], STOP, END))
    assert isinstance(events[-1], Finished)
    assert (events[-1].stop, events[-1].usage.completion_tokens) == ("ab", 2)
    assert told(events) == [("ab", [*b"ab"]), ("", [])]


def test_nothing_is_told_unasked() -> None:
    asked = request(return_token_ids=False, sampling=SamplingParams())
    for event in answer(asked).events(Tokens(0, (*b"ab",), STOP, END)):
        assert isinstance(event, Text | Finished)
        assert (event.logprobs, event.token_ids) == ((), ())
    assert answer(asked).events(Admitted(1, 0)) == [Started(1, 0)]


def test_a_prompt_is_echoed() -> None:
    wish = SamplingParams(prompt_logprobs=1)
    made = answer(request(prompt=TextPrompt("a€"), echo=True, sampling=wish))
    (started,) = made.events(Admitted(4, 0, tuple(map(score, "€".encode()))))
    assert isinstance(started, Started)
    assert (started.text, started.token_ids) == ("a€", (*"a€".encode(),))
    assert [one.logprob for one in started.logprobs] == [None, -226.0, -130.0, -172.0]
    assert [one.offset for one in started.logprobs] == [0, 1, 1, 1]


def test_a_prompt_that_was_cut_is_echoed_as_it_was_read() -> None:
    made = answer(request(prompt=TextPrompt("abcd"), echo=True, truncate_prompt_tokens=2))
    (started,) = made.events(Admitted(2, 0))
    assert isinstance(started, Started)
    assert started.text == "cd"


def test_what_the_engine_is_told() -> None:
    wish = SamplingParams(bad_words=("no",))
    chat = ChatPrompt(({"role": "user", "content": "Hi"},))
    asked = request(
        prompt=chat, sampling=wish, n=2, timeout_s=3.0, priority=-2, user=ASKING, cache_key="k"
    )
    made = token_request(asked, PIPELINE.encode(asked))
    assert (made.n, made.timeout_s, made.priority) == (2, 3.0, -2)
    assert (made.user, made.cache_key) == (ASKING, "k")
    assert made.bad_words == ((*b"no",), (*b" no",))
