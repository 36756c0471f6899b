"""The inputs of an embedding request to token ids."""

from __future__ import annotations

from tokenizers import Tokenizer

from models.embedding import WHOLE_CONTEXT, EmbedRequest, InputTooLong, TokenInputs
from models.errors import Invalid
from models.request import TextPrompt, TokenPrompt
from models.text.pipeline import TextPipeline


def encode_inputs(text: TextPipeline, request: EmbedRequest, max_context: int) -> TokenInputs:
    """Raises ``Invalid``, or ``InputTooLong`` for an input of more than ``max_context`` tokens."""
    most = _most(request.truncate, max_context)
    token_ids = []
    for index, prompt in enumerate(request.inputs):
        ids = _input_ids(text, prompt, request.place(index), most)
        if len(ids) > max_context:
            raise InputTooLong(request.place(index), len(ids), max_context)
        token_ids.append(ids)
    return TokenInputs(tuple(token_ids), request.dimensions, request.user)


def _most(truncate: int | None, max_context: int) -> int | None:
    if truncate is not None and truncate > max_context:
        message = f"truncate_prompt_tokens ({truncate}) is more than this model's {max_context}."
        raise Invalid(message, "truncate_prompt_tokens")
    return max_context if truncate == WHOLE_CONTEXT else truncate


def _input_ids(
    text: TextPipeline, prompt: TextPrompt | TokenPrompt, place: str, most: int | None
) -> tuple[int, ...]:
    """A text's special tokens included; of a longer input ``most`` ids. Blames ``place``."""
    if isinstance(prompt, TextPrompt) and most is not None:
        ids = _first_ids(text.tokenizer, prompt.text, most)
    else:
        ids = text.tokenize(prompt)[:most]
    if not ids:
        raise Invalid(f"'{place}' has no tokens.", place)
    text.check_known(ids, place)
    return ids


def _first_ids(tokenizer: Tokenizer, text: str, most: int) -> tuple[int, ...]:
    """The text is cut, not the special tokens around it."""
    added = tokenizer.num_special_tokens_to_add(is_pair=False)
    if most <= added:
        message = f"truncate_prompt_tokens must be more than {added} for this model."
        raise Invalid(message, "truncate_prompt_tokens")
    encoding = tokenizer.encode(text, add_special_tokens=False)
    encoding.truncate(most - added)
    return tuple(tokenizer.post_process(encoding).ids)
