from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> None:
    """Tiny models gain nothing from a second thread, and lose much to it on a busy machine."""
    torch.set_num_threads(1)
