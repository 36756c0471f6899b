"""The comparison against its definition, and the command over a tiny model's folder."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from models.quality import Comparison, compare, logits, main
from models.step.paged import PagedModel
from tests.models.step.tiny import prompts, served, tiny


def test_sums_are_those_of_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    one, other = torch.randn(2, 5, 9, generator=generator)
    targets = torch.tensor([1, 2, 3, 4, 0])
    sums = Comparison()
    sums.add(one[:2], other[:2], targets[:2])
    sums.add(one[2:], other[2:], targets[2:])
    kl = torch.nn.functional.kl_div(
        other.log_softmax(-1), one.log_softmax(-1), log_target=True, reduction="sum"
    )
    assert sums.divergence == pytest.approx(float(kl), rel=1e-5)
    loss = torch.nn.functional.cross_entropy(other, targets, reduction="sum")
    assert sums.loss == pytest.approx(float(loss), rel=1e-5)
    assert sums.agreed == int((one.argmax(-1) == other.argmax(-1)).sum())
    assert f"{math.exp(sums.loss / 5):.3f}" in sums.lines("x")[1]


def test_a_model_agrees_with_itself_and_reads_each_window_anew() -> None:
    model = served(tiny("llama"))
    assert isinstance(model, PagedModel)
    ids = prompts(1, 39, 40)[0]
    *_, same = compare(model, model, ids, 16)
    assert (same.tokens, same.agreed, same.divergence) == (len(ids) - 1, len(ids) - 1, 0)
    assert torch.equal(logits(model, ids[16:32]), logits(model, ids[16:32]))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny("llama").save_pretrained(tmp_path)
    words = Tokenizer(models.WordLevel({f"{n}": n for n in range(3, 61)}, unk_token="3"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    main(["--source", str(tmp_path), "--dtype", "bfloat16", "--tokens", "100"])
    told = capsys.readouterr().out
    for line in ("dtype: bfloat16", "100 tokens of pydoc_data", "perplexity of bfloat16: "):
        assert line in told
    assert "of 99 tokens" in told
