"""What the deployments of a graph are called, as ``deployments`` of a configuration names them."""

from __future__ import annotations

import re

from configs.settings import AppSettings, ModelSettings


def deployment_name(role: str, model: str) -> str:
    """What Serve calls a model's deployment: other characters than letters, digits, ``._-`` go."""
    return f"{role}-{re.sub(r'[^A-Za-z0-9._-]', '-', model)}"


def model_role(model: ModelSettings) -> str:
    """The role of the deployment that computes."""
    return "Embedder" if model.task == "embed" else "Model"


def deployment_names(settings: AppSettings) -> list[str]:
    """All of the graph that these settings make."""
    limits = settings.rate_limits
    single = {
        "Responses": settings.responses_kept,
        "RateLimits": limits.any_limits and limits.storage is None,
        "Batches": settings.batches,
    }
    own = ["Ingress", *(name for name, wanted in single.items() if wanted)]
    for model in settings.models:
        own += [deployment_name(role, model.name) for role in ("Tokenizer", model_role(model))]
    return own
