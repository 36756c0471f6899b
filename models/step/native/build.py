"""Compiles the library once a machine and version of its source, with the system's compiler."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import time
from functools import cache
from pathlib import Path

from filelock import FileLock

from models.step.native.library import load

logger = logging.getLogger("stepserve")

SOURCE = Path(__file__).parent
THIS_MACHINE = "native"  # as compilers name the processor they run on
FLAGS = (
    *("-std=c++20", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
    *("-fPIC", "-shared", "-pthread"),
)
COMPILERS = ("c++", "g++", "clang++")
MOST_S = 300.0


class NoNative(Exception):
    """Why the native kernels cannot serve a model here."""


class NoLibrary(NoNative):
    """Why they cannot serve any model here."""


@cache
def library(processor: str = THIS_MACHINE) -> ctypes.CDLL:
    """For this ``-march``. Raises NoLibrary if it cannot be compiled or loaded here."""
    compiler = _compiler()
    try:
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"step-{_fingerprint(compiler, processor)}.so"
        with FileLock(path.with_suffix(".lock"), timeout=MOST_S):
            return _loaded(path, compiler, processor)
    except (OSError, RuntimeError, TimeoutError, subprocess.SubprocessError) as error:
        raise NoLibrary(f"{type(error).__name__}: {error}") from error


def _loaded(path: Path, compiler: list[str], processor: str) -> ctypes.CDLL:
    """One that is damaged is made anew."""
    if path.exists():
        try:
            return load(path)
        except (OSError, AttributeError) as error:
            logger.warning("%s is compiled again: %s", path, error)
    _compile(compiler, processor, path)
    return load(path)


def _compiler() -> list[str]:
    """The command, as words."""
    wish = os.environ.get("CXX")
    for words in [shlex.split(wish)] if wish else [[name] for name in COMPILERS]:
        if words and (found := shutil.which(words[0])):
            return [found, *words[1:]]
    raise NoLibrary(f"no C++ compiler ({wish or ', '.join(COMPILERS)}) is installed")


def _folder() -> Path:
    return Path.home() / ".cache" / "stepserve" / "native"


def _compile(compiler: list[str], processor: str, path: Path) -> None:
    logger.info("compiling the native kernels with %s, once", compiler[0])
    started = time.perf_counter()
    part = path.with_suffix(f".{os.getpid()}")
    sources = map(str, sorted(SOURCE.glob("*.cpp")))
    command = [*compiler, *FLAGS, f"-march={processor}", "-o", str(part), *sources]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise NoLibrary(f"{compiler[0]} took more than {MOST_S:.0f} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or ["no message"]
        raise NoLibrary(f"{compiler[0]} failed: {lines[0].strip()}")
    part.replace(path)
    logger.info("compiled the native kernels in %.1f s", time.perf_counter() - started)


def _fingerprint(compiler: list[str], processor: str) -> str:
    """Of all that decides what the compiler makes: homes are shared, processors differ."""
    digest = hashlib.sha256()
    for path in sorted((*SOURCE.glob("*.h"), *SOURCE.glob("*.cpp"))):
        digest.update(path.read_bytes())
    version = subprocess.run(
        [*compiler, "--version"], capture_output=True, timeout=MOST_S, check=False
    ).stdout
    digest.update(version + " ".join((*compiler[1:], *FLAGS, processor, _processor())).encode())
    return digest.hexdigest()[:16]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.platform() + platform.processor()
    kinds = ("model name", "flags", "Features", "CPU part")
    return platform.machine() + "".join(
        next((line for line in lines if line.startswith(kind)), "") for kind in kinds
    )
