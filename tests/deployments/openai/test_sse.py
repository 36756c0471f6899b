from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from deployments.openai.sse import event, quote


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_text_stays_on_one_line_and_comes_back(text: str) -> None:
    quoted = quote(text)
    assert len(quoted.splitlines()) == 1
    assert json.loads(quoted) == text
    assert event(text) == f"data: {quoted}\n\n".encode()
