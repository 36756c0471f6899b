"""What Ray's and Serve's processes are told."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest
import ray

from deployments.cluster import (
    CLUSTER_ENVIRONMENT,
    FILES,
    PORTS,
    beside_others,
    free_ports,
    http_proxy,
    sockets,
    within_limits,
)

NODE_ID = "f" * 56
RAY = Path(ray.__file__).parent
SOURCES = ("serve/_private/*.py", "_private/*.py", "autoscaler/_private/*.py")
REPORTER = "dashboard/modules/reporter/*.py"
SERVERS = ("raylet/raylet", "gcs/gcs_server")


def test_ports_are_free_and_none_comes_twice() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_a_port_that_somebody_uses_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    used, free = free_ports(2)
    monkeypatch.setattr("deployments.cluster.OWN_PORTS", [used, free])
    with socket.socket() as user:
        user.bind(("127.0.0.1", used))
        assert free_ports(2) == [free]


def test_no_port_is_one_that_linux_or_serve_hands_out() -> None:
    assert not set(free_ports(20)) & set(range(30_000, 61_000))


def test_servers_on_one_machine_share_neither_ports_nor_files() -> None:
    one, other = beside_others(Path("/tmp/one")), beside_others(Path("/tmp/other"))
    assert one.keys() == other.keys() == {*PORTS, *FILES}
    assert not set(one.values()) & set(other.values())
    assert not one.keys() & CLUSTER_ENVIRONMENT.keys()


def test_sockets_in_a_temporary_folder_have_paths_that_the_system_takes() -> None:
    path = beside_others(Path("/tmp/stepserve-12345678"))["RAY_SERVE_HAPROXY_SOCKET_PATH"]
    folder, file = path.rsplit("/", 1)
    assert len(f"{folder}/{NODE_ID}/{file}.1234567.tmp") <= 107  # as Serve and HAProxy name it


@pytest.mark.parametrize("host", ["::1", "::", "192.0.2.2", "example.test"])
def test_haproxy_does_not_stand_before_replicas_that_it_would_not_find(host: str) -> None:
    assert http_proxy(host) == {"RAY_SERVE_ENABLE_HA_PROXY": "0"}
    assert http_proxy("127.0.0.1") == http_proxy("0.0.0.0") == {}
    assert http_proxy("127.0.0.1", tls=True) == http_proxy(host)


@pytest.mark.parametrize(
    ("files", "connections"), [(1024, 369), (4096, 1598), (1048576, 16384), (-1, None)]
)
def test_haproxy_keeps_within_the_limit_of_open_files(
    files: int, connections: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, files))
    told = {} if connections is None else {"RAY_SERVE_HAPROXY_MAXCONN": str(connections)}
    assert within_limits() == told


def test_a_long_folder_for_temporary_files_is_not_rays(monkeypatch: pytest.MonkeyPatch) -> None:
    below = "/ray/session_2026-11-30_07-46-32_879670_4194304/sockets/plasma_store"
    folder = "/" + "x" * (107 - len(below) - 1)
    monkeypatch.setenv("TMPDIR", folder)
    assert sockets() == {}
    monkeypatch.setenv("TMPDIR", folder + "x")
    assert sockets() == {"RAY_TMPDIR": "/tmp"}
    monkeypatch.delenv("TMPDIR")
    assert sockets() == {}


def test_ray_knows_every_name_that_it_is_told() -> None:
    sources = [path for pattern in (*SOURCES, REPORTER) for path in RAY.glob(pattern)]
    read = "".join(path.read_text() for path in sources)
    servers = [(RAY / "core/src/ray" / name).read_bytes() for name in SERVERS]
    for name in CLUSTER_ENVIRONMENT | beside_others(Path("/tmp/one")) | within_limits():
        setting = name.removeprefix("RAY_").encode() + b"\0"
        assert f'"{name}"' in read or any(setting in server for server in servers), name
