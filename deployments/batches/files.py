"""Files that clients upload, and those that batches bring: each with a record beside it."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock

from deployments.batches.disk import RECORD_BYTES, Space, load, save, size_of
from deployments.batches.wire import FileRecord, FileWish, new_id, now
from models.errors import Invalid

MOST_FILES = 10_000  # of one owner
FORGOTTEN_S = 3600  # an upload of which nothing came for so long is given up


class Files:
    """One process's own.

    Calls that write or read as much as clients send are told as blocking, and are for threads. All
    others are for the event loop, which keeps them in order, and wait for the disk no longer than
    a record or a part of an upload takes.
    """

    def __init__(self, folder: Path, space: Space, max_bytes: int, kept_s: int) -> None:
        self._files = folder / "files"
        self._uploads = folder / "uploads"
        self._space = space
        self._max_bytes = max_bytes
        self._kept_s = kept_s
        self._sizes: dict[str, int] = {}  # of uploads
        self._changing = Lock()  # an upload may be dropped while some of it is still written
        for upload in self._uploads.iterdir():
            upload.unlink()
        records, broken = load(self._files, FileRecord)
        self._records = {one.id: one for one in records}
        self._unknown = {path.stem for path in broken}
        sizes = [one.bytes for one in records]
        sizes += [size_of(self.path(id)) for id in self._unknown]
        space.add(sum(sizes) + RECORD_BYTES * len(sizes))

    def begin(self) -> str:
        """A new upload."""
        self._space.require(RECORD_BYTES)
        upload = new_id("file-")
        (self._uploads / upload).touch()
        self._sizes[upload] = 0
        return upload

    def write(self, upload: str, offset: int, data: bytes) -> None:
        """The next bytes of an upload, blocking. Raises ``Invalid``; the same twice is once."""
        with self._changing:
            self._write(upload, offset, data)

    def _write(self, upload: str, offset: int, data: bytes) -> None:
        size = self._sizes.get(upload)
        if size is None or offset > size:
            raise Invalid("The upload was interrupted.", "file")
        end = offset + len(data)
        if end > self._max_bytes:
            raise too_large(self._max_bytes)
        self._space.require(end - size)
        with (self._uploads / upload).open("r+b") as file:
            file.seek(offset)
            file.write(data)
        self._sizes[upload] = end
        self._space.add(end - size)

    def keep(self, upload: str, wish: FileWish) -> FileRecord:
        """The upload is whole, and becomes a file. Raises ``Invalid``; the same twice is once."""
        if upload in self._records:
            return self._records[upload]
        if upload not in self._sizes:
            raise Invalid("The upload was interrupted.", "file")
        if sum(one.owner == wish.owner for one in [*self._records.values()]) >= MOST_FILES:
            raise Invalid(f"No more than {MOST_FILES} files are kept: delete some.")
        (self._uploads / upload).replace(self.path(upload))
        try:
            record = self._record(upload, wish, self._sizes[upload])
        except OSError:
            self.path(upload).replace(self._uploads / upload)
            raise
        del self._sizes[upload]
        return record

    def drop(self, upload: str) -> None:
        """Gives an upload up, if it was not kept; blocking."""
        with self._changing:
            if upload in self._sizes:
                self._space.add(-self._sizes.pop(upload))
                (self._uploads / upload).unlink(missing_ok=True)

    def adopt(self, id: str, wish: FileWish) -> None:
        """What a batch wrote to ``path(id)``, which is used space already, is a file; blocking."""
        if id not in self._records:
            self._record(id, wish, size_of(self.path(id)))

    def counted(self, id: str) -> int:
        """Bytes of its contents that are used space: of a file, not of what a batch writes."""
        return self._records[id].bytes if id in self._records else 0

    def path(self, id: str) -> Path:
        """Where its contents are."""
        return self._files / id

    def find(self, owner: str, id: str) -> FileRecord | None:
        """The record, if there is such a file of this owner."""
        record = self._records.get(id)
        return record if record and record.owner == owner and record.expires_at > now() else None

    def of(self, owner: str, purpose: str | None = None) -> list[FileRecord]:
        """All of an owner's, the newest first."""
        return [
            one
            for one in reversed([*self._records.values()])  # a thread may adopt one meanwhile
            if one.owner == owner and one.expires_at > now() and purpose in (None, one.purpose)
        ]

    def read(self, id: str, offset: int, size: int) -> bytes:
        """A part of its contents, blocking; empty behind its end."""
        with self.path(id).open("rb") as file:
            return os.pread(file.fileno(), size, offset)

    def delete(self, id: str) -> None:
        self._beside(id).unlink(missing_ok=True)
        record = self._records.pop(id)
        self._space.add(-(record.bytes + RECORD_BYTES))
        self.path(id).unlink(missing_ok=True)

    def sweep(self, spared: set[str]) -> None:
        """Removes what has expired, but for ``spared`` files, and uploads that are forgotten."""
        for record in [*self._records.values()]:
            if record.expires_at <= now() and record.id not in spared:
                self.delete(record.id)
        for upload in [*self._sizes]:
            path = self._uploads / upload
            if not path.exists() or path.stat().st_mtime < now() - FORGOTTEN_S:
                self.drop(upload)

    def remove_strangers(self, expected: set[str]) -> None:
        """Contents without a record go, unless a batch is still writing them.

        Those whose record is broken stay, for whoever mends it.
        """
        known = {*self._records, *self._unknown, *expected}
        for path in self._files.iterdir():
            if path.suffix != ".json" and path.name not in known:
                path.unlink()

    def _record(self, id: str, wish: FileWish, size: int) -> FileRecord:
        lasts = self._kept_s if wish.expires_after_s is None else wish.expires_after_s
        created = now()
        record = FileRecord(
            id=id,
            owner=wish.owner,
            filename=wish.filename,
            purpose=wish.purpose,
            bytes=size,
            created_at=created,
            expires_at=created + lasts,
        )
        save(self._beside(id), record)
        self._records[id] = record
        self._space.add(RECORD_BYTES)
        return record

    def _beside(self, id: str) -> Path:
        return self._files / f"{id}.json"


def too_large(max_bytes: int) -> Invalid:
    """A file that is more than the server takes."""
    return Invalid(f"The file is larger than {max_bytes >> 20} MiB.", "file")
