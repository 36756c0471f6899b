"""A server's processes: their CPU time, and their end.

They are known by a mark in their environment. Some write their title over it; those are known as
children of the others.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = "BENCH_SERVER"  # in the environment of all that a server starts
KILL_S = 5.0  # what the kernel may take to end a killed process
TICK_S = 1 / os.sysconf("SC_CLK_TCK")

Kinds = Mapping[str, str]  # a pattern of the command line: what such a process is called


def marked(mark: str) -> list[int]:
    """The ids of all living processes that inherited the mark, and of their descendants."""
    needle = f"{MARK}={mark}\0".encode()
    everyone = sorted(map(int, filter(str.isdigit, os.listdir("/proc"))))
    parents = {pid: _parent(pid) for pid in everyone}
    found = {pid for pid in everyone if _has(pid, needle)}
    while more := {pid for pid in everyone if parents[pid] in found and pid not in found}:
        found |= more
    return sorted(found)


def cpu_seconds(mark: str, kinds: Kinds) -> dict[str, float]:
    """The CPU time of the marked processes so far, by kind."""
    spent: defaultdict[str, float] = defaultdict(float)
    for pid in marked(mark):
        with suppress(OSError):  # it has ended
            spent[kind_of(command_line(pid), kinds)] += cpu_s(pid)
    return dict(spent)


def command_line(pid: int) -> str:
    """Raises OSError if it has ended, as the next two do."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def cpu_s(pid: int) -> float:
    user, system = _stat(pid)[11:13]
    return (int(user) + int(system)) * TICK_S


def resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)


def kind_of(command: str, kinds: Kinds) -> str:
    return next((kind for pattern, kind in kinds.items() if re.search(pattern, command)), "server")


@contextmanager
def standing_still(mark: str) -> Iterator[None]:
    """None of the marked processes runs meanwhile."""
    stopped = marked(mark)
    signal_all(stopped, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_all(stopped, signal.SIGCONT)


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def end_all(pids: Iterable[int], patience_s: float) -> None:
    """Waits so long for these processes to end, and kills those that have not."""
    left = _left_after(pids, patience_s)
    signal_all(left, signal.SIGKILL)
    _left_after(left, KILL_S)


def lives(pid: int) -> bool:
    """Whether it runs; one that has ended but that nobody has asked after does not."""
    with suppress(OSError):
        return state(pid) != "Z"
    return False


def state(pid: int) -> str:
    """As the kernel tells it: ``R`` runs, ``S`` sleeps, ``T`` was stopped, ``Z`` has ended."""
    return _stat(pid)[0]


def _left_after(pids: Iterable[int], seconds: float) -> list[int]:
    """Those that still live after so long, at most."""
    until = time.monotonic() + seconds
    while (left := [pid for pid in pids if lives(pid)]) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def _has(pid: int, needle: bytes) -> bool:
    try:
        return needle in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended, or is another user's
        return False


def _parent(pid: int) -> int:
    """0 if it has ended."""
    with suppress(OSError):
        return int(_stat(pid)[1])
    return 0


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the process's state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
