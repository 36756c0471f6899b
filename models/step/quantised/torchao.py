"""torchao's whole numbers and floats of 8 bits, one a byte."""

from __future__ import annotations

from collections import abc
from typing import Any

from torch import Tensor

from models.step.quantised.layout import BYTES, FLOATS, Format, Layout, Parts, spread

CODES, SCALE, ZERO = "._weight_qdata", "._weight_scale", "._weight_zero_point"
BEFORE = "._weight_act_pre_scale"  # of the layer's inputs


def torchao(told: abc.Mapping[str, Any]) -> Format:
    kinds = {str(each["_type"]).removesuffix("Config") for each in told["quant_type"].values()}
    # Whole numbers of any width always have zero points, be they 0.
    always = (ZERO,) if all("Intx" in kind for kind in kinds) else ()
    layout = Layout(CODES, FLOATS | BYTES, (SCALE, *always), _read, (ZERO, BEFORE))
    return Format(f"torchao {', '.join(sorted(kinds))}", (layout,))


def _read(parts: Parts) -> Tensor:
    values = parts[CODES].float()
    if ZERO in parts:
        values -= spread(parts[ZERO].float(), values.shape)
    values *= spread(parts[SCALE].float(), values.shape)
    return values * parts[BEFORE].float() if BEFORE in parts else values
