from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from models.step import host
from models.step.cache import (
    KvMemory,
    LayerCache,
    LayerShape,
    Scratch,
    allocate,
    kv_memory,
    release,
    size_pool,
)
from models.step.host import available_memory

CPU = torch.device("cpu")


def test_what_was_written_is_gathered_by_blocks() -> None:
    cache = LayerCache(torch.zeros(6, 4, 2, 3 + 5), 3)
    key, value = torch.randn(1, 2, 8, 3), torch.randn(1, 2, 8, 5)
    rows = torch.tensor([20, 21, 22, 23, 4, 5, 6, 7])
    cache.write(rows, key, value)
    keys, values = cache.read(torch.tensor([5, 1]), 1, Scratch(), torch.float32)
    assert torch.equal(keys, key)
    assert torch.equal(values, value)
    keys, values = cache.read(torch.tensor([1, 5]), 2, Scratch(), torch.float32)
    assert torch.equal(keys, torch.stack((key[0, :, 4:], key[0, :, :4])))
    assert torch.equal(values, torch.stack((value[0, :, 4:], value[0, :, :4])))


def test_scratch_is_reused_until_more_is_needed() -> None:
    scratch, like = Scratch(), torch.empty(1, 6)
    first = scratch.take(like, 10)
    assert scratch.take(like, 4).data_ptr() == first.data_ptr()
    assert scratch.take(like, 20).shape == (20, 6)
    assert scratch.take(like.bfloat16(), 2).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_kept_in_half_precision_comes_back_in_full(dtype: torch.dtype) -> None:
    cache, scratch = LayerCache(torch.zeros(2, 4, 2, 3 + 5, dtype=dtype), 3), Scratch()
    key, value = torch.randn(1, 2, 4, 3), torch.randn(1, 2, 4, 5)
    cache.write(torch.tensor([4, 5, 6, 7]), key, value)
    keys, values = cache.read(torch.tensor([1]), 1, scratch, torch.float32)
    assert torch.equal(keys, key.to(dtype).float())
    assert torch.equal(values, value.to(dtype).float())


def test_a_pool_holds_what_its_bytes_allow() -> None:
    size = size_pool(100, KvMemory(1000, "why"), block_size=16, max_context=64, slots=8)
    assert (size.blocks, size.max_context, size.note, size.lowered) == (10, 64, "why", "")


def test_a_pool_is_no_larger_than_its_sequences_can_use() -> None:
    size = size_pool(1, KvMemory(10**9, "why"), block_size=16, max_context=65, slots=3)
    assert (size.blocks, size.note) == (15, "all that 3 sequences can use")


def test_a_small_pool_shortens_the_context_and_says_so() -> None:
    size = size_pool(100, KvMemory(350, "why"), block_size=16, max_context=64, slots=8)
    assert (size.blocks, size.max_context, size.note) == (3, 48, "why")
    assert "lowered from 64" in size.lowered


def test_no_block_at_all_is_an_error_with_both_sizes() -> None:
    with pytest.raises(ValueError, match=r"takes 2\.0 MiB, and 1\.0 MiB are given to it \(why\)"):
        size_pool(2 << 20, KvMemory(1 << 20, "why"), block_size=16, max_context=64, slots=8)


def test_the_memory_is_what_was_asked_for_or_a_share() -> None:
    assert kv_memory(CPU, 0.5) == KvMemory(2**29, "as kv_cache_gib says")
    share = kv_memory(CPU, None)
    assert 0 < share.bytes < available_memory()
    assert share.note.startswith("a third of ")


def test_models_that_share_a_machine_take_a_third_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text(f"MemAvailable: {12 * 2**10} kB\n")  # each sees the same
    monkeypatch.setattr(host, "MEMINFO", tmp_path / "meminfo")
    alone, one_of_four = kv_memory(CPU, None), kv_memory(CPU, None, sharing=4)
    assert alone == KvMemory(4 * 2**20, "a third of 0.01 GiB free")
    assert one_of_four == KvMemory(2**20, "a third of 0.01 GiB free, divided among 4 models")
    assert kv_memory(CPU, 0.5, sharing=4) == KvMemory(2**29, "as kv_cache_gib says")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_caches_hang_on_their_modules(dtype: torch.dtype) -> None:
    layer = LayerShape(nn.Identity(), 2, 3, 5, dtype)
    assert layer.bytes_per_token == 2 * 8 * dtype.itemsize
    assert layer.stored_as(None) == layer
    assert layer.stored_as(torch.float16).bytes_per_token == 32
    allocate([layer], 7, 4, CPU)
    storage = vars(layer.module)["paged_cache"].storage
    assert storage.shape == (7, 4, 2, 8)
    assert storage.dtype == dtype
    assert not storage.any()
    assert layer.module.state_dict() == {}
    release([layer])
    assert "paged_cache" not in vars(layer.module)
