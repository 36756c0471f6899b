"""Prompts that begin alike, against ``serve run`` with two replicas of one model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import openai
import pytest
import yaml

from tests.serving import Server, serving

pytestmark = pytest.mark.slow

GROUPS, ASKED = 8, 4
SHARED = 256  # bytes, which are the tokens of this model
CONFIG = {
    "applications": [
        {
            "name": "stepserve",
            "import_path": "deployments.app:build",
            "args": {
                "models": [
                    {
                        "name": "recall",
                        "factory": "tests.graph.own_models:recall",
                        "factory_args": {"seconds": 0.01},
                    }
                ]
            },
            "deployments": [
                {"name": "Ingress", "num_replicas": 1, "ray_actor_options": {"num_cpus": 0.1}},
                {
                    "name": "Model-recall",
                    "num_replicas": 2,
                    "ray_actor_options": {"num_cpus": 0.1},
                },
            ],
        }
    ]
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = tmp_path_factory.mktemp("routing") / "config.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    with serving(config) as running:
        yield running


@pytest.fixture
async def client(server: Server) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="none", timeout=120
    ) as client:
        yield client


async def met(client: openai.AsyncOpenAI, name: str, own: object, tokens: int = 4) -> bool:
    """Whether what prompts of this name share was found in the cache of the one who served it."""
    answer = await client.completions.create(
        model="recall", prompt=f"{name:-<{SHARED}}{own}", max_tokens=tokens, temperature=0
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
