"""All models of a graph, as whoever asks them sees them."""

from __future__ import annotations

import asyncio

from configs.settings import AppSettings, ModelSettings
from deployments.adapted import Adapted
from deployments.engines import Served
from deployments.remote import Handle, RemoteEngine
from deployments.remote_embedder import RemoteEmbedder
from models.build import build_text

Engines = dict[str, RemoteEngine | RemoteEmbedder]


async def remote_engines(
    settings: AppSettings, models: list[Handle], tokenizers: list[Handle]
) -> Engines:
    """By the names that clients send; the handles are in the order of the settings."""
    engines: Engines = {}
    for model, tokenizer, handle in zip(settings.models, tokenizers, models, strict=True):
        engines[model.name] = await _engine(model, tokenizer, handle)
    return engines


def with_adapters(engines: Engines, settings: AppSettings) -> dict[str, Served]:
    """Each model, and behind it its adapters, by the names that clients send."""
    found: dict[str, Served] = {}
    for model in settings.models:
        engine = found[model.name] = engines[model.name]
        for adapter in model.adapters:
            assert isinstance(engine, RemoteEngine)
            found[adapter.name] = Adapted(adapter.name, engine, adapter.source)
    return found


async def _engine(
    model: ModelSettings, tokenizer: Handle, handle: Handle
) -> RemoteEngine | RemoteEmbedder:
    if model.task == "embed":
        return RemoteEmbedder(model.name, tokenizer, handle)
    text = await asyncio.to_thread(build_text, model)
    guessed = model.tokenizer is None and model.source is None
    return RemoteEngine(model.name, tokenizer, handle, text, guessed=guessed)
