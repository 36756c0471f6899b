"""Requests to token ids and what ends their answers; token ids to text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tokenizers import Tokenizer

from models.errors import Invalid
from models.request import ChatPrompt, GenerateRequest, Prompt, TextPrompt, ThinkingLimit
from models.text.alignment import Alignment
from models.text.detokenizer import TextDecoder
from models.text.encoded import Encoded
from models.text.incremental import Detokenizer, IncrementalText
from models.text.parsing import AnswerParser, Reading, find_formats
from models.text.prompts import Prompts
from models.text.stop_ids import StopIds
from models.text.tools.grammar import TokenIds

BLANK = (" ", "\n", "\n\n", " \n", "\n ", "\t")  # what a model may say before it reasons
PROMPT_END = 24  # tokens of a prompt in which a marker that begins the reasoning is found


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What a grammar must know of a tokenizer: its JSON, how many ids, which end."""

    tokenizer: str
    size: int
    eos: frozenset[int]


class TextPipeline:
    """A tokenizer and a chat template. Immutable: may be used from several threads at once.

    ``vocab_size`` bounds the ids that the model knows; it may exceed the tokenizer's. ``tokenizer``
    neither cuts nor pads.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        special_tokens: Mapping[str, str],
        eos_token_ids: Iterable[int] = (),
        chat_template: str | None = None,
        vocab_size: int | None = None,
        reasoning: str = "auto",
        tool_format: str = "auto",
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        eos = tokenizer.token_to_id(special_tokens.get("eos_token", ""))
        ids = {*eos_token_ids, *([] if eos is None else [eos])}
        self.vocab_size = vocab_size or max(tokenizer.get_vocab().values()) + 1
        self.eos_token_ids = frozenset(token_id for token_id in ids if token_id < self.vocab_size)
        self.tokenizer = tokenizer
        self._info = {**special_tokens, "chat_template": chat_template}
        self._prompts = Prompts(tokenizer, special_tokens, chat_template)
        self._detokenizer = Detokenizer(tokenizer)
        self._literal = Detokenizer(tokenizer, skip_special=False)
        self._marking: dict[frozenset[str], Detokenizer] = {frozenset(): self._detokenizer}
        self._formats = find_formats(chat_template or "", reasoning, tool_format)
        self._stop_ids = StopIds(tokenizer, self._detokenizer)
        added = tokenizer.get_added_tokens_decoder()
        control = (id for id, token in added.items() if token.special)
        unused = range(
            max([tokenizer.get_vocab_size(), *(id + 1 for id in added)]), self.vocab_size
        )
        self._ids = TokenIds(tokenizer.token_to_id, frozenset((*control, *unused)))

    def vocabulary(self) -> Vocabulary:
        """For grammars over this tokenizer's tokens."""
        size = max(self.vocab_size, 1 + max(self.tokenizer.get_vocab().values()))
        return Vocabulary(self.tokenizer.to_str(), size, self.eos_token_ids)

    def encode(self, request: GenerateRequest) -> Encoded:
        """Raises ``Invalid``: ids that the model does not know, a template's own message."""
        self.check_known(request.sampling.logit_bias, "logit_bias")
        self.check_known(request.sampling.stop_token_ids, "stop_token_ids")
        self.check_known(request.sampling.allowed_token_ids or (), "allowed_token_ids")
        stops = tuple(dict.fromkeys(stop for stop in request.stop if stop))
        prompt = request.prompt
        token_ids = self._prompt_ids(request)
        reading = self._reading(prompt, token_ids)
        return Encoded(
            token_ids=token_ids,
            stop_ids=self._ends(request, stops),
            stops=stops,
            continues=not isinstance(prompt, ChatPrompt) or prompt.continue_final_message,
            reading=reading,
            grammar=self._formats.grammar(request, reading, self._ids),
            bad_words=self._bad_words(request.sampling.bad_words),
            thinking=self._thinking(request, opened=reading.opened),
        )

    def decoder(
        self,
        encoded: Encoded,
        *,
        min_tokens: int = 0,
        keep_stop: bool = False,
        skip_special: bool = True,
        aligned: bool = False,
    ) -> TextDecoder:
        """For one choice of the answer; see ``TextDecoder``."""
        detokenizer = self._showing(encoded.reading.markers) if skip_special else self._literal
        return TextDecoder(
            detokenizer.start(encoded.token_ids if encoded.continues else ()),
            encoded.stops,
            min_tokens=min_tokens,
            keep_stop=keep_stop,
            alignment=Alignment() if aligned else None,
        )

    def _showing(self, markers: frozenset[str]) -> Detokenizer:
        if markers not in self._marking:
            self._marking[markers] = Detokenizer(self.tokenizer, markers)
        return self._marking[markers]

    def spell(self, token_id: int) -> tuple[str, bytes]:
        """A token by itself: as far as it can be read, and its bytes."""
        spelled = self._detokenizer.bytes_of(token_id)
        return spelled.decode("utf-8", "replace"), spelled

    def echo(self, encoded: Encoded, sent: str | None) -> tuple[str, list[int]]:
        """The prompt's text, and where in it each of its tokens begins.

        As ``sent`` by its caller, if not None; else what its tokens make, without the special ones
        and without a character that they leave incomplete.
        """
        plain = _offsets(self._detokenizer.start(), encoded.token_ids)
        if sent is None or sent == plain[0]:
            return plain
        literal = _offsets(self._literal.start(), encoded.token_ids)
        return sent, literal[1] if sent == literal[0] else plain[1]

    def tokenize(self, prompt: Prompt, *, special_tokens: bool = True) -> tuple[int, ...]:
        """The ids of a prompt, none of the empty text. Raises ``Invalid``."""
        if isinstance(prompt, TextPrompt):
            return self._prompts.of_text(prompt.text, special_tokens=special_tokens)
        return self._prompts.encode(prompt)

    def token_strings(self, token_ids: Sequence[int]) -> list[str]:
        """Each token as the vocabulary spells it. Raises ``Invalid``."""
        self.check_known(token_ids, "tokens")
        return [self.tokenizer.id_to_token(token_id) or "" for token_id in token_ids]

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of ids, special tokens included. Raises ``Invalid``."""
        self.check_known(token_ids, "tokens")
        return self.tokenizer.decode(token_ids, skip_special_tokens=False)

    def tokenizer_info(self) -> dict[str, Any]:
        """What clients must know who tokenize by themselves, by the names of its own files."""
        ids = sorted(self.eos_token_ids)
        return {**self._info, "eos_token_ids": ids, "vocab_size": self.vocab_size}

    def check_known(self, token_ids: Iterable[int], param: str) -> None:
        """Raises ``Invalid``, which blames ``param``, for an id that the model does not know."""
        largest = max(token_ids, default=0)
        if largest >= self.vocab_size:
            size = self.vocab_size
            message = f"Token id {largest} in {param} is outside the model's {size} tokens."
            raise Invalid(message, param)

    def parser(
        self, request: GenerateRequest, encoded: Encoded, choice: int
    ) -> AnswerParser | None:
        """For one choice of the answer; None if all of its text is content."""
        return self._formats.parser(request, choice, opened=encoded.reading.opened)

    def _reading(self, prompt: Prompt, token_ids: Sequence[int]) -> Reading:
        if not isinstance(prompt, ChatPrompt):
            return Reading()
        end = list(token_ids[-PROMPT_END:])
        return self._formats.reading(prompt, self.tokenizer.decode(end, skip_special_tokens=False))

    def _prompt_ids(self, request: GenerateRequest) -> tuple[int, ...]:
        prompt, limit = request.prompt, request.truncate_prompt_tokens
        param = "messages" if isinstance(prompt, ChatPrompt) else "prompt"
        token_ids = self._prompts.encode(prompt)
        if limit is not None:
            token_ids = token_ids[:limit] if request.truncates_end else token_ids[-limit:]
        if not token_ids:
            raise Invalid("The prompt must hold at least one token.", param)
        self.check_known(token_ids, param)
        return token_ids

    def _ends(
        self, request: GenerateRequest, stops: tuple[str, ...]
    ) -> dict[int, str | int | None]:
        sampling = request.sampling
        ends: dict[int, str | int | None] = {}
        if not sampling.ignore_eos:
            ends.update(dict.fromkeys(self.eos_token_ids))
            ends.update(dict.fromkeys(self._prompts.ends(request.prompt)))
        ends.update((token_id, token_id) for token_id in sampling.stop_token_ids)
        # No stop id is ever sampled before min_tokens; ordinary text may be, and just not count.
        ends.update(self._stop_ids.find(stops, control_only=sampling.min_tokens > 0))
        return {token_id: stop for token_id, stop in ends.items() if token_id < self.vocab_size}

    def _thinking(self, request: GenerateRequest, *, opened: bool) -> ThinkingLimit | None:
        """Raises ``Invalid`` where a marker is several tokens, which might be spelled by others."""
        markers, budget = self._formats.thinking(request), request.thinking_budget
        if markers is None or budget is None:
            return None
        blank = (self._prompts.of_text(text, special_tokens=False) for text in BLANK)
        return ThinkingLimit(
            tokens=budget,
            begin=tuple(map(self._marker, markers.begin)),
            end=self._marker(markers.end),
            ends=frozenset(map(self._marker, (markers.end, *markers.also))),
            opened=opened,
            again=bool(markers.also),
            blank=frozenset(chain(*blank)),
        )

    def _marker(self, text: str) -> int:
        token_id = self.tokenizer.token_to_id(text)
        if token_id is None:
            message = (
                f"Thinking cannot be limited here: {text!r} is more than one of the model's tokens."
            )
            raise Invalid(message, "thinking_token_budget")
        return token_id

    def _bad_words(self, words: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        """Each as it is spelled at a beginning and, after a space, within a text."""
        texts = (text for word in words for text in (word, f" {word.lstrip()}"))
        spelled = (self._prompts.of_text(text, special_tokens=False) for text in texts)
        return tuple(dict.fromkeys(spelled))


def _offsets(text: IncrementalText, token_ids: Iterable[int]) -> tuple[str, list[int]]:
    made = ""
    offsets = []
    for token_id in token_ids:
        offsets.append(len(made))
        made += text.push(token_id)
    return made, offsets
