from __future__ import annotations

import math
import re
from typing import Any

import pytest

from models.errors import Invalid
from models.request import LIMITS, SamplingParams


@pytest.mark.parametrize("name", LIMITS)
def test_numbers_may_be_at_their_limits(name: str) -> None:
    for value in LIMITS[name]:
        given: dict[str, Any] = {name: value}
        SamplingParams(**given)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("temperature", -0.5, "temperature must be at least 0 and at most 2, not -0.5."),
        ("temperature", math.nan, "temperature must be a finite number."),
        ("top_p", -0.1, "top_p must be at least 0 and at most 1, not -0.1."),
        ("min_p", 1.5, "min_p must be at least 0 and at most 1, not 1.5."),
        ("presence_penalty", -2.5, "presence_penalty must be at least -2 and at most 2, not -2.5."),
        ("frequency_penalty", 3, "frequency_penalty must be at least -2 and at most 2, not 3."),
        ("repetition_penalty", 0, "repetition_penalty must be at least 0.01 and at most 100, not"),
        ("top_k", -1, "top_k must be at least 0, not -1."),
    ],
)
def test_numbers_beyond_their_limits_are_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(Invalid, match=re.escape(message)) as refused:
        SamplingParams(**{name: value})
    assert refused.value.param == name
