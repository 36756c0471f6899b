"""``/v1/models`` as Anthropic lists them, for clients that send ``anthropic-version``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from deployments.openai.errors import invalid

MOST = 1000  # models of a page


def model_info(name: str, created: int, max_context: int) -> dict[str, Any]:
    """One model; ``created`` in seconds since 1970, ``max_context`` in tokens, 0: not known yet."""
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "max_input_tokens": max_context or None,
        "max_tokens": max_context or None,
    }


def model_page(models: Iterable[Mapping[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """Those behind ``after_id`` or before ``before_id``, at most ``limit``. Raises ``ApiError``."""
    rest, limit = list(models), _limit(query.get("limit", "20"))
    if (before := query.get("before_id")) is not None:
        rest = rest[: _place(rest, before, "before_id")]
        page = rest[-limit:]
    else:
        after = query.get("after_id")
        rest = rest if after is None else rest[_place(rest, after, "after_id") + 1 :]
        page = rest[:limit]
    return {
        "data": page,
        "has_more": len(page) < len(rest),
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
    }


def _place(models: Sequence[Mapping[str, Any]], id: str, param: str) -> int:
    for i, model in enumerate(models):
        if model["id"] == id:
            return i
    raise invalid(f"{param}: there is no model '{id}'", param)


def _limit(value: str) -> int:
    if not value.isascii() or not value.isdecimal() or not 1 <= int(value[:5]) <= MOST:
        raise invalid(f"limit: must be at least 1 and at most {MOST}", "limit")
    return int(value[:5])
