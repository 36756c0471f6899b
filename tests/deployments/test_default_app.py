from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml
from ray.serve.schema import ServeDeploySchema

from tests.serving import ROOT


def test_serve_build_writes_a_config_of_the_whole_graph(tmp_path: Path) -> None:
    output = tmp_path / "built.yaml"
    command = [sys.executable, "-m", "ray.serve.scripts", "build", "-o", str(output)]
    subprocess.run([*command, "deployments.default_app:app"], cwd=ROOT, check=True)
    built = ServeDeploySchema.model_validate(yaml.safe_load(output.read_text())).applications[0]
    shipped = yaml.safe_load((ROOT / "serve_config.yaml").read_text())["applications"][0]
    names = {deployment["name"] for deployment in shipped["deployments"]}
    assert {deployment.name for deployment in built.deployments} == names
