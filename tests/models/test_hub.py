"""The hub's client against a hub of five files on the loopback interface."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from models.hub import HubModel

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "a" * 40
CONFIGS = {"tiny": b"{}", "aqlm": b'{"quantization_config": {"quant_method": "aqlm"}}'}
FILES = {
    "config.json": b"{}",
    "tokenizer.json": b"[]",
    "model.safetensors": b"w" * 2000,
    "onnx/model.safetensors": b"w",
    "1_Pooling/config.json": b"{}",
}


class SmallHub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        match self.path.split("?")[0].split("/")[1:]:
            case ["api", "models", "org", name, "revision", "main"] if name in CONFIGS:
                files = [{"rfilename": file} for file in FILES]
                self._answer(
                    json.dumps({"id": f"org/{name}", "sha": COMMIT, "siblings": files}).encode()
                )
            case ["api", "models", "org", name, "tree", _]:
                self._answer(json.dumps([describe(name, file) for file in FILES]).encode())
            case ["org", name, "resolve", _, *path] if "/".join(path) in FILES:
                file = "/".join(path)
                self._answer(content(name, file), describe(name, file)["oid"])
            case _:
                self._answer(b"", status=404)

    do_HEAD = do_GET

    def _answer(self, body: bytes, etag: object = "", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def content(model: str, file: str) -> bytes:
    return CONFIGS[model] if file == "config.json" else FILES[file]


def describe(model: str, file: str) -> dict[str, object]:
    held = content(model, file)
    digest = hashlib.sha1(held).hexdigest()
    return {"type": "file", "path": file, "size": len(held), "oid": digest}


@pytest.fixture
def hub() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), SmallHub) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def resolve(
    source: str, home: Path, server: ThreadingHTTPServer, **env: str
) -> subprocess.CompletedProcess[str]:
    """In a process of its own, since the client reads its environment when it is imported."""
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    env = os.environ | {"HF_HOME": str(home), "HF_ENDPOINT": endpoint} | env
    command = [sys.executable, "-m", "models.source", source]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)


def test_a_model_is_fetched_once_and_then_served_offline(
    hub: ThreadingHTTPServer, tmp_path: Path
) -> None:
    first = resolve("org/tiny", tmp_path, hub)
    assert "fetching org/tiny from the hub: 2.0 kB" in first.stderr
    folder = Path(first.stdout.strip())
    held = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert held == set(FILES) - {"onnx/model.safetensors"}

    second = resolve("org/tiny", tmp_path, hub, HF_HUB_OFFLINE="1")
    assert (second.stdout, second.stderr) == (first.stdout, "")


def test_weights_that_cannot_be_read_are_not_fetched(
    hub: ThreadingHTTPServer, tmp_path: Path
) -> None:
    done = resolve("org/aqlm", tmp_path, hub)
    assert done.returncode == 1
    assert "org/aqlm cannot be served: its weights are quantised by aqlm" in done.stderr
    assert not list(tmp_path.rglob("*.safetensors"))


def test_what_the_hub_lacks_is_an_error_with_its_reason(
    hub: ThreadingHTTPServer, tmp_path: Path
) -> None:
    done = resolve("org/other", tmp_path, hub)
    assert done.returncode == 1
    assert "cannot fetch org/other from the hub: " in done.stderr
    assert "404" in done.stderr
    assert "Traceback" not in done.stderr


def test_offline_says_so(hub: ThreadingHTTPServer, tmp_path: Path) -> None:
    done = resolve("org/tiny@v1", tmp_path, hub, HF_HUB_OFFLINE="1")
    assert done.returncode == 1
    assert "cannot fetch org/tiny@v1 from the hub: " in done.stderr
    assert "offline mode is enabled" in done.stderr


@pytest.mark.parametrize(
    ("source", "model"),
    [
        ("org/name", HubModel("org/name", None)),
        ("org/name-1.5_B@main", HubModel("org/name-1.5_B", "main")),
        ("org/name@refs/pr/1", HubModel("org/name", "refs/pr/1")),
        ("name", None),
        ("../name", None),
        ("/org/name", None),
        ("org/name@", None),
    ],
)
def test_the_spelling_of_a_hub_model(source: str, model: HubModel | None) -> None:
    assert HubModel.parse(source) == model
