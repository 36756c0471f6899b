"""Every configuration that ships: valid for Serve, valid for the app, and consistent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import DeploymentSchema, ServeDeploySchema

from configs.settings import AppSettings, ModelSettings
from deployments.cluster import CLUSTER_ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = [ROOT / "serve_config.yaml", *sorted((ROOT / "configs" / "presets").glob("*.yaml"))]


@pytest.fixture(params=CONFIGS, ids=lambda path: path.name)
def config(request: pytest.FixtureRequest) -> ServeDeploySchema:
    return ServeDeploySchema.model_validate(yaml.safe_load(request.param.read_text()))


@pytest.fixture
def settings(config: ServeDeploySchema) -> AppSettings:
    return AppSettings.model_validate(config.applications[0].args)


@pytest.fixture
def deployments(config: ServeDeploySchema) -> dict[str, DeploymentSchema]:
    return {deployment.name: deployment for deployment in config.applications[0].deployments}


def test_it_listens_on_loopback_only(config: ServeDeploySchema) -> None:
    assert config.http_options.host == "127.0.0.1"


def test_every_deployment_belongs_to_the_graph(
    settings: AppSettings, deployments: dict[str, DeploymentSchema]
) -> None:
    served = {served_name(model) for model in settings.models}
    tokenizers = {f"Tokenizer-{model.name}" for model in settings.models}
    graph = {"Ingress", "Responses"} | served | tokenizers
    assert deployments.keys() <= graph
    assert {"Ingress"} | served <= deployments.keys()


def test_the_models_own_admission_refuses_before_serve_does(
    settings: AppSettings, deployments: dict[str, DeploymentSchema]
) -> None:
    assert deployments["Ingress"].max_queued_requests == -1
    for model in settings.models:
        admitted = model.engine.max_running + model.engine.max_waiting
        assert deployments[served_name(model)].max_ongoing_requests > admitted
        assert deployments["Ingress"].max_ongoing_requests > admitted


def test_running_answers_have_time_to_finish(deployments: dict[str, DeploymentSchema]) -> None:
    for deployment in deployments.values():
        assert deployment.graceful_shutdown_timeout_s >= 30


def test_kubernetes_runs_the_gpu_preset() -> None:
    service = yaml.safe_load((ROOT / "configs" / "kuberay" / "rayservice.yaml").read_text())
    config = yaml.safe_load(service["spec"]["serveConfigV2"])
    preset = yaml.safe_load((ROOT / "configs" / "presets" / "gpu.yaml").read_text())
    assert config.pop("http_options") == preset.pop("http_options") | {"host": "0.0.0.0"}
    assert config == preset


def test_serve_is_told_the_same_on_kubernetes_as_by_make_serve() -> None:
    service = yaml.safe_load((ROOT / "configs" / "kuberay" / "rayservice.yaml").read_text())
    cluster = service["spec"]["rayClusterConfig"]
    ours = {name: value for name, value in CLUSTER_ENVIRONMENT.items() if "SERVE" in name}
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        (container,) = group["template"]["spec"]["containers"]
        told = {variable["name"]: variable["value"] for variable in container["env"]}
        assert told == ours


def test_replicas_may_finish_before_their_pod_is_killed() -> None:
    service = yaml.safe_load((ROOT / "configs" / "kuberay" / "rayservice.yaml").read_text())
    (workers,) = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    config = yaml.safe_load(service["spec"]["serveConfigV2"])
    for deployment in config["applications"][0]["deployments"]:
        grace = workers["template"]["spec"]["terminationGracePeriodSeconds"]
        assert grace > deployment["graceful_shutdown_timeout_s"]


@pytest.mark.parametrize("file", ["serve_config.yaml", "configs/presets/embeddings.yaml"])
def test_it_fits_two_cores(file: str) -> None:
    config = yaml.safe_load((ROOT / file).read_text())
    assert sum(map(most_cpus, config["applications"][0]["deployments"])) <= 2


def served_name(model: ModelSettings) -> str:
    return f"{'Embedder' if model.task == 'embed' else 'Model'}-{model.name}"


def most_cpus(deployment: dict[str, Any]) -> float:
    scaled = deployment.get("autoscaling_config")
    most = AutoscalingConfig(**scaled).max_replicas if scaled else deployment["num_replicas"]
    return float(most * deployment["ray_actor_options"]["num_cpus"])
