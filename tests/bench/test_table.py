from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.figures import Figures
from tests.bench.plot import can_draw, draw
from tests.bench.results import Record, Results, Shown, Start, load, merged
from tests.bench.table import report


def found(speed: float, first_ms: float = 100.0) -> Figures:
    return Figures(speed, first_ms, 10.0, 20.0, 100, 50, seconds=2.0, asked=4, failed=0)


def results(number: int = 1) -> Results:
    made = Results("a machine")
    made.servers = {
        "ours": Shown("ours, float32", "float32", "ours"),
        "ours, engine": Shown("the engine", "float32", "engine", "ours"),
        "one": Shown("one", "float32"),
        "other": Shown("other", "int4"),
        "absent": Shown("absent", "float32"),
    }
    made.starts = [Start("ours", number, 5.0), Start("one", number, 50.0)]
    made.records = [
        Record("ours", "A", number, found(60.0 * number, 90.0)),
        Record("ours, engine", "A", number, found(61.0 * number, 88.0)),
        Record("one", "A", number, found(50.0 * number)),
        Record("other", "A", number, found(100.0 * number, 30.0)),
        Record("ours", "E", number, replace(found(60.0), worst_gap_ms=200.0, long_first_ms=900.0)),
    ]
    made.problems = {"absent": ["not installed"]}
    return made


def line(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(start))


def test_servers_stand_beside_each_other() -> None:
    text = report(results())
    assert line(text, "| server ") == (
        "| server | A tok/s (ttft, itl) | E tok/s (itl p99, worst gap, long ttft) | start |"
    )
    assert line(text, "| ours, float32 | 60") == (
        "| ours, float32 | 60.0 (90.0, 10.0) | 60.0 (20.0, 200, 900) | 5.0 s |"
    )
    assert line(text, "| absent |") == "| absent | – | – | – |"
    assert "- absent: not installed" in text


def test_ratios_are_to_the_best_of_the_precision_and_of_all() -> None:
    text = report(results())
    assert "| **1.20×** (0.90×, 1.00×) |" in line(text, "| ours, float32 / best float32 peer")
    assert "| **0.60×** (3.00×, 1.00×) |" in line(text, "| ours, float32 / best peer")


def test_the_graph_stands_beside_its_engine() -> None:
    text = report(results())
    assert line(text, "| ours, float32, A: share") == (
        "| ours, float32, A: share | **98.4%** | **+2.0 ms** | 1.00× | **1.00×** |"
    )


def test_every_table_has_its_columns() -> None:
    for table in report(results()).split("\n\n"):
        rows = [row for row in table.splitlines() if row.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1


def test_files_are_merged_into_one_run_of_medians(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        results(number).save(tmp_path / f"{number}.json")
    whole = merged(load(tmp_path / f"{number}.json") for number in (1, 2, 3))
    a = whole.figures("ours", "A")
    assert a is not None
    assert a.tokens_per_s == 120
    assert whole.figures("absent", "A") is None
    assert report(whole).count("not installed") == 1


@pytest.mark.skipif(not can_draw(), reason="matplotlib is of the `bench` extra")
def test_results_are_drawn(tmp_path: Path) -> None:
    draw(results(), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000
