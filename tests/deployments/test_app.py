from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve._private.build_app import build_app

from configs.settings import AppSettings
from deployments.app import PREFIX_ROUTER, REPLICA_ENVIRONMENT, ROUTER, build
from tests.deployments.graphs import bound

ROOT = Path(__file__).parents[2]
PRESETS = sorted(f"configs/presets/{path.name}" for path in ROOT.glob("configs/presets/*.yaml"))
CONFIGS = ["serve_config.yaml", *PRESETS]


def applications(file: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = yaml.safe_load((ROOT / file).read_text())["applications"]
    return listed


def settings(*names: str, **engine: int) -> AppSettings:
    models = [{"name": name, "factory": "a:b", "engine": engine} for name in names]
    return AppSettings.model_validate({"models": models})


def test_each_model_has_a_tokenizer_and_a_model_of_its_own() -> None:
    names = {"Ingress", "Tokenizer-a", "Model-a", "Tokenizer-org-b.1", "Model-org-b.1"}
    assert set(bound(build(settings("a", "org/b.1")))) == {*names, "Responses"}


def test_models_take_longest_to_start_and_so_come_first() -> None:
    started = build_app(build(settings("a", "b")), name="stepserve").deployments
    assert [one.name for one in started][:2] == ["Model-a", "Model-b"]


def test_one_replica_keeps_responses_if_any_are_kept() -> None:
    kept = {"models": [{"name": "a", "factory": "a:b"}]}
    assert bound(build(AppSettings.model_validate(kept)))["Responses"].num_replicas == 1
    none = AppSettings.model_validate({**kept, "responses_kept": 0})
    assert "Responses" not in bound(build(none))


def test_one_replica_counts_for_limits_unless_a_storage_does() -> None:
    given: dict[str, Any] = {"models": [{"name": "a", "factory": "a:b"}], "api_keys": ["x"]}
    limits: dict[str, Any] = {"requests_per_minute": 1}
    here = AppSettings.model_validate({**given, "rate_limits": limits})
    assert bound(build(here))["RateLimits"].num_replicas == 1
    for others in ({}, {**limits, "storage": "redis://127.0.0.1"}):
        elsewhere = AppSettings.model_validate({**given, "rate_limits": others})
        assert "RateLimits" not in bound(build(elsewhere))


def test_one_replica_runs_batches_if_there_is_a_folder_for_them() -> None:
    given = {"models": [{"name": "a", "factory": "a:b"}], "batches": {"folder": "batches"}}
    deployments = bound(build(AppSettings.model_validate(given)))
    assert deployments["Batches"].num_replicas == 1
    assert "Batches" not in bound(build(settings("a")))


def test_an_embedding_model_has_an_embedder() -> None:
    models = [{"name": "a", "factory": "a:b"}, {"name": "b", "factory": "a:b", "task": "embed"}]
    names = {"Ingress", "Responses", "Tokenizer-a", "Model-a", "Tokenizer-b", "Embedder-b"}
    assert set(bound(build(AppSettings.model_validate({"models": models})))) == names


def test_each_model_is_told_how_many_take_kv_blocks_of_a_cpus_memory() -> None:
    models: list[dict[str, Any]] = [
        {"name": "a", "source": "org/a"},
        {"name": "b", "factory": "a:b"},
        {"name": "embeds", "factory": "a:b", "task": "embed"},
        {"name": "on a GPU", "source": "org/c", "engine": {"device": "cuda"}},
    ]
    deployments = bound(build(AppSettings.model_validate({"models": models})))
    assert deployments["Model-a"].init_args[1] == 2
    assert deployments["Model-b"].init_args[1] == 2
    assert len(deployments["Embedder-embeds"].init_args) == 1


def test_serves_limit_is_above_the_models_own() -> None:
    deployments = bound(build(settings("a", max_running=7, max_waiting=9)))
    assert deployments["Model-a"].max_ongoing_requests > 7 + 9


def test_prompts_are_routed_by_their_beginnings_where_these_are_kept() -> None:
    models: list[dict[str, Any]] = [
        {"name": "keeps", "factory": "a:b", "engine": {"max_running": 7}},
        {"name": "forgets", "source": "org/a", "engine": {"prefix_cache": False}},
    ]
    deployments = bound(build(AppSettings.model_validate({"models": models})))
    keeps, forgets = (
        deployments[f"Model-{name}"]._deployment_config.request_router_config
        for name in ("keeps", "forgets")
    )
    assert keeps.request_router_class == PREFIX_ROUTER
    assert keeps.request_router_kwargs == {"places": 7}
    assert forgets.is_default_request_router()
    assert keeps.max_backoff_s == forgets.max_backoff_s == ROUTER["max_backoff_s"]


@pytest.mark.parametrize("file", CONFIGS)
def test_a_shipped_config_names_deployments_that_exist(file: str) -> None:
    for application in applications(file):
        names = set(bound(build(AppSettings.model_validate(application["args"]))))
        assert {deployment["name"] for deployment in application["deployments"]} <= names


@pytest.mark.parametrize("file", CONFIGS)
def test_a_shipped_config_keeps_the_replicas_environment(file: str) -> None:
    for application in applications(file):
        assert application["runtime_env"]["env_vars"].items() >= REPLICA_ENVIRONMENT.items()


def test_what_is_loaded_within_seconds_shows_no_bar_in_a_replicas_log() -> None:
    command = [sys.executable, "-c", "from tqdm.auto import tqdm; [*tqdm(range(9))]"]
    done = subprocess.run(
        command, env=os.environ | REPLICA_ENVIRONMENT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
