"""Texts of an exact number of tokens, of random words; the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from models.source import resolve

PLAIN = """
about above again against all almost along also always among and another any around away back
because become been before began behind being below between body book both bring brought building
call came can care carry change children city clear close cold come could country course cut day
did different does done door down during each early earth easy end enough even every example eye
face fact family far father feel few field find fire first five follow food for form found four
friend from full game gave get give glass going gold good got great green ground group grow had
half hand hard have head hear heart heat help here high him hold home hope horse hour house how
hundred idea important into keep kind king knew land large last late later laugh learn leave left
less letter life light like line list little live long look low made make man many mark may mean
measure men might mile mind money moon more morning most mother mountain move much music must name
near need never new next night north note nothing now number off often old once one only open order
other our out over own page paper part pass people person picture piece place plain plan plant play
point power press problem quick quiet rain ran reach read ready real red remember rest right river
road rock room round rule run said same saw say school science sea second see seem sentence set
several shape ship short should show side simple since sing sit six sleep slow small snow some song
soon sound south space stand star start state stay step still stone stood stop story street strong
study such summer sun sure system table take talk teach tell ten than that their them then there
these they thing think those though thought three through time together told too took top toward
town travel tree true try turn two under until upon use very voice walk want war warm watch water
way week well went were what wheel when where which while white who whole why will wind winter with
without wood word work world would write year yes yet young
"""
WORDS = PLAIN.split()


@dataclass(frozen=True)
class Prompts:
    """``words`` are one token each behind a space; ``count`` tells how many tokens a text has."""

    words: Sequence[str]
    count: Callable[[str], int]

    @classmethod
    def counted_by(cls, tokenizer: str) -> Prompts:
        """By the tokenizer of a model's source, or by ``words``."""
        if tokenizer == "words":
            return cls.of_words()
        folder = resolve(tokenizer, weights=False)
        return cls.of(Tokenizer.from_file(str(folder / "tokenizer.json")))

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Prompts:
        """Counted as a server with this tokenizer does, special tokens included."""

        def size(text: str) -> int:
            return len(tokenizer.encode(text).ids)

        bare = size("the")
        return cls([word for word in WORDS if size(f"the {word}") == bare + 1], size)

    @classmethod
    def of_words(cls) -> Prompts:
        """For servers whose tokenizer is not at hand: each word counts as a token."""
        return cls(WORDS, lambda text: len(text.split()))

    def text(self, tokens: int, *seed: object, prefix: str = "") -> str:
        """A text that begins with ``prefix`` and has so many tokens, the prefix's included.

        Raises ValueError if the tokenizer does not take words so.
        """
        if not self.words:
            raise ValueError("this tokenizer has no plain words of one token")
        chosen = random.Random(repr(seed)).choices(self.words, k=tokens)
        words = [prefix, *chosen] if prefix else chosen
        surplus = self.count(" ".join(words)) - tokens
        text = " ".join(words[: len(words) - surplus])
        if not 0 <= surplus < len(words) or self.count(text) != tokens:
            raise ValueError(f"this tokenizer makes no text of {tokens} tokens out of plain words")
        return text
