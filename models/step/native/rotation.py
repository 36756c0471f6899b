"""How a layer turns queries and keys by their position, told by what it does to a few of them."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from models.step.native.build import NoNative
from models.step.trace import TOKENS, Call, Trace

MOST_ERROR = 0.03  # relative; half precision rounds, and any other way of turning is far off
# What only shapes the tables of cosines and sines, which are asked of the model itself.
KNOWN = {
    "rope_type",
    "type",
    "rope_theta",
    "partial_rotary_factor",
    "factor",
    "attention_factor",
    "max_position_embeddings",
    "original_max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "truncate",
    "low_freq_factor",
    "high_freq_factor",
    "short_factor",
    "long_factor",  # for sequences longer than any that is served from blocks
    "mrope_section",  # of images; a text's positions are the same in all sections
    "mrope_interleaved",
}


@dataclass(frozen=True, slots=True, eq=False)
class Rotary:
    """A call that gives cosines and sines."""

    module: nn.Module
    call: Call

    @torch.inference_mode()
    def tables(self, positions: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines [positions, rotary dim / 2], as float32."""
        places = torch.arange(positions)[None]
        args = [_asked(value, places) for value in self.call.args]
        kwargs = {name: _asked(value, places) for name, value in self.call.kwargs.items()}
        cosines, sines = self.module(*args, **kwargs)
        return _each_once(cosines[0]), _each_once(sines[0])


@dataclass(frozen=True, slots=True)
class Turn:
    """``pairs``: of two numbers side by side, not of one in each half of those that are turned."""

    rotary: Rotary
    pairs: bool

    @property
    def dims(self) -> int:
        """The first so many of a head are turned."""
        return 2 * self.rotary.tables(1)[0].shape[-1]

    def applied(self, heads: Tensor) -> Tensor:
        """[tokens, heads, dim], the tokens being those of the first positions."""
        cosines, sines = (table[:, None] for table in self.rotary.tables(len(heads)))
        half, dim = cosines.shape[-1], heads.shape[-1]
        order = halves_of_pairs(dim, 2 * half) if self.pairs else torch.arange(dim)
        low, high, rest = heads[..., order].float().tensor_split((half, 2 * half), -1)
        turned = (low * cosines - high * sines, high * cosines + low * sines, rest)
        return torch.cat(turned, -1)[..., order.argsort()]


def rotaries(model: nn.Module, trace: Trace) -> list[Rotary]:
    """Those that were asked, each for all that it was asked."""
    found = [module for module in model.modules() if _has_frequencies(module)]
    calls = [(module, call) for module in found for call in trace.calls(module)]
    return [Rotary(module, call) for module, call in calls if _gives_tables(call)]


def told(attention: Call, known: abc.Sequence[Rotary]) -> list[Rotary]:
    """Those whose tables it was given. What else they are can be alike for the first positions."""
    given = [*attention.args, *attention.kwargs.values()]
    tables = [part for part in given if isinstance(part, tuple)]
    return [one for one in known if any(one.call.result[0] is table[0] for table in tables)]


def require_steady(parameters: abc.Mapping[str, Any]) -> None:
    """No comparison of short texts would show what begins at far positions only."""
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    for one in nested or [dict(parameters)]:
        if one.get("rope_type") == "dynamic":
            raise NoNative("its rotary frequencies change with the length")
        given = {name for name, value in one.items() if value is not None}
        if unknown := given - KNOWN:
            raise NoNative(f"they know no {', '.join(sorted(unknown))} of its positions")


def turn_between(before: Tensor, after: Tensor, known: abc.Sequence[Rotary]) -> Turn | None:
    """What takes [tokens, heads, dim] to the other; None if nothing does. Raises NoNative."""
    if _error(before, after) < MOST_ERROR:
        return None
    turns = [Turn(rotary, pairs) for rotary in known for pairs in (False, True)]
    right = [turn for turn in turns if _error(turn.applied(before), after) < MOST_ERROR]
    if len(right) != 1:
        raise NoNative("how it turns its queries is not one of the ways that they know")
    return right[0]


def halves_of_pairs(dim: int, rotated: int) -> Tensor:
    """Which number of a head comes where, for pairs to lie in two halves."""
    order = torch.arange(dim)
    order[:rotated] = torch.cat((order[:rotated:2], order[1:rotated:2]))
    return order


def _error(one: Tensor, other: Tensor) -> float:
    """The largest of all tokens', relative."""
    one, other = one.float().flatten(1), other.float().flatten(1)
    return float(((one - other).norm(dim=1) / other.norm(dim=1).clamp_min(1e-12)).max())


def _each_once(table: Tensor) -> Tensor:
    """[positions, rotary dim / 2] of a table that may have each number for both of a pair."""
    half = table.shape[-1] // 2
    if torch.equal(table[:, :half], table[:, half:]):
        table = table[:, :half]
    elif torch.equal(table[:, ::2], table[:, 1::2]):
        table = table[:, ::2]
    return table.float().contiguous()


def _has_frequencies(module: nn.Module) -> bool:
    return any("inv_freq" in name for name, _ in module.named_buffers(recurse=False))


def _gives_tables(call: Call) -> bool:
    """Cosines and sines for the places that it was given."""
    shapes = [part.shape[:-1] for part in call.result] if isinstance(call.result, tuple) else []
    given = [*call.args, *call.kwargs.values()]
    places = [part.shape for part in given if _is_places(part)]
    return len(shapes) == 2 and places == [(1, TOKENS)] == shapes[:1] == shapes[1:]


def _is_places(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_floating_point()


def _asked(value: Any, places: Tensor) -> Any:
    """Tables have the type of the numbers that they are asked with: float32."""
    if not isinstance(value, Tensor):
        return value
    return places if _is_places(value) else value.float()
