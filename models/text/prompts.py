"""Prompts to token ids: texts, texts with a hole to fill, and chats by their template."""

from __future__ import annotations

from collections.abc import Mapping

from tokenizers import Tokenizer

from models.errors import Invalid
from models.request import ChatPrompt, Prompt, TextPrompt
from models.text.infill import find_infill
from models.text.template import ChatTemplate


class Prompts:
    """Of one tokenizer. Immutable: may be used from several threads at once."""

    def __init__(
        self, tokenizer: Tokenizer, special_tokens: Mapping[str, str], chat_template: str | None
    ) -> None:
        bos = tokenizer.token_to_id(special_tokens.get("bos_token", ""))
        added = tokenizer.get_added_tokens_decoder().values()
        self._tokenizer = tokenizer
        self._beginning = () if bos is None else (bos,)
        self._template = ChatTemplate(chat_template, special_tokens) if chat_template else None
        self._infill = find_infill({token.content for token in added})

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Raises ``Invalid``: what the model was not made for, a template's own message."""
        if isinstance(prompt, ChatPrompt):
            return self.of_text(self._render(prompt), special_tokens=prompt.special_tokens)
        if isinstance(prompt, TextPrompt):
            return self._of_prompt(prompt)
        return prompt.token_ids

    def of_text(self, text: str, *, special_tokens: bool = True) -> tuple[int, ...]:
        """``special_tokens``: those that the tokenizer puts around any text."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=special_tokens).ids)

    def _of_prompt(self, prompt: TextPrompt) -> tuple[int, ...]:
        text = self._with_hole(prompt.text, prompt.suffix) if prompt.suffix else prompt.text
        token_ids = self.of_text(text, special_tokens=prompt.special_tokens)
        return token_ids or (self._beginning if prompt.special_tokens else ())

    def ends(self, prompt: Prompt) -> list[int]:
        """The ids that end what fills a hole."""
        if self._infill is None or not (isinstance(prompt, TextPrompt) and prompt.suffix):
            return []
        ids = map(self._tokenizer.token_to_id, self._infill.ends)
        return [token_id for token_id in ids if token_id is not None]

    def _with_hole(self, prefix: str, suffix: str) -> str:
        if self._infill is None:
            message = "This model's tokenizer has no tokens for text with a hole to fill."
            raise Invalid(message, "suffix")
        return self._infill.text(prefix, suffix)

    def _render(self, prompt: ChatPrompt) -> str:
        if self._template is None:
            raise Invalid("This model has no chat template: use completions.", "messages")
        return self._template.render(prompt)
