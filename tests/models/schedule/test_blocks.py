from __future__ import annotations

import pytest

from models.schedule.blocks import BlockPool
from tests.models.schedule.pooled import a_sequence, computed


def test_a_sequence_gets_blocks_for_all_its_tokens() -> None:
    pool = BlockPool(4, 4)
    sequence = computed(pool, range(9))
    assert len(sequence.blocks) == 3
    assert pool.used == 3


def test_equal_prefixes_share_full_blocks() -> None:
    pool = BlockPool(8, 4)
    first = computed(pool, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    second = a_sequence([1, 2, 3, 4, 5, 6, 7, 8, 99])
    assert pool.admit(second)
    assert second.computed == 8
    assert second.blocks[:2] == first.blocks[:2]
    assert second.blocks[2] != first.blocks[2]
    assert pool.used == 4


def test_one_token_is_always_left_to_compute() -> None:
    pool = BlockPool(8, 4)
    computed(pool, range(8))
    again = a_sequence(range(8))
    assert pool.admit(again)
    assert again.computed == 4


def test_the_same_block_after_another_prefix_is_not_shared() -> None:
    pool = BlockPool(8, 2)
    computed(pool, [1, 1, 5, 5, 0])
    other = a_sequence([2, 2, 5, 5, 0])
    assert pool.admit(other)
    assert other.computed == 0


def test_a_prefix_outlives_its_sequence_until_its_block_is_needed() -> None:
    pool = BlockPool(3, 4)
    pool.release(computed(pool, range(9)))
    pool.check()
    again = a_sequence(range(9))
    assert pool.admit(again)
    assert again.computed == 8
    pool.release(again)
    pool.release(computed(pool, range(50, 62)))
    assert pool.admit(last := a_sequence(range(9)))
    assert last.computed == 0


def test_the_end_of_a_prefix_is_reused_before_its_beginning() -> None:
    pool = BlockPool(3, 4)
    pool.release(computed(pool, range(12)))
    pool.release(computed(pool, [70]))
    again = a_sequence(range(12))
    assert pool.admit(again)
    assert again.computed == 8


def test_what_does_not_fit_takes_nothing() -> None:
    pool = BlockPool(4, 4)
    holder = computed(pool, range(8))
    assert not pool.admit(late := a_sequence(range(40, 60)))
    assert late.blocks == []
    assert not pool.grow(holder, 17)
    assert len(holder.blocks) == 2
    assert pool.free == 2


def test_a_revived_block_is_not_counted_as_free_as_well() -> None:
    pool = BlockPool(3, 4)
    pool.release(computed(pool, range(8)))
    longer = a_sequence([*range(8), *range(90, 98)])
    assert not pool.admit(longer)
    assert pool.free == 3


def test_tokens_not_yet_read_are_not_offered() -> None:
    pool = BlockPool(4, 4)
    sequence = a_sequence(range(7))
    assert pool.admit(sequence)
    sequence.pending, sequence.computed = 1, 8
    pool.register(sequence)
    assert sequence.registered == 1


def test_no_sharing_when_it_is_off() -> None:
    pool = BlockPool(8, 4, prefix_cache=False)
    computed(pool, range(9))
    assert pool.admit(again := a_sequence(range(9)))
    assert again.computed == 0


def test_check_finds_a_leak() -> None:
    pool = BlockPool(4, 4)
    computed(pool, range(9))
    with pytest.raises(AssertionError, match="leaked"):
        pool.check()


def test_what_is_forgotten_is_found_by_nobody() -> None:
    pool = BlockPool(8, 4)
    pool.release(computed(pool, range(9)))
    assert pool.forget() == 2
    again = a_sequence(range(9))
    assert pool.admit(again)
    assert again.computed == 0
    pool.release(again)
    pool.check()
    assert pool.free == 8
    assert pool.forget() == 0


def test_who_runs_while_all_is_forgotten_keeps_its_blocks_and_leaves_none() -> None:
    pool = BlockPool(16, 4)
    running = computed(pool, range(9))
    sharing = a_sequence(range(9))
    pool.admit(sharing)
    held = list(running.blocks)
    assert pool.forget() == 2
    assert running.blocks == held
    running.tokens += range(9, 17)
    assert pool.grow(running, 17)
    running.computed = 17
    pool.register(running)
    later = computed(pool, range(9))
    assert set(later.blocks).isdisjoint(held)
    for sequence in (running, sharing, later):
        pool.release(sequence)
    pool.check()
    found = a_sequence(range(9))
    assert pool.admit(found)
    assert found.computed == 8


def test_a_prefix_is_found_by_those_of_the_same_root_alone() -> None:
    pool = BlockPool(32, 4)
    found = []
    for salt, adapter in (("", None), ("a", None), ("", "a"), ("b", "a"), ("", "a"), ("", None)):
        one = a_sequence(range(9))
        one.salt, one.adapter = salt, adapter
        assert pool.admit(one)
        found.append(one.computed)
        one.computed = 9
        pool.register(one)
        pool.release(one)
        assert pool.admit(one)  # as after it gave way
        assert one.computed == 8
        pool.release(one)
    assert found == [0, 0, 0, 0, 8, 8]
    pool.check()
