from __future__ import annotations

import pytest

from models.text.parsing import ReasonedParser
from models.text.reasoning import FORMATS, ReasoningParser, find_format
from models.text.tools.formats import FORMATS as TOOLS
from models.text.tools.parser import ToolParser
from tests.models.text.saying import FUNCTIONS, Said, say

THINK = FORMATS["think"]


@pytest.mark.parametrize(
    ("opened", "text", "expected"),
    [
        (
            False,
            "<think>\nHm.\n\nSo.\n</think>\n\nHello ",
            [("reasoning", "Hm.\n\nSo."), ("text", "Hello ")],
        ),
        (False, "\n<think>Hm", [("reasoning", "Hm")]),
        (False, "<think></think>Hi", [("text", "Hi")]),
        (False, "<think>\n\n</think>\n\nHi", [("text", "Hi")]),
        (False, "Hello <think>no</think>", [("text", "Hello <think>no</think>")]),
        (False, "  Hello\n", [("text", "  Hello\n")]),
        (False, "<thin", [("text", "<thin")]),
        (False, " \n", [("text", " \n")]),
        (False, "", []),
        (True, "Hm</think>Hi </think>", [("reasoning", "Hm"), ("text", "Hi </think>")]),
        (True, "\n<think>\nHm</think>", [("reasoning", "Hm")]),
        (True, "Hm <think> x</think>", [("reasoning", "Hm <think> x")]),
        (True, "Hm </thi", [("reasoning", "Hm </thi")]),
        (True, "<thin", [("reasoning", "<thin")]),
    ],
)
def test_reasoning_is_parted_from_content(opened: bool, text: str, expected: Said) -> None:
    assert (
        say(lambda: ReasonedParser(ReasoningParser(THINK, opened=opened), None), text) == expected
    )


def test_nothing_waits_but_what_may_be_a_marker() -> None:
    parser = ReasoningParser(THINK, opened=True)
    pushed = [
        parser.push(piece) for piece in ["\n", "Hm", ", <", "b>", "\n</th", "ink>", "\nHi", " "]
    ]
    assert pushed == [
        ("", ""),
        ("Hm", ""),
        (",", ""),
        (" <b>", ""),
        ("", ""),
        ("", ""),
        ("", "Hi"),
        ("", " "),
    ]


def test_calls_come_after_it() -> None:
    call = '<tool_call>{"name": "now"}</tool_call>'
    text = f"<think>I could write {call}</think>\n\nSo:\n{call}"

    def make() -> ReasonedParser:
        return ReasonedParser(ReasoningParser(THINK), ToolParser(TOOLS["hermes"], FUNCTIONS))

    assert say(make, text) == [
        ("reasoning", f"I could write {call}"),
        ("text", "So:\n"),
        ("call", "now", "{}"),
    ]


def test_it_is_known_when_reasoning_goes_on() -> None:
    assert THINK.is_open("<|assistant|><think>\n")
    assert not THINK.is_open("<think>\n\n</think>\n\n")
    assert THINK.continues("<think>Well")
    assert not THINK.continues("<think>Well</think>So")
    assert not THINK.continues("Well")


@pytest.mark.parametrize("name", FORMATS)
def test_the_template_tells_the_format(name: str) -> None:
    assert find_format(f"x {FORMATS[name].end} y") is FORMATS[name]
    assert find_format("x") is None
