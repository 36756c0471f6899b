"""A model folder's weights, as transformers loads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
)

Auto = type[AutoModel] | type[AutoModelForCausalLM]


def load_checkpoint(
    auto: Auto, folder: Path, device: torch.device, dtype: torch.dtype
) -> PreTrainedModel:
    """The model that ``auto`` finds in ``folder``, not to be trained; never from a network.

    Raises ValueError for code that comes with the weights, for an encoder-decoder, for what
    ``auto`` does not know, and if weights are missing, which would be random.
    """
    _require_known(folder)
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if config.is_encoder_decoder:
        raise ValueError(f"{config.model_type} is an encoder-decoder, which is not supported")
    loaded: Any = auto.from_pretrained(
        folder, config=config, dtype=dtype, local_files_only=True, output_loading_info=True
    )
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


def _require_known(folder: Path) -> None:
    """transformers would ask at the terminal whether to run what comes with the weights."""
    config, _ = PreTrainedConfig.get_config_dict(folder, local_files_only=True)
    kind = config.get("model_type")
    if "auto_map" in config and kind not in CONFIG_MAPPING:
        raise ValueError(
            f"{folder} brings code of its own for {kind}, which is not run: transformers itself"
            " must know the architecture"
        )
