"""The stops that are one token: matched by its id, before it is text."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

from models.text.incremental import Detokenizer


class StopIds:
    """Finds, in one vocabulary, the stops that an id alone can match.

    Control tokens do, whatever they render to. Ordinary text does if its id spells it exactly and
    no match can begin further left; other stops are left to the text.
    """

    def __init__(self, tokenizer: Tokenizer, detokenizer: Detokenizer) -> None:
        added = tokenizer.get_added_tokens_decoder()
        self._tokenizer = tokenizer
        self._detokenizer = detokenizer
        self._added = {token.content: token_id for token_id, token in added.items()}
        self._control = frozenset(token_id for token_id, token in added.items() if token.special)

    def find(self, stops: Sequence[str], *, control_only: bool = False) -> dict[int, str]:
        """The stops by the ids that match them; ``stops`` are not empty."""
        ids = {stop: self._single(stop) for stop in stops}
        return {
            token_id: stop
            for stop, token_id in ids.items()
            if token_id is not None
            and (token_id in self._control or (not control_only and _is_leftmost(stop, stops)))
        }

    def _single(self, stop: str) -> int | None:
        if stop in self._added:
            return self._added[stop]
        ids = self._tokenizer.encode(stop, add_special_tokens=False).ids
        return ids[0] if len(ids) == 1 and self._detokenizer.within(ids[0]) == stop else None


def _is_leftmost(stop: str, stops: Sequence[str]) -> bool:
    """Whether no match of ``stops`` can begin further left and reach into ``stop``."""
    return not any(_overlaps(other, stop) for other in stops)


def _overlaps(left: str, right: str) -> bool:
    """Whether ``right`` can begin inside ``left``, after its first character."""
    longest = min(len(left) - 1, len(right))
    ends = (left[-length:] for length in range(1, longest + 1))
    return left.find(right, 1) >= 0 or any(right.startswith(end) for end in ends)
