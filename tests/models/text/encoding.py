"""Prompts to ids and ends, by the pipeline over bytes or another."""

from typing import Any

import pytest

from models.errors import Invalid
from models.request import ChatPrompt, GenerateRequest, Prompt, SamplingParams
from models.text.encoded import Encoded
from models.text.loading import byte_pipeline
from models.text.pipeline import TextPipeline

BYTES = byte_pipeline()
CHAT = ChatPrompt(({"role": "user", "content": "Hi"},))


def encode(prompt: Prompt, *stops: str, pipeline: TextPipeline = BYTES, **sampling: Any) -> Encoded:
    params = SamplingParams(**sampling)
    return pipeline.encode(GenerateRequest(id="r", prompt=prompt, sampling=params, stop=stops))


def refused(prompt: Prompt, pipeline: TextPipeline = BYTES, **sampling: Any) -> Invalid:
    with pytest.raises(Invalid) as refusal:
        encode(prompt, pipeline=pipeline, **sampling)
    return refusal.value
