"""Whether a transformers model is a stack that the native kernels know, read off its modules.

What is read is only a guess: the logits are compared before anything is served so.
"""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from models.step.grouped import GroupedLinear
from models.step.native.build import NoNative
from models.step.native.experts import Experts, read_experts
from models.step.native.gated import LIMITS, activation_named, read_gated
from models.step.native.layer import Half, LayerParts, LayerReader
from models.step.native.library import LANES
from models.step.native.linear import LINEARS, Rows
from models.step.native.norms import Norm, read_norm
from models.step.native.rotation import require_steady, rotaries
from models.step.native.routing import Groups
from models.step.trace import Trace, same

ROWS_AT_ONCE = 4096
# Of numbers so large that no comparison may come to them.
BOUNDS = ("clip", "clamp", "limit")


@dataclass(frozen=True, slots=True)
class Blueprint:
    """All that the kernels need of a model."""

    layers: abc.Sequence[LayerParts]
    embedding: nn.Embedding
    norm: Norm
    head: nn.Linear | GroupedLinear
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int  # rows of the head
    embedding_scale: float
    residual_scale: float  # of what each half of a layer adds
    logit_scale: float
    logit_cap: float  # 0: none

    @property
    def has_experts(self) -> bool:
        return any(isinstance(layer.feed_forward, Experts) for layer in self.layers)

    @property
    def linears(self) -> abc.Iterator[Rows]:
        """All but what experts have in one tensor."""
        for layer in self.layers:
            yield from layer.linears.values()
            yield from layer.feed_forward.linears
        yield Rows(self.head)

    @property
    def numbers(self) -> int:
        """Of all matrices."""
        experts = sum(layer.feed_forward.stacked for layer in self.layers)
        return experts + sum(prod(rows.shape) for rows in self.linears)

    @property
    def numbers_per_token(self) -> int:
        """Of keys and values, in all layers."""
        return 2 * len(self.layers) * self.kv_heads * self.head_dim


@torch.inference_mode()
def read_blueprint(model: PreTrainedModel, trace: Trace) -> Blueprint:
    """``trace`` is of the model. Raises NoNative."""
    config: Any = model.config.get_text_config(decoder=True)
    _require_steady(config)
    embedding = model.get_input_embeddings()
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if not isinstance(embedding, nn.Embedding) or not isinstance(head, LINEARS):
        raise NoNative(
            f"{type(model).__name__} has other embeddings, or another head, than they know"
        )
    layers = _layers(model, trace)
    norm = read_norm(_norm_between(model, trace, layers[-1], head), trace)
    reader = LayerReader(trace, rotaries(model, trace), partial(_half, config, head.in_features))
    parts = [reader.read(*both) for both in zip(layers, trace.attended, strict=True)]
    _require_limits_known(config, parts)
    shape = trace.attended[0].query.shape, trace.attended[0].value.shape
    cap = getattr(config, "final_logit_softcapping", None) or 0.0
    scores = trace.returned(head)
    blueprint = Blueprint(
        layers=parts,
        embedding=embedding,
        norm=norm,
        head=head,
        hidden=head.in_features,
        heads=shape[0][1],
        kv_heads=shape[1][1],
        head_dim=shape[0][3],
        vocab=head.out_features,
        embedding_scale=_ratio(trace.given(layers[0]), embedding.weight[trace.ids]),
        residual_scale=getattr(config, "residual_multiplier", 1.0),
        logit_scale=1.0 if cap else _ratio(trace.logits, scores),
        logit_cap=cap,
    )
    _require_fitting(blueprint)
    return blueprint


def _half(config: Any, hidden: int, part: nn.Module) -> Half:
    activation = activation_named(_number(config, "hidden_act", "hidden_activation"))
    if isinstance(getattr(part, "experts", None), nn.Module):
        groups = (getattr(config, name, None) or 1 for name in ("n_group", "topk_group"))
        return read_experts(part, activation, Groups(*groups), hidden)
    return read_gated(part, activation, hidden)


def _layers(model: nn.Module, trace: Trace) -> list[nn.Module]:
    """Those whose attention was seen, in their order."""
    count = len(trace.attended)
    for stack in model.modules():
        if isinstance(stack, nn.ModuleList) and len(stack) == count > 0:
            inside = zip(stack, trace.attended, strict=True)
            if all(attended.module in {*layer.modules()} for layer, attended in inside):
                return [*stack]
    raise NoNative(f"{type(model).__name__} has no list of layers of which each attends once")


def _norm_between(model: nn.Module, trace: Trace, last: nn.Module, head: nn.Module) -> nn.Module:
    """That of what the last layer made, for the head."""
    for norm in model.modules():
        fed = same(trace.returned(norm), trace.given(head))
        if fed and same(trace.given(norm), trace.returned(last)) and not [*norm.children()]:
            return norm
    raise NoNative(f"{type(model).__name__} has no norm between its last layer and its head")


def _number(config: Any, *names: str) -> Any:
    value = next((v for name in names if (v := getattr(config, name, None)) is not None), None)
    if value is None:
        raise NoNative(f"its config names no {names[0]}")
    return value


def _require_steady(config: Any) -> None:
    require_steady(getattr(config, "rope_parameters", None) or {})
    for name, value in config.to_dict().items():
        bound = name not in LIMITS and any(part in name for part in BOUNDS)
        if bound and isinstance(value, int | float) and value:
            raise NoNative(f"they know no {name}")


def _require_limits_known(config: Any, layers: abc.Sequence[LayerParts]) -> None:
    limits = {a.limit for layer in layers for a in layer.feed_forward.activations}
    for name in LIMITS:
        if (told := getattr(config, name, None)) and limits != {told}:
            raise NoNative(f"they know no {name}")


def _ratio(numbers: Tensor | None, others: Tensor | None) -> float:
    """What ``others`` were multiplied by."""
    assert numbers is not None
    assert others is not None
    mine, theirs = numbers.double().flatten(), others.double().flatten()
    if torch.equal(mine, theirs):
        return 1.0
    return float(mine @ theirs / (theirs @ theirs))


def _require_fitting(stack: Blueprint) -> None:
    """The kernels read as much memory as these numbers say."""
    if stack.head_dim % LANES:
        raise NoNative(f"heads of {stack.head_dim} numbers are not made of {LANES}")
    attended, kept = stack.heads * stack.head_dim, stack.kv_heads * stack.head_dim
    shapes = {
        "q": (attended, stack.hidden),
        "k": (kept, stack.hidden),
        "v": (kept, stack.hidden),
        "o": (stack.hidden, attended),
    }
    fits = stack.heads % stack.kv_heads == 0
    norms = [("", stack.norm), *(named for layer in stack.layers for named in layer.norms.items())]
    sizes = {"q_norm": {stack.head_dim, attended}, "k_norm": {stack.head_dim, kept}}
    fits = fits and all(
        {len(norm.weight), norm.together} <= sizes.get(name, {stack.hidden}) for name, norm in norms
    )
    fits = fits and all(_shapes(layer) == shapes for layer in stack.layers)
    fits = fits and stack.head.in_features == stack.embedding.embedding_dim == stack.hidden
    if not fits:
        raise NoNative("its layers have other shapes than they know")


def _shapes(layer: LayerParts) -> dict[str, tuple[int, int]]:
    return {name: rows.shape for name, rows in layer.linears.items()}


def embeddings(embedding: nn.Embedding) -> Tensor:
    """[tokens, hidden] of its weights; bfloat16 if that loses nothing."""
    weight = embedding.weight.detach()
    if weight.dtype == torch.bfloat16:
        return weight.clone()
    small = torch.empty(weight.shape, dtype=torch.bfloat16)
    for part in torch.split(torch.arange(len(weight)), ROWS_AT_ONCE):
        small[part] = weight[part].bfloat16()
        if not torch.equal(small[part].to(weight.dtype), weight[part]):
            return weight.float().contiguous()
    return small
