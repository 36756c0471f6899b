"""Log lines of a replica: on its standard error, which Ray shows where Serve was started."""

from __future__ import annotations

import logging


def show_logs() -> None:
    """Shows what stepserve logs at info and above. Once a process."""
    logger = logging.getLogger("stepserve")
    if not logger.handlers:
        lines = logging.StreamHandler()
        lines.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    logger.propagate = False
