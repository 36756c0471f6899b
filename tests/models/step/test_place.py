from __future__ import annotations

import pytest
import torch

from models.step import place
from models.step.place import Precision, precision_of

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("known", "dtype", "why"),
    [
        ({"avx2", "avx512f"}, torch.float32, "no units for bfloat16"),
        ({"avx512f", "avx512_bf16"}, torch.bfloat16, "AVX-512"),
        ({"avx512_bf16", "amx_bf16", "amx_tile"}, torch.bfloat16, "AMX"),
    ],
)
def test_the_processor_decides(
    known: set[str], dtype: torch.dtype, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "instructions", lambda: frozenset(known))
    precision = precision_of("auto", CPU)
    assert precision.dtype == dtype
    assert why in str(precision)


@pytest.mark.parametrize(
    ("units", "dtype"), [(True, torch.bfloat16), (False, torch.float16)], ids=["units", "emulated"]
)
def test_a_gpu_that_only_emulates_bfloat16_computes_in_float16(
    units: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        lambda including_emulation=True: including_emulation or units,
    )
    assert precision_of("auto", torch.device("cuda")).dtype == dtype


def test_a_wish_is_met_or_refused() -> None:
    assert precision_of("float16", CPU) == Precision(torch.float16)
    assert precision_of("int8", CPU) == Precision(torch.float32, bits=8)
    assert str(precision_of("int8", CPU)) == "int8 weights, float32"
    assert precision_of("int4", CPU) == Precision(torch.float32, bits=4)
    with pytest.raises(ValueError, match="int8, which runs on a CPU, not on cuda"):
        precision_of("int8", torch.device("cuda"))
