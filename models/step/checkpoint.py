"""A model folder's weights, as transformers loads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from models.quantisation import Config, quantisation, require_readable
from models.step.opened import require_numbers, require_whole
from models.step.quantised.loading import Auto, load_quantised


def load_checkpoint(
    auto: Auto, folder: Path, device: torch.device, dtype: torch.dtype, *, keep: bool = False
) -> PreTrainedModel:
    """The model that ``auto`` finds in ``folder``, not to be trained; never from a network.

    With ``keep`` linear layers that are stored in 4 bits become ``GroupedLinear``.

    Raises ValueError for code that comes with the weights, for an encoder-decoder, for what
    ``auto`` does not know, for quantised weights that cannot be read or that nothing is told of,
    and if weights are missing, which would be random, or their files are not whole.
    """
    told, _ = PreTrainedConfig.get_config_dict(folder, local_files_only=True)
    _require_known(folder, told)
    require_whole(folder)
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if config.is_encoder_decoder:
        raise ValueError(f"{config.model_type} is an encoder-decoder, which is not supported")
    if (quantised := quantisation(told)) is None:
        require_numbers(folder)
        loaded: Any = auto.from_pretrained(
            folder, config=config, dtype=dtype, local_files_only=True, output_loading_info=True
        )
    else:
        loaded = load_quantised(auto, folder, config, quantised, dtype, keep=keep)
    model, found = loaded
    assert isinstance(model, PreTrainedModel)
    # A pooler, which nothing here reads, is often left out.
    missing = sorted(name for name in found["missing_keys"] if "pooler" not in name.split("."))
    if missing:
        raise ValueError(
            f"{folder} lacks weights of {type(model).__name__}: {', '.join(missing[:3])}"
            + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        )
    model.to(device).eval()  # type: ignore[arg-type]
    return model


def stored_as(model: PreTrainedModel) -> str:
    """How the checkpoint's weights were quantised, for people; empty if they were not."""
    name: str = vars(model).get("stored_as", "")
    return name


def _require_known(folder: Path, told: Config) -> None:
    """transformers would ask at the terminal whether to run what comes with the weights."""
    kind = told.get("model_type")
    if "auto_map" in told and kind not in CONFIG_MAPPING:
        raise ValueError(
            f"{folder} brings code of its own for {kind}, which is not run: transformers itself"
            " must know the architecture"
        )
    require_readable(told)
