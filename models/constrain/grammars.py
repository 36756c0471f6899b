"""Compiles grammars for one vocabulary: bounded, off the event loop, each only once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from models.constrain.matcher import Matcher
from models.constrain.translate import complaint, refusal, translate
from models.errors import Closed, Invalid
from models.request import Grammar
from models.text.pipeline import Vocabulary

CACHED = 128  # grammars
COMPILE_S = 10.0  # longest wait; the limits below keep compiling far from it
COMPILERS = 2
FOLLOWERS = 4  # threads that follow answers; the library leaves the interpreter to others
LIMITS = LLParserLimits(max_lexer_states=50_000, step_max_items=20_000, verbose_errors=False)


class Grammars:
    """``vocabulary`` is asked once, when the first grammar comes, on a thread.

    ``width`` is the number of tokens that the model tells apart: that of its logits.
    """

    def __init__(
        self, vocabulary: Callable[[], Vocabulary], width: int, *, compile_s: float = COMPILE_S
    ) -> None:
        self._vocabulary = vocabulary
        self._width = width
        self._compile_s = compile_s
        self._closed = False
        self._compilers = ThreadPoolExecutor(COMPILERS, thread_name_prefix="compile")
        self._followers = ThreadPoolExecutor(FOLLOWERS, thread_name_prefix="follow")
        self._cached: OrderedDict[Grammar, Future[LLMatcher]] = OrderedDict()

    async def start(self, grammar: Grammar, ends: frozenset[int], count: int) -> list[Matcher]:
        """A matcher for each of ``count`` answers, which end by ``ends``.

        Raises ``Invalid``, and ``Closed`` when there are no threads any more.
        """
        self._check_open()
        compiled = asyncio.wrap_future(self._compiled(grammar))
        try:
            matcher = await asyncio.wait_for(asyncio.shield(compiled), self._compile_s)
        except TimeoutError:
            reason = f"it takes longer than {self._compile_s:g} s to compile"
            raise refusal(grammar, reason) from None
        except Invalid as error:
            raise Invalid(error.message, error.param) from None  # not the one that is kept
        except asyncio.CancelledError:
            if compiled.cancelled():
                raise Closed from None
            raise
        self._check_open()
        return [self._follow(grammar, matcher, ends) for _ in range(count)]

    def close(self) -> None:
        """Ends the threads, after what they are doing."""
        self._closed = True
        for threads in (self._compilers, self._followers):
            threads.shutdown(cancel_futures=True)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed

    def _compiled(self, grammar: Grammar) -> Future[LLMatcher]:
        """A failure is kept too: it costs as much as a success."""
        if grammar not in self._cached:
            self._cached[grammar] = self._compilers.submit(self._compile, grammar)
            if len(self._cached) > CACHED:
                self._cached.popitem(last=False)
        self._cached.move_to_end(grammar)
        return self._cached[grammar]

    def _compile(self, grammar: Grammar) -> LLMatcher:
        source = translate(grammar)
        matcher = LLMatcher(self._tokenizer(grammar), source, log_level=0, limits=LIMITS)
        if not matcher.is_error():
            # The first mask builds the most of the lexer: copies share what it knows then.
            matcher.compute_bitmask()
        if matcher.is_error():
            raise refusal(grammar, complaint(matcher))
        return matcher

    def _follow(self, grammar: Grammar, matcher: LLMatcher, ends: frozenset[int]) -> Matcher:
        return Matcher(
            grammar,
            matcher.deep_copy(),
            eos=frozenset(self._library_tokenizer.eos_tokens),
            ends=ends,
            width=self._width,
            threads=self._followers,
        )

    def _tokenizer(self, grammar: Grammar) -> LLTokenizer:
        try:
            return self._library_tokenizer
        except ValueError as error:
            message = f"This model's tokenizer cannot follow a grammar: {error}"
            raise Invalid(message, grammar.param) from error

    @cached_property
    def _library_tokenizer(self) -> LLTokenizer:
        vocabulary = self._vocabulary()
        eos = sorted(vocabulary.eos) or None  # without any, one that the library finds
        return LLTokenizer(vocabulary.tokenizer, n_vocab=vocabulary.size, eos_token=eos)
