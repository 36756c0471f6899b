"""A model folder to vectors: any transformers encoder or causal model, pooled."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

from models.step.checkpoint import load_checkpoint
from models.step.limits import context_limit
from models.step.ordinary import ordinary_ids
from models.step.place import noted, place_of
from models.step.pooling import POOLS, Head, Pool, load_dense
from models.step.weights import parameters_of, weights_of

logger = logging.getLogger("stepserve")

PROBED = (3, 11)  # tokens of the two inputs that tell whether padding changes anything
MOST_ERROR, MOST_HALF_ERROR = 1e-3, 0.05  # of a vector's length


class TorchEmbedder:
    """An ``EmbedModel``. ``facts`` are for people."""

    def __init__(
        self,
        model: PreTrainedModel,
        pool: Pool,
        head: Head,
        max_context: int,
        facts: dict[str, str],
    ) -> None:
        text = model.config.get_text_config()
        self.vocab_size: int = text.vocab_size
        self.max_context = max_context
        self._model = model
        self._pool = pool
        self._head = head
        self._pad: int = text.pad_token_id or 0
        self._padded = True
        self.dimensions, difference = self._probe()
        allowed = MOST_ERROR if model.dtype == torch.float32 else MOST_HALF_ERROR
        self._padded = difference <= allowed  # false for NaN too
        note = f"padding changes its vectors by {difference:.1e}"
        batches = "padded" if self._padded else noted("of one input", note)
        self.facts = {**facts, "dimensions": str(self.dimensions), "batches": batches}

    def embed(self, inputs: Sequence[Sequence[int]]) -> list[list[float]]:
        """The vectors of inputs of 1 to ``max_context`` token ids each."""
        batches = [inputs] if self._padded else [[one] for one in inputs]
        rows: list[list[float]] = []
        for batch in batches:
            rows += self._vectors(batch).tolist()
        return rows

    def describe(self) -> dict[str, str]:
        return self.facts

    @torch.inference_mode()
    def _vectors(self, inputs: Sequence[Sequence[int]]) -> Tensor:
        ids, mask = padded(inputs, self._pad)
        ids, mask = ids.to(self._model.device), mask.to(self._model.device)
        hidden = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors: Tensor = self._head(self._pool(hidden.float(), mask))
        return vectors.cpu()

    def _probe(self) -> tuple[int, float]:
        """Dimensions, and how far a vector is from its own when padding stands behind it."""
        lengths = [min(length, self.max_context) for length in PROBED]
        inputs = [ids.tolist() for ids in ordinary_ids(self.vocab_size, lengths)]
        alone, beside = self._vectors(inputs[:1])[0], self._vectors(inputs)[0]
        return len(alone), float((alone - beside).norm() / alone.norm().clamp_min(1e-12))


def load_embedder(
    folder: Path,
    *,
    pooling: str,
    normalize: bool,
    dense: Sequence[Path] = (),
    max_tokens: int | None = None,
    device: str = "auto",
    dtype: str = "auto",
    threads: int | None = None,
) -> TorchEmbedder:
    """Loads the transformers model in ``folder``, never from a network.

    ``max_tokens`` of one input are lowered to what the model can take. Raises ValueError if the
    device is not there or the architecture has no hidden states of its input's tokens alone.
    """
    started = time.perf_counter()
    place, precision, facts = place_of(device, dtype, threads)
    logger.info("loading %s on %s as %s", folder, facts["device"], facts["dtype"])
    model = load_checkpoint(AutoModel, folder, place, precision.dtype)
    model.config.use_cache = False
    facts["weights"] = weights_of(model, parameters_of(model))
    limit, limit_note = _input_limit(model, max_tokens)
    facts["context"] = noted(f"{limit} tokens", limit_note)
    facts["pooling"] = noted(pooling, "normalized" if normalize else "not normalized")
    head = Head([_dense(one) for one in dense], normalize).to(place).eval()
    embedder = TorchEmbedder(model, POOLS[pooling], head, limit, facts)
    for name, fact in embedder.describe().items():
        logger.info("%s: %s", name, fact)
    logger.info("ready after %.1f s", time.perf_counter() - started)
    return embedder


def padded(inputs: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Ids and a mask, both [N, T], with padding behind the shorter inputs."""
    lengths = torch.tensor([len(one) for one in inputs])
    longest = int(lengths.max())
    mask = (torch.arange(longest) < lengths[:, None]).long()
    ids = torch.full((len(inputs), longest), pad)
    ids[mask.bool()] = torch.tensor([token for one in inputs for token in one])
    return ids, mask


def _dense(folder: Path) -> nn.Module:
    return load_dense(folder, json.loads((folder / "config.json").read_text()))


def _input_limit(model: PreTrainedModel, wish: int | None) -> tuple[int, str]:
    limit, note = context_limit(model.config, wish)
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # Where padding has a position too, as in RoBERTa, counting begins behind it.
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            if module.num_embeddings - first < limit:
                limit, note = module.num_embeddings - first, "the model has no more positions"
    return limit, note
