from __future__ import annotations

from tests.bench.step_batching import HEADER, Load, SleepingModel, compare, rows


def test_the_benchmark_compares_both_paths_over_the_same_load() -> None:
    load = Load(4, tokens=(5, 8), within_s=0.01)
    loop, batch = compare(SleepingModel(4, 0.001), load)
    assert loop.mean_batch > 1
    assert batch.mean_batch > 1
    table = rows("1 ms", 4, loop, batch).splitlines()
    assert len(table) == 3
    assert {line.count("|") for line in table} == {HEADER.splitlines()[0].count("|")}
