"""The official Node clients of OpenAI and Anthropic against `serve run`: `node/clients.test.mjs`.

Without Node the test is skipped; where Node is but its packages cannot be installed, it fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.serving import Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("node") and shutil.which("npm")), reason="needs Node"),
]

CLIENTS = Path(__file__).parent / "node"
FILES = ("package.json", "package-lock.json", ".npmrc", "clients.test.mjs")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clients with the packages of their lock, outside of the working tree."""
    folder = tmp_path_factory.mktemp("node")
    for name in FILES:
        shutil.copy(CLIENTS / name, folder)
    install = ["npm", "ci", "--ignore-scripts", "--no-progress"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=300)
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
