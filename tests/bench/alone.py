"""Our engine in a process of its own, asked in turns with the server that it is the engine of.

A machine's speed changes within minutes, so they are compared scenario by scenario; whoever is not
asked stands still.
"""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from configs.shipped import default_model
from tests.bench.bare import FIGURES, READY
from tests.bench.figures import Figures
from tests.bench.launch import tail_of
from tests.serving import ROOT


class Silent(Exception):
    """Why an engine says nothing."""


class EngineAlone:
    """Runs only in its turns; see ``bare`` for what is said."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, limit_s: float) -> None:
        self._process = process
        self._log = log
        self._limit_s = limit_s

    def turn(self, scenario: str, *seed: object) -> Figures:
        """Raises Silent."""
        self._process.send_signal(signal.SIGCONT)
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([scenario, *seed]).encode() + b"\n")
            return FIGURES.validate_json(self.line())
        except OSError:
            raise Silent(tail_of(self._log)) from None
        finally:
            self._process.send_signal(signal.SIGSTOP)

    def line(self) -> bytes:
        """The next that it says; raises Silent."""
        said = self._process.stdout
        assert said is not None
        if not select.select([said], [], [], self._limit_s)[0]:
            raise Silent(f"not done after {self._limit_s:.0f} s")
        if line := said.readline():
            return line
        raise Silent(f"it has ended: {tail_of(self._log)}")


@contextmanager
def engine_alone(command: Sequence[str], log: Path, limit_s: float) -> Iterator[EngineAlone]:
    """One that is ready, and stands still; nothing it does may take longer. Raises Silent."""
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
        ) as process,
    ):
        try:
            engine = EngineAlone(process, log, limit_s)
            first = engine.line()
            assert first.decode().strip() == READY, first
            process.send_signal(signal.SIGSTOP)
            yield engine
        finally:
            process.kill()


def command_of(source: str, engine: Mapping[str, Any]) -> list[str]:
    """An engine of a model's source, with these settings over those of the default model."""
    model = default_model() | {"source": source}
    model["engine"] |= engine
    return [sys.executable, "-m", "tests.bench.bare", json.dumps(model)]
