"""A Serve config with other values in it: another model, host or port. Plain data in and out."""

from __future__ import annotations

import copy
import re
from typing import Any

ServeConfig = dict[str, Any]


def with_address(config: ServeConfig, host: str | None, port: int | None) -> ServeConfig:
    """`config` listening on `host` and `port`; None keeps its own."""
    changed = copy.deepcopy(config)
    options = changed.setdefault("http_options", {})
    given = {"host": host, "port": port}
    options.update({key: value for key, value in given.items() if value is not None})
    return changed


def with_model(config: ServeConfig, source: str) -> ServeConfig:
    """`config` serving `source` in place of its first model, under a name made from it."""
    changed = copy.deepcopy(config)
    application = changed["applications"][0]
    model = application["args"]["models"][0]
    if model.get("source") == source:
        return changed
    old, new = model["name"], model_name(source)
    for key in ("factory", "factory_args", "tokenizer", "chat_template"):
        model.pop(key, None)  # they belong to the model that is replaced
    model.update(name=new, source=source)
    _rename_deployments(application, old, new)
    return changed


def model_name(source: str) -> str:
    """What clients call the model of a source: the last part of its path, id or package."""
    plain = source.removeprefix("pypi:").split("==")[0].split("@")[0]
    last = plain.rstrip("/").rpartition("/")[2].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", last).strip("-.") or "model"


def _rename_deployments(application: dict[str, Any], old: str, new: str) -> None:
    names = {f"{kind}-{old}": f"{kind}-{new}" for kind in ("Tokenizer", "Model")}
    for deployment in application.get("deployments", []):
        deployment["name"] = names.get(deployment["name"], deployment["name"])
