"""A Redis or Valkey of one test, where the machine has one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAM = shutil.which("valkey-server") or shutil.which("redis-server")
needs_redis = pytest.mark.skipif(PROGRAM is None, reason="no Redis or Valkey is installed")


@contextmanager
def redis_server() -> Iterator[str]:
    """Gives its URI. It keeps nothing."""
    assert PROGRAM is not None
    with tempfile.TemporaryDirectory(prefix="redis", dir="/tmp") as folder:  # short: a socket's
        path = Path(folder) / "s"
        command = [PROGRAM, "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _wait_for(path)
            yield f"unix://{path}"
        finally:
            process.terminate()
            process.wait()


def _wait_for(path: Path) -> None:
    for _ in range(1000):
        if path.exists():
            return
        time.sleep(0.01)
    raise AssertionError("the server did not start")
