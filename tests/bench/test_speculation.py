from __future__ import annotations

from models.schedule.lookup import Drafting
from tests.bench.speculation import HEADER, compare
from tests.models.recall import recall_model


def test_the_benchmark_compares_both_tasks() -> None:
    model = recall_model(max_context=256, blocks=512, says=lambda tokens, seed: tokens[-16] % 90)
    model.capacity = type(model.capacity)(256, 300, 8, 512, 4, prefix_cache=False, drafts=True)
    line = compare(model, "repetitive", 2, 64, Drafting(8), rounds=1)
    assert line.count("|") == HEADER.splitlines()[0].count("|")
    drafted, accepted = (int(cell) for cell in line.split("|")[-3:-1])
    assert drafted >= accepted > 0
