from __future__ import annotations

from dataclasses import asdict

from configs.settings import EngineSettings
from models.build import wishes_of


def test_each_wish_is_the_setting_of_its_name() -> None:
    engine = EngineSettings(
        device="cpu",
        dtype="bfloat16",
        kernels="sdpa",
        cuda_graphs=False,
        compile_layers=False,
        threads=5,
        max_context=77,
        block_size=8,
        kv_cache_dtype="float16",
        kv_cache_gib=0.5,
        prefix_cache=False,
        max_running=9,
        step_tokens=99,
    )
    settings = engine.model_dump() | {"slots": 9, "sharing": 3}
    wishes = asdict(wishes_of(engine, sharing=3))
    assert wishes == {name: settings[name] for name in wishes}
    unasked = asdict(wishes_of(EngineSettings()))
    assert not {name for name in wishes if wishes[name] == unasked[name]}  # each was told apart
