"""A server's processes, known by a mark in their environment: their CPU time, and their end."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

MARK = "BENCH_SERVER"  # in the environment of all that a server starts
TICK_S = 1 / os.sysconf("SC_CLK_TCK")

Kinds = Mapping[str, str]  # a pattern of the command line: what such a process is called


def marked(mark: str) -> list[int]:
    """The ids of all living processes that inherited the mark."""
    needle = f"{MARK}={mark}\0".encode()
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _has(pid, needle)]


def cpu_seconds(mark: str, kinds: Kinds) -> dict[str, float]:
    """The CPU time of the marked processes so far, by kind."""
    spent: defaultdict[str, float] = defaultdict(float)
    for pid in marked(mark):
        with suppress(OSError):  # it has ended
            spent[kind_of(_command(pid), kinds)] += _spent(pid)
    return dict(spent)


def kind_of(command: str, kinds: Kinds) -> str:
    return next((kind for pattern, kind in kinds.items() if re.search(pattern, command)), "server")


def end_all(mark: str, patience_s: float) -> None:
    """Waits so long for the marked processes to end, and kills those that have not."""
    until = time.monotonic() + patience_s
    while (left := marked(mark)) and time.monotonic() < until:
        time.sleep(0.1)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _has(pid: int, needle: bytes) -> bool:
    try:
        return needle in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended, or is another user's
        return False


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def _spent(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S
