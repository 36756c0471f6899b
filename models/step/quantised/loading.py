"""A quantised folder to a transformers model, with weights of 4 bits as they are where wished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from models.quantisation import Config
from models.step.grouped import GroupedLinear
from models.step.quantised.weights import StoredWeight, format_of, stored_weights

Auto = type[AutoModel] | type[AutoModelForCausalLM]
Loaded = tuple[PreTrainedModel, dict[str, Any]]


def load_quantised(
    auto: Auto,
    folder: Path,
    config: PreTrainedConfig,
    told: Config,
    dtype: torch.dtype,
    *,
    keep: bool,
) -> Loaded:
    """The model and what transformers found, which is given an unquantised checkpoint's tensors.

    Each is read when it asks. With ``keep`` linear layers of 4 bits become ``GroupedLinear``.
    """
    format = format_of(told)
    weights = stored_weights(folder, format)
    for part in (config, config.get_text_config()):
        vars(part).pop("quantization_config", None)
    with torch.device("meta"):
        empty: PreTrainedModel = auto.from_config(config)  # type: ignore[no-untyped-call]
    if any(isinstance(module, Conv1D) for module in empty.modules()):
        raise ValueError(f"{config.model_type} is not supported with weights in {format.name}")
    if not keep:
        return _loaded(empty, weights, dtype, format.name)
    names = {f"{name}.weight" for name, module in empty.named_modules() if _is_linear(module)}
    kept = [weights[name] for name in names if isinstance(weights.get(name), StoredWeight)]
    for weight in kept:
        weight.stand_in = torch.zeros(1, dtype=dtype)
    found = _loaded(empty, weights, dtype, format.name)
    if _put(found[0], [weight for weight in kept if weight.grouped is not None]):
        return found
    return load_quantised(auto, folder, config, told, dtype, keep=False)


def _loaded(
    empty: PreTrainedModel, weights: dict[str, Any], dtype: torch.dtype, name: str
) -> Loaded:
    loaded: Any = type(empty).from_pretrained(
        None, config=empty.config, state_dict=weights, dtype=dtype, output_loading_info=True
    )
    model, found = loaded
    vars(model)["stored_as"] = name
    return model, found


def _put(model: PreTrainedModel, kept: list[StoredWeight]) -> bool:
    """Layers in the place of those that hold stand-ins. False if one was made something else."""
    places = {weight.stand_in.data_ptr(): weight for weight in kept if weight.stand_in is not None}
    holding = {
        name: (module, places[module.weight.data_ptr()])
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module.weight.data_ptr() in places
    }
    if len(holding) < len(kept):
        return False
    for name, (linear, weight) in holding.items():
        assert weight.grouped is not None
        model.set_submodule(name, GroupedLinear(weight.grouped, linear.bias))
        weight.grouped = None
    return True


def _is_linear(module: nn.Module) -> bool:
    return type(module) is nn.Linear
