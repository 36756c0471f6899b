"""Adapters of tiny models in PEFT's layout, and the models that they are merged into."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from models.lora import CONFIG, WEIGHTS, read_lora
from models.step.adapters import LINEARS, Adapter, load_adapters

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
ALL = [*ATTENTION, "gate_proj", "up_proj", "down_proj"]


def adapter_folder(
    folder: Path, model: PreTrainedModel, targets: list[str], *, seed: int = 0, **config: Any
) -> Path:
    """Random matrices, so large that they are seen, for all linear layers whose names end so."""
    told = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": targets, **config}
    draw = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    ranks = told.get("rank_pattern", {})
    for name, linear in model.named_modules():
        if isinstance(linear, LINEARS) and name.split(".")[-1] in targets:
            rank = ranks.get(name.split(".")[-1], told["r"])
            outputs, inputs = linear.weight.shape  # type: ignore[misc]
            if isinstance(linear, Conv1D):
                outputs, inputs = inputs, outputs
            for which, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
                numbers = torch.randn(shape, generator=draw) * 0.6 / math.sqrt(shape[1])
                tensors[f"base_model.model.{name}.lora_{which}.weight"] = numbers
    folder.mkdir(parents=True)
    save_file(tensors, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(told))
    return folder


def adapters_of(model: PreTrainedModel, *folders: Path) -> tuple[Adapter, ...]:
    """Named by their folders."""
    return load_adapters([read_lora(one.name, one) for one in folders], model, Path("nowhere"))


@torch.inference_mode()
def merged(model: PreTrainedModel, folder: Path, scale: float = 2.0) -> PreTrainedModel:
    """Another model, with ``scale`` times B A added to the weights by hand."""
    whole: PreTrainedModel = copy.deepcopy(model)
    tensors = load_file(folder / WEIGHTS)
    for key, inner in tensors.items():
        if ".lora_A." in key:
            name = key.removeprefix("base_model.model.").partition(".lora_A")[0]
            linear: Any = whole.get_submodule(name)
            change = scale * (tensors[key.replace("lora_A", "lora_B")].double() @ inner.double())
            linear.weight += change.T if isinstance(linear, Conv1D) else change
    return whole
