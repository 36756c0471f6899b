"""What a request's tokens say: content, reasoning, calls, and how the answer ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from models.answer import Answer, joined
from models.events import Event, Finished, FinishReason, Reasoning, Started, Text, ToolCall, Usage
from models.request import ChatPrompt, GenerateRequest, ToolChoice
from models.text.byte_tokenizer import byte_tokenizer
from models.text.loading import byte_pipeline
from models.text.pipeline import TextPipeline
from models.tokens import Admitted, Tokens
from tests.models.text.saying import said

NOW = {"type": "function", "function": {"name": "now"}}
CALL = '<tool_call>{"name": "now"}</tool_call>'
SAID = ("call", "now", "{}")


def answer_to(n: int = 1, tools: Sequence[dict[str, Any]] = (NOW,), **wishes: Any) -> Answer:
    text = byte_pipeline(reasoning="think", tool_format="hermes")
    prompt = ChatPrompt(({"role": "user", "content": "Hi"},), tools=tuple(tools))
    request = GenerateRequest(id="r", prompt=prompt, n=n, **wishes)
    answer = Answer(text, text.encode(request), request)
    assert answer.events(Admitted(5, 2)) == [Started(5, 2)]
    return answer


def tell(answer: Answer, *items: Tokens) -> tuple[list[tuple[str, ...]], Finished]:
    events: list[Event] = [event for item in items for event in answer.events(item)]
    end = events.pop()
    assert isinstance(end, Finished)
    return said(e for e in events if isinstance(e, Text | Reasoning | ToolCall)), end


def tokens(text: str, finish: FinishReason | None = None, stop_id: int | None = None) -> Tokens:
    return Tokens(0, tuple(text.encode()), finish, stop_id)


END = Tokens(0, (), FinishReason.STOP, 257)


def test_an_answer_that_is_cut_short_ends_what_has_not_ended() -> None:
    answer = answer_to(n=3)
    tell(answer, tokens("whole"), END)
    answer.events(Tokens(2, tuple(b"half")))
    ends = [event for event in answer.expire() if isinstance(event, Finished)]
    assert [(end.choice, end.usage.completion_tokens) for end in ends] == [(1, 0), (2, 4)]
    assert {end.reason for end in ends} == {FinishReason.LENGTH}
    assert (answer.unfinished, answer.expire()) == (0, [])


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_all_that_is_said_comes_in_order(size: int) -> None:
    text = f"<think>Hm.</think>Let me see. {CALL}"
    pieces = [tokens(text[i : i + size]) for i in range(0, len(text), size)]
    parts, end = tell(answer_to(), *pieces, END)
    assert parts == [("reasoning", "Hm."), ("text", "Let me see. "), SAID]
    assert end.reason == FinishReason.TOOL_CALLS
    assert end.stop is None


def test_reasoning_tokens_are_counted() -> None:
    thought = "Hm.</think>"
    _, end = tell(answer_to(), tokens(f"<think>{thought}So."), END)
    # All but the tokens that complete the markers.
    assert end.usage == Usage(5, len(f"<think>{thought}So.") + 1, 2, len(thought) - 1)
    _, end = tell(answer_to(), tokens("So."), END)
    assert end.usage.reasoning_tokens == 0


@pytest.mark.parametrize(
    ("text", "finish", "choice", "expected"),
    [
        (CALL, FinishReason.STOP, ToolChoice(), FinishReason.TOOL_CALLS),
        (CALL, FinishReason.STOP, ToolChoice("required"), FinishReason.TOOL_CALLS),
        (CALL, FinishReason.STOP, ToolChoice("required", "now"), FinishReason.STOP),
        (CALL, FinishReason.LENGTH, ToolChoice(), FinishReason.LENGTH),
        (CALL, FinishReason.LENGTH, ToolChoice("required", "now"), FinishReason.LENGTH),
        ("none", FinishReason.STOP, ToolChoice(), FinishReason.STOP),
        ("<tool_call>no</tool_call>", FinishReason.STOP, ToolChoice(), FinishReason.STOP),
    ],
)
def test_how_it_ends(
    text: str, finish: FinishReason, choice: ToolChoice, expected: FinishReason
) -> None:
    _, end = tell(answer_to(tool_choice=choice), tokens(text, finish))
    assert end.reason == expected


def test_a_stop_loses_nothing_that_was_held() -> None:
    answer = answer_to(stop=("STOP",))
    parts, end = tell(answer, tokens('a <tool_call>{"name": "no'), tokens("wSTOPx"))
    assert parts == [("text", 'a <tool_call>{"name": "now')]
    assert (end.reason, end.stop) == (FinishReason.STOP, "STOP")
    assert answer.stopped() == [0]
    assert answer.events(tokens("more")) == []


def test_every_layer_is_flushed_at_the_end() -> None:
    held = "<think>a</thi"
    parts, _ = tell(answer_to(stop=("inkx",)), tokens(held), tokens("nk", FinishReason.LENGTH))
    assert parts == [("reasoning", "a</think")]
    parts, _ = tell(answer_to(stop=("callx",)), tokens("a<tool_call", FinishReason.LENGTH))
    assert parts == [("text", "a<tool_call")]


def test_without_parallel_calls_the_choice_ends_behind_the_first() -> None:
    answer = answer_to(tool_choice=ToolChoice(parallel=False))
    parts, end = tell(answer, tokens(f"{CALL}\n{CALL}"))
    assert parts == [SAID]
    assert end.reason == FinishReason.TOOL_CALLS
    assert end.usage.completion_tokens < len(CALL)
    assert answer.stopped() == [0]
    assert answer.unfinished == 0


def test_choices_are_read_apart() -> None:
    answer = answer_to(n=2)
    first = answer.events(Tokens(0, tuple(CALL.encode()), FinishReason.STOP))
    second = answer.events(Tokens(1, tuple(CALL.encode()), FinishReason.STOP))
    assert [e.choice for e in [*first, *second] if isinstance(e, ToolCall)] == [0, 1]
    ids = [e.id for e in [*first, *second] if isinstance(e, ToolCall)]
    assert len(set(ids)) == 2


def test_without_tools_calls_are_text() -> None:
    parts, end = tell(answer_to(tools=()), tokens(CALL, FinishReason.STOP))
    assert parts == [("text", CALL)]
    assert end.reason == FinishReason.STOP


def test_markers_that_are_special_tokens_are_seen() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["[TOOL_CALLS]", "[ARGS]", "[OTHER]"])
    text = TextPipeline(tokenizer, special_tokens={}, chat_template="[TOOL_CALLS]")
    said_ids = tokenizer.encode("[OTHER]Hi[TOOL_CALLS]now[ARGS]{}").ids

    def say(*tools: dict[str, Any]) -> list[tuple[str, ...]]:
        prompt = ChatPrompt(({"role": "user", "content": "Hi"},), tools=tools)
        request = GenerateRequest(id="r", prompt=prompt)
        answer = Answer(text, text.encode(request), request)
        return tell(answer, Tokens(0, tuple(said_ids), FinishReason.LENGTH))[0]

    assert say(NOW) == [("text", "Hi"), SAID]
    assert say() == [("text", "Hinow{}")]


def test_parts_that_go_on_are_joined() -> None:
    head, more = ToolCall(0, "c", "f", "{"), ToolCall(0, None, None, "}")
    assert joined([Text("a"), Text("b"), Reasoning("c"), head, more, ToolCall(1, "d", "f")]) == [
        Text("ab"),
        Reasoning("c"),
        ToolCall(0, "c", "f", "{}"),
        ToolCall(1, "d", "f"),
    ]
