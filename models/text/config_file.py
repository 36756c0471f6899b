"""The JSON files of a model's folder, of which any may be missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_config(file: Path) -> dict[str, Any]:
    """What the file says; nothing if there is none."""
    if not file.is_file():
        return {}
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content
