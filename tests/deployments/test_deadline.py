from __future__ import annotations

import asyncio
from functools import partial

import pytest

from deployments.deadline import within
from deployments.openai.errors import ApiError, engine_error
from models.errors import Busy

TOLD = partial(engine_error, prompt_param="prompt")


async def test_what_is_there_in_time_passes() -> None:
    async with within(10, TOLD):
        await asyncio.sleep(0)


async def test_what_takes_too_long_is_a_504() -> None:
    with pytest.raises(ApiError) as caught:
        async with within(0.01, TOLD):
            await asyncio.sleep(10)
    assert caught.value.status == 504


async def test_an_engines_error_is_told_in_the_dialects_words() -> None:
    with pytest.raises(ApiError) as caught:
        async with within(10, TOLD):
            raise Busy("later", 2)
    assert (caught.value.status, caught.value.message) == (503, "later")
