from __future__ import annotations

import pytest
import ray
from ray.util import get_node_ip_address

from deployments.lines.host import line_host


@pytest.mark.parametrize("alive", [[True], [False, True], [True, True], [True, False, True]])
def test_one_node_listens_to_itself_only(
    alive: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": one} for one in alive])
    own = get_node_ip_address()  # type: ignore[no-untyped-call]
    assert line_host() == ("127.0.0.1" if sum(alive) == 1 else own)
