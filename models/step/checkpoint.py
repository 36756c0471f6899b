"""A model folder's weights, as transformers loads them."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedModel

Auto = type[AutoModel] | type[AutoModelForCausalLM]


def load_checkpoint(
    auto: Auto, folder: Path, device: torch.device, dtype: torch.dtype
) -> PreTrainedModel:
    """The model that ``auto`` finds in ``folder``, not to be trained; never from a network.

    Raises ValueError for an encoder-decoder and for what ``auto`` does not know.
    """
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if config.is_encoder_decoder:
        raise ValueError(f"{config.model_type} is an encoder-decoder, which is not supported")
    model = auto.from_pretrained(folder, config=config, dtype=dtype, local_files_only=True)
    assert isinstance(model, PreTrainedModel)
    model.to(device).eval()  # type: ignore[arg-type]
    return model
