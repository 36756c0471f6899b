"""The application of `serve_config.yaml` as an object, which is what `serve build` takes."""

from pathlib import Path

import yaml

from configs.settings import AppSettings
from deployments.app import build

CONFIG = Path(__file__).resolve().parents[1] / "serve_config.yaml"

arguments = yaml.safe_load(CONFIG.read_text())["applications"][0]["args"]
app = build(AppSettings.model_validate(arguments))
