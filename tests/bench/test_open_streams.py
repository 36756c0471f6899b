from __future__ import annotations

import pytest
import yaml

from configs.settings import AppSettings
from models.mock import MockEngine
from tests.bench.open_streams import ask_all, measure, mock_config
from tests.deployments.serving import listening, make_app
from tests.serving import serving


def test_the_scripted_model_has_the_pace_it_is_given() -> None:
    with mock_config(0.25) as path:
        [application] = yaml.safe_load(path.read_text())["applications"]
    [model] = AppSettings.model_validate(application["args"]).models
    assert model.factory_args["inter_token_s"] == 0.25
    assert {one["max_queued_requests"] for one in application["deployments"]} == {-1}


@pytest.mark.slow
def test_many_open_streams_are_each_whole() -> None:
    with mock_config(0.05) as config, serving(config) as server:
        lines = list(measure(server, 200, 20, 1))
    assert {line.count("|") for line in lines if line.startswith("|")} == {5}
    assert any("Ingress" in line for line in lines)
    assert any("haproxy" in line for line in lines)
    assert not any("Manager" in line for line in lines)  # no stream passes it


async def test_answers_that_do_not_come_are_not_waited_for() -> None:
    engine = MockEngine("mock", inter_token_s=1.0)
    with listening(make_app(engine)) as url, pytest.raises(TimeoutError):
        await ask_all(url, 2, 1000, limit_s=0.5)
