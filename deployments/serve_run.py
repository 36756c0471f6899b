"""A ``serve run`` as a child process: what it says, whether it is ready, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from threading import Thread
from typing import Any

from deployments.cluster import on_one_machine

POLL_S = 0.5
PROBE_TIMEOUT_S = 10.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NOISE = re.compile(  # what Ray and Serve tell of every start and stop, in lines of their own
    r"(ServeController|ProxyActor|HAProxyManager|build_serve_application) pid=\d+\)\S* INFO "
    r"|won't accept connections from HAProxy on other nodes"
    r"|Cannot deregister autoscaling state"
    r"|authentication_token_setup|serve \d+ -- Started "
    r"|Task ServeController\.\w+ failed\. There are infinite retries"
    r"|Failed to start RequestProtocol\.\w+ server on port \d+: .* Retrying"
    r"|Failed to get queue length from .* within 0\.1s"  # it asks again, and tells of that, too
)
FAILED = re.compile(
    r"ServeController pid=.*(Failed to update the deployments|Deploying app '.*' failed"
    r"| -- Traceback|applying config for application)"
)

ModelStates = Mapping[str, Mapping[str, Any]]  # what `GET /ready` tells of each model by its name


class ServeRun:
    """A ``serve run`` with its own Ray, in a session of its own.

    A terminal's Ctrl-C does not reach it and its processes, only what is forwarded. ``config``'s
    folder is its own, and its path short: sockets are put there. It tells Serve to listen at
    ``host`` and ``port``. The process that uses the folder keeps the descriptor ``holding`` open.
    """

    def __init__(
        self,
        config: Path,
        host: str,
        port: int,
        *,
        holding: int,
        tls: bool = False,
        dashboard: bool = False,
    ) -> None:
        self._address = host, port
        self._tls = tls
        for number in STOP_SIGNALS:  # a child inherits what its parent was started to ignore
            signal.signal(number, signal.SIG_DFL)
        command = [sys.executable, "-m", "deployments.own_ray", str(config)]
        self._process = subprocess.Popen(
            [*command, "--dashboard"] if dashboard else command,
            env=_environment(config.parent, host, tls=tls),
            start_new_session=True,
            pass_fds=[holding],
            stdin=subprocess.PIPE,  # ends when this process does, however that is
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._stopping = False
        self._failed = False
        self._telling = Thread(target=self._tell)
        self._telling.start()
        for number in STOP_SIGNALS:
            signal.signal(number, self._stop)

    def watch(self, welcome: Callable[[ModelStates], str]) -> int:
        """Waits for its end; says ``welcome`` once it is ready. Ends it if it will never be.

        The exit status: 0 if it ran until it was told to stop.
        """
        ready = False
        while not self._ended():
            if not ready and (answer := ask_ready(*self._address, tls=self._tls)) is not None:
                ready = True
                print(welcome(answer), flush=True)
            if self._failed and not ready and not self._stopping:
                return self._give_up()
        self._kill()  # whatever Ray left behind
        self._telling.join()
        if not self._stopping:
            print("serve run has ended by itself; the reason is above", file=sys.stderr)
        return 0 if self._stopping else 1

    def _give_up(self) -> int:
        print("it cannot be served; the reason is above", file=sys.stderr)
        self._kill()
        self._telling.join()
        return 1

    def _tell(self) -> None:
        """Passes on what it says, but for Ray's usual noise."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._failed |= FAILED.search(line) is not None
                if not NOISE.search(line):
                    print(line, end="", flush=True)

    def _ended(self) -> bool:
        self._telling.join(POLL_S)  # until its output ends; waiting for itself would look often
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.0 if self._telling.is_alive() else POLL_S)
        return self._process.returncode is not None

    def _stop(self, number: int, frame: object) -> None:
        if self._stopping:
            self._kill()
            return
        self._stopping = True
        print("stopping: running answers may finish; once more to stop at once", flush=True)
        self._process.send_signal(signal.SIGINT)  # the only one that `serve run` minds

    def _kill(self) -> None:
        """Its whole session: Ray's workers, and HAProxy, have process groups of their own."""
        session = self._process.pid
        with suppress(ProcessLookupError):
            os.killpg(session, signal.SIGKILL)
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(ProcessLookupError):
                if os.getsid(pid := int(process.name)) == session:
                    os.kill(pid, signal.SIGKILL)


def ask_ready(host: str, port: int, *, tls: bool = False) -> ModelStates | None:
    """What ``GET /ready`` tells of the models by name; None unless all of them are ready."""
    if tls:  # a certificate is of the name that clients use
        unverified = ssl._create_unverified_context()
        connection: HTTPConnection = HTTPSConnection(
            reachable(host), port, timeout=PROBE_TIMEOUT_S, context=unverified
        )
    else:
        connection = HTTPConnection(reachable(host), port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/ready")
        response = connection.getresponse()
        return json.loads(response.read())["models"] if response.status == 200 else None
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()


def reachable(host: str) -> str:
    """An address to call a server at that listens on ``host``."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _environment(folder: Path, host: str, *, tls: bool) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return {"RAY_USAGE_STATS_ENABLED": "0"} | on_one_machine(folder, host, tls=tls) | own
