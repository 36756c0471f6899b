"""What ``serve_config.yaml`` serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).resolve().parents[1] / "serve_config.yaml"


def arguments() -> dict[str, Any]:
    """The ``args`` of its application."""
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())["applications"][0]["args"]
    return found


def default_model() -> dict[str, Any]:
    """The settings of its first model."""
    settings: dict[str, Any] = arguments()["models"][0]
    return settings
