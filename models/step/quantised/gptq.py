"""GPTQ's and AWQ's words of 32 bits, which hold the codes of a matrix [inputs, outputs]."""

from __future__ import annotations

from collections import abc
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from models.quantisation import AUTO_ROUND
from models.step.quantised.integers import in_groups
from models.step.quantised.layout import WORDS, Format, Layout, Parts, Stored, unpacked

CODES, ZEROS, SCALES, PLACES = ".qweight", ".qzeros", ".scales", ".g_idx"
ONES = {2: 0x55555555, 4: 0x11111111, 8: 0x01010101}  # a one in each code of a word
AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)  # in a word, of eight outputs


def gptq(told: abc.Mapping[str, Any]) -> Format:
    """Codes are packed along inputs, zeros along outputs: in its first form less by one."""
    first = (told.get("checkpoint_format") or told.get("format") or "gptq") == "gptq"
    read = partial(_gptq, first, int(told.get("group_size") or -1))
    layout = Layout(CODES, WORDS, (ZEROS, SCALES), read, (PLACES,))
    return Format(f"GPTQ, {told['bits']} bits", (layout,))


def awq(told: abc.Mapping[str, Any]) -> Format:
    """Codes and zeros are packed along outputs, in an order of their own."""
    return Format("AWQ, 4 bits", (Layout(CODES, WORDS, (ZEROS, SCALES), _awq),))


def auto_round(told: abc.Mapping[str, Any]) -> Format:
    """One of these, by another name."""
    layout = AUTO_ROUND[told["packing_format"]]
    found = awq(told) if layout == "awq" else gptq({**told, "checkpoint_format": layout})
    return replace(found, name=f"AutoRound, {told['bits']} bits")


def _gptq(first: bool, group: int, parts: Parts) -> Stored:
    """What is added to words of zeros may carry: it was taken from them so."""
    scales, words = parts[SCALES].T, parts[ZEROS]
    bits = 32 * words.shape[1] // scales.shape[0]
    zeros = unpacked(words + ONES[bits] if first else words, bits)
    codes = unpacked(parts[CODES].T, bits)
    return in_groups(
        codes,
        scales,
        zeros.T,
        bits=bits,
        group=group if group > 0 else codes.shape[1],
        places=parts[PLACES].long() if PLACES in parts else None,
    )


def _awq(parts: Parts) -> Stored:
    scales, codes = parts[SCALES].T, _in_order(parts[CODES]).T
    group = codes.shape[1] // scales.shape[1]
    zeros = _in_order(parts[ZEROS]).T
    return in_groups(codes, scales, zeros, bits=4, group=group, places=None)


def _in_order(words: Tensor) -> Tensor:
    codes = unpacked(words, 4).view(*words.shape, 8)
    return codes[..., AWQ_PLACES].flatten(-2)
