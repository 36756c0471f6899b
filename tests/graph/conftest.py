"""One real graph on a local Ray for all tests of it: models without real weights."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import ray
from ray import serve
from ray.serve.schema import LoggingConfig

from configs.deployments import deployment_name
from configs.settings import AppSettings
from deployments.app import build
from deployments.cluster import free_ports, on_one_machine
from deployments.remote import RemoteEngine
from deployments.remote_embedder import RemoteEmbedder
from models.text.loading import byte_pipeline

HOST = "127.0.0.1"
OWN = "tests.graph.own_models"
ROOT = Path(__file__).parents[2]
ADMIN_KEY = "operator"
QUICKER = {
    "RAY_metrics_report_interval_ms": "10000"
}  # what is tested of Ray's metrics waits for it


@dataclass(frozen=True)
class RunningGraph:
    """``lives`` is the folder of the fragile model's lives."""

    port: int
    lives: Path

    def engine(self, model: str) -> RemoteEngine:
        """An engine over the graph's own handles, for the running event loop."""
        tokenizer, replicas = (
            serve.get_deployment_handle(deployment_name(role, model), "test")
            for role in ("Tokenizer", "Model")
        )
        return RemoteEngine(model, tokenizer, replicas, byte_pipeline())

    def embedder(self, model: str) -> RemoteEmbedder:
        """The same for a model that embeds."""
        tokenizer, replicas = (
            serve.get_deployment_handle(deployment_name(role, model), "test")
            for role in ("Tokenizer", "Embedder")
        )
        return RemoteEmbedder(model, tokenizer, replicas)


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGraph]:
    lives = tmp_path_factory.mktemp("lives")
    keys = tmp_path_factory.mktemp("keys") / "admin"
    keys.write_text(ADMIN_KEY)
    given = {"models": _models(str(lives)), "admin_keys_file": str(keys)}
    settings = AppSettings.model_validate(given)
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:  # short: it holds sockets
        _start_ray(Path(folder))
        try:
            yield RunningGraph(_start(settings), lives)
        finally:
            serve.shutdown()  # type: ignore[no-untyped-call]
            ray.shutdown()


def _start_ray(folder: Path) -> None:
    """Its processes inherit what they are told; servers that other tests start must not."""
    told = on_one_machine(folder, HOST) | QUICKER
    with pytest.MonkeyPatch.context() as environment:
        for name, value in told.items():
            environment.setenv(name, value)
        ray.init(
            address="local",
            num_cpus=8,
            include_dashboard=False,
            log_to_driver=False,
            _temp_dir=str(folder),
            runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
        )


def _start(settings: AppSettings) -> int:
    (port,) = free_ports(1)
    serve.start(http_options={"host": HOST, "port": port})
    quiet = LoggingConfig(enable_access_log=False)
    serve.run(build(settings), name="test", route_prefix="/", logging_config=quiet)
    return port


def _models(lives: str) -> list[dict[str, object]]:
    return [
        {
            "name": "recall",
            "factory": f"{OWN}:recall",
            "factory_args": {"seconds": 0.002},
            "engine": {"max_running": 32, "max_waiting": 400},
        },
        {
            "name": "fragile",
            "factory": f"{OWN}:fragile",
            "factory_args": {"life": lives, "seconds": 0.02},
            "engine": {"max_running": 2, "max_waiting": 1},
        },
        {
            "name": "babbling",
            "factory": "tests.models.babbling:babbling",
            "factory_args": {"context": 1024},
            "engine": {"max_running": 6},
        },
        {
            "name": "crash",
            "factory": "models.mock:MockEngine",
            "factory_args": {"name": "crash", "failure": "crash", "fail_after": 2},
        },
        {
            "name": "vectors",
            "task": "embed",
            "factory": f"{OWN}:SlowVectors",
            "factory_args": {"seconds": 0.02},
            "embed": {"batch_tokens": 64, "min_dimensions": 2},
        },
    ]
