"""OpenAI's and Anthropic's own Node clients against ``serve run``: ``node/clients.test.mjs``.

Skipped without Node 20 or newer, and where the network has no packages to install; that packages
are not those of the lock is a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.serving import Server

pytestmark = pytest.mark.slow

OLDEST = 20
UNREACHABLE = re.compile(r"\b(E(NOTFOUND|CONN\w+|TIMEDOUT|AI_AGAIN|\w+UNREACH)|network)\b")
CLIENTS = Path(__file__).parent / "node"
FILES = ("package.json", "package-lock.json", ".npmrc", "clients.test.mjs")


def node_version() -> int:
    """The major one; 0 without Node."""
    if not shutil.which("node"):
        return 0
    told = subprocess.run(["node", "--version"], check=True, capture_output=True, text=True)
    return int(told.stdout.removeprefix("v").partition(".")[0])


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clients with the packages of their lock, outside of the working tree."""
    if not (shutil.which("npm") and node_version() >= OLDEST):
        pytest.skip(f"needs Node {OLDEST} or newer")
    folder = tmp_path_factory.mktemp("node")
    for name in FILES:
        shutil.copy(CLIENTS / name, folder)
    install = ["npm", "ci", "--ignore-scripts", "--no-progress"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"npm reaches no packages: {done.stderr[-300:]}")
    assert done.returncode == 0, f"npm could not install the clients:\n{done.stderr}"
    return folder


def test_every_call_of_the_clients(installed: Path, embeddings_server: Server) -> None:
    done = subprocess.run(
        ["node", "--test", "clients.test.mjs"],
        cwd=installed,
        env=os.environ | {"STEPSERVE_URL": embeddings_server.url},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
