"""What Ray's and Serve's processes are told."""

from __future__ import annotations

import socket
from pathlib import Path

from deployments.cluster import CLUSTER_ENVIRONMENT, FILES, PORTS, beside_others, free_ports

NODE_ID = "f" * 56


def test_ports_are_free_and_none_comes_twice() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_servers_on_one_machine_share_neither_ports_nor_files() -> None:
    one, other = beside_others(Path("/tmp/one")), beside_others(Path("/tmp/other"))
    assert one.keys() == other.keys() == {*PORTS, *FILES}
    assert not set(one.values()) & set(other.values())
    assert not one.keys() & CLUSTER_ENVIRONMENT.keys()


def test_sockets_in_a_temporary_folder_have_paths_that_the_system_takes() -> None:
    path = beside_others(Path("/tmp/stepserve-12345678"))["RAY_SERVE_HAPROXY_SOCKET_PATH"]
    folder, file = path.rsplit("/", 1)
    assert len(f"{folder}/{NODE_ID}/{file}.1234567.tmp") <= 107  # as Serve and HAProxy name it
