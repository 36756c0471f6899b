"""Whether a transformers model is a stack that the native kernels know, read off its modules.

What is read is only a guess: the logits are compared before anything is served so.
"""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from models.step.attention import Options
from models.step.native.build import NoNative

ROWS_AT_ONCE = 4096
LANES = 16  # numbers that the kernels work on at a time
ACTIVATIONS = {"silu": 0, "swish": 0, "gelu_pytorch_tanh": 1, "gelu_new": 1}
PARTS = {
    "input_layernorm": "norm",
    "self_attn.q_proj": "q",
    "self_attn.k_proj": "k",
    "self_attn.v_proj": "v",
    "self_attn.o_proj": "o",
    "self_attn.q_norm": "q_norm",
    "self_attn.k_norm": "k_norm",
    "post_attention_layernorm": "inner_norm",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.down_proj": "down",
}
OPTIONAL = {"q_norm", "k_norm"}
# What only shapes the tables of cosines and sines, which are asked of the model itself.
ROTARY = {
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
    "mrope_section",  # of images; a text's positions are the same in all sections
    "mrope_interleaved",
}


@dataclass(frozen=True, slots=True)
class LayerParts:
    """One layer's modules, and how it attends."""

    linears: abc.Mapping[str, nn.Linear]
    norms: abc.Mapping[str, nn.Module]
    scale: float
    window: int


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A stack of the common shape: all that the kernels need of a model."""

    layers: abc.Sequence[LayerParts]
    embedding: nn.Embedding
    norm: nn.Module
    head: nn.Linear
    rotary: nn.Module
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int  # rows of the head
    gelu: int
    epsilon: float

    @property
    def linears(self) -> abc.Iterator[nn.Linear]:
        """Every matrix of a step."""
        for layer in self.layers:
            yield from layer.linears.values()
        yield self.head

    @property
    def numbers_per_token(self) -> int:
        """Of keys and values, in all layers."""
        return 2 * len(self.layers) * self.kv_heads * self.head_dim


def read_blueprint(model: PreTrainedModel, options: abc.Sequence[Options]) -> Blueprint:
    """``options`` are those of each attention layer, in order. Raises NoNative."""
    config: Any = model.config
    inside = getattr(model, "model", None)
    found: list[Any] = [
        getattr(inside, name, None) for name in ("embed_tokens", "layers", "norm", "rotary_emb")
    ]
    head = getattr(model, "lm_head", None)
    if None in found or not isinstance(head, nn.Linear):
        raise NoNative(f"{type(model).__name__} is no stack that they know")
    embedding, layers, norm, rotary = found
    if len(layers) != len(options):
        raise NoNative("not each layer attends once")
    parts = [_layer(layer, option) for layer, option in zip(layers, options, strict=True)]
    activation = _number(config, "hidden_act")
    if activation not in ACTIVATIONS:
        raise NoNative(f"its activation is {activation}")
    _require_steady(rotary, getattr(config, "rope_parameters", None) or {})
    first = parts[0].linears
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    blueprint = Blueprint(
        layers=parts,
        embedding=embedding,
        norm=norm,
        head=head,
        rotary=rotary,
        hidden=config.hidden_size,
        heads=first["q"].out_features // head_dim,
        kv_heads=first["k"].out_features // head_dim,
        head_dim=head_dim,
        inner=first["gate"].out_features,
        vocab=head.out_features,
        gelu=ACTIVATIONS[activation],
        epsilon=_number(config, "rms_norm_eps"),
    )
    _require_fitting(blueprint)
    return blueprint


def _number(config: Any, name: str) -> Any:
    value = getattr(config, name, None)
    if value is None:
        raise NoNative(f"its config names no {name}")
    return value


def _require_steady(rotary: nn.Module, parameters: abc.Mapping[str, Any]) -> None:
    """No comparison of short texts would show what begins at far positions only."""
    if getattr(rotary, "rope_type", "default") in ("dynamic", "longrope"):
        raise NoNative("its rotary frequencies change with the length")
    told = {name for name, value in parameters.items() if value is not None}
    if unknown := told - ROTARY:
        raise NoNative(f"they know no {', '.join(sorted(unknown))} of its positions")


def _layer(layer: nn.Module, options: Options) -> LayerParts:
    if options.softcap is not None or options.sinks is not None:
        raise NoNative("it caps its scores or has sinks")
    known = {PARTS.get(name.rpartition(".")[0]) for name, _ in layer.named_parameters()}
    if None in known or not known >= set(PARTS.values()) - OPTIONAL:
        raise NoNative(f"{type(layer).__name__} has other parts than they know")
    modules = {PARTS[name]: module for name, module in layer.named_modules() if name in PARTS}
    linears = {name: part for name, part in modules.items() if isinstance(part, nn.Linear)}
    norms = {name: part for name, part in modules.items() if name not in linears}
    if options.scale is None:
        raise NoNative("it does not say how it scales its scores")
    return LayerParts(linears, norms, options.scale, options.window or 0)


def _require_fitting(stack: Blueprint) -> None:
    """The kernels read as much memory as these numbers say."""
    if stack.head_dim % LANES or stack.inner % LANES:
        raise NoNative(
            f"heads of {stack.head_dim} and layers of {stack.inner} numbers are not made of {LANES}"
        )
    attended, kept = stack.heads * stack.head_dim, stack.kv_heads * stack.head_dim
    shapes = {
        "q": (attended, stack.hidden),
        "k": (kept, stack.hidden),
        "v": (kept, stack.hidden),
        "o": (stack.hidden, attended),
        "gate": (stack.inner, stack.hidden),
        "up": (stack.inner, stack.hidden),
        "down": (stack.hidden, stack.inner),
    }
    fits = stack.heads % stack.kv_heads == 0
    fits = fits and all(_shapes(layer) == shapes for layer in stack.layers)
    fits = fits and stack.head.weight.shape[1] == stack.embedding.embedding_dim == stack.hidden
    if not fits:
        raise NoNative("its layers have other shapes than they know")


def _shapes(layer: LayerParts) -> dict[str, tuple[int, ...]]:
    return {name: tuple(linear.weight.shape) for name, linear in layer.linears.items()}


@torch.inference_mode()
def norm_weight(norm: nn.Module, size: int, epsilon: float) -> Tensor:
    """What it multiplies each number of a row of length one by, whatever its weight stands for."""
    weight: Tensor = norm(torch.ones(1, size))[0].float() * (1 + epsilon) ** 0.5
    return weight.expand(size).contiguous()


@torch.inference_mode()
def rotary_tables(rotary: nn.Module, positions: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [positions, rotary dim / 2], as float32."""
    places = torch.arange(positions)[None]
    cosines, sines = rotary(torch.zeros(1), position_ids=places)
    half = cosines.shape[-1] // 2
    return cosines[0, :, :half].float().contiguous(), sines[0, :, :half].float().contiguous()


@torch.inference_mode()
def embeddings(embedding: nn.Embedding) -> Tensor:
    """[tokens, hidden] as the model begins with them; bfloat16 if that loses nothing."""
    parts = torch.split(torch.arange(embedding.num_embeddings), ROWS_AT_ONCE)
    small = torch.empty(embedding.weight.shape, dtype=torch.bfloat16)
    for part in parts:
        rows = embedding(part)
        small[part] = rows.bfloat16()
        if not torch.equal(small[part].to(rows.dtype), rows):
            return torch.cat([embedding(part).float() for part in parts])
    return small
