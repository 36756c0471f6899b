from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from models.mock import MockEngine
from tests.bench.client import Endpoint
from tests.bench.compare import Comparison, Plan
from tests.bench.prompts import Prompts
from tests.bench.results import Results, load
from tests.bench.scenarios import Scenario
from tests.bench.servers import SOURCE
from tests.bench.table import report
from tests.bench.tiny_server import tiny
from tests.deployments.serving import listening, make_app
from tests.models.step.tiny import tiny as model_of

SHORT = Scenario("A", "short", 2, 4, answer_tokens=8)


def comparison(
    folder: Path, *scenarios: Scenario, limit_s: float = 20.0, rounds: int = 2, source: str = SOURCE
) -> Comparison:
    plan = Plan(scenarios or (SHORT,), rounds, "0", limit_s, folder, rest_s=0.0, source=source)
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


def tiny_model(tokens_of: Path, folder: Path) -> None:
    """A random one with the tokens of another."""
    vocabulary = json.loads((tokens_of / "config.json").read_text())["vocab_size"]
    model = model_of("llama", vocab_size=vocabulary, max_position_embeddings=512)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokens_of / name, folder)


@pytest.mark.slow
def test_an_engine_is_asked_in_turns_with_its_server(smollm2: Path, tmp_path: Path) -> None:
    tiny_model(smollm2, tmp_path / "model")
    server = replace(tiny("works"), engine={"dtype": "int8", "kv_cache_gib": 0.1})
    scenarios, source = (SHORT, replace(SHORT, name="D")), str(tmp_path / "model")
    made = comparison(tmp_path, *scenarios, limit_s=300.0, rounds=1, source=source)
    made.servers([server], tmp_path, with_engine=True)
    assert not made.results.problems
    asked = [(one.server, one.scenario, one.round) for one in made.results.records]
    assert asked == [("works", "A", 1), ("works, engine", "A", 1), ("works", "D", 1)]
    assert "graph against engine" in report(made.results)


def test_a_scenario_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """The first requests are, within a small part of that time."""
    engine = MockEngine("mock", inter_token_s=0.02, max_context=10**6)
    slow = Scenario("B", "slow", 1, 4, answer_tokens=10**5)
    with listening(make_app(engine)) as url:
        made = comparison(tmp_path, slow, limit_s=6.0, rounds=1)
        made.url(Endpoint(url, "mock"))
    assert made.results.problems[url] == ["B: not done after 6 s"]
