"""Lists in pages, by the id that the last page ended with."""

from __future__ import annotations

from collections.abc import Sequence

from deployments.batches.wire import BatchRecord, FileRecord, Shown
from models.errors import Invalid

Records = Sequence[FileRecord] | Sequence[BatchRecord]


def page(records: Records, after: str | None, limit: int) -> Shown:
    """At most ``limit`` of the records, those behind ``after``. Raises ``Invalid``."""
    ids = [record.id for record in records]
    if after is not None and after not in ids:
        raise Invalid(f"Nothing with id '{after}' found.", "after")
    first = 0 if after is None else ids.index(after) + 1
    data = [record.shown() for record in records[first : first + limit]]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": first + len(data) < len(ids),
    }
