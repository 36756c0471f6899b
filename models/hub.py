"""A model from the Hugging Face hub, kept in the hub client's own cache."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.folder import SourceError, missing, require_complete, size_text
from models.lora import CONFIG, WEIGHTS
from models.quantisation import require_readable
from models.text.config_file import read_config

logger = logging.getLogger("stepserve")

TOKENIZER_PATTERNS = ["*.json", "*.jinja"]
WEIGHT_PATTERNS = ["*.safetensors"]
ADAPTER_PATTERNS = [CONFIG, WEIGHTS, *TOKENIZER_PATTERNS]
# Other formats and duplicates of the same weights. Folders as 1_Pooling are a model's parts.
IGNORED = ["[!0-9]*/*", "consolidated*"]

_HUB_ID = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[A-Za-z0-9][\w./-]*))?"
)


@dataclass(frozen=True, slots=True)
class HubModel:
    """``org/name``, at ``revision`` (a commit, tag or branch; None: the default branch)."""

    repo: str
    revision: str | None

    @classmethod
    def parse(cls, source: str) -> HubModel | None:
        """The hub model that ``source`` spells as ``org/name[@revision]``, else None."""
        match = _HUB_ID.fullmatch(source)
        return match and cls(match["repo"], match["revision"])

    def __str__(self) -> str:
        return self.repo if self.revision is None else f"{self.repo}@{self.revision}"

    def resolve(self, *, weights: bool = True) -> Path:
        """The snapshot's folder, fetched unless it is cached.

        A complete cached snapshot is used as it is, even if its branch has moved since: so
        all replicas of a model serve the same weights, and a start needs no network.
        """
        patterns = TOKENIZER_PATTERNS + (WEIGHT_PATTERNS if weights else [])
        folder = self._cached(patterns)
        if folder is None or missing(folder, weights=weights):
            if weights:
                self._require_readable(self._fetch(TOKENIZER_PATTERNS))
            folder = self._fetch(patterns)
        return require_complete(folder, weights=weights)

    def resolve_adapter(self) -> Path:
        """The folder of an adapter, fetched unless it is cached; it may still lack files."""
        folder = self._cached(ADAPTER_PATTERNS)
        whole = folder is not None and all((folder / name).is_file() for name in (CONFIG, WEIGHTS))
        return folder if folder is not None and whole else self._fetch(ADAPTER_PATTERNS)

    def _cached(self, patterns: list[str]) -> Path | None:
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            return Path(self._snapshot(patterns, local_files_only=True))
        except LocalEntryNotFoundError:
            return None

    def _require_readable(self, folder: Path) -> None:
        """Before what may take hours."""
        try:
            require_readable(read_config(folder / "config.json"))
        except ValueError as error:
            raise SourceError(f"{self} cannot be served: {error}") from error

    def _fetch(self, patterns: list[str]) -> Path:
        try:
            files = self._snapshot(patterns, dry_run=True)
            size = sum(file.file_size or 0 for file in files if file.will_download)
            logger.info("fetching %s from the hub: %s", self, size_text(size))
            return Path(self._snapshot(patterns))
        except OSError as error:  # the base of all of the client's errors
            reason = error.__cause__ or error
            raise SourceError(f"cannot fetch {self} from the hub: {reason}") from error

    def _snapshot(self, patterns: list[str], **options: bool) -> Any:
        """What ``snapshot_download`` returns: a folder, or with ``dry_run`` a list of files."""
        from huggingface_hub import snapshot_download

        download: Any = snapshot_download
        return download(
            self.repo,
            revision=self.revision,
            allow_patterns=patterns,
            ignore_patterns=IGNORED,
            **options,
        )
