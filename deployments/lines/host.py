"""Where a replica listens for its readers: as near as all nodes that there are can reach."""

from __future__ import annotations

import ray
from ray.util import get_node_ip_address

LOOPBACK = "127.0.0.1"


def line_host() -> str:
    """Loopback if the cluster is one node, else this node's address.

    Asked once, when a replica starts: readers on nodes that join later stay with Serve's streams.
    """
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    if sum(node["Alive"] for node in nodes) == 1:
        return LOOPBACK
    address: str = get_node_ip_address()  # type: ignore[no-untyped-call]
    return address
