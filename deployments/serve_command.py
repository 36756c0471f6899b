"""`serve run` made comfortable: `python -m deployments.serve_command`.

Fetches the models ahead, says when they are ready and how to ask them, and stops cleanly on
SIGINT, SIGTERM and SIGHUP. It starts a Ray of its own and never joins a running cluster; for
that there are `serve run` and `serve deploy`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Thread
from typing import Any

import yaml

from configs.overrides import ServeConfig, with_address, with_model
from configs.settings import AppSettings
from models.source import SourceError, resolve

POLL_S = 0.5
PROBE_TIMEOUT_S = 10.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NOISE = re.compile(  # what Ray and Serve tell of every start and stop, in lines of their own
    r"(ServeController|ProxyActor|build_serve_application) pid=\d+\)\S* INFO "
    r"|Cannot deregister autoscaling state|ServeController.graceful_shutdown failed"
    r"|authentication_token_setup|serve \d+ -- Started Serve"
)
QUESTION = "What is the capital of France?"


def main() -> int:
    """Runs until it is told to stop; the exit status is 0 if it was."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("stepserve").setLevel(logging.INFO)
    try:
        config = effective_config(_arguments())
        _fetch(_settings(config))
        _require_free(*address(config))
    except (SourceError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    with _written(config) as path:
        return ServeRun(path).watch(config)


def effective_config(arguments: argparse.Namespace) -> ServeConfig:
    """The file's configuration with the command line's values in it."""
    config: ServeConfig = yaml.safe_load(arguments.config.read_text())
    if arguments.model:
        source = Path(arguments.model).expanduser()
        config = with_model(config, str(source.resolve()) if source.is_dir() else arguments.model)
    return with_address(config, arguments.host, arguments.port)


def address(config: ServeConfig) -> tuple[str, int]:
    """Where Serve's proxy will listen."""
    options = config.get("http_options", {})
    return options.get("host", "0.0.0.0"), options.get("port", 8000)


class ServeRun:
    """A `serve run` with its own Ray, in a session of its own: a terminal's Ctrl-C does not
    reach it and its processes, only what is forwarded."""

    def __init__(self, config: Path) -> None:
        command = [sys.executable, "-m", "ray.serve.scripts", "run", "--address", "local"]
        self._process = subprocess.Popen(
            [*command, str(config)],
            env=_environment(),
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._telling = Thread(target=self._tell)
        self._telling.start()
        self._stopping = False
        for number in STOP_SIGNALS:
            signal.signal(number, self._stop)

    def watch(self, config: ServeConfig) -> int:
        """Waits for its end; says once when it is ready."""
        ready = False
        while not self._ended():
            if not ready and (answer := ask_ready(*address(config))) is not None:
                ready = True
                print(welcome(config, answer), flush=True)
        self._kill()  # whatever Ray left behind
        self._telling.join()
        if not self._stopping:
            print("serve run has ended by itself; the reason is above", file=sys.stderr)
        return 0 if self._stopping else 1

    def _tell(self) -> None:
        """Passes on what it says, but for Ray's usual noise."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not NOISE.search(line):
                print(line, end="", flush=True)

    def _ended(self) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(POLL_S)
        return self._process.returncode is not None

    def _stop(self, number: int, frame: object) -> None:
        if self._stopping:
            self._kill()
            return
        self._stopping = True
        print("stopping: running answers may finish; once more to stop at once", flush=True)
        self._process.send_signal(signal.SIGINT)  # the only one that `serve run` minds

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def ask_ready(host: str, port: int) -> dict[str, Any] | None:
    """What `GET /ready` tells of the models by name; None unless all of them are ready."""
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
    """An address to call a server at that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def welcome(config: ServeConfig, models: Mapping[str, Mapping[str, Any]]) -> str:
    """Where it is, on what it runs, and a line to try."""
    host, port = address(config)
    shown = f"[{reachable(host)}]" if ":" in host else reachable(host)
    url = f"http://{shown}:{port}/v1"
    lines = [f"\nready: {url}"]
    for name, state in models.items():
        about = ", ".join(f"{key} {value}" for key, value in state["description"].items())
        lines.append(f"  {name}: {about}")
    return "\n".join([*lines, "", _curl(url, next(iter(models)), _settings(config)), ""])


def _curl(url: str, model: str, settings: AppSettings) -> str:
    messages = [{"role": "user", "content": QUESTION}]
    body = {"model": model, "stream": True, "temperature": 0, "messages": messages}
    headers = ["content-type: application/json"]
    if settings.api_keys or settings.api_keys_file:
        headers.append("authorization: Bearer YOUR_KEY")
    flags = " ".join(f"-H '{header}'" for header in headers)
    return f"curl -N {url}/chat/completions {flags} -d '{json.dumps(body)}'"


def _settings(config: ServeConfig) -> AppSettings:
    return AppSettings.model_validate(config["applications"][0]["args"])


def _fetch(settings: AppSettings) -> None:
    for model in settings.models:
        if model.source:
            resolve(model.source)
        if model.tokenizer and model.tokenizer != "bytes":
            resolve(model.tokenizer, weights=False)


def _require_free(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OSError(f"cannot listen on {host} port {port}: {error.strerror}") from error


@contextmanager
def _written(config: ServeConfig) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="stepserve-") as folder:
        path = Path(folder) / "serve_config.yaml"
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        yield path


def _environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return {"RAY_USAGE_STATS_ENABLED": "0"} | own


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m deployments.serve_command")
    parser.add_argument("--config", type=Path, default=Path("serve_config.yaml"))
    parser.add_argument("--model", help="a source that replaces the first model")
    parser.add_argument("--host", help="where to listen; 0.0.0.0 for other machines too")
    parser.add_argument("--port", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
