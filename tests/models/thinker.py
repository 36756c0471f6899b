"""A plain model of one's own that would think for ever, were it not made to answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

State = list[int]


class Thinker:
    """After a token that is a key of ``says`` it says what stands there, token by token.

    Before, and whenever it has said it all, it says ``thought``; of what it says each is second to
    ``second``, if that is not allowed.
    """

    max_context = 512

    def __init__(
        self, says: Mapping[int, Sequence[int]], thought: int, *, vocab_size: int, second: int = 0
    ) -> None:
        self.vocab_size = vocab_size
        self._says = says
        self._thought = thought
        self._second = second

    def prefill(self, tokens: Sequence[int]) -> tuple[State, list[float]]:
        return list(tokens), self._logits(list(tokens))

    def decode(self, state: State, token: int) -> tuple[State, list[float]]:
        tokens = [*state, token]
        return tokens, self._logits(tokens)

    def _logits(self, tokens: State) -> list[float]:
        place = next((i for i in reversed(range(len(tokens))) if tokens[i] in self._says), None)
        said = () if place is None else self._says[tokens[place]]
        done = 0 if place is None else len(tokens) - place - 1
        chosen = said[done] if done < len(said) else self._thought
        likely = {chosen: 100.0, self._second: 50.0}
        return [likely.get(token, 0.0) for token in range(self.vocab_size)]
