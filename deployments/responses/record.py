"""A kept answer: the response, the items it answered, and those that came before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deployments.openai.errors import ApiError, invalid
from deployments.responses.items import Item


@dataclass(frozen=True, slots=True)
class Record:
    """Whole by itself: earlier answers may be gone without harm to it."""

    response: dict[str, Any]
    items: Sequence[Item]
    history: Sequence[Item]

    @property
    def conversation(self) -> list[Item]:
        """All items, with this answer's own."""
        return [*self.history, *self.items, *self.response["output"]]

    def dump(self) -> bytes:
        """As JSON."""
        return json.dumps([self.response, list(self.items), list(self.history)]).encode()

    @classmethod
    def load(cls, data: bytes) -> Record:
        """What ``dump`` made."""
        return cls(*json.loads(data))


def not_found(id: str) -> ApiError:
    """404, as OpenAI answers it."""
    return ApiError(404, f"Response with id '{id}' not found.", param="id")


def previous_not_found(id: str) -> ApiError:
    """400, as OpenAI answers it."""
    message = f"Previous response with id '{id}' not found."
    return invalid(message, "previous_response_id", "previous_response_not_found")
