from __future__ import annotations

import random
from typing import Any

import pytest

from deployments.affinity import CHARACTERS, CHUNK, WORTH, Homes, beginnings, by_key, roomy
from models.request import ChatPrompt, GenerateRequest, SamplingParams, TextPrompt, TokenPrompt
from models.tokens import TokenRequest


def tokens(
    *parts: tuple[int, int], key: str | None = None, salt: str = "", adapter: str | None = None
) -> TokenRequest:
    """Its prompt is so many of each token."""
    ids = tuple(token for token, count in parts for _ in range(count))
    keys: dict[str, Any] = {"cache_key": key, "cache_salt": salt, "adapter": adapter}
    return TokenRequest("1", ids, SamplingParams(), frozenset(), **keys)


def test_prompts_that_begin_alike_have_beginnings_in_common() -> None:
    one = beginnings(tokens((1, 2 * CHUNK), (2, CHUNK)))
    other = beginnings(tokens((1, 2 * CHUNK), (3, CHUNK)))
    assert len(set(one)) == 3
    assert one[:2] == other[:2]
    assert one[2] != other[2]


def test_the_same_chunk_behind_another_beginning_is_another() -> None:
    one = beginnings(tokens((1, CHUNK), (2, CHUNK)))
    other = beginnings(tokens((3, CHUNK), (2, CHUNK)))
    assert not set(one) & set(other)


def test_a_prompt_below_a_chunk_has_none() -> None:
    assert beginnings(tokens((1, CHUNK - 1))) == []


def test_cache_keys_keep_prompts_apart() -> None:
    ann, ben = (beginnings(tokens((1, CHUNK), key=key)) for key in ("ann", "ben"))
    assert not set(ann) & set(ben)
    assert ann == beginnings(tokens((1, CHUNK), key="ann"))
    assert not set(ann) & set(beginnings(tokens((1, CHUNK), key="ann", salt="s")))


def test_adapters_keep_prompts_apart() -> None:
    none, one, other = (beginnings(tokens((1, CHUNK), adapter=name)) for name in (None, "a", "b"))
    assert len({*none, *one, *other}) == 3
    assert one == beginnings(tokens((1, CHUNK), adapter="a"))


def test_prompts_that_are_still_text_have_beginnings_too() -> None:
    shared = "a" * CHUNK * CHARACTERS
    one, other = (
        beginnings(GenerateRequest(id="1", prompt=TextPrompt(shared + rest))) for rest in "bc"
    )
    assert one == other
    assert len(one) == 1
    system = {"role": "system", "content": shared}
    chats = [
        ChatPrompt((system, {"role": "user", "content": name * CHUNK * CHARACTERS}))
        for name in ("ann", "ben")
    ]
    ann, ben = (beginnings(GenerateRequest(id="1", prompt=chat)) for chat in chats)
    assert ann[0] == ben[0]
    assert ann[-1] != ben[-1]
    ids = GenerateRequest(id="1", prompt=TokenPrompt((1,) * CHUNK))
    assert beginnings(ids) == beginnings(tokens((1, CHUNK)))


def test_the_home_is_where_the_longest_known_beginning_went() -> None:
    homes = Homes()
    homes.settle([1, 2, 3], "a")
    homes.settle([1, 20], "b")
    assert homes.of([1, 2, 30], {"a", "b"}) == "a"
    assert homes.of([1, 2, 30], {"b"}) == "b"
    assert homes.of([1, 9], {"a", "b"}) == "b"
    assert homes.of([1, 9], {"a"}) is None
    assert homes.of([], {"a"}) is None


def test_a_beginning_that_is_little_of_the_prompt_is_not_worth_it() -> None:
    homes = Homes()
    homes.settle([1], "a")
    assert homes.of([1, *range(2, WORTH)], {"a"}) == "a"
    assert homes.of([1, *range(2, WORTH + 1)], {"a"}) is None


def test_ends_are_forgotten_before_beginnings() -> None:
    homes = Homes(known=4)
    homes.settle([1, 2, 3], "a")
    homes.settle([11, 12], "b")
    assert homes.of([1, 2, 3], {"a"}) == "a"
    homes.settle([11, 12, 13], "b")
    assert homes.of([1, 2, 3], {"a"}) == "a"
    homes.settle([11, 12, 13, 14], "b")
    assert homes.of([1, 2, 3], {"a"}) is None


@pytest.mark.parametrize(
    ("loads", "free"),
    [
        ({"a": 0, "b": 0}, "ab"),
        ({"a": 1, "b": 0}, "ab"),
        ({"a": 2, "b": 0}, "b"),
        ({"a": 3, "b": 2}, "ab"),
        ({"a": 8, "b": 4}, "ab"),
        ({"a": 9, "b": 4}, "b"),
        ({"a": 4, "b": 2, "c": 2, "d": 2}, "bcd"),
        ({"a": 3, "b": 2, "c": 2, "d": 2}, "abcd"),
    ],
)
def test_a_replica_with_much_more_than_its_share_is_too_busy(
    loads: dict[str, int], free: str
) -> None:
    assert roomy(loads, places=32) == set(free)


def test_nobody_waits_while_another_has_a_place() -> None:
    assert roomy({"a": 8, "b": 7}, places=8) == {"b"}
    assert roomy({"a": 9, "b": 8}, places=8) == {"a", "b"}


def test_somebody_always_has_room() -> None:
    dice = random.Random(1)
    for _ in range(500):
        loads = {str(i): dice.randrange(40) for i in range(dice.randrange(2, 9))}
        free = roomy(loads, places=16)
        assert {name for name, load in loads.items() if load == min(loads.values())} <= free


def test_a_key_moves_only_if_its_replica_goes() -> None:
    replicas = [f"replica-{i}" for i in range(5)]
    keys = [f"key-{i}" for i in range(500)]
    before = {key: by_key(key, replicas) for key in keys}
    for replica in replicas:
        share = sum(home == replica for home in before.values())
        assert 60 < share < 140
    after = {key: by_key(key, replicas[::-1][1:]) for key in keys}
    gone = replicas[-1]
    assert all(after[key] == before[key] for key in keys if before[key] != gone)
    assert by_key("any", []) is None
