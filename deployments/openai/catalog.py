"""``/v1/models``: how the models are listed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from deployments.openai.errors import ApiError, invalid


def model_entry(
    name: str, created: int, max_context: int, task: str, origin: tuple[str, str | None]
) -> dict[str, Any]:
    """One model; ``created`` in seconds since 1970, ``max_context`` in tokens, 0: not known yet.

    ``task`` is what it does, as the settings call it; ``origin`` its root, and the model that it is
    an adapter of.
    """
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "stepserve",
        "max_model_len": max_context or None,
        "task": task,
        "root": origin[0],
        "parent": origin[1],
    }


def model_list(entries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """All models."""
    return {"object": "list", "data": list(entries)}


def model_not_found(name: str) -> ApiError:
    """404, as OpenAI answers it."""
    message = f"The model '{name}' does not exist or you do not have access to it."
    return ApiError(404, message, param="model", code="model_not_found")


def wrong_task(name: str, does: str, instead: str) -> ApiError:
    """A model that is there, but not for this route."""
    message = f"The model '{name}' {does} and is not supported at this endpoint: {instead}."
    return invalid(message, "model", "unsupported_model")
