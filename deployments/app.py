"""Binds the graph: an Ingress, and for each model a Tokenizer and a Model or an Embedder.

Imports no torch.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve._private.tracing_utils import is_tracing_enabled
from starlette.applications import Starlette

from configs.deployments import deployment_name, model_role
from configs.settings import AppSettings, ModelSettings
from deployments.access import Access
from deployments.announce import announce
from deployments.batch_desk import Batches, RemoteDesk
from deployments.calls import results_of_all
from deployments.controls import GraphControls
from deployments.door import Door
from deployments.embedder import Embedder
from deployments.graph import Graph
from deployments.ingress import create_app
from deployments.logs import show_logs
from deployments.model import Model
from deployments.rate_limits import RemoteCounts
from deployments.rates.counts import MemoryCounts
from deployments.rates.refusals import Refusals
from deployments.remote import Handle, RemoteEngine
from deployments.remote_engines import remote_engines, with_adapters
from deployments.response_store import RemoteStore, Responses
from deployments.resting import Resting
from deployments.tokenizer import Tokenizer
from models.errors import EngineError
from models.metrics import Sample

# The Model's own admission is the limit that counts; Serve's are a backstop far above it.
UNLIMITED = 100_000
SPARE = 64  # calls to a Model beside its requests: metrics, descriptions, refusals on their way

# Serve's own pauses between looks for a free replica reach half a second.
ROUTER: dict[str, Any] = {
    "initial_backoff_s": 0.002,
    "backoff_multiplier": 1.5,
    "max_backoff_s": 0.01,
}

# Where replicas share prefixes: a class that Serve imports by its path.
PREFIX_ROUTER = "deployments.prefix_router:PrefixRouter"

DRAIN_S = 120.0  # for running answers, when a replica is to go

# Read when a replica starts. The first two triple the tokens a second that a replica
# passes on; the third is the largest call between replicas in bytes: a prompt's token ids. The last
# two make a line of a log every few seconds of the bar that shows how far a long load has come.
REPLICA_ENVIRONMENT = {
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(64 * 1024 * 1024),
    "TQDM_DELAY": "5",
    "TQDM_MININTERVAL": "5",
}


def replica_options(num_cpus: float) -> dict[str, Any]:
    """``ray_actor_options`` that a deployment starts from."""
    return {"num_cpus": num_cpus, "runtime_env": {"env_vars": REPLICA_ENVIRONMENT}}


@serve.deployment(
    name="Ingress",
    max_ongoing_requests=UNLIMITED,
    graceful_shutdown_timeout_s=DRAIN_S,
    ray_actor_options=replica_options(num_cpus=0.1),
)
@serve.ingress()
class Ingress:
    """Serves HTTP over the engines of all models, which are the rest of the graph."""

    async def __init__(  # type: ignore[misc]
        self,
        settings: AppSettings,
        models: list[Handle],
        tokenizers: list[Handle],
        responses: Handle | None,
        counts: Handle | None,
        batches: Handle | None,
    ) -> None:
        show_logs()
        self._settings = settings
        self._door = Door()
        self._responses = None if responses is None else RemoteStore(responses)
        self._batches = None if batches is None else RemoteDesk(batches)
        self._counts = None if counts is None else RemoteCounts(counts)
        self._refusals = Refusals()
        self._engines = await remote_engines(settings, models, tokenizers)
        announcing = announce(self._engines.values(), page=settings.chat_page)
        self._announcing = asyncio.create_task(announcing)

    async def __serve_build_asgi_app__(self) -> Starlette:
        settings = self._settings
        ingress = self if settings.rate_limits.any_limits else None
        generating = {k: v for k, v in self._engines.items() if isinstance(v, RemoteEngine)}
        graph = Graph(
            self._engines,
            ingress,
            self._batches,
            parents=parents(settings),
            resting=Resting(serve.get_replica_context().app_name, settings.models),
            vllm_names=settings.vllm_metrics,
        )
        return create_app(
            with_adapters(self._engines, settings),
            self._settings,
            graph,
            responses=self._responses,
            batches=self._batches,
            controls=GraphControls(self, generating),
            door=self._door,
            counts=self._counts,
            refusals=self._refusals,
            answer_request_id=False,
            describe=_describe() if is_tracing_enabled() else None,
        )

    async def ask_replicas(self, method: str, *args: Any, timeout_s: float) -> list[Any]:
        """What each replica of the Ingress returned, this one too."""
        own = serve.get_replica_context()
        handle = serve.get_deployment_handle(own.deployment, own.app_name)
        return await results_of_all(handle, method, *args, timeout_s=timeout_s)

    def metrics_samples(self) -> tuple[str, list[Sample]]:
        """This replica's id, and what it measures."""
        return serve.get_replica_context().replica_id.unique_id, self._refusals.samples()

    async def abort_requests(self, ids: frozenset[str]) -> list[int]:
        """See ``Controls.abort``: of those that this replica answers."""
        return [self._door.abort(ids)]

    async def finish(self) -> None:
        """Refuses what is new from now on; returns when running answers are whole.

        Batches go on when the server is started again.
        """
        self._door.closed = True
        if self._batches is not None:
            with suppress(EngineError):
                await self._batches.stop()
        await self._door.close()


def _describe() -> Callable[[Access], None]:
    from deployments.tracing import describe

    return describe


def parents(settings: AppSettings) -> dict[str, str]:
    """The model of each adapter, by its name."""
    return {one.name: model.name for model in settings.models for one in model.adapters}


def build(args: AppSettings) -> Application:
    """The application of ``serve_config.yaml``, whose ``deployments`` override what is set here."""
    sharing = _sharing(args)
    models = [bind_model(one, sharing) for one in args.models]  # first to start: they take longest
    tokenizers = [bind_tokenizer(model) for model in args.models]
    responses = bind_responses(args) if args.responses_kept else None
    counts = (
        bind_counts() if args.rate_limits.any_limits and args.rate_limits.storage is None else None
    )
    batches = bind_batches(args, models, tokenizers) if args.batches else None
    return _bind(Ingress, args, models, tokenizers, responses, counts, batches)


def bind_responses(args: AppSettings) -> Application:
    """``Responses``, which keeps them."""
    deployment = single_replica("Responses")
    return _bind(deployment(Responses), args.responses_kept, args.responses_kept_mib)


def bind_counts() -> Application:
    """``RateLimits``, which counts what keys use."""
    return _bind(single_replica("RateLimits")(MemoryCounts))


def single_replica(name: str) -> Any:
    """A deployment of one replica, as all replicas of the ingress must find the same."""
    return serve.deployment(
        name=name,
        num_replicas=1,
        max_ongoing_requests=UNLIMITED,
        request_router_config=ROUTER,
        ray_actor_options=replica_options(num_cpus=0),
    )


def bind_batches(
    args: AppSettings, models: list[Application], tokenizers: list[Application]
) -> Application:
    """``Batches``: a single replica, to which their folder belongs."""
    return _bind(single_replica("Batches")(Batches), args, models, tokenizers)


def bind_tokenizer(model: ModelSettings) -> Application:
    """One model's ``Tokenizer-<name>``."""
    deployment = serve.deployment(
        name=deployment_name("Tokenizer", model.name),
        max_ongoing_requests=UNLIMITED,
        request_router_config=ROUTER,
        ray_actor_options=replica_options(num_cpus=0.1),
    )
    return _bind(deployment(Tokenizer), model)


def _sharing(args: AppSettings) -> int:
    """Models that take KV blocks of a CPU's memory; a graph does not know which find a GPU."""
    return sum(one.task == "generate" and one.engine.device != "cuda" for one in args.models)


def bind_model(model: ModelSettings, sharing: int) -> Application:
    """One model's ``Model-<name>``, or ``Embedder-<name>`` if that is its task."""
    engine = model.engine
    served = Embedder if model.task == "embed" else Model
    deployment = serve.deployment(
        name=deployment_name(model_role(model), model.name),
        max_ongoing_requests=engine.max_running + engine.max_waiting + SPARE,
        request_router_config=_model_router(model),
        graceful_shutdown_timeout_s=DRAIN_S,
        health_check_period_s=5.0,
        ray_actor_options=replica_options(num_cpus=1),
    )
    return _bind(deployment(served), *([model, sharing] if served is Model else [model]))


def _model_router(model: ModelSettings) -> dict[str, Any]:
    if model.task == "embed" or not model.engine.prefix_cache:
        return ROUTER
    places = {"places": model.engine.max_running}
    return {**ROUTER, "request_router_class": PREFIX_ROUTER, "request_router_kwargs": places}


def _bind(deployment: Any, *args: Any) -> Application:
    bound: Application = deployment.bind(*args)
    return bound
