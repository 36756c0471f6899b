"""Says when a model is ready, what it runs on, and how to send it a first request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from ray.serve.context import _get_global_client

from deployments.remote import Description, RemoteEngine
from models.errors import EngineError

logger = logging.getLogger("stepserve")

RETRY_S = 2.0


async def announce(engines: Iterable[RemoteEngine], *, keys: bool) -> None:
    """Logs a line for each model as it becomes ready, then a command to try the first one."""
    names = []
    for engine in engines:
        description = await _described(engine)
        names.append(engine.name)
        logger.info("model %s is ready: %s", engine.name, _facts(description))
    logger.info("ready. Try:\n%s", _command(await asyncio.to_thread(_url), names[0], keys))


async def _described(engine: RemoteEngine) -> Description:
    while True:
        try:
            return await engine.describe()
        except EngineError as error:
            logger.warning("model %s is not ready: %s", engine.name, error)
            await asyncio.sleep(RETRY_S)


def _facts(description: Description) -> str:
    hidden = ("speaks", "problem")
    return ", ".join(f"{key} {value}" for key, value in description.items() if key not in hidden)


def _url() -> str:
    client = _get_global_client()
    root = "" if client is None else str(client.root_url)
    return root.replace("//0.0.0.0:", "//127.0.0.1:")


def _command(url: str, model: str, keys: bool) -> str:
    key = " -H 'Authorization: Bearer YOUR_KEY'" if keys else ""
    body = (
        f'{{"model": "{model}", "stream": true, '
        '"messages": [{"role": "user", "content": "Hello!"}]}'
    )
    return (
        f"  curl -N {url}/v1/chat/completions{key} -H 'Content-Type: application/json' -d '{body}'"
    )
