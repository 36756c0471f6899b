from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text.tools.scan import JsonScanner

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def accepted(text: str) -> int:
    """How many characters are followed until the value is done or broken."""
    scanner = JsonScanner()
    for i, char in enumerate(text):
        if scanner.done or not scanner.push(char):
            return i
    return len(text)


@given(
    st.dictionaries(st.text(max_size=4), values, max_size=4),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_objects_are_followed_to_their_end(
    value: dict[str, object], indent: int | None, ascii: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii)
    scanner = JsonScanner()
    assert all(
        scanner.push(char) and (scanner.done == (i == len(text) - 1)) for i, char in enumerate(text)
    )


@given(st.dictionaries(st.text(max_size=4), values, max_size=4))
def test_each_characters_key_is_known(value: dict[str, object]) -> None:
    scanner = JsonScanner()
    found: dict[str, str] = {}
    for char in json.dumps(value):
        scanner.push(char)
        if scanner.key is not None:
            found[scanner.key] = found.get(scanner.key, "") + char
    assert {key: json.loads(text) for key, text in found.items()} == value


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("{} x", 2),
        ('{"a": 1,}', 8),
        ("{a: 1}", 1),
        ('{"a" 1}', 5),
        ('{"a": tru}', 9),
        ('{"a": 01}', 8),
        ('{"a": 1.}', 8),
        ('{"a": [1 2]}', 9),
        ('{"a": [1}', 8),
        ('{"a": "\\x"}', 8),
        ('{"a": "\\u12g4"}', 11),
        ('{"a": .5}', 6),
        ("5", 0),
        ('"a"', 0),
        ("'a'", 0),
    ],
)
def test_what_is_not_json_stops_it(text: str, end: int) -> None:
    assert accepted(text) == end


def test_control_characters_pass_in_strings() -> None:
    scanner = JsonScanner()
    assert all(scanner.push(char) for char in '{"a": "b\n')
    assert scanner.in_string
