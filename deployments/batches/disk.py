"""A folder of one server's own: its lock, the space it may take, and records that are whole."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from models.errors import Busy, Invalid

logger = logging.getLogger("stepserve")

RECORD_BYTES = 4096  # what a small file takes of a disk
LOCK_S = 30.0  # how long a replica that is being replaced may still hold the folder
RETRY_S = 30.0  # after which clients may ask again where the disk fails
PARTS = ("files", "batches", "uploads")

Record = TypeVar("Record", bound=BaseModel)


class Space:
    """Bytes that the folder takes, and may take."""

    def __init__(self, most: int) -> None:
        self.used = 0
        self._most = most
        self._lock = Lock()

    @property
    def full(self) -> bool:
        return self.used >= self._most

    def add(self, more: int) -> None:
        """So many bytes more are taken, from whichever thread; or less."""
        with self._lock:
            self.used += more

    def require(self, more: int) -> None:
        """Raises ``Invalid`` unless there is room for so many bytes."""
        if self.used + more > self._most:
            raise Invalid(
                f"The server keeps no more than {self._most >> 20} MiB of files and batches:"
                " delete files that are of no use any more."
            )


class InUse(OSError):
    """Another server has the folder."""


def open_folder(name: str) -> tuple[Path, int]:
    """Makes the folder of this name and its parts.

    Its path, and the descriptor of its lock, which is held while it is open. Raises ``InUse``, or
    another ``OSError`` if nothing can be written there.
    """
    folder = Path(name).expanduser()
    for part in PARTS:
        (folder / part).mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(folder / "in-use.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise InUse(f"`batches.folder`: another server uses {folder}") from None
    return folder, lock


async def open_when_free(name: str, patience_s: float = LOCK_S) -> tuple[Path, int]:
    """``open_folder``, which may be in use for so long."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return open_folder(name)
        except InUse:
            if time.monotonic() > until:
                raise
        await asyncio.sleep(0.1)


@contextmanager
def asked_of_the_disk() -> Iterator[None]:
    """What clients are told where it fails: raises ``Busy``."""
    try:
        yield
    except OSError as error:
        logger.error("the folder of batches fails: %s", error)
        message = f"The server's folder of files and batches fails now: {error.strerror}."
        raise Busy(message, RETRY_S) from error


def save(path: Path, record: BaseModel) -> None:
    """All of it or nothing: whoever reads the file meanwhile, or after a crash, finds the old."""
    beside = path.with_suffix(".new")
    try:
        with beside.open("wb") as file:
            file.write(record.model_dump_json().encode())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink()  # a part of it would only take room
        raise


def load(folder: Path, kind: type[Record]) -> tuple[list[Record], list[Path]]:
    """All records of a folder, the oldest first, and files that hold none: these stay there."""
    for beside in folder.glob("*.new"):
        beside.unlink()
    records, broken = [], []
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns):
        try:
            records.append(kind.model_validate_json(path.read_bytes()))
        except ValidationError as error:
            why = error.errors(include_input=False)[0]["msg"]  # no word of what clients sent
            logger.error("%s is left out, it holds no %s: %s", path, kind.__name__, why)
            broken.append(path)
    return records, broken


def size_of(path: Path) -> int:
    """Its bytes, 0 if it is not there."""
    return path.stat().st_size if path.exists() else 0
