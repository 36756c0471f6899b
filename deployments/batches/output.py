"""A file that grows by whole lines, and lives through the end of the process that writes it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from deployments.batches.disk import Space
from deployments.batches.lines import dump


class Output:
    """Appended to by one process. What a killed one left of a line is cut off by ``read``.

    ``counted`` of its bytes are used space already.
    """

    def __init__(self, path: Path, space: Space, counted: int = 0) -> None:
        self.path = path
        self._space = space
        self._size = counted
        self._file: FileIO | None = None

    def read(self) -> Iterator[dict[str, Any]]:
        """The lines of an earlier process, blocking; then more may be added."""
        self._file = FileIO(self.path, "a+")
        self._space.add(-self._size)
        self._size = 0
        with self.path.open("rb") as lines:
            for data in lines:
                if (line := _whole(data)) is None:
                    break
                self._size += len(data)
                yield line
        self._file.truncate(self._size)
        self._space.add(self._size)

    def append(self, line: Mapping[str, Any]) -> None:
        """Raises ``OSError``, and has then added nothing."""
        assert self._file is not None
        data = dump(line)
        try:
            _write(self._file, data)
        except OSError:
            self._file.truncate(self._size)
            raise
        self._size += len(data)
        self._space.add(len(data))

    def close(self) -> None:
        """What was added is on the disk. No file is left without lines."""
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None
            if not self._size:
                self.path.unlink(missing_ok=True)


def _write(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]


def _whole(data: bytes) -> dict[str, Any] | None:
    if not data.endswith(b"\n"):
        return None
    try:
        line: dict[str, Any] = json.loads(data)
    except ValueError:
        return None
    return line
