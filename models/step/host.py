"""What this process may use of its machine: cores and memory, a container's limits included."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
OWN_CGROUP = Path("/proc/self/cgroup")
CPUINFO = Path("/proc/cpuinfo")


def usable_cores() -> int:
    """Cores this process may run on, at least one; a container's quota counts as whole cores."""
    allowed = _affinity()
    quotas = [_cpu_quota(folder) for folder in _cgroups()]
    return max(1, min([allowed, *(math.ceil(quota) for quota in quotas if quota is not None)]))


def available_memory() -> int:
    """Bytes this process may still take without swapping or meeting its container's limit."""
    limits = [_cgroup_headroom(folder) for folder in _cgroups()]
    return max(0, min([_system_available(), *(left for left in limits if left is not None)]))


def instructions() -> frozenset[str]:
    """Names of the instruction sets that Linux found in the processor, such as ``amx_bf16``."""
    for line in _text(CPUINFO).splitlines():
        name, _, values = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(values.split())
    return frozenset()


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _system_available() -> int:
    fields = _fields(MEMINFO)
    if "MemAvailable:" in fields:
        return fields["MemAvailable:"] * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cgroups() -> list[Path]:
    """This process's cgroup folders, innermost first: the limit of each one holds."""
    folders = [CGROUP_ROOT, CGROUP_ROOT / "memory", CGROUP_ROOT / "cpu"]
    for line in _text(OWN_CGROUP).splitlines():
        hierarchy, _, path = line.split(":", 2)
        if hierarchy == "0":
            own = CGROUP_ROOT / path.strip().lstrip("/")
            folders = [own, *(p for p in own.parents if CGROUP_ROOT in p.parents), *folders]
    return folders


def _cpu_quota(folder: Path) -> float | None:
    quota, _, period = _text(folder / "cpu.max").strip().partition(" ")
    if not period:
        quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
    try:
        cores = float(quota) / float(period)
    except ValueError:  # "max": no limit
        return None
    return cores if cores > 0 else None


def _cgroup_headroom(folder: Path) -> int | None:
    limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
    if limit is None:
        return None
    used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes") or 0
    # Pages of files are counted as used, but given back when needed.
    return limit - used + _fields(folder / "memory.stat").get("inactive_file", 0)


def _fields(path: Path) -> dict[str, int]:
    rows = (line.split() for line in _text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
