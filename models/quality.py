"""What a precision costs: ``python -m models.quality --dtype int8`` compares it with float32.

Both are the step models that would serve, over the same text: the language reference that every
Python brings for ``help()``, as the one long English text that is surely there.
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
from collections import abc
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import torch
from tokenizers import Tokenizer
from torch import Tensor

from configs.settings import EngineSettings
from configs.shipped import default_model
from models.build import wishes_of
from models.source import resolve
from models.step.load import load_step_model
from models.step.paged import PagedModel
from models.step.probe import ProbeSpan

WINDOW = 512  # tokens that are read together, from the first on
CHUNK = 128  # tokens of a step


@dataclass(slots=True)
class Comparison:
    """Sums over the tokens compared; logarithms are natural."""

    tokens: int = 0
    reference_loss: float = 0.0
    loss: float = 0.0
    divergence: float = 0.0
    agreed: int = 0

    def add(self, reference: Tensor, logits: Tensor, targets: Tensor) -> None:
        """[T, vocabulary] of each, and the T tokens that came next."""
        wanted, found = (values.double().log_softmax(-1) for values in (reference, logits))
        self.tokens += len(targets)
        self.reference_loss -= float(wanted.gather(1, targets[:, None]).sum())
        self.loss -= float(found.gather(1, targets[:, None]).sum())
        self.divergence += float((wanted.exp() * (wanted - found)).nan_to_num(0).sum())
        self.agreed += int((wanted.argmax(-1) == found.argmax(-1)).sum())

    def lines(self, name: str) -> list[str]:
        """What a person reads."""
        return [
            f"perplexity of float32: {math.exp(self.reference_loss / self.tokens):.3f}",
            f"perplexity of {name}: {math.exp(self.loss / self.tokens):.3f}",
            f"mean KL divergence from float32: {self.divergence / self.tokens:.5f}",
            f"same likeliest token: {self.agreed / self.tokens:.1%} of {self.tokens} tokens",
        ]


def compare(
    reference: PagedModel, other: PagedModel, token_ids: abc.Sequence[int], window: int = WINDOW
) -> abc.Iterator[Comparison]:
    """One and the same comparison, after each window of ``token_ids``."""
    comparison = Comparison()
    for start in range(0, len(token_ids) - 1, window):
        read = token_ids[start : start + window]
        targets = torch.tensor(token_ids[start + 1 : start + window + 1])
        wanted, found = (logits(model, read)[: len(targets)] for model in (reference, other))
        comparison.add(wanted, found, targets)
        yield comparison


def logits(model: PagedModel, token_ids: abc.Sequence[int]) -> Tensor:
    """[T, vocabulary] on the host, after each of a new sequence's tokens."""
    size = model.capacity.block_size
    rows = []
    for start in range(0, len(token_ids), CHUNK):
        count = min(CHUNK, len(token_ids) - start)
        blocks = tuple(range(-(-(start + count) // size)))
        span = ProbeSpan(start, count, blocks)
        rows.append(model.logits(span, token_ids[start : start + count]).float().cpu())
    return torch.cat(rows)


def text_ids(folder: Path, count: int) -> list[int]:
    """The first ``count`` tokens of the text."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = "\n\n".join(topics.values())
    return tokenizer.encode(text[: 16 * count], add_special_tokens=False).ids[:count]


def _served(folder: Path, context: int, **wishes: str) -> PagedModel:
    engine = EngineSettings.model_validate({**wishes, "max_context": context, "max_running": 1})
    model = load_step_model(folder, wishes_of(engine))
    if not isinstance(model, PagedModel):
        raise SystemExit("only models that are served from paged blocks can be compared")
    return model


def main(arguments: abc.Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m models.quality", description=__doc__)
    parser.add_argument("--source", help="a model's source; the default model's, if not given")
    parser.add_argument("--dtype", default="int8")
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--tokens", type=int, default=6000)
    chosen = parser.parse_args(arguments)
    folder = resolve(chosen.source or default_model()["source"])
    ids = text_ids(folder, chosen.tokens)
    window = min(WINDOW, len(ids))
    reference = _served(folder, window, dtype="float32", kernels="sdpa")
    wishes = {name: getattr(chosen, name) for name in ("dtype", "kv_cache_dtype", "kernels")}
    other = _served(folder, window, **wishes)
    for name in ("dtype", "weights", "kernels", "kv_cache"):
        print(f"{name}: {other.describe()[name]}")
    print(f"text: {len(ids)} tokens of pydoc_data.topics of Python {platform.python_version()}")
    for comparison in compare(reference, other, ids, window):
        print(f"\r{comparison.tokens} of {len(ids)} tokens", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(*comparison.lines(chosen.dtype), sep="\n")


if __name__ == "__main__":
    main()
