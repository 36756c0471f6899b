"""The inputs of an embedding request to token ids."""

from __future__ import annotations

from models.embedding import WHOLE_CONTEXT, EmbedRequest, InputTooLong, TokenInputs
from models.errors import Invalid
from models.text.pipeline import TextPipeline


def encode_inputs(text: TextPipeline, request: EmbedRequest, max_context: int) -> TokenInputs:
    """Raises ``Invalid``, or ``InputTooLong`` for an input of more than ``max_context`` tokens."""
    most = _most(request.truncate, max_context)
    token_ids = []
    for index, prompt in enumerate(request.inputs):
        ids = text.input_ids(prompt, request.place(index), most)
        if len(ids) > max_context:
            raise InputTooLong(request.place(index), len(ids), max_context)
        token_ids.append(ids)
    return TokenInputs(tuple(token_ids), request.dimensions)


def _most(truncate: int | None, max_context: int) -> int | None:
    if truncate is not None and truncate > max_context:
        message = f"truncate_prompt_tokens ({truncate}) is more than this model's {max_context}."
        raise Invalid(message, "truncate_prompt_tokens")
    return max_context if truncate == WHOLE_CONTEXT else truncate
