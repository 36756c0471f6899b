from __future__ import annotations

import pytest

from deployments.responses.store import MemoryStore


async def kept(store: MemoryStore, *ids: str) -> list[bool]:
    return [await store.get(id) is not None for id in ids]


async def test_what_is_put_is_found_until_it_is_deleted() -> None:
    store = MemoryStore(2, 100)
    assert await store.put("a", b"one")
    assert await store.get("a") == b"one"
    assert await store.delete("a")
    assert not await store.delete("a")
    assert await store.get("a") is None


async def test_what_was_used_longest_ago_goes_first() -> None:
    store = MemoryStore(2, 100)
    for id in ("a", "b"):
        await store.put(id, b"x")
    await store.get("a")
    await store.put("c", b"x")
    assert await kept(store, "a", "b", "c") == [True, False, True]


async def test_bytes_are_a_limit_too() -> None:
    store = MemoryStore(10, 10)
    await store.put("a", b"12345")
    await store.put("b", b"12345")
    await store.put("b", b"123456")
    assert await kept(store, "a", "b") == [False, True]
    await store.delete("b")
    assert await store.put("c", b"1234567890")
    assert await kept(store, "c") == [True]


@pytest.mark.parametrize("store", [MemoryStore(0, 100), MemoryStore(10, 2)])
async def test_what_cannot_be_kept_is_told(store: MemoryStore) -> None:
    assert not await store.put("a", b"xxx")
    assert await kept(store, "a") == [False]
