from __future__ import annotations

from typing import Any

import pytest

from deployments.openai.users import named_by, opaque
from models.request import ANYBODY


def test_names_tell_nothing_and_are_the_same_for_the_same() -> None:
    assert opaque("secret") == opaque("secret") != opaque("another")
    assert "secret" not in opaque("secret")
    assert opaque("") == ""


@pytest.mark.parametrize("given", [(), (None,), ("", None)])
def test_who_names_nobody(given: tuple[Any, ...]) -> None:
    assert named_by(*given) == ANYBODY


def test_the_first_that_is_given_counts() -> None:
    assert named_by(None, "ann") == named_by("ann", "bob") == named_by("ann") != named_by("bob")
    assert named_by({"id": 1}).name
