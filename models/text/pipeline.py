"""Requests to token ids and what ends their answers; token ids to text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from models.errors import Invalid
from models.request import (
    ChatPrompt,
    GenerateRequest,
    Prompt,
    SamplingParams,
    TextPrompt,
    TokenPrompt,
)
from models.text.byte_tokenizer import BOS, CHAT_TEMPLATE, END, byte_tokenizer
from models.text.detokenizer import TextDecoder
from models.text.incremental import Detokenizer
from models.text.stop_ids import StopIds
from models.text.template import ChatTemplate, find_template


@dataclass(frozen=True, slots=True)
class Encoded:
    """A request as a model and a decoder need it.

    ``stop_ids`` maps each token that ends the answer to the stop as its caller spelled it, None
    for an end-of-sequence token. ``stops`` are for the text: not empty, each once. ``continues``
    tells whether the answer goes on with the prompt's text or, in a chat, starts its own.
    """

    token_ids: tuple[int, ...]
    stop_ids: Mapping[int, str | int | None]
    stops: tuple[str, ...]
    continues: bool = True


class TextPipeline:
    """A tokenizer and a chat template. Immutable: may be used from several threads at once.

    ``vocab_size`` bounds the ids that the model knows; it may exceed the tokenizer's.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        special_tokens: Mapping[str, str],
        eos_token_ids: Iterable[int] = (),
        chat_template: str | None = None,
        vocab_size: int | None = None,
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        eos = tokenizer.token_to_id(special_tokens.get("eos_token", ""))
        ids = {*eos_token_ids, *([] if eos is None else [eos])}
        self.vocab_size = vocab_size or max(tokenizer.get_vocab().values()) + 1
        self.eos_token_ids = frozenset(token_id for token_id in ids if token_id < self.vocab_size)
        self._tokenizer = tokenizer
        self._bos = tokenizer.token_to_id(special_tokens.get("bos_token", ""))
        self._template = ChatTemplate(chat_template, special_tokens) if chat_template else None
        self._detokenizer = Detokenizer(tokenizer)
        self._stop_ids = StopIds(tokenizer)

    @classmethod
    def load(cls, folder: Path, chat_template: str | None = None) -> TextPipeline:
        """From a Hugging Face folder; ``chat_template`` is a file that replaces the model's own."""
        config = _read(folder / "tokenizer_config.json")
        model, generation = _read(folder / "config.json"), _read(folder / "generation_config.json")
        return cls(
            Tokenizer.from_file(str(folder / "tokenizer.json")),
            special_tokens=_special_tokens(_read(folder / "special_tokens_map.json") | config),
            eos_token_ids=[*_eos_ids(model), *_eos_ids(generation)],
            chat_template=_override(chat_template) or find_template(folder, config),
            vocab_size=model.get("vocab_size") or model.get("text_config", {}).get("vocab_size"),
        )

    @classmethod
    def bytes(cls, chat_template: str | None = None) -> TextPipeline:
        """Each byte of UTF-8 is its own token, beside a few control tokens."""
        return cls(
            byte_tokenizer(),
            special_tokens={"bos_token": BOS, "eos_token": END},
            chat_template=_override(chat_template) or CHAT_TEMPLATE,
        )

    def encode(self, request: GenerateRequest) -> Encoded:
        """Raises ``Invalid``: ids that the model does not know, a template's own message."""
        self._check_known(request.sampling.logit_bias, "logit_bias")
        self._check_known(request.sampling.stop_token_ids, "stop_token_ids")
        stops = tuple(dict.fromkeys(stop for stop in request.stop if stop))
        return Encoded(
            token_ids=self._prompt_ids(request.prompt),
            stop_ids=self._ends(request.sampling, stops),
            stops=stops,
            continues=not isinstance(request.prompt, ChatPrompt),
        )

    def input_ids(
        self, prompt: TextPrompt | TokenPrompt, place: str, most: int | None = None
    ) -> tuple[int, ...]:
        """The ids of a text to embed, special ones included; of a longer one ``most`` ids.

        Raises ``Invalid``, which blames ``place``.
        """
        if isinstance(prompt, TokenPrompt):
            ids = prompt.token_ids[:most]
        elif most is None:
            ids = self._ids(prompt.text, special=True)
        else:
            ids = self._first_ids(prompt.text, most)
        if not ids:
            raise Invalid(f"'{place}' has no tokens.", place)
        self._check_known(ids, place)
        return ids

    def _first_ids(self, text: str, most: int) -> tuple[int, ...]:
        """The text is cut, not the special tokens around it."""
        added = self._tokenizer.num_special_tokens_to_add(is_pair=False)
        if most <= added:
            message = f"truncate_prompt_tokens must be more than {added} for this model."
            raise Invalid(message, "truncate_prompt_tokens")
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        encoding.truncate(most - added)
        return tuple(self._tokenizer.post_process(encoding).ids)

    def decoder(self, encoded: Encoded, *, min_tokens: int = 0) -> TextDecoder:
        """For one choice of the answer."""
        text = self._detokenizer.start(encoded.token_ids if encoded.continues else ())
        return TextDecoder(text, encoded.stops, min_tokens=min_tokens)

    def _prompt_ids(self, prompt: Prompt) -> tuple[int, ...]:
        param = "messages" if isinstance(prompt, ChatPrompt) else "prompt"
        token_ids = self._encode_prompt(prompt)
        if not token_ids:
            raise Invalid("The prompt must hold at least one token.", param)
        self._check_known(token_ids, param)
        return token_ids

    def _encode_prompt(self, prompt: Prompt) -> tuple[int, ...]:
        if isinstance(prompt, ChatPrompt):
            return self._ids(self._render(prompt), special=False)  # the template wrote them
        if isinstance(prompt, TextPrompt):
            return self._ids(prompt.text, special=True) or self._beginning()
        return prompt.token_ids

    def _render(self, prompt: ChatPrompt) -> str:
        if self._template is None:
            raise Invalid("This model has no chat template: use completions.", "messages")
        return self._template.render(prompt.messages)

    def _ids(self, text: str, *, special: bool) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def _beginning(self) -> tuple[int, ...]:
        return () if self._bos is None else (self._bos,)

    def _ends(
        self, sampling: SamplingParams, stops: tuple[str, ...]
    ) -> dict[int, str | int | None]:
        ends: dict[int, str | int | None] = {}
        if not sampling.ignore_eos:
            ends.update(dict.fromkeys(self.eos_token_ids))
        ends.update((token_id, token_id) for token_id in sampling.stop_token_ids)
        # No stop id is ever sampled before min_tokens; ordinary text may be, and just not count.
        ends.update(self._stop_ids.find(stops, control_only=sampling.min_tokens > 0))
        return {token_id: stop for token_id, stop in ends.items() if token_id < self.vocab_size}

    def _check_known(self, token_ids: Iterable[int], param: str) -> None:
        largest = max(token_ids, default=0)
        if largest >= self.vocab_size:
            size = self.vocab_size
            message = f"Token id {largest} in {param} is outside the model's {size} tokens."
            raise Invalid(message, param)


def _override(chat_template: str | None) -> str | None:
    return Path(chat_template).read_text(encoding="utf-8") if chat_template else None


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def _eos_ids(config: Mapping[str, Any]) -> list[int]:
    value = config.get("eos_token_id")
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """``bos_token``, ``eos_token`` and their like, written as strings or as objects."""
    tokens = {
        name: token.get("content") if isinstance(token, dict) else token
        for name, token in config.items()
        if name.endswith("_token")
    }
    return {name: token for name, token in tokens.items() if isinstance(token, str)}
