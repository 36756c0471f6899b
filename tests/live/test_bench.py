from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.results import load
from tests.serving import ROOT, Server

pytestmark = pytest.mark.slow


def test_the_benchmark_measures_a_server_that_runs(mock_server: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.bench", "--url", mock_server.url, "--model", "mock"]
    choices = ["--tokenizer", "words", "--scenarios", "A,E", "--rounds", "1"]
    done = subprocess.run(
        [*command, *choices, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.md").read_text() in done.stdout
    found = load(tmp_path / "results.json").figures(mock_server.url, "E")
    assert found is not None
    assert (found.tokens, found.failed) == (8 * 256 + 4 * 32, 0)
    assert found.worst_gap_ms is not None
