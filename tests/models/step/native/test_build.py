from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from models.step.native import build
from models.step.native.build import NoNative, library


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Nothing compiled yet, and nothing remembered afterwards."""
    monkeypatch.setenv("HOME", str(tmp_path))
    library.cache_clear()
    yield tmp_path
    library.cache_clear()


def compiler(folder: Path, script: str) -> str:
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_machine_without_a_compiler_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(NoNative, match=r"no C\+\+ compiler .*clang"):
        library()


def test_what_the_compiler_says_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = compiler(home, 'echo "x.cpp:1: fatal error: no header" >&2; exit 1')
    monkeypatch.setenv("CXX", failing)
    with pytest.raises(NoNative, match=r"failed: x\.cpp:1: fatal error: no header"):
        library()
    assert not list(home.rglob("*.so"))


def test_what_is_no_library_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    useless = 'while [ $# -gt 1 ]; do [ "$1" = -o ] && echo nonsense > "$2"; shift; done'
    monkeypatch.setenv("CXX", compiler(home, useless))
    with pytest.raises(NoNative, match="OSError"):
        library()


def test_a_compiler_may_be_several_words(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = compiler(home, 'echo "fatal error: $1" >&2; exit 1')
    monkeypatch.setenv("CXX", f"{failing} --first")
    with pytest.raises(NoNative, match="fatal error: --first"):
        library()


def test_a_compilers_options_make_another_library(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying = 'while [ $# -gt 1 ]; do [ "$1" = -o ] && echo nonsense > "$2"; shift; done'
    found = compiler(home, copying)
    for options in ["", " -O1", " -O1"]:
        monkeypatch.setenv("CXX", found + options)
        with pytest.raises(NoNative, match="OSError"):
            library()
    assert len(list(home.rglob("*.so"))) == 2


def test_a_damaged_library_is_made_anew(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copying = 'while [ $# -gt 1 ]; do [ "$1" = -o ] && echo nonsense > "$2"; shift; done'
    monkeypatch.setenv("CXX", compiler(home, copying))
    for _ in range(2):
        with pytest.raises(NoNative, match="OSError"):
            library()
    (damaged,) = home.rglob("*.so")
    damaged.write_text("other nonsense")
    with pytest.raises(NoNative, match="OSError"):
        library()
    assert damaged.read_text() == "nonsense\n"


def test_a_compiler_that_hangs_is_given_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = compiler(home, 'case "$1" in --version) ;; *) exec sleep 60;; esac')
    monkeypatch.setenv("CXX", slow)
    monkeypatch.setattr(build, "MOST_S", 0.5)
    with pytest.raises(NoNative, match="more than 0 s"):
        library()
