"""How long a model's sequences may be, and when its architecture rules paged attention out."""

from __future__ import annotations

from collections import abc
from typing import Any

from transformers import PreTrainedConfig

LIMITS = ("max_position_embeddings", "max_target_positions", "max_seq_len")
UNSTATED = 4096  # tokens, for a model that names no limit of its own


def context_limit(config: PreTrainedConfig, wish: int | None) -> tuple[int, str]:
    """Most tokens of one sequence, and why, if that is not simply what was asked for."""
    made_for = _made_for(config)
    if wish is None:
        steady = _steady_positions(config)
        if steady is not None and (made_for is None or steady < made_for):
            return steady, "rotary frequencies change beyond it; set max_context to go further"
        return (UNSTATED, "the model names no limit") if made_for is None else (made_for, "")
    if made_for is not None and wish > made_for:
        return made_for, f"lowered from {wish}: the model was made for no more"
    return wish, ""


def paged_objection(
    config: PreTrainedConfig, max_context: int, windows: abc.Sequence[int | None]
) -> str:
    """Why a short probe could not tell that paged attention goes wrong later; empty if nothing.

    ``windows`` are the sliding windows that the attention layers passed, in order.
    """
    text = config.get_text_config(decoder=True)
    steady = _steady_positions(config)
    if steady is not None and max_context > steady:
        return f"its rotary frequencies change for all of a step beyond {steady} tokens"
    chunk = getattr(text, "attention_chunk_size", None)
    if chunk and max_context > chunk:
        return f"it attends in chunks of {chunk} tokens"
    window = getattr(text, "sliding_window", None)
    if window and max_context > window and _missing_windows(text, windows):
        return f"it hides its sliding window of {window} tokens from the attention function"
    return ""


def _made_for(config: PreTrainedConfig) -> int | None:
    text = config.get_text_config(decoder=True)
    named = (getattr(text, name, None) for name in LIMITS)
    return next((limit for limit in named if isinstance(limit, int) and limit > 0), None)


def _missing_windows(text: PreTrainedConfig, windows: abc.Sequence[int | None]) -> bool:
    passed = sum(window is not None for window in windows)
    types = getattr(text, "layer_types", None)
    if not types:
        return passed == 0
    return passed < sum("sliding" in kind for kind in types)


def _steady_positions(config: PreTrainedConfig) -> int | None:
    """Positions for which rotary frequencies do not depend on the longest one in the batch."""
    text = config.get_text_config(decoder=True)
    limits = [
        rope.get("original_max_position_embeddings") or _made_for(config)
        for rope in _ropes(getattr(text, "rope_parameters", None))
        if rope.get("rope_type") == "longrope"
    ]
    return min((limit for limit in limits if limit), default=None)


def _ropes(parameters: Any) -> list[dict[str, Any]]:
    """The parameters themselves, or one set for each layer type."""
    if not isinstance(parameters, dict):
        return []
    return [parameters, *(value for value in parameters.values() if isinstance(value, dict))]
