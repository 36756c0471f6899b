from __future__ import annotations

import pickle

import pytest

from deployments.wire import Item, pack, unpack
from models.errors import Busy, EngineError, Failed, Invalid, TooLong
from models.events import Finished, FinishReason, Reasoning, Started, Text, ToolCall, Usage
from models.token_engine import Admitted, Tokens


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
    ],
)
def test_an_item_survives_the_hop(item: Item) -> None:
    assert unpack(pickle.loads(pickle.dumps(pack(item)))) == item


@pytest.mark.parametrize(
    "error", [Invalid("no", "top_p"), TooLong(9, 8), Busy("later", 2.5), Failed("broken")]
)
def test_an_error_is_a_value_on_the_hop_and_raised_behind_it(error: EngineError) -> None:
    packed = pickle.loads(pickle.dumps(pack(error)))
    with pytest.raises(type(error)) as raised:
        unpack(packed)
    assert vars(raised.value) == vars(error)
