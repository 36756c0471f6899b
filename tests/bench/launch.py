"""Starts one server as a user would, waits for its first answer, and ends all of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from deployments.cluster import free_ports
from tests.bench.client import Endpoint
from tests.bench.processes import MARK, cpu_seconds, end_all, marked
from tests.bench.servers import SOURCE, Place, Server
from tests.serving import HOST, ROOT

START_S, STOP_S, POLL_S = 300.0, 30.0, 0.1
LOG_LINES = 15


class NotStarted(Exception):
    """Why a server did not come up: the end of its log."""


@dataclass(frozen=True)
class Running:
    """A server that has answered; ``start_s`` is what that took since its process began."""

    endpoint: Endpoint
    start_s: float
    server: Server
    mark: str

    def cpu_s(self) -> dict[str, float]:
        """The CPU time of its processes so far, by kind."""
        return cpu_seconds(self.mark, self.server.kinds)


@contextmanager
def running(server: Server, peers: Path, logs: Path, source: str = SOURCE) -> Iterator[Running]:
    """Raises NotStarted. Whatever happens, nothing of it is left behind."""
    mark = uuid.uuid4().hex
    scratch = Path(tempfile.mkdtemp(prefix="bench-", dir="/tmp"))  # short: Ray puts sockets there
    place = Place(free_ports(1)[0], scratch, peers, source)
    log = logs / f"{server.name}.log"
    logs.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    process = _start(server, place, mark, log)
    try:
        endpoint = Endpoint(f"http://{HOST}:{place.port}", server.model, body=server.body)
        _wait_until_answering(server, endpoint, process, log)
        yield Running(endpoint, time.perf_counter() - began, server, mark)
    finally:
        family = marked(mark)
        _stop(process)
        end_all({*family, *marked(mark)}, 5.0)
        shutil.rmtree(scratch, ignore_errors=True)


def _start(server: Server, place: Place, mark: str, log: Path) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT) if server.engine is not None else "",
        "RAY_TMPDIR": str(place.scratch),
        **server.environment,
        MARK: mark,
    }
    with log.open("wb") as out:
        return subprocess.Popen(
            server.command(place),
            cwd=ROOT if server.engine is not None else place.scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait_until_answering(
    server: Server, endpoint: Endpoint, process: subprocess.Popen[bytes], log: Path
) -> None:
    until = time.monotonic() + START_S
    healthy = False
    while True:
        if process.poll() is not None:
            raise NotStarted(f"it ended with status {process.returncode}: {tail_of(log)}")
        if time.monotonic() > until:
            raise NotStarted(f"no answer within {START_S:.0f} s: {tail_of(log)}")
        healthy = healthy or _call(endpoint, "GET", server.health) == 200
        if healthy and _call(endpoint, "POST", endpoint.path) == 200:
            return
        time.sleep(POLL_S)


def _call(endpoint: Endpoint, method: str, path: str) -> int:
    """The status of a health check, or of the shortest answer there is; 0 without any."""
    body = {**endpoint.json("Hello", 1), "stream": False, "stream_options": None}
    asked = {key: value for key, value in body.items() if value is not None}
    host, _, port = endpoint.url.removeprefix("http://").partition(":")
    connection = HTTPConnection(host, int(port), timeout=START_S)
    try:
        data = json.dumps(asked) if method == "POST" else None
        connection.request(method, path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        return response.status
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tail_of(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
