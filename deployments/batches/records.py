"""The batches of a folder, ended ones too, each a record on disk."""

from __future__ import annotations

from pathlib import Path

from deployments.batches.disk import RECORD_BYTES, Space, load, save
from deployments.batches.wire import BatchRecord, Status, now
from models.errors import Invalid

MOST_BATCHES = 10_000  # of one owner
MOST_UNFINISHED = 100


class Batches:
    """One process's own, and all calls on its event loop: a record must be on the disk in order."""

    def __init__(self, folder: Path, space: Space, kept_s: int) -> None:
        self._folder = folder / "batches"
        self._space = space
        self._kept_s = kept_s
        found, broken = load(self._folder, BatchRecord)
        self._records = {one.id: one for one in sorted(found, key=lambda one: one.created_at)}
        self.whole = not broken  # else files may belong to batches that nobody knows
        space.add(RECORD_BYTES * (len(found) + len(broken)))

    @property
    def all(self) -> list[BatchRecord]:
        return [*self._records.values()]

    @property
    def unfinished(self) -> list[BatchRecord]:
        return [one for one in self._records.values() if not one.ended]

    @property
    def files(self) -> set[str]:
        """Those that batches under way read or write."""
        return {
            id
            for one in self.unfinished
            for id in (one.input_file_id, one.output_file_id, one.error_file_id)
        }

    def add(self, record: BatchRecord) -> None:
        """Raises ``Invalid`` if its owner has too many; waits for the disk."""
        own = self.of(record.owner)
        if len(own) >= MOST_BATCHES:
            raise Invalid(f"No more than {MOST_BATCHES} batches are kept.")
        if sum(not one.ended for one in own) >= MOST_UNFINISHED:
            raise Invalid(f"No more than {MOST_UNFINISHED} batches may be under way.")
        self._space.require(RECORD_BYTES)
        self._save(record)
        self._records[record.id] = record
        self._space.add(RECORD_BYTES)

    def advance(self, record: BatchRecord, status: Status) -> None:
        """Its next status, once that is on the disk. Raises ``OSError``: then it has the old one.

        Nobody is told of a status that a restarted server would not know, nor are files free
        before it knows that their batch has ended.
        """
        moment, next = now(), record.model_copy()
        next.become(status, moment)
        self._save(next)
        record.become(status, moment)

    def _save(self, record: BatchRecord) -> None:
        save(self._folder / f"{record.id}.json", record)

    def find(self, owner: str, id: str) -> BatchRecord | None:
        """If there is such a batch of this owner."""
        record = self._records.get(id)
        return record if record is not None and record.owner == owner else None

    def of(self, owner: str) -> list[BatchRecord]:
        """All of an owner's, the newest first."""
        return [one for one in reversed(self._records.values()) if one.owner == owner]

    def sweep(self) -> None:
        """Removes those that have ended so long ago that their files are gone too."""
        for record in self.all:
            if record.ended and record.expires_at + self._kept_s <= now():
                del self._records[record.id]
                (self._folder / f"{record.id}.json").unlink(missing_ok=True)
                self._space.add(-(RECORD_BYTES))
