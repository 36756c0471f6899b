from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deployments.own_folder import LOCK, own_folder
from tests.serving import ROOT

SERVER = """
import subprocess, sys
from pathlib import Path
from deployments.own_folder import own_folder

with own_folder(Path(sys.argv[1])) as folder:
    child = subprocess.Popen(["sleep", "60"], pass_fds=[folder.lock], stdout=subprocess.DEVNULL)
    print(folder.path, child.pid, flush=True)
    sys.stdin.read()
"""


def left(place: Path, name: str = "stepserve-dead") -> Path:
    """A folder as a killed server leaves it."""
    (place / name / "states").mkdir(parents=True)
    (place / name / LOCK).touch()
    (place / name / "states" / "server-state").touch()
    return place / name


def start(place: Path) -> None:
    with own_folder(place) as folder:
        assert (folder.path / LOCK).exists()


def test_a_folder_goes_at_the_end(tmp_path: Path) -> None:
    start(tmp_path)
    assert not any(tmp_path.iterdir())


def test_what_a_killed_server_left_goes_when_nothing_of_it_lives(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVER, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdout is not None
        name, child = server.stdout.readline().split()
        start(tmp_path)
        assert Path(name).exists()
        server.kill()
    start(tmp_path)
    assert Path(name).exists()  # its child lives
    os.kill(int(child), signal.SIGKILL)
    until = time.monotonic() + 30
    while Path(name).exists():
        assert time.monotonic() < until
        start(tmp_path)


def test_only_what_a_server_made_is_removed(tmp_path: Path) -> None:
    elsewhere, other = left(tmp_path, "elsewhere"), left(tmp_path, "stepserve-without")
    (other / LOCK).unlink()
    (tmp_path / "stepserve-link").symlink_to(elsewhere)
    (tmp_path / "stepserve-bench.lock").touch()
    before = sorted(tmp_path.rglob("*"))
    dead = left(tmp_path)
    start(tmp_path)
    assert not dead.exists()
    assert sorted(tmp_path.rglob("*")) == before


def test_what_another_user_left_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, user = left(tmp_path), os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: user)
    start(tmp_path)
    assert dead.exists()


def test_servers_that_start_together_remove_no_folder_of_each_other(tmp_path: Path) -> None:
    for number in range(20):
        left(tmp_path, f"stepserve-{number}")
    with ThreadPoolExecutor(8) as starting:
        for started in [starting.submit(start, tmp_path) for _ in range(200)]:
            started.result()
    assert not any(tmp_path.iterdir())
