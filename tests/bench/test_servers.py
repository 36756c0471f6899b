from __future__ import annotations

import json
from pathlib import Path

import yaml

from models.text.byte_tokenizer import byte_tokenizer
from tests.bench.alone import command_of
from tests.bench.servers import SERVERS, SOURCE, Place
from tests.models.step.tiny import tiny


def test_another_source_is_served_by_all_who_have_no_file_of_their_own(tmp_path: Path) -> None:
    model = tmp_path / "model"
    tiny("llama").save_pretrained(model)
    byte_tokenizer().save(str(model / "tokenizer.json"))
    (model / "tokenizer_config.json").write_text("{}")
    place = Place(8000, tmp_path, tmp_path, str(model))
    for name in ("vllm", "transformers"):
        assert str(model) in SERVERS[name].command(place)
    assert served_by_ours(place) == str(model)
    assert json.loads(command_of(str(model), {"dtype": "int8"})[-1])["source"] == str(model)


def test_the_default_model_is_served_otherwise(tmp_path: Path) -> None:
    assert served_by_ours(Place(8000, tmp_path, tmp_path)) == SOURCE


def served_by_ours(place: Place) -> str:
    SERVERS["ours-int8"].command(place)
    config = yaml.safe_load((place.scratch / "serve_config.yaml").read_text())
    model = config["applications"][0]["args"]["models"][0]
    assert model["engine"]["dtype"] == "int8"
    return str(model["source"])
