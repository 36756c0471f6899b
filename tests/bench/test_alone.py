from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from models.mock import MockEngine
from tests.bench.alone import Silent, engine_alone
from tests.bench.bare import FIGURES, READY, turns
from tests.bench.processes import MARK, lives, marked
from tests.bench.prompts import Prompts
from tests.bench.tiny_server import stops

SCRIPT = """
import sys
from models.mock import MockEngine
from tests.bench.bare import turns
from tests.bench.prompts import Prompts

for line in turns(MockEngine("mock"), Prompts.of_words(), sys.stdin):
    print(line, flush=True)
"""
COMMAND = [sys.executable, "-c", SCRIPT]


def test_figures_are_told_of_each_scenario_asked_for() -> None:
    said = turns(MockEngine("mock"), Prompts.of_words(), [json.dumps(["A", "seed", 1])])
    assert next(said) == READY
    found = FIGURES.validate_json(next(said))
    assert (found.asked, found.failed, found.tokens) == (4, 0, 4 * 128)
    assert found.cost_us["process"] > 0
    assert next(said, None) is None


def test_it_runs_only_in_its_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, "alone")
    with engine_alone(COMMAND, tmp_path / "log", 60.0) as engine:
        [pid] = marked("alone")
        assert stops(pid)
        assert engine.turn("A", "seed", 1).tokens == 4 * 128
        assert engine.turn("B", "seed", 1).tokens == 16 * 128
        assert stops(pid)
    assert not lives(pid)


def test_one_that_does_not_start_tells_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such model')"]
    with (
        pytest.raises(Silent, match="no such model"),
        engine_alone(command, tmp_path / "log", 60.0),
    ):
        pass


def test_one_that_ends_in_its_turn_tells_its_log(tmp_path: Path) -> None:
    script = f"import sys; print('{READY}', flush=True); input(); sys.exit('out of memory')"
    with engine_alone([sys.executable, "-c", script], tmp_path / "log", 60.0) as engine:
        with pytest.raises(Silent, match="out of memory"):
            engine.turn("A")
        with pytest.raises(Silent, match="out of memory"):
            engine.turn("A")


def test_one_that_hangs_is_given_up(tmp_path: Path) -> None:
    script = f"import time; print('{READY}', flush=True); time.sleep(600)"
    with (
        engine_alone([sys.executable, "-c", script], tmp_path / "log", 1.0) as engine,
        pytest.raises(Silent, match="not done after 1 s"),
    ):
        engine.turn("A")
