"""The routes that tell of tokens and generate none."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from configs.settings import AppSettings
from deployments.access import access_of
from deployments.adapted import TokenizingEngine
from deployments.body import read_logged_json
from deployments.deadline import within
from deployments.engines import Served, tokenizing_engine
from deployments.openai.errors import engine_error
from deployments.openai.tokenization import (
    TokenizeCall,
    count_answer,
    parse_count,
    parse_detokenize,
    parse_tokenize,
    tokens_answer,
)
from models.request import ChatPrompt


class Tokenization:
    """Over all engines whose tokenizers may be asked; the others answer 400."""

    def __init__(self, engines: Mapping[str, Served], settings: AppSettings) -> None:
        self._engines = engines
        self._settings = settings

    async def tokenize(self, request: Request) -> Response:
        call = parse_tokenize(await read_logged_json(request, self._settings))
        engine = self._engine(request, call.model)
        async with self._within(_prompt_param(call)):
            token_ids = await _token_ids(engine, call)
            strings = await engine.token_strings(token_ids) if call.strings else None
        return JSONResponse(tokens_answer(token_ids, engine.max_context, strings))

    async def detokenize(self, request: Request) -> Response:
        call = parse_detokenize(await read_logged_json(request, self._settings))
        engine = self._engine(request, call.model)
        async with self._within("tokens"):
            return JSONResponse({"prompt": await engine.detokenize(call.token_ids)})

    async def info(self, request: Request) -> Response:
        engine = self._engine(request, request.query_params.get("model"))
        async with self._within("model"):
            info = await engine.tokenizer_info()
        return JSONResponse({**info, "model_max_length": engine.max_context})

    async def count_chat(self, request: Request) -> Response:
        call = parse_count(await read_logged_json(request, self._settings))
        return JSONResponse(count_answer(await self.count(request, call)))

    async def count(self, request: Request, call: TokenizeCall) -> int:
        """Tokens of a prompt; raises ``ApiError``."""
        engine = self._engine(request, call.model)
        async with self._within(_prompt_param(call)):
            return len(await _token_ids(engine, call))

    def _engine(self, request: Request, model: str | None) -> TokenizingEngine:
        engine = tokenizing_engine(self._engines, model)
        access_of(request.scope).model = engine.name
        return engine

    def _within(self, prompt_param: str) -> AbstractAsyncContextManager[None]:
        told = partial(engine_error, prompt_param=prompt_param)
        return within(self._settings.request_timeout_s, told)


async def _token_ids(engine: TokenizingEngine, call: TokenizeCall) -> tuple[int, ...]:
    return await engine.tokenize(call.prompt, special_tokens=call.special_tokens)


def _prompt_param(call: TokenizeCall) -> str:
    return "messages" if isinstance(call.prompt, ChatPrompt) else "prompt"
