"""Prompts that begin alike, against ``serve run`` with two replicas of one model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml

from tests.serving import Server, serving

pytestmark = pytest.mark.slow

GROUPS, ASKED = 8, 4
OWN = "tests.graph.own_models"
SHARED = 256  # bytes, which are the tokens of this model


def config(lives: Path) -> dict[str, Any]:
    models = [
        {"name": "recall", "factory": f"{OWN}:recall", "factory_args": {"seconds": 0.01}},
        {"name": "fragile", "factory": f"{OWN}:fragile", "factory_args": {"life": str(lives)}},
    ]
    small = {"ray_actor_options": {"num_cpus": 0.1}}
    deployments = [
        {"name": "Ingress", **small},
        {"name": "Model-recall", "num_replicas": 2, **small},
        {"name": "Model-fragile", "num_replicas": 2, **small},
    ]
    application = {
        "name": "stepserve",
        "import_path": "deployments.app:build",
        "args": {"models": models},
        "deployments": deployments,
    }
    return {"applications": [application]}


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its files are replicas that will die on an "A"."""
    return tmp_path_factory.mktemp("lives")


@pytest.fixture(scope="module")
def server(lives: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file = tmp_path_factory.mktemp("routing") / "config.yaml"
    file.write_text(yaml.safe_dump(config(lives)))
    with serving(file) as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="none", timeout=120
    ) as client:
        yield client


async def met(
    client: openai.AsyncOpenAI, name: str, own: object, tokens: int = 1, model: str = "recall"
) -> bool:
    """Whether what prompts of this name share was found in the cache of the one who served it."""
    prompt = f"{name:-<{SHARED}}{own}"
    answer = await client.completions.create(
        model=model, prompt=prompt, max_tokens=tokens, temperature=0, seed=1
    )
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    cached = answer.usage.prompt_tokens_details.cached_tokens
    assert cached in (0, SHARED)
    return cached == SHARED


async def test_prompts_that_begin_alike_meet_cached_tokens(client: openai.AsyncOpenAI) -> None:
    for group in range(GROUPS):
        found = [await met(client, f"{group}", own) for own in range(ASKED)]
        assert found == [False, *[True] * (ASKED - 1)]


async def test_a_hot_beginning_is_soon_on_both_replicas(client: openai.AsyncOpenAI) -> None:
    assert not await met(client, "hot", "first")
    found = await asyncio.gather(*(met(client, "hot", own, 100) for own in range(12)))
    assert not all(found)
    assert all(await asyncio.gather(*(met(client, "hot", own, 100) for own in range(100, 112))))


async def test_where_a_replica_is_lost_the_other_is_asked(
    client: openai.AsyncOpenAI, lives: Path
) -> None:
    assert not await met(client, "lost", "first", model="fragile")
    (life := lives / "one").touch()
    assert not await met(client, "lost", "A", model="fragile")
    assert not life.exists()
    assert await met(client, "lost", "again", model="fragile")
