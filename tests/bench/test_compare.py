from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from models.mock import MockEngine
from tests.bench.client import Endpoint
from tests.bench.compare import Comparison, Plan
from tests.bench.prompts import Prompts
from tests.bench.results import Results, load
from tests.bench.scenarios import Scenario
from tests.bench.table import report
from tests.bench.tiny_server import tiny
from tests.deployments.serving import listening, make_app

SHORT = Scenario("A", "short", 2, 4, answer_tokens=8)


def comparison(folder: Path, *scenarios: Scenario, limit_s: float = 20.0) -> Comparison:
    plan = Plan(scenarios or (SHORT,), 2, "0", limit_s, folder, rest_s=0.0)
    return Comparison(plan, Prompts.of_words(), Results("here"), lambda text: None)


def test_what_fails_does_not_end_the_run(tmp_path: Path) -> None:
    servers = [
        tiny("absent", needs="bin/absent"),
        tiny("broken", "import sys; sys.exit('no such model')"),
        tiny("works"),
    ]
    made = comparison(tmp_path)
    made.servers(servers, tmp_path, with_engine=True)
    kept = load(tmp_path / "results.json")
    assert [(record.server, record.round) for record in kept.records] == [
        ("works", 1),
        ("works", 2),
    ]
    found = kept.figures("works", "A")
    assert found is not None
    assert (found.tokens, found.failed) == (12, 0)
    assert {"client", "tiny"} <= set(found.cost_us)
    assert len(kept.problems["broken"]) == 2
    text = report(kept)
    assert "- the absent: not installed" in text
    assert "no such model" in text


def test_the_folder_is_there_for_whatever_is_run_first(tmp_path: Path) -> None:
    comparison(tmp_path / "build" / "bench")
    assert (tmp_path / "build" / "bench").is_dir()


def test_a_server_that_runs_already(tmp_path: Path) -> None:
    with listening(make_app(MockEngine("mock"))) as url:
        made = comparison(tmp_path)
        made.url(Endpoint(url, "mock"))
    found = made.results.figures(url, "A")
    assert found is not None
    assert (found.tokens, found.failed) == (32, 0)


def test_an_engine_that_does_not_start_leaves_its_server_measured(tmp_path: Path) -> None:
    server = replace(tiny("works"), engine={"dtype": "float31"})
    made = comparison(tmp_path, limit_s=60.0)
    made.servers([server], tmp_path, with_engine=True)
    assert [record.server for record in made.results.records] == ["works", "works"]
    assert "float31" in made.results.problems["works, engine"][0]


@pytest.mark.slow
def test_an_engine_is_asked_in_turns_with_its_server(tmp_path: Path) -> None:
    server = replace(tiny("works"), engine={"dtype": "int8", "kv_cache_gib": 0.1})
    made = comparison(tmp_path, SHORT, replace(SHORT, name="D"), limit_s=120.0)
    made.servers([server], tmp_path, with_engine=True)
    asked = [(one.server, one.scenario, one.round) for one in made.results.records]
    turns = [("works", "A"), ("works, engine", "A"), ("works", "D")]
    assert asked == [(*turn, number) for number in (1, 2) for turn in turns]
    assert not made.results.problems
    assert "graph against engine" in report(made.results)


def test_a_scenario_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    engine = MockEngine("mock", inter_token_s=0.05)
    slow = Scenario("B", "slow", 1, 4, answer_tokens=1000)
    with listening(make_app(engine)) as url:
        made = comparison(tmp_path, slow, limit_s=3.0)
        made.url(Endpoint(url, "mock"))
    assert made.results.problems[url] == ["B: not done after 3 s"] * 2
