from __future__ import annotations

import pytest

from models.text.harmony import HarmonyParser
from tests.models.text.saying import FUNCTIONS, Said, said, say

ANALYSIS = "<|channel|>analysis<|message|>Need it.<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}'
PARIS = ("call", "get_weather", '{"city":"Paris"}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"{ANALYSIS}<|channel|>final<|message|>Hello <b>",
            [("reasoning", "Need it."), ("text", "Hello <b>")],
        ),
        (ANALYSIS + CALL, [("reasoning", "Need it."), PARIS]),
        (ANALYSIS + CALL + "<|call|>", [("reasoning", "Need it."), PARIS]),
        (
            f"{CALL}<|call|><|start|>assistant to=functions.now<|channel|>commentary<|message|>"
            "{}",
            [PARIS, ("call", "now", "{}")],
        ),
        (
            f"<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant{CALL}",
            [("text", "I will look."), PARIS],
        ),
        ("<|channel|>commentary to=functions.other<|message|>{}", [("text", "{}")]),
        (' to=functions.get_weather<|channel|>commentary json<|message|>{"city":"Paris"}', [PARIS]),
        (' to=functions.get_weather<|message|>{"city":"Paris"}<|call|>', [PARIS]),
        (" to=functions.get_weather", [("text", " to=functions.get_weather")]),
        (" tomorrow", [("text", " tomorrow")]),
        ("to= " + "x" * 300, [("text", "to= " + "x" * 300)]),
        ("plain", [("text", "plain")]),
        ("<|channel|>fin", [("text", "<|channel|>fin")]),
        ("<|channel|>final<|message|>a <|chan", [("text", "a <|chan")]),
    ],
)
def test_channels_are_parted(text: str, expected: Said) -> None:
    assert say(lambda: HarmonyParser(FUNCTIONS), text) == expected


def test_it_is_known_what_is_reasoning() -> None:
    parser = HarmonyParser({})
    inside = []
    for piece in ["<|channel|>analysis", "<|message|>", "Hm", "<|end|>", "<|start|>assistant"]:
        list(parser.push(piece))
        inside.append(parser.inside)
    assert inside == [False, True, True, False, False]


def test_without_parallel_calls_the_first_is_the_end() -> None:
    parser = HarmonyParser(FUNCTIONS, parallel=False)
    parts = [*parser.push(f"{CALL}<|call|><|start|>assistant{CALL}"), *parser.flush()]
    assert said(parts) == [PARIS]
    assert parser.ended
