from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from configs.shipped import default_model
from models.source import resolve
from tests.serving import ROOT, Server, serving, with_batches

SLOW_TIMEOUT_S = 600


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder of the default model, fetched once into the usual cache."""
    return resolve(default_model()["source"])


@pytest.fixture(scope="session")
def minilm() -> str:
    """The source of the embedding model that a preset serves."""
    config = yaml.safe_load((ROOT / "configs" / "presets" / "embeddings.yaml").read_text())
    models = config["applications"][0]["args"]["models"]
    return next(str(model["source"]) for model in models if model.get("task") == "embed")


@pytest.fixture(scope="session")
def default_server() -> Iterator[Server]:
    """``serve_config.yaml`` as ``make serve`` runs it: the default model, the whole graph."""
    with serving(ROOT / "serve_config.yaml") as server:
        yield server


@pytest.fixture(scope="session")
def batches_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The default one with a folder for batches."""
    with serving(with_batches(tmp_path_factory.mktemp("batches"))) as server:
        yield server


@pytest.fixture(scope="session")
def mock_server() -> Iterator[Server]:
    """The scripted model through the whole graph."""
    with serving(ROOT / "configs" / "presets" / "mock.yaml") as server:
        yield server


@pytest.fixture(scope="session")
def embeddings_server() -> Iterator[Server]:
    """A chat model and an embedding model in one app, through the whole graph."""
    with serving(ROOT / "configs" / "presets" / "embeddings.yaml") as server:
        yield server
