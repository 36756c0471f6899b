"""Files and batches as they lie on disk, and as OpenAI's clients are shown them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal
from uuid import uuid4

from pydantic import BaseModel

Shown = dict[str, Any]  # JSON

Endpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]
Status = Literal[
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "expired",
    "cancelling",
    "cancelled",
]
ENDED: tuple[Status, ...] = ("failed", "completed", "expired", "cancelled")
DAY_S = 86400
MIB = 2**20
WINDOW = "24h"
WINDOW_S = DAY_S

# A token count of an answer's usage: where chat and completions have it, and where responses do.
COUNTS: Mapping[str, tuple[str, ...]] = {
    "input_tokens": ("prompt_tokens", "input_tokens"),
    "output_tokens": ("completion_tokens", "output_tokens"),
    "total_tokens": ("total_tokens",),
}
CACHED = ("prompt_tokens_details", "input_tokens_details")
REASONED = ("completion_tokens_details", "output_tokens_details")


def now() -> int:
    """Seconds since 1970."""
    return int(time.time())


def new_id(prefix: str) -> str:
    """``file-…`` and ``batch_…``."""
    return prefix + uuid4().hex[:24]


class FileWish(BaseModel):
    """What is to become of an upload. ``expires_after_s=None`` is as long as files are kept."""

    owner: str
    filename: str
    purpose: str
    expires_after_s: int | None = None


class FileRecord(BaseModel):
    """A file that is kept; ``owner`` is the opaque name of the key that it belongs to."""

    id: str
    owner: str
    filename: str
    purpose: str
    bytes: int
    created_at: int
    expires_at: int

    def shown(self) -> Shown:
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
        }


class BatchError(BaseModel):
    """Why a batch failed; ``line`` counts from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class Usage(BaseModel):
    """Tokens of all answers together."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0

    def add(self, body: Mapping[str, Any]) -> None:
        """One more answer, of whichever endpoint."""
        usage = body.get("usage") or {}
        for name, spelled in COUNTS.items():
            setattr(self, name, getattr(self, name) + _first(usage, spelled))
        self.cached_tokens += _first(_first_of(usage, CACHED), ("cached_tokens",))
        self.reasoning_tokens += _first(_first_of(usage, REASONED), ("reasoning_tokens",))

    def shown(self) -> Shown:
        return {
            "input_tokens": self.input_tokens,
            "input_tokens_details": {"cached_tokens": self.cached_tokens},
            "output_tokens": self.output_tokens,
            "output_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
            "total_tokens": self.total_tokens,
        }


def _first(usage: Mapping[str, Any], names: tuple[str, ...]) -> int:
    return next((int(usage[name]) for name in names if usage.get(name)), 0)


def _first_of(usage: Mapping[str, Any], names: tuple[str, ...]) -> Mapping[str, Any]:
    return next((usage[name] for name in names if usage.get(name)), {})


class BatchWish(BaseModel):
    """A batch that somebody wants, with the id it is to have."""

    id: str
    owner: str
    endpoint: Endpoint
    input_file_id: str
    metadata: dict[str, str] | None = None
    output_expires_after_s: int | None = None


class BatchRecord(BatchWish):
    """A batch. The ids of its files are chosen when it is made; they are shown once there are any.

    ``completed`` and ``failed`` count the lines of its output and of its error file.
    """

    output_file_id: str
    error_file_id: str
    status: Status = "validating"
    created_at: int
    expires_at: int
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    model: str | None = None
    errors: list[BatchError] = []
    total: int = 0
    completed: int = 0
    failed: int = 0
    usage: Usage = Usage()

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    def become(self, status: Status, at: int) -> None:
        """Its next status, from a moment on."""
        self.status = status
        setattr(self, f"{status}_at", at)

    def shown(self) -> Shown:
        files = self.status in ("completed", "expired", "cancelled")
        errors = [error.model_dump() for error in self.errors]
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "model": self.model,
            "errors": {"object": "list", "data": errors} if errors else None,
            "input_file_id": self.input_file_id,
            "completion_window": WINDOW,
            "status": self.status,
            "output_file_id": self.output_file_id if files and self.completed else None,
            "error_file_id": self.error_file_id if files and self.failed else None,
            "created_at": self.created_at,
            "in_progress_at": self.in_progress_at,
            "expires_at": self.expires_at,
            "finalizing_at": self.finalizing_at,
            "completed_at": self.completed_at,
            "failed_at": self.failed_at,
            "expired_at": self.expired_at,
            "cancelling_at": self.cancelling_at,
            "cancelled_at": self.cancelled_at,
            "request_counts": {
                "total": self.total,
                "completed": self.completed,
                "failed": self.failed,
            },
            "usage": self.usage.shown(),
            "metadata": self.metadata,
        }
