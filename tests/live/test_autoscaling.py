"""A model whose replicas follow its work, at ``serve run``: few requests that fill one of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.serving import ROOT, Server, serving

pytestmark = pytest.mark.slow

AT_ONCE = 4  # requests that fill a replica
PATIENCE_S = 180.0


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """By its requests it would never have a second replica."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "configs/presets/mock.yaml").read_text())
    application = config["applications"][0]
    [model] = application["args"]["models"]
    del model["factory_args"]
    model |= {
        "factory": "tests.graph.own_models:recall",
        "factory_args": {"seconds": 0.02},
        "engine": {"max_running": AT_ONCE},
    }
    [deployment] = [one for one in application["deployments"] if one["name"] == "Model-mock"]
    del deployment["num_replicas"]
    deployment["autoscaling_config"] = {
        "min_replicas": 1,
        "max_replicas": 2,
        "target_ongoing_requests": 1000,
        "metrics_interval_s": 1.0,
        "look_back_period_s": 3.0,
        "upscale_delay_s": 1.0,
        "downscale_delay_s": 3.0,
        "policy": {"policy_function": "deployments.autoscaling:ByWork"},
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


async def test_replicas_follow_the_work(config: Path) -> None:
    with serving(config) as server:
        assert await replicas(server) == 1
        asking = [asyncio.create_task(ask(server)) for _ in range(2 * AT_ONCE)]
        await until(server, 2)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await until(server, 1)


async def test_a_model_that_nobody_asks_rests_and_is_woken_by_a_request(config: Path) -> None:
    let_rest(config)
    body = {"model": "mock", "prompt": "ab", "max_tokens": 2, "ignore_eos": True}
    with serving(config) as server:
        await until(server, 0)
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            ready = await http.get(f"{server.url}/ready")
            assert ready.status_code == 200, ready.text
            assert "none until somebody asks" in ready.text
            answer = await http.post(f"{server.url}/v1/completions", json=body)
            assert answer.status_code == 200, answer.text


def let_rest(config: Path) -> None:
    settings = yaml.safe_load(config.read_text())
    [model] = [d for d in settings["applications"][0]["deployments"] if d["name"] == "Model-mock"]
    model["autoscaling_config"]["min_replicas"] = 0
    config.write_text(yaml.safe_dump(settings))


async def ask(server: Server) -> None:
    """One request after the other."""
    body = {"model": "mock", "prompt": "ab", "max_tokens": 200, "ignore_eos": True}
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        while True:
            answer = await http.post(f"{server.url}/v1/completions", json=body)
            assert answer.status_code == 200, answer.text


async def until(server: Server, count: int) -> None:
    """Returns when there are so many replicas."""
    for _ in range(int(PATIENCE_S)):
        if await replicas(server) == count:
            return
        await asyncio.sleep(1.0)
    raise AssertionError(f"there never were {count} replicas:\n{server.log()}")


async def replicas(server: Server) -> int:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        text = (await http.get(f"{server.url}/metrics")).text
    [line] = [one for one in text.splitlines() if one.startswith("stepserve_replicas{")]
    return int(float(line.rpartition(" ")[2]))
