"""The Tokenizer deployment: requests to token ids, on CPUs, without torch.

A failure is returned, never raised: an exception would cross the hop as a remote traceback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from configs.settings import ModelSettings
from deployments.encoding import characters, encode, size_of
from models.build import build_text
from models.embedding import EmbedRequest, TokenInputs
from models.errors import EngineError
from models.request import GenerateRequest, Prompt, TextPrompt, TokenPrompt
from models.text.encoded import Encoded
from models.text.inputs import encode_inputs

ON_THE_LOOP = 4000  # characters or tokens; more of them are a thread's work
THREADS = 4

T = TypeVar("T")


class Tokenizer:
    """Encodes for one model. Knows nothing of engines but the longest prompt they take."""

    async def __init__(self, settings: ModelSettings) -> None:  # type: ignore[misc]
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="encode")
        self._text = await asyncio.to_thread(build_text, settings)

    async def encode(self, request: GenerateRequest, max_context: int) -> Encoded | EngineError:
        """A prompt beyond ``max_context`` goes no further."""
        work = partial(encode, self._text, request, max_context)
        return await self._result(work, size_of(request))

    async def encode_inputs(
        self, request: EmbedRequest, max_context: int
    ) -> TokenInputs | EngineError:
        """The same for an embedding model, of which no input may exceed ``max_context``."""
        work = partial(encode_inputs, self._text, request, max_context)
        return await self._result(work, sum(map(_length, request.inputs)))

    async def tokenize(self, prompt: Prompt, special_tokens: bool) -> tuple[int, ...] | EngineError:
        """See ``Tokenizes.tokenize``."""
        work = partial(self._text.tokenize, prompt, special_tokens=special_tokens)
        return await self._result(work, characters(prompt))

    async def token_strings(self, token_ids: Sequence[int]) -> list[str] | EngineError:
        """See ``Tokenizes.token_strings``."""
        return await self._result(partial(self._text.token_strings, token_ids), len(token_ids))

    async def tokenizer_info(self) -> Mapping[str, Any]:
        """See ``Tokenizes.tokenizer_info``."""
        return self._text.tokenizer_info()

    async def detokenize(self, token_ids: Sequence[int]) -> str | EngineError:
        """See ``Tokenizes.detokenize``."""
        return await self._result(partial(self._text.detokenize, token_ids), len(token_ids))

    async def _result(self, work: Callable[[], T], size: int) -> T | EngineError:
        try:
            if size <= ON_THE_LOOP:
                return work()
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except EngineError as error:
            return error


def _length(prompt: TextPrompt | TokenPrompt) -> int:
    return len(prompt.text if isinstance(prompt, TextPrompt) else prompt.token_ids)
