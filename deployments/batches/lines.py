"""The lines of an input file: what they must be, and what becomes of them."""

from __future__ import annotations

import json
from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from deployments.batches.wire import BatchError, Shown
from deployments.body import parse_json
from deployments.openai.call import validated
from deployments.openai.errors import ApiError

SHOWN_ERRORS = 100  # of a file; more of them tell nothing new


class Line(BaseModel):
    """A request of a batch."""

    model_config = ConfigDict(extra="forbid", strict=True)

    custom_id: str = Field(min_length=1, max_length=512)
    method: Literal["POST"]
    url: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one input file: its requests, and the bytes of each."""

    lines: int
    line_bytes: int


@dataclass(slots=True)
class Checked:
    """What a look through a whole file found.

    ``ahead`` are the places of the lines that are to be answered. ``model`` is that of all, if it
    is one.
    """

    total: int = 0
    ahead: array[int] = field(default_factory=lambda: array("Q"))
    models: set[str] = field(default_factory=set)
    errors: list[BatchError] = field(default_factory=list)

    @property
    def model(self) -> str | None:
        return next(iter(self.models)) if len(self.models) == 1 else None

    def complain(self, code: str, message: str, line: int | None, param: str | None = None) -> None:
        if len(self.errors) < SHOWN_ERRORS:
            self.errors.append(BatchError(code=code, message=message, line=line, param=param))


def check(path: Path, endpoint: str, limits: Limits, done: Collection[str] = ()) -> Checked:
    """Looks through an input file of which the lines with these ids are ``done``. Blocks."""
    found = Checked()
    if not path.exists():
        found.complain("missing_file", "The input file is not there any more.", None)
        return found
    ids: set[str] = set()
    with path.open("rb") as file:
        for number, place, data in _lines(file, limits.line_bytes):
            found.total += 1
            if found.total > limits.lines:
                message = f"The file has more than {limits.lines} requests."
                found.complain("too_many_requests", message, number)
                break
            if len(data) > limits.line_bytes:
                message = f"The line is larger than {limits.line_bytes} bytes."
                found.complain("line_too_large", message, number)
                continue
            _check_line(found, data, number, place, endpoint, ids, done)
    if not found.total:
        found.complain("empty_file", "The input file has no requests.", None)
    return found


def parse(data: bytes) -> Line:
    """Raises ``ApiError``."""
    return validated(Line, parse_json(data))


def _lines(file: BufferedReader, most: int) -> Iterator[tuple[int, int, bytes]]:
    """Number, place and bytes of each that is not blank; of one that is too long a part."""
    number, place = 0, 0
    while data := file.readline(most + 2):
        number += 1
        beginning, place = place, place + len(data)
        while not data.endswith(b"\n") and (rest := file.readline(most)):
            place += len(rest)
            if rest.endswith(b"\n"):
                break
        if data.strip():
            yield number, beginning, data.rstrip(b"\r\n")


def _check_line(
    found: Checked,
    data: bytes,
    number: int,
    place: int,
    endpoint: str,
    ids: set[str],
    done: Collection[str],
) -> None:
    try:
        line = parse(data)
    except ApiError as error:
        found.complain(error.code or "invalid_json_line", error.message, number, error.param)
        return
    if line.url != endpoint:
        message = f"The url '{line.url[:100]}' is not the endpoint of the batch, '{endpoint}'."
        found.complain("mismatched_url", message, number, "url")
    if line.custom_id in ids:
        message = f"The custom_id '{line.custom_id}' is that of an earlier line."
        found.complain("duplicate_custom_id", message, number, "custom_id")
    ids.add(line.custom_id)
    if isinstance(model := line.body.get("model"), str) and len(found.models) < 2:
        found.models.add(model)
    if line.custom_id not in done:
        found.ahead.append(place)


def answered(custom_id: str, status: int, request_id: str, body: Mapping[str, Any]) -> Shown:
    """A line of an output file, or of the error file where ``status`` is not 200."""
    response = {"status_code": status, "request_id": request_id, "body": body}
    return _result(custom_id, response, None)


def unanswered(custom_id: str, code: str, message: str) -> Shown:
    """A line of the error file about a request that was never answered."""
    return _result(custom_id, None, {"code": code, "message": message})


def _result(custom_id: str, response: Shown | None, error: Shown | None) -> Shown:
    id = f"batch_req_{uuid4().hex[:24]}"
    return {"id": id, "custom_id": custom_id, "response": response, "error": error}


def as_compact(body: Mapping[str, Any]) -> bytes:
    """A line's body on its way: no longer than it may be, if the line is not."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def dump(line: Mapping[str, Any]) -> bytes:
    """As it stands in a file; in ASCII, so that nothing in it ends a line for anybody."""
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"
