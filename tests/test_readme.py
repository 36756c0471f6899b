"""The README's own code, run. A comment above each block says how:

<!-- test: make -->                    make knows its targets
<!-- test: file NAME -->               is saved, for the blocks below it
<!-- test: server, prints TEXT -->     runs against the default server
<!-- test: embeddings, prints TEXT --> the same against the preset with an embedding model
<!-- test: batches, prints TEXT -->    the same against the default server with a folder for batches
<!-- test: alone, prints TEXT -->      runs in the folder of the saved files
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.serving import ROOT, Server, serving

ADDRESS = "http://127.0.0.1:8000"
BLOCK = re.compile(
    r"(?:^<!-- test: (?P<how>[^\n]*?) -->\n+)?^```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of code; ``how`` is what its comment says, None without one."""

    how: str | None
    language: str
    code: str

    @property
    def prints(self) -> str:
        return (self.how or "").partition(", prints ")[2]

    def command(self, code: str) -> list[str]:
        shell = ["bash", "-euo", "pipefail", "-c", code]
        return shell if self.language == "sh" else [sys.executable, "-c", code]


BLOCKS = [
    Block(m["how"], m["language"], m["code"])
    for m in BLOCK.finditer((ROOT / "README.md").read_text())
]


def blocks(kind: str) -> list[Block]:
    return [block for block in BLOCKS if re.match(rf"{kind}\b", block.how or "")]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the README tells to save."""
    folder = tmp_path_factory.mktemp("readme")
    for block in blocks("file"):
        assert block.how is not None
        (folder / block.how.removeprefix("file ")).write_text(block.code)
    return folder


def run(command: list[str], folder: Path) -> str:
    path = os.pathsep.join([str(folder), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_answer(block: Block, server: Server, folder: Path) -> None:
    assert ADDRESS in block.code
    code = block.code.replace(ADDRESS, server.url)
    assert block.prints in run(block.command(code), folder)


def test_every_block_of_code_is_tested() -> None:
    assert [
        block.code for block in BLOCKS if block.language in ("sh", "python") and not block.how
    ] == []


@pytest.mark.parametrize("block", blocks("make"))
def test_make_knows_its_targets(block: Block) -> None:
    for line in block.code.splitlines():
        assert line.startswith("make ")
        run([*line.split(), "--dry-run"], ROOT)


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("alone"))
def test_what_needs_no_server(block: Block, saved: Path) -> None:
    assert block.prints in run(block.command(block.code), saved)


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("server"))
def test_what_asks_the_default_server(block: Block, default_server: Server, tmp_path: Path) -> None:
    check_answer(block, default_server, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("embeddings"))
def test_what_asks_for_vectors(block: Block, embeddings_server: Server, tmp_path: Path) -> None:
    check_answer(block, embeddings_server, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("batches"))
def test_what_asks_for_batches(block: Block, batches_server: Server, tmp_path: Path) -> None:
    check_answer(block, batches_server, tmp_path)


@pytest.mark.slow
def test_the_model_of_ones_own_is_served(saved: Path) -> None:
    with serving(saved / "counting.yaml", folder=saved) as server:
        body = {"model": "counting", "prompt": "abc", "max_tokens": 5}
        asked = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
        answer = asked.raise_for_status().json()
        assert answer["choices"][0]["text"] == "defgh"
