from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from configs.overrides import OWN
from configs.settings import (
    CONVERSING,
    GENERATING,
    LOADING,
    POOLING,
    AppSettings,
    EmbedSettings,
    EngineSettings,
    ModelSettings,
    Settings,
)
from configs.table import SECTIONS

MODEL = {"name": "m", "source": "org/m"}


def problems(settings: type[BaseModel], values: dict[str, Any]) -> list[tuple[str, str]]:
    """Where it is wrong, and how."""
    with pytest.raises(ValidationError) as caught:
        settings.model_validate(values)
    return [(".".join(map(str, e["loc"])), e["msg"]) for e in caught.value.errors()]


def test_one_model_is_all_that_is_needed() -> None:
    settings = AppSettings.model_validate({"models": [MODEL]})
    assert settings.models[0].engine == EngineSettings()


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"models": [MODEL], "api_key": "k"}, "api_key"),
        ({"models": [MODEL | {"sources": "x"}]}, "models.0.sources"),
        ({"models": [MODEL | {"engine": {"max_runing": 1}}]}, "models.0.engine.max_runing"),
    ],
)
def test_a_misspelt_key_is_named(values: dict[str, Any], place: str) -> None:
    assert problems(AppSettings, values) == [(place, "Extra inputs are not permitted")]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("device", "gpu"),
        ("dtype", "int2"),
        ("kv_cache_dtype", "int8"),
        ("threads", 0),
        ("max_context", 0),
        ("block_size", 0),
        ("kv_cache_gib", 0),
        ("prefix_cache", "perhaps"),
        ("step_tokens", 0),
        ("step_ms", 0),
        ("speculative_tokens", -1),
        ("speculative_ngram", 0),
        ("max_running", 0),
        ("max_waiting", -1),
        ("max_waiting_tokens", 1.5),
        ("stall_timeout_s", 0),
    ],
)
def test_a_wrong_value_is_named(key: str, value: object) -> None:
    assert [place for place, _ in problems(EngineSettings, {key: value})] == [key]


@pytest.mark.parametrize("origin", [{}, {"source": "org/m", "factory": "a:b"}])
def test_a_model_has_one_origin(origin: dict[str, str]) -> None:
    (problem,) = problems(ModelSettings, {"name": "m"} | origin)
    assert "give either `source` or `factory`" in problem[1]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"embed": {}}, "`embed` is for a model whose `task` is `embed`"),
        ({"task": "embed", "engine": {"block_size": 8}}, "`engine.block_size`: of no use"),
        ({"task": "embed", "engine": {"dtype": "int8"}}, "`engine.dtype`: `int8` is for"),
        ({"task": "embed", "engine": {"dtype": "int4"}}, "`engine.dtype`: `int4` is for"),
        ({"task": "embed", "adapters": []}, "`adapters`: not supported with a model that embeds"),
        ({"task": "embed", "chat_template": "t.jinja"}, "`chat_template`: of no use"),
        ({"task": "embed", "reasoning": "think"}, "`reasoning`: of no use"),
        (
            {"task": "embed", "tool_format": "json", "reasoning": "think"},
            "`reasoning`, `tool_format`: of no use",
        ),
    ],
)
def test_what_a_models_task_has_no_use_for_is_refused(values: dict[str, Any], named: str) -> None:
    (problem,) = problems(ModelSettings, MODEL | values)
    assert named in problem[1]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"engine": {"threads": 1, "dtype": "auto"}}, "`engine.dtype`, `engine.threads`: a"),
        ({"adapters": []}, "`adapters`: only for a model with a `source`"),
        ({"task": "embed", "embed": {"normalize": True}}, "`embed.normalize`: a `factory` decides"),
    ],
)
def test_what_a_factory_decides_is_refused(values: dict[str, Any], named: str) -> None:
    (problem,) = problems(ModelSettings, {"name": "m", "factory": "a:b"} | values)
    assert named in problem[1]


@pytest.mark.parametrize(
    ("names", "settings"),
    [
        (LOADING, EngineSettings),
        (GENERATING, EngineSettings),
        (POOLING, EmbedSettings),
        (CONVERSING, ModelSettings),
        (OWN, ModelSettings),
    ],
)
def test_settings_that_are_named_elsewhere_exist(
    names: Iterable[str], settings: type[Settings]
) -> None:
    assert {*names} <= {*settings.model_fields}


def test_names_are_distinct() -> None:
    named = {**MODEL, "adapters": [{"name": MODEL["name"], "source": "org/a"}]}
    for models in ([MODEL, MODEL], [named]):
        (problem,) = problems(AppSettings, {"models": models})
        assert "two models or adapters have the same name" in problem[1]


def test_there_is_at_least_one_model() -> None:
    assert [place for place, _ in problems(AppSettings, {"models": []})] == ["models"]


def test_settings_are_not_scratch_space() -> None:
    settings = EngineSettings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.max_running = 2  # type: ignore[misc]


@pytest.mark.parametrize("settings", SECTIONS.values())
def test_every_setting_is_described(settings: type[Settings]) -> None:
    assert [name for name, f in settings.model_fields.items() if not f.description] == []
