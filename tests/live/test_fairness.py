"""Two keys at ``serve run`` on the real default model, with the official client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.serving import ROOT, serving

pytestmark = pytest.mark.slow

MODEL = "smollm2-135m-instruct"
KEYS = ["heavy", "light"]
RUNNING, WAITING = 2, 10
LONG, SHORT = 512, 16  # tokens: the long ones run until the others have come


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The default one with keys, and few places."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "serve_config.yaml").read_text())
    arguments = config["applications"][0]["args"]
    arguments["api_keys"] = KEYS
    arguments["models"][0]["engine"] |= {"max_running": RUNNING, "max_waiting": WAITING}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


class Clients:
    """They ask one server; whose answers came is kept in their order."""

    def __init__(self, url: str) -> None:
        self.answered: list[str] = []
        self._of = {
            key: openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, timeout=120, max_retries=0)
            for key in KEYS
        }

    async def ask(self, key: str, tokens: int = SHORT) -> None:
        await self._of[key].completions.create(
            model=MODEL, prompt="Once", max_tokens=tokens, extra_body={"ignore_eos": True}
        )
        self.answered.append(key)

    async def until(self, gauge: str, count: int) -> None:
        """Returns when so many are ``running``, or ``waiting`` in the queue."""
        client = self._of["light"]
        path = str(client.base_url.copy_with(path="/metrics"))
        for _ in range(500):
            if value(gauge, await client.get(path, cast_to=str)) == count:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("they never came")

    async def close(self) -> None:
        for client in self._of.values():
            await client.close()


def value(gauge: str, metrics: str) -> float:
    samples = [s for f in text_string_to_metric_families(metrics) for s in f.samples]
    return sum(s.value for s in samples if s.name == f"stepserve_requests_{gauge}")


async def test_the_light_one_is_not_behind_all_of_the_heavy_ones(config: Path) -> None:
    """The queue being full, one of the heavy ones gives way."""
    with serving(config) as server:
        clients = Clients(server.url)
        many = [asyncio.create_task(clients.ask("heavy", LONG)) for _ in range(RUNNING)]
        await clients.until("running", RUNNING)
        many += [asyncio.create_task(clients.ask("heavy")) for _ in range(WAITING)]
        await clients.until("waiting", WAITING)
        await clients.ask("light")
        ended = await asyncio.gather(*many, return_exceptions=True)
        await clients.close()
    assert clients.answered.index("light") < 3 * RUNNING
    assert len(clients.answered) == RUNNING + WAITING
    [refusal] = [error for error in ended if error is not None]
    assert isinstance(refusal, openai.InternalServerError)
    assert refusal.status_code == 503
    assert int(refusal.response.headers["retry-after"]) >= 1
