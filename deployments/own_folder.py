"""A server's own folder below /tmp, and the end of those that killed servers left there.

A file in it is locked as long as a process lives that has it open: the command, and the
``serve run`` that inherits it, which still lets running answers finish when the command was killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PLACE = Path("/tmp")  # short, as sockets will lie in it
PREFIX = "stepserve-"
LOCK = "in-use.lock"


@dataclass(frozen=True, slots=True)
class OwnFolder:
    """A folder that nobody else removes while a process has the file descriptor ``lock`` open."""

    path: Path
    lock: int


@contextmanager
def own_folder(place: Path = PLACE) -> Iterator[OwnFolder]:
    """A new folder in ``place``, which goes at the end; those of dead servers go first."""
    for lock in place.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError):  # in use, or gone by now
            _remove_unused(lock)
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=place) as folder:
        path = Path(folder)
        with (path / f"{LOCK}.new").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            (path / f"{LOCK}.new").rename(path / LOCK)  # never there without being locked
            yield OwnFolder(path, file.fileno())


def _remove_unused(lock: Path) -> None:
    """Removes the folder of ``lock`` if it is this user's. Raises ``OSError`` if it is in use."""
    folder = lock.parent
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return
    with lock.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_nlink:  # nobody else has just removed it
            shutil.rmtree(folder)
