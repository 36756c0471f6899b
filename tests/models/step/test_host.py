from __future__ import annotations

from pathlib import Path

import pytest

from models.step import host
from models.step.host import available_memory, instructions, usable_cores

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 16 GiB with a process in the cgroup /pod/box; no limits yet."""
    (tmp_path / "meminfo").write_text("MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n")
    (tmp_path / "own").write_text("0::/pod/box\n")
    (tmp_path / "cgroup/pod/box").mkdir(parents=True)
    monkeypatch.setattr(host, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(host, "OWN_CGROUP", tmp_path / "own")
    monkeypatch.setattr(host, "CGROUP_ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(host, "_affinity", lambda: 8)
    return tmp_path / "cgroup"


def test_without_limits_it_is_what_the_system_has(machine: Path) -> None:
    assert available_memory() == 16 * GIB
    assert usable_cores() == 8


@pytest.mark.parametrize("where", ["pod/box", "pod", "."])
def test_the_limit_of_any_group_above_holds(machine: Path, where: str) -> None:
    group = machine / where
    (group / "memory.max").write_text(f"{4 * GIB}\n")
    (group / "memory.current").write_text(f"{3 * GIB}\n")
    (group / "memory.stat").write_text(f"anon 5\ninactive_file {GIB}\n")
    (group / "cpu.max").write_text("150000 100000\n")
    assert available_memory() == 2 * GIB
    assert usable_cores() == 2


def test_groups_of_the_first_version_count_too(machine: Path) -> None:
    (machine / "memory").mkdir()
    (machine / "memory/memory.limit_in_bytes").write_text(f"{2 * GIB}\n")
    (machine / "memory/memory.usage_in_bytes").write_text(f"{GIB}\n")
    (machine / "cpu").mkdir()
    (machine / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    (machine / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert available_memory() == GIB
    assert usable_cores() == 8


def test_no_limit_is_no_limit(machine: Path) -> None:
    (machine / "memory.max").write_text("max\n")
    (machine / "cpu.max").write_text("max 100000\n")
    assert available_memory() == 16 * GIB
    assert usable_cores() == 8


def test_a_group_over_its_limit_has_nothing_left(machine: Path) -> None:
    (machine / "memory.max").write_text(f"{GIB}\n")
    (machine / "memory.current").write_text(f"{2 * GIB}\n")
    assert available_memory() == 0


def test_here_there_is_something() -> None:
    assert usable_cores() >= 1
    assert available_memory() > 0


@pytest.mark.parametrize("name", ["flags", "Features"])
def test_instruction_sets_are_those_of_the_first_processor(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{name}\t\t: fpu amx_bf16\n\nprocessor: 1\n")
    monkeypatch.setattr(host, "CPUINFO", tmp_path / "cpuinfo")
    assert instructions() == {"fpu", "amx_bf16"}
    monkeypatch.setattr(host, "CPUINFO", tmp_path / "none")
    assert instructions() == frozenset()
