"""``/v1/models``: how the models are listed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from deployments.openai.errors import ApiError


def model_entry(name: str, created: int, max_context: int) -> dict[str, Any]:
    """One model; ``created`` in seconds since 1970, ``max_context`` in tokens."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "stepserve",
        "max_model_len": max_context,
    }


def model_list(entries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """All models."""
    return {"object": "list", "data": list(entries)}


def model_not_found(name: str) -> ApiError:
    """404, as OpenAI answers it."""
    message = f"The model '{name}' does not exist or you do not have access to it."
    return ApiError(404, message, param="model", code="model_not_found")
