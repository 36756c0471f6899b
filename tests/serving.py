"""A real ``serve run`` for a test: its own Ray, a free port, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from deployments.cluster import free_ports
from deployments.serve_run import ask_ready

ROOT = Path(__file__).resolve().parents[1]
HOST = "127.0.0.1"
START_S, STOP_S = 300, 60


@dataclass(frozen=True)
class Server:
    """A server of ours. ``url`` has no path; the OpenAI API is below ``/v1``."""

    port: int
    process: subprocess.Popen[bytes]
    scratch: Path

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def log(self) -> str:
        return (self.scratch / "log").read_text()

    def ask_ready(self) -> bool:
        return ask_ready(HOST, self.port) is not None

    def stop(self, number: int = signal.SIGINT) -> int:
        """Signals it and waits for its end; its exit status."""
        self.process.send_signal(number)
        return self.process.wait(STOP_S)

    def processes(self) -> list[int]:
        """All that live of it, known by the temporary folder in their environment."""
        marker = f"RAY_TMPDIR={self.scratch}\0".encode()
        return [
            pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if has(pid, marker)
        ]


@contextmanager
def serving(config: Path, *arguments: str, folder: Path = ROOT) -> Iterator[Server]:
    """Serves ``config`` from ``folder`` while the block runs; fails if it does not start or end."""
    with starting(config, *arguments, folder=folder) as server:
        wait_until_ready(server)
        yield server
        if server.process.poll() is None:
            assert server.stop() == 0, server.log()
        assert left_after(server, STOP_S) == [], "processes were left behind"


@contextmanager
def starting(config: Path, *arguments: str, folder: Path = ROOT) -> Iterator[Server]:
    """The same from its first moment on. Whatever happens, nothing of it is left behind."""
    scratch = Path(tempfile.mkdtemp(prefix="serving-", dir="/tmp"))  # short: it holds sockets
    server = _start(scratch, config, arguments, folder)
    try:
        yield server
    finally:
        _end(server)
        shutil.rmtree(scratch, ignore_errors=True)


def with_batches(folder: Path, engine: dict[str, int] | None = None, **batches: int) -> Path:
    """The default configuration with these batches and limits of its engine, in the folder."""
    config = yaml.safe_load((ROOT / "serve_config.yaml").read_text())
    arguments = config["applications"][0]["args"]
    arguments["batches"] = {"folder": str(folder / "batches"), **batches}
    arguments["models"][0]["engine"] |= engine or {}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def left_after(server: Server, seconds: float) -> list[int]:
    """The processes that still live after so long, at most."""
    until = time.monotonic() + seconds
    while (left := server.processes()) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def has(pid: int, marker: bytes) -> bool:
    try:
        return marker in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended
        return False


def _start(scratch: Path, config: Path, arguments: tuple[str, ...], folder: Path) -> Server:
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "deployments.serve_command", "--config", str(config)]
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--host", HOST, "--port", str(port), *arguments],
            cwd=folder,
            env=os.environ | {"RAY_TMPDIR": str(scratch), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return Server(port, process, scratch)


def wait_until_ready(server: Server) -> None:
    """Fails if it ends instead, or takes too long."""
    until = time.monotonic() + START_S
    while not server.ask_ready():
        assert server.process.poll() is None, f"it has ended:\n{server.log()}"
        assert time.monotonic() < until, f"not ready after {START_S} s:\n{server.log()}"
        time.sleep(0.2)


def _end(server: Server) -> None:
    """Whatever a failed test left, by its own ids."""
    for pid in server.processes():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    server.process.wait()
