"""From settings to engines: the only place that chooses. Imports torch when a model is built."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from configs.settings import EngineSettings, ModelSettings
from models.batch_loop import BatchLoop
from models.batched import Batched
from models.batcher import Batcher, EmbedModel
from models.constrain.grammars import Grammars
from models.embed_engine import Batches, EmbedEngine
from models.engine import LlmEngine
from models.keeping import keeping
from models.life import Steps
from models.lora import read_lora
from models.metrics import LlmMetrics, Sink
from models.recipe import made_to_embed, read_recipe
from models.schedule.admission import Admission
from models.schedule.lookup import Drafting
from models.scheduled import Scheduled
from models.source import resolve, resolve_adapter
from models.step.model import StepModel
from models.step.wishes import Wishes
from models.step_loop import StepLoop
from models.stepper import Stepper
from models.text.loading import byte_pipeline, load_pipeline
from models.text.pipeline import TextPipeline
from models.token_engine import TokenEngine


@dataclass(frozen=True, slots=True)
class ServedSteps:
    """A step model ready to serve, but for how its sequences ask for their steps."""

    stepper: Stepper
    admission: Admission
    metrics: LlmMetrics
    grammars: Grammars
    stream_interval: int

    def engine(self, steps: Steps) -> TokenEngine:
        return TokenEngine(
            self.stepper,
            steps,
            self.admission,
            self.metrics,
            self.grammars,
            self.stream_interval,
        )


def build_model(
    settings: ModelSettings, metrics: LlmMetrics, sharing: int = 1
) -> ServedSteps | LlmEngine:
    """Loads what ``settings`` names. An engine with its own scheduler is served as it is.

    ``sharing`` is how many models in all take KV blocks of a CPU's memory.
    """
    made = _step_model(settings, sharing) if settings.factory is None else _own(settings)
    if hasattr(made, "generate"):
        engine: LlmEngine = made
        if settings.engine.stream_interval > 1:
            raise ValueError("`engine.stream_interval`: an engine with its own scheduler decides")
        return engine
    model: StepModel = made
    limits = settings.engine
    return ServedSteps(
        stepper=Stepper(
            model,
            step_tokens=limits.step_tokens,
            step_s=None if limits.step_ms is None else limits.step_ms / 1000,
            metrics=metrics,
            drafting=_drafting(limits),
        ),
        admission=Admission(
            min(limits.max_running, model.capacity.slots),
            limits.max_waiting,
            limits.max_waiting_tokens,
        ),
        metrics=metrics,
        grammars=Grammars(
            lambda: build_text(settings).vocabulary(), width=model.capacity.vocab_size
        ),
        stream_interval=limits.stream_interval,
    )


@dataclass(frozen=True, slots=True)
class ServedBatches:
    """An embedding model ready to serve, but for how its inputs get into their batches."""

    batcher: Batcher
    admission: Admission
    metrics: LlmMetrics
    min_dimensions: int | None

    def engine(self, batches: Batches) -> EmbedEngine:
        return EmbedEngine(self.batcher, batches, self.admission, self.metrics, self.min_dimensions)


def build_embedder(settings: ModelSettings, metrics: LlmMetrics) -> ServedBatches:
    """Loads what ``settings``, whose task is ``embed``, names."""
    made: EmbedModel = _embedder(settings) if settings.factory is None else _made(settings)
    if not hasattr(made, "embed"):
        raise TypeError(f"{settings.factory} made a {type(made).__name__}, which cannot `embed`")
    limits = settings.engine
    return ServedBatches(
        batcher=Batcher(made, batch_tokens=settings.embed.batch_tokens, metrics=metrics),
        admission=Admission(limits.max_running, limits.max_waiting, limits.max_waiting_tokens),
        metrics=metrics,
        min_dimensions=settings.embed.min_dimensions,
    )


def build_batched(settings: ModelSettings) -> Batched:
    """An embedding model and its tokenizer in this process, without Ray."""
    served = build_embedder(settings, LlmMetrics(settings.name))
    engine = served.engine(BatchLoop(served.batcher))
    return Batched(settings.name, engine, build_text(settings))


def build_text(settings: ModelSettings) -> TextPipeline:
    """The text half of a model, without torch."""
    source = settings.tokenizer or settings.source or "bytes"
    if source == "bytes":
        return byte_pipeline(
            settings.chat_template,
            reasoning=settings.reasoning,
            tool_format=settings.tool_format,
        )
    return load_pipeline(
        resolve(source, weights=False),
        settings.chat_template,
        reasoning=settings.reasoning,
        tool_format=settings.tool_format,
    )


def build_scheduled(settings: ModelSettings) -> Scheduled:
    """A model and its text half in this process, without Ray."""
    served = build_model(settings, metrics_of(settings))
    if not isinstance(served, ServedSteps):
        raise TypeError(
            f"{settings.factory} makes an engine with its own scheduler: use it as it is"
        )
    return Scheduled(settings.name, served.engine(StepLoop(served.stepper)), build_text(settings))


def metrics_of(
    settings: ModelSettings, sinks: Callable[[str], Sequence[Sink]] = lambda _: ()
) -> LlmMetrics:
    """Of a model and its adapters; ``sinks`` are those of a name."""
    adapters = [LlmMetrics(one.name, sinks(one.name)) for one in settings.adapters]
    return LlmMetrics(settings.name, sinks(settings.name), adapters)


def wishes_of(engine: EngineSettings, sharing: int = 1) -> Wishes:
    """What is asked of a step model that is one of ``sharing`` on a CPU's memory."""
    return Wishes(
        device=engine.device,
        dtype=engine.dtype,
        kernels=engine.kernels,
        cuda_graphs=engine.cuda_graphs,
        compile_layers=engine.compile_layers,
        threads=engine.threads,
        max_context=engine.max_context,
        block_size=engine.block_size,
        kv_cache_dtype=engine.kv_cache_dtype,
        kv_cache_gib=engine.kv_cache_gib,
        sharing=sharing,
        prefix_cache=engine.prefix_cache,
        slots=engine.max_running,
        step_tokens=engine.step_tokens,
    )


def _drafting(engine: EngineSettings) -> Drafting | None:
    if not engine.speculative_tokens:
        return None
    return Drafting(engine.speculative_tokens, engine.speculative_ngram)


def _step_model(settings: ModelSettings, sharing: int) -> Any:
    with keeping():
        from models.step.load import load_step_model
    assert settings.source is not None
    loras = [read_lora(one.name, resolve_adapter(one.source)) for one in settings.adapters]
    folder = resolve(settings.source)
    if made_to_embed(folder):
        raise ValueError(f"{settings.source} is an embedding model: give it `task: embed`")
    return load_step_model(folder, wishes_of(settings.engine, sharing), loras)


def _embedder(settings: ModelSettings) -> EmbedModel:
    with keeping():
        from models.step.embed import load_embedder
    assert settings.source is not None
    engine, wishes = settings.engine, settings.embed
    folder = resolve(settings.source)
    recipe = read_recipe(folder)
    limits = (engine.max_context or recipe.max_tokens, recipe.most_tokens)
    return load_embedder(
        folder,
        pooling=recipe.pooling if wishes.pooling == "auto" else wishes.pooling,
        normalize=recipe.normalize if wishes.normalize is None else wishes.normalize,
        dense=recipe.dense,
        max_tokens=min((limit for limit in limits if limit is not None), default=None),
        device=engine.device,
        dtype=engine.dtype,
        threads=engine.threads,
    )


def _made(settings: ModelSettings) -> Any:
    """Whatever the user's factory makes."""
    assert settings.factory is not None
    module, separator, name = settings.factory.partition(":")
    if not separator:
        raise ValueError(f"`factory` must be `package.module:factory`, not {settings.factory!r}")
    return getattr(importlib.import_module(module), name)(**settings.factory_args)


def _own(settings: ModelSettings) -> Any:
    """What the user's factory makes: a step model, an engine, or a plain model adapted."""
    made = _made(settings)
    if hasattr(made, "generate") or hasattr(made, "launch"):
        return made
    if hasattr(made, "prefill") and hasattr(made, "decode"):
        from models.step.plain import PlainStepModel

        limits = settings.engine
        return PlainStepModel(made, slots=limits.max_running, max_context=limits.max_context)
    raise TypeError(
        f"{settings.factory} made a {type(made).__name__}, which is neither an engine (`generate`),"
        " nor a step model (`launch`), nor a plain model (`prefill` and `decode`)"
    )
