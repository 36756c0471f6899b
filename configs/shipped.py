"""What `serve_config.yaml` serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).parents[1] / "serve_config.yaml"


def default_model() -> dict[str, Any]:
    """The settings of its model."""
    config = yaml.safe_load(FILE.read_text())
    settings: dict[str, Any] = config["applications"][0]["args"]["models"][0]
    return settings
