"""One sequence's state, and the part of it that one step computes."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from models.errors import EngineError
from models.request import MOST, SamplingParams
from models.schedule.lookup import Speculation
from models.schedule.thinking import Thinking

# A prefix in the cache; an adapter and a salt stand for the empty one of those who share it.
Node = int | tuple[str | None, str]
ROOT = 0  # the empty one of all others


class Scores(NamedTuple):
    """How likely the model held one token, before anything was made of its logits.

    Natural logarithms of the softmax; ``rank`` 1 is the likeliest; ``top`` falls.
    """

    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()  # token ids and their logarithms


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a grammar says of one sequence's next token.

    Bit ``t % 8`` of ``allowed[t // 8]`` tells whether token t may come; some may. Once the answer
    is ``finished`` or there is an ``error``, whatever is sampled is only the sign of its end.
    """

    allowed: bytes
    finished: bool = False
    error: EngineError | None = None


class Constraint(Protocol):
    """A grammar that one sequence follows. A sequence with one is not planned while pending."""

    @property
    def ruling(self) -> Future[Ruling]:
        """Of the token that comes next; computed elsewhere, and never fails."""
        ...

    @property
    def late(self) -> bool:
        """Whether a step should rather do without this sequence than wait for the ruling."""
        ...

    def advance(self, token_id: int) -> None:
        """This token came, by the last ruling. Returns at once."""
        ...


@dataclass(slots=True, eq=False)
class Sequence:
    """A prompt and what was sampled after it.

    ``tokens`` are known on the host; ``pending`` more were sampled on the device but not read yet.
    ``computed`` of them have their keys and values in ``blocks``, as planned so far.
    Invariant: ``computed <= length`` and ``len(blocks) * block_size >= computed``.
    """

    id: str
    tokens: list[int]
    sampling: SamplingParams
    stop_ids: frozenset[int]
    max_length: int  # tokens, prompt and answer together
    seed: int  # 0 <= seed < 2**64, always set: drawn if the caller gave none
    constraint: Constraint | None = None
    scores_prompt: bool = False  # asks how likely each token of its prompt was
    bad_words: tuple[tuple[int, ...], ...] = ()  # runs of tokens that its answer must not hold
    thinking: Thinking | None = None  # bounds its reasoning
    background: bool = False  # gives way to all that are not
    salt: str = ""  # shares prefixes with those that have the same
    adapter: str | None = None  # of the model, by its name
    prompt_length: int = field(init=False)
    prompt_scores: dict[int, Scores] = field(default_factory=dict)  # of token i + 1, by i
    computed: int = 0
    pending: int = 0
    cached: int | None = None  # prompt tokens found in the prefix cache when first admitted
    blocks: list[int] = field(default_factory=list)
    registered: int = 0  # leading blocks offered to the prefix cache
    node: Node = ROOT  # where the prefix cache stands after those blocks
    slot: int | None = None  # held while running
    speculation: Speculation | None = None  # None: its tokens are never drafted
    drafted: bool = False  # a step over a draft was planned, and not read yet
    due: int = 0  # its rank among those whose prompts are to be computed; see ``Scheduler``
    ended: bool = False  # finished, failed or cancelled: is never planned again

    def __post_init__(self) -> None:
        self.prompt_length = len(self.tokens)

    @property
    def length(self) -> int:
        """Tokens including those not read yet."""
        return len(self.tokens) + self.pending

    @property
    def root(self) -> Node:
        """Where its prefix begins: what an adapter makes of a text is not what others make."""
        return (self.adapter, self.salt) if self.adapter or self.salt else ROOT

    @property
    def decodes(self) -> bool:
        """Whether all but its last token is computed."""
        length = len(self.tokens) + self.pending
        return length - self.computed == 1 and length > self.prompt_length

    @property
    def ready(self) -> bool:
        """Whether what comes next can be planned: a grammar must first see the last token."""
        return self.constraint is None or not (self.pending or self.constraint.late)

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def spent(self) -> int:
        """Tokens that it took to compute: of its prompt those that were not cached, and its answer.

        0 before it took part in a step.
        """
        return 0 if self.cached is None else self.prompt_length - self.cached + self.generated

    @property
    def watched(self) -> bool:
        """Whether what it may sample next depends on its last tokens being known on the host."""
        return self._has_runs or self.room <= self.pending

    @property
    def room(self) -> int:
        """So many tokens behind those known on the host may come before one is forced."""
        return MOST if self.thinking is None else self.thinking.room(self.tokens)

    @property
    def foreseeable(self) -> bool:
        """Whether what may come, while there is room, depends on tokens but by the logits."""
        return self.constraint is None and not self.sampling.penalises and not self._has_runs

    def forced(self) -> int | None:
        """The only token that may come now."""
        return None if self.thinking is None else self.thinking.forced(self.tokens)

    def banned(self) -> tuple[int, ...]:
        """The tokens that would now complete a bad word, or reason beyond the limit."""
        again = () if self.thinking is None else self.thinking.banned(self.tokens)
        if not self.bad_words:
            return again
        answer = self.tokens[self.prompt_length :]
        return again + tuple(
            word[-1]
            for word in self.bad_words
            if len(word) == 1 or tuple(answer[1 - len(word) :]) == word[:-1]
        )

    @property
    def _has_runs(self) -> bool:
        return any(len(word) > 1 for word in self.bad_words)

    @property
    def unscored(self) -> bool:
        """Whether its whole prompt must be computed, cached or not, for what was asked of it."""
        return self.scores_prompt and len(self.prompt_scores) < self.prompt_length - 1


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens ``[start, start + count)`` of one sequence, computed in one step.

    A snapshot: the step runs on another thread while the loop goes on changing ``sequence``, so a
    model reads only this, ``sequence.sampling``, ``sequence.stop_ids``, ``sequence.seed``,
    ``sequence.adapter`` and ``sequence.prompt_length``, which never change.
    """

    sequence: Sequence
    start: int
    count: int
    samples: bool  # reaches the end: one token is sampled at position start + count
    token_ids: tuple[int, ...]  # the inputs known on the host; one shorter than count if from_slot
    from_slot: bool  # the last input is the token sampled last for this slot, still on the device
    slot: int
    blocks: tuple[int, ...]  # cover [0, start + count)
    history: tuple[int, ...] | None  # tokens [0, start + count) at (re)admission, None later
    ruling: Future[Ruling] | None = None  # of the token to sample; None: any may come
    targets: tuple[int, ...] = ()  # tokens [start + 1, …) of the prompt, to be scored
    banned: tuple[int, ...] = ()  # tokens that must not be sampled
    forced: int | None = None  # the token to sample, whatever else is asked
    draft: tuple[int, ...] = ()  # its last inputs, only guessed; each and the one before samples

    @property
    def adapter(self) -> str | None:
        return self.sequence.adapter

    @property
    def decodes(self) -> bool:
        """Whether it is the last token of an answer, and what may follow."""
        guessed = len(self.draft)
        return self.count == 1 + guessed and self.start >= self.sequence.prompt_length

    @property
    def sampled(self) -> int:
        """How many tokens are sampled: one, and one more after each token of a draft."""
        return 1 + len(self.draft) if self.samples else 0

    @property
    def parts(self) -> tuple[Chunk, ...]:
        """This chunk up to each place where it samples, so that every part samples once."""
        if not self.draft:
            return (self,)
        first = self.count - len(self.draft)
        return tuple(replace(self, count=i, draft=()) for i in range(first, self.count + 1))

    @property
    def scores(self) -> int:
        """How many tokens are to be scored: each target, then those sampled if that is asked."""
        asked = self.sequence.sampling.logprobs is not None
        return len(self.targets) + (self.sampled if asked else 0)
