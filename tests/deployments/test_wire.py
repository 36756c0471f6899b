from __future__ import annotations

import pickle

import pytest

from deployments.wire import Item, pack, unpack
from models.errors import Busy, EngineError, Failed, Invalid, TimedOut, TooLong
from models.events import (
    Finished,
    FinishReason,
    Reasoning,
    Started,
    Text,
    TokenLogprob,
    ToolCall,
    TopLogprob,
    Usage,
)
from models.schedule.sequence import Scores
from models.tokens import Admitted, Tokens

FIRST = TokenLogprob(1, "é", "é".encode(), None)
SECOND = TokenLogprob(5, "\ufffd", b"\xc3", -0.5, (TopLogprob(6, "b", b"b", -0.1),), 2, 1)


@pytest.mark.parametrize(
    "item",
    [
        Admitted(5, 3),
        Tokens(1, (7, 8)),
        Tokens(0, (), FinishReason.STOP, 2),
        Started(5, 0),
        Text("é", 2),
        Reasoning("é", 1),
        ToolCall(0, "call_1", "f", "{", 1),
        ToolCall(2, None, None, "}"),
        Finished(FinishReason.LENGTH, Usage(5, 6, 3, 2)),
        Finished(FinishReason.STOP, Usage(5, 6), "\n\n", 1),
        Admitted(3, 0, (Scores(-0.5, 2, ((7, -0.1),)), Scores(-1.5, 1))),
        Tokens(0, (4,), FinishReason.STOP, 2, (Scores(-0.5, 2), Scores(-0.25, 1))),
        Started(2, 0, "é", (1, 2), (FIRST, SECOND)),
        Started(2, 0, token_ids=(1, 2)),
        Text("é", 2, (SECOND,), (5,)),
        Reasoning("é", 2, (SECOND,), (5,)),
        ToolCall(0, "call_1", "f", "{", 1, (SECOND,), (5,)),
        Finished(FinishReason.LENGTH, Usage(5, 6), None, 1, (SECOND,), (5,)),
    ],
)
def test_an_item_survives_the_hop(item: Item) -> None:
    assert unpack(pickle.loads(pickle.dumps(pack(item)))) == item


def test_what_nobody_asked_for_costs_nothing() -> None:
    assert pack(Tokens(1, (7, 8))) == ("tokens", 1, (7, 8), None, None)
    assert pack(Text("é", 2)) == ("text", "é", 2)


@pytest.mark.parametrize(
    "error",
    [Invalid("no", "top_p"), TooLong(9, 8), Busy("later", 2.5), Failed("broken"), TimedOut()],
)
def test_an_error_is_a_value_on_the_hop_and_raised_behind_it(error: EngineError) -> None:
    packed = pickle.loads(pickle.dumps(pack(error)))
    with pytest.raises(type(error)) as raised:
        unpack(packed)
    assert vars(raised.value) == vars(error)
