"""What clients send to make files and batches: checked, and turned into wishes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import FormData, QueryParams, UploadFile

from deployments.batches.wire import BatchWish, Endpoint, FileWish, new_id
from deployments.openai.call import validated
from deployments.openai.errors import invalid, missing, not_one_of, wrong_type
from deployments.responses.request import METADATA_PAIRS

PURPOSE = "batch"
HOUR_S, LONGEST_S = 3600, 30 * 24 * 3600
Seconds = Annotated[int, Field(ge=HOUR_S, le=LONGEST_S)]
Key = Annotated[str, Field(max_length=64)]
Value = Annotated[str, Field(max_length=512)]


class Expiry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    anchor: Literal["created_at"]
    seconds: Seconds


class BatchBody(BaseModel):
    """The JSON that makes a batch."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input_file_id: str
    endpoint: Endpoint
    completion_window: Literal["24h"]
    metadata: Annotated[dict[Key, Value], Field(max_length=METADATA_PAIRS)] | None = None
    output_expires_after: Expiry | None = None


def batch_wish(data: Mapping[str, Any], owner: str) -> BatchWish:
    """Raises ``ApiError``."""
    body = validated(BatchBody, data)
    lasts = body.output_expires_after
    return BatchWish(
        id=new_id("batch_"),
        owner=owner,
        endpoint=body.endpoint,
        input_file_id=body.input_file_id,
        metadata=body.metadata,
        output_expires_after_s=None if lasts is None else lasts.seconds,
    )


def upload_of(form: FormData) -> UploadFile:
    """The file of a form; raises ``ApiError``."""
    file = form.get("file")
    if file is None:
        raise missing("file")
    if not isinstance(file, UploadFile):
        raise wrong_type("a file", file, "file")
    return file


def file_wish(form: FormData, owner: str) -> FileWish:
    """Raises ``ApiError``."""
    purpose = form.get("purpose")
    if purpose is None:
        raise missing("purpose")
    if purpose != PURPOSE:
        raise not_one_of("purpose", [PURPOSE])
    name = upload_of(form).filename or "upload.jsonl"
    return FileWish(
        owner=owner, filename=name[:256], purpose=PURPOSE, expires_after_s=_expires_after(form)
    )


def _expires_after(form: FormData) -> int | None:
    """Forms have it as ``expires_after[anchor]`` and ``expires_after[seconds]``."""
    parts = {name: form.get(f"expires_after[{name}]") for name in ("anchor", "seconds")}
    given = {name: part for name, part in parts.items() if part is not None}
    if not given:
        return None
    seconds = given.get("seconds")
    if isinstance(seconds, str) and seconds.isascii() and seconds.isdecimal():
        given["seconds"] = int(seconds[:19])  # type: ignore[assignment]
    return validated(_Expires, {"expires_after": given}).expires_after.seconds


class _Expires(BaseModel):
    expires_after: Expiry


def limit_of(query: QueryParams, default: int, most: int) -> int:
    """How many a page has at most; raises ``ApiError``."""
    limit = query.get("limit", str(default))
    if not limit.isascii() or not limit.isdecimal() or not 1 <= int(limit[:9]) <= most:
        raise invalid(f"'limit' must be at least 1 and at most {most}.", "limit")
    return int(limit[:9])


def order_of(query: QueryParams) -> str:
    """``asc`` or ``desc``; raises ``ApiError``."""
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise invalid("'order' must be 'asc' or 'desc'.", "order")
    return order
