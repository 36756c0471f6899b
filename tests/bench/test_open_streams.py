from __future__ import annotations

import pytest

from tests.bench.open_streams import measure, mock_config
from tests.serving import serving


@pytest.mark.slow
def test_many_open_streams_are_each_whole() -> None:
    with mock_config(0.05) as config, serving(config) as server:
        lines = list(measure(server, 200, 20, 1))
    assert {line.count("|") for line in lines if line.startswith("|")} == {5}
    assert any("Ingress" in line for line in lines)
    assert any("Proxy" in line for line in lines)
