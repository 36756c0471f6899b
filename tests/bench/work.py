"""What a decode step must read and a prefill must compute, whoever does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel


@dataclass(frozen=True)
class Work:
    """Sequences of so many tokens, and steps to time or 0: the first one, over the prompts."""

    batch: int
    context: int
    steps: int


@dataclass(frozen=True)
class Weights:
    """A model as it was loaded: what serves it may pack its parameters and drop them."""

    config: Any
    count: int
    bytes: int


def weights_of(model: PreTrainedModel) -> Weights:
    parameters = list(model.parameters())
    sizes = sum(p.numel() for p in parameters), sum(p.nbytes for p in parameters)
    return Weights(model.config, *sizes)


def bytes_read(weights: Weights, work: Work) -> float:
    """By one decode step: all weights once, and the keys and values of each sequence."""
    config = weights.config
    heads = config.num_key_value_heads * config.head_dim * 2
    cached = work.batch * (work.context + work.steps / 2) * heads * config.num_hidden_layers
    return float(weights.bytes + cached * weights.bytes / weights.count)


def flops(weights: Weights, work: Work) -> float:
    """Of a prefill: every weight but the embedding once a token, and causal attention."""
    config = weights.config
    linear = weights.count - config.vocab_size * config.hidden_size
    pairs = work.context * (work.context + 1) / 2
    attended = 4 * pairs * config.num_attention_heads * config.head_dim * config.num_hidden_layers
    return float(work.batch * (2 * linear * work.context + attended))
