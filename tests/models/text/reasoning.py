"""A tokenizer of bytes whose model reasons between markers, each a token of its own."""

from __future__ import annotations

from tokenizers import AddedToken

from models.text.byte_tokenizer import BOS, CHAT_TEMPLATE, END, byte_tokenizer
from models.text.pipeline import TextPipeline
from models.text.reasoning import FORMATS

OPENING = CHAT_TEMPLATE + "{% if enable_thinking %}<think>{% endif %}"


def reasoning_pipeline(name: str = "think", *, special: bool = True) -> TextPipeline:
    """Of one format; ``enable_thinking`` opens the reasoning in the prompt of ``think``."""
    tokenizer = byte_tokenizer()
    form = FORMATS[name]
    markers = (AddedToken(one, normalized=False, special=special) for one in (form.begin, form.end))
    tokenizer.add_tokens([*markers])
    return TextPipeline(
        tokenizer,
        special_tokens={"bos_token": BOS, "eos_token": END},
        chat_template=OPENING,
        vocab_size=tokenizer.get_vocab_size() + 2,
        reasoning=name,
    )
