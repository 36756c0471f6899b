from __future__ import annotations

from pathlib import Path

from configs.table import tables

README = Path(__file__).resolve().parents[2] / "README.md"


def test_a_row_tells_type_default_and_meaning() -> None:
    rows = tables().splitlines()
    assert "| `name` | str | required | what clients send as `model` |" in rows
    assert "| `block_size` | int | `16` | tokens of one KV block |" in rows
    assert any(row.startswith("| `device` | `auto` or `cpu` or `cuda` | `auto` |") for row in rows)


def test_the_readme_holds_these_very_tables() -> None:
    assert tables() in README.read_text(), "put the output of `python -m configs.table` there"
