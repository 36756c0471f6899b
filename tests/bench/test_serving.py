from __future__ import annotations

from collections.abc import AsyncIterator

from tests.bench.serving import HEADER, measure, rows


async def test_streams_are_timed_by_their_pieces() -> None:
    async def stream(prompt: str, tokens: int) -> AsyncIterator[str]:
        for _ in range(tokens):
            yield prompt

    result = await measure(stream, 3, 5)
    assert result.tokens_per_s > 0
    table = list(rows(3, result, result))
    assert {line.count("|") for line in table} == {HEADER.splitlines()[0].count("|")}
    assert "100.0%" in table[2]
