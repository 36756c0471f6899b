"""Two keys at `serve run` on the real default model, with the official client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml

from tests.serving import ROOT, serving

pytestmark = pytest.mark.slow

MODEL = "smollm2-135m-instruct"
KEYS = ["heavy", "light"]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The default one with keys, and few places."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "serve_config.yaml").read_text())
    arguments = config["applications"][0]["args"]
    arguments["api_keys"] = KEYS
    arguments["models"][0]["engine"] |= {"max_running": 2, "max_waiting": 20}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


async def asked_by_both(url: str) -> tuple[list[str], list[openai.APIStatusError]]:
    """Whose answers came, in their order, and refusals; the light one asks when all others have."""
    answered: list[str] = []

    async def one(key: str) -> None:
        async with openai.AsyncOpenAI(
            base_url=f"{url}/v1", api_key=key, timeout=120, max_retries=0
        ) as client:
            await client.completions.create(
                model=MODEL,
                prompt="Once upon a time",
                max_tokens=64,
                extra_body={"ignore_eos": True},
            )
        answered.append(key)

    many = [asyncio.create_task(one("heavy")) for _ in range(22)]
    await asyncio.wait(many, return_when=asyncio.FIRST_COMPLETED)  # all have arrived by then
    many.append(asyncio.create_task(one("heavy")))
    await one("light")
    ended = await asyncio.gather(*many, return_exceptions=True)
    return answered, [error for error in ended if isinstance(error, openai.APIStatusError)]


async def test_the_light_one_is_not_behind_all_of_the_heavy_ones(config: Path) -> None:
    with serving(config) as server:
        answered, refused = await asked_by_both(server.url)
    assert answered.index("light") < 8
    assert len(answered) + len(refused) == 24
    assert [error.status_code for error in refused] in ([], [503])
