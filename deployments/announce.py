"""Says when a model is ready, and where to send the first request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from ray.serve.context import _get_global_client

from deployments.remote import RemoteEngine
from deployments.remote_embedder import RemoteEmbedder
from models.errors import EngineError

logger = logging.getLogger("stepserve")

RETRY_S = 2.0


async def announce(engines: Iterable[RemoteEngine | RemoteEmbedder], *, page: bool) -> None:
    """Logs a line for each model as it becomes ready, then where to send requests.

    ``page`` tells whether there is one for browsers.
    """
    await asyncio.gather(*map(_announce, engines))
    url = await asyncio.to_thread(_url)
    browse = f", or open {url} in a browser" if page else ""
    logger.info("ready: send requests to %s/v1%s", url, browse)


async def _announce(engine: RemoteEngine | RemoteEmbedder) -> None:
    while True:
        try:
            await engine.describe()
        except EngineError as error:
            logger.warning("model %s is not ready: %s", engine.name, error)
            await asyncio.sleep(RETRY_S)
        else:
            logger.info("model %s is ready", engine.name)
            return


def _url() -> str:
    client = _get_global_client()
    if client is None:
        return ""
    root = str(client.root_url).replace("//0.0.0.0:", "//127.0.0.1:")
    return root.replace("http:", "https:", 1) if client.http_config.ssl_certfile else root
