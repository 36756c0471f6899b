"""What an engine answers at once: waited for only so long, and refused in a dialect's words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from deployments.openai.errors import ApiError, timed_out
from models.errors import EngineError


@asynccontextmanager
async def within(
    seconds: float, told: Callable[[EngineError], ApiError]
) -> AsyncGenerator[None, None]:
    """Raises ``ApiError``: what an engine raised, as it is ``told``, or 504 after so long."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise timed_out(seconds) from None
    except EngineError as error:
        raise told(error) from error
