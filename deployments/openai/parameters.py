"""What becomes of parameters that the request models do not know.

Harmless ones are accepted, those that would change the answer are refused unless they say what
happens anyway, and the rest are unknown. Null always asks for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from deployments.openai.errors import ApiError, invalid, unknown

# Nothing in the answer depends on these.
HARMLESS = frozenset(
    {
        "guided_decoding_backend",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "request_id",
        "rid",
        "safety_identifier",
        "service_tier",
        "session_id",
        "store",
        "user",
    }
)

NOTHING: tuple[Any, ...] = ()
EMPTY: tuple[Any, ...] = ([], {})

# The values that ask for what is done anyway, of parameters that are not supported.
NEUTRAL: Mapping[str, Collection[Any]] = {
    "cache_prompt": (True,),
    "dry_multiplier": (0,),
    "dynatemp_range": (0,),
    "early_stopping": (False,),
    "guided_whitespace_pattern": NOTHING,
    "length_penalty": (1,),
    "logits_processors": EMPTY,
    "mirostat": (0,),
    "n_probs": (0,),
    "spaces_between_special_tokens": (True,),
    "tfs_z": (1,),
    "timings_per_token": (False,),
    "top_a": (0,),
    "typical_p": (1,),
    "use_beam_search": (False,),
    "xtc_probability": (0,),
}

CHAT_NEUTRAL: Mapping[str, Collection[Any]] = {
    **NEUTRAL,
    "audio": NOTHING,
    "chat_template": NOTHING,
    "function_call": ("none", "auto"),
    "functions": EMPTY,
    "modalities": (["text"],),
    "moderation": NOTHING,
    "prediction": NOTHING,
    "separate_reasoning": (True,),
    "stream_reasoning": (True,),
    "web_search_options": NOTHING,
}

COMPLETIONS_NEUTRAL: Mapping[str, Collection[Any]] = {
    **NEUTRAL,
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "parallel_tool_calls": (True, False),
    "verbosity": ("medium",),
}


def check_extras(
    extras: Mapping[str, Any],
    neutral: Mapping[str, Collection[Any]],
    harmless: Collection[str] = HARMLESS,
) -> None:
    """Raises ``ApiError`` for the first parameter that may not be passed over."""
    for name, value in extras.items():
        if name in neutral:
            _check_neutral(name, value, neutral[name])
        elif name not in harmless and value is not None:
            raise unknown(name)


def unsupported(name: str) -> ApiError:
    """The error of a parameter, or a value of it, that would change the answer."""
    message = f"Unsupported parameter: '{name}' with this value is not supported by this server."
    return invalid(message, name, "unsupported_parameter")


def _check_neutral(name: str, value: Any, neutral: Collection[Any]) -> None:
    if value is not None and not any(_same(value, one) for one in neutral):
        raise unsupported(name)


def _same(value: Any, other: Any) -> bool:
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)
