"""A Serve config with other values in it: another model, host or port. Plain data in and out."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from configs.deployments import deployment_name

ServeConfig = dict[str, Any]

KINDS = ("Tokenizer", "Model")
# What belongs to a model, and goes when another takes its place.
OWN = (
    "task",
    "embed",
    "factory",
    "factory_args",
    "adapters",
    "tokenizer",
    "chat_template",
    "reasoning",
    "tool_format",
)


def with_address(config: ServeConfig, host: str | None, port: int | None) -> ServeConfig:
    """``config`` listening on ``host`` and ``port``; None keeps its own."""
    changed = copy.deepcopy(config)
    options = changed.setdefault("http_options", {})
    given = {"host": host, "port": port}
    options.update({key: value for key, value in given.items() if value is not None})
    return changed


def with_model(config: ServeConfig, source: str) -> ServeConfig:
    """``config`` serving ``source`` in place of its first model, under a name made from it."""
    changed = copy.deepcopy(config)
    application = changed["applications"][0]
    model = application["args"]["models"][0]
    if model.get("source") == source:
        return changed
    old, new = model["name"], model_name(source)
    for key in OWN:
        model.pop(key, None)
    model.update(name=new, source=source)
    names = {kind: kind for kind in KINDS} | {"Embedder": "Model"}
    _rename(
        application,
        {deployment_name(one, old): deployment_name(to, new) for one, to in names.items()},
    )
    return changed


def with_task(config: ServeConfig, name: str, task: str) -> ServeConfig:
    """``config`` in which the model of this name has this task."""
    changed = copy.deepcopy(config)
    application = changed["applications"][0]
    for model in application["args"]["models"]:
        if model["name"] == name:
            model["task"] = task
    old, new = ("Model", "Embedder") if task == "embed" else ("Embedder", "Model")
    _rename(application, {deployment_name(old, name): deployment_name(new, name)})
    return changed


def model_name(source: str) -> str:
    """What clients call the model of a source: the last part of its path, id or package."""
    plain = source.removeprefix("pypi:").split("==")[0].split("@")[0]
    last = plain.rstrip("/").rpartition("/")[2].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", last).strip("-.") or "model"


def _rename(application: dict[str, Any], names: Mapping[str, str]) -> None:
    for deployment in application.get("deployments", []):
        deployment["name"] = names.get(deployment["name"], deployment["name"])
