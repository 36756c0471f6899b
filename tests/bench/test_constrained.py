from __future__ import annotations

from tests.bench.constrained import HEADER, build, compare, table


async def test_the_benchmark_compares_both_mixes() -> None:
    built = build(None, 4, "cpu")
    plain, mixed = await compare(built, 2, 2, tokens=12)
    assert plain.tokens_per_s > 0
    assert mixed.median_ms > 0
    lines = table(2, 2, plain, mixed).splitlines()
    assert len(lines) == 3
    assert {line.count("|") for line in lines} == {HEADER.splitlines()[0].count("|")}
    built.stepper.close()
    built.grammars.close()
