from __future__ import annotations

from pathlib import Path

from models.text.config_file import read_config


def test_a_file_is_read_as_utf_8(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes('{"eos_token": "<｜end｜>"}'.encode())
    assert read_config(tmp_path / "config.json") == {"eos_token": "<｜end｜>"}


def test_a_file_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert read_config(tmp_path / "config.json") == {}
