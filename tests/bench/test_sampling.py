from __future__ import annotations

from tests.bench.sampling import HEADER, KINDS, table


def test_the_benchmark_measures_every_kind() -> None:
    lines = list(table((1, 2, 3, 4), 2000, 1))
    assert [name for name in KINDS if not any(f"| {name} |" in line for line in lines)] == []
    assert {line.count("|") for line in lines} == {HEADER.splitlines()[0].count("|")}
