from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from configs.settings import EngineSettings, ModelSettings
from models.build import build_batched, build_model
from models.embedding import EmbedRequest
from models.metrics import LlmMetrics
from models.request import TextPrompt
from models.source import resolve
from models.step.embed import TorchEmbedder, load_embedder, padded
from models.step.pooling import POOLS
from models.text.byte_tokenizer import byte_tokenizer
from tests.models.step.tiny import SMALL, VOCAB

LENGTHS = (1, 30, 7, 12)
ENCODER = {"type_vocab_size": 2, "num_key_value_heads": None, "hidden_act": "gelu"}


def tiny(model_type: str, **changes: Any) -> PreTrainedModel:
    """A random model without a head, in float32."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **{**SMALL, **changes})
    model: PreTrainedModel = AutoModel.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    model.train(False)
    return model


@pytest.fixture(params=["bert", "roberta", "llama", "qwen3"])
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    encoder = request.param in ("bert", "roberta")
    return tiny(request.param, **(ENCODER if encoder else {}))


def inputs() -> list[list[int]]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(3, VOCAB, (n,), generator=generator).tolist() for n in LENGTHS]


EXACT = {"device": "cpu", "dtype": "float32"}


@torch.inference_mode()
def hidden_alone(model: PreTrainedModel, ids: list[int]) -> Tensor:
    hidden: Tensor = model(input_ids=torch.tensor([ids])).last_hidden_state
    return hidden[0]


def load(model: PreTrainedModel, folder: Path, **wishes: Any) -> TorchEmbedder:
    model.save_pretrained(folder)
    given: dict[str, Any] = {"pooling": "mean", "normalize": False, **EXACT, **wishes}
    return load_embedder(folder, **given)


POOLED = {
    "mean": lambda hidden: hidden.mean(0),
    "last": lambda hidden: hidden[-1],
    "cls": lambda hidden: hidden[0],
    "max": lambda hidden: hidden.max(0).values,
}


@pytest.mark.parametrize("pooling", POOLS)
def test_a_batch_gives_what_each_input_gives_alone(
    model: PreTrainedModel, tmp_path: Path, pooling: str
) -> None:
    embedder = load(model, tmp_path, pooling=pooling)
    assert embedder.dimensions == SMALL["hidden_size"]
    assert embedder.describe()["batches"] == "padded"
    expected = [POOLED[pooling](hidden_alone(model, ids)) for ids in inputs()]
    torch.testing.assert_close(
        torch.tensor(embedder.embed(inputs())), torch.stack(expected), atol=1e-5, rtol=1e-5
    )


def test_vectors_may_be_of_length_one(tmp_path: Path) -> None:
    embedder = load(tiny("bert", **ENCODER), tmp_path, normalize=True)
    lengths = torch.tensor(embedder.embed(inputs())).norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones(len(LENGTHS)))


def test_linear_layers_come_behind_the_pooling(tmp_path: Path) -> None:
    model = tiny("bert", **ENCODER)
    dense = tmp_path / "2_Dense"
    dense.mkdir()
    weight, bias = torch.randn(5, SMALL["hidden_size"]), torch.randn(5)
    save_file({"linear.weight": weight, "linear.bias": bias}, dense / "model.safetensors")
    config = {"activation_function": "torch.nn.modules.activation.Tanh"}
    (dense / "config.json").write_text(json.dumps(config))
    embedder = load(model, tmp_path, dense=[dense])
    assert embedder.dimensions == 5
    hidden = hidden_alone(model, inputs()[1]).mean(0)
    expected = torch.tanh(weight @ hidden + bias)
    torch.testing.assert_close(
        torch.tensor(embedder.embed(inputs())[1]), expected, atol=1e-5, rtol=1e-5
    )
    (dense / "config.json").write_text(json.dumps({"activation_function": "torch.nn.Softsign"}))
    with pytest.raises(ValueError, match="2_Dense: the activation Softsign"):
        load(model, tmp_path, dense=[dense])


class Leaking(torch.nn.Module):
    """A model whose hidden states depend on the padding behind its input."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.inner = model
        self.config, self.dtype, self.device = model.config, model.dtype, model.device

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        return self.inner(input_ids=input_ids)


def test_a_model_that_sees_its_padding_gets_one_input_at_a_time(tmp_path: Path) -> None:
    model = tiny("bert", **ENCODER)
    honest = load(model, tmp_path)
    leaking: Any = Leaking(model)
    embedder = TorchEmbedder(leaking, POOLS["mean"], honest._head, 100, {})
    assert embedder.describe()["batches"].startswith("of one input (padding changes its vectors")
    torch.testing.assert_close(
        torch.tensor(embedder.embed(inputs())), torch.tensor(honest.embed(inputs()))
    )


def test_a_vocabulary_may_be_small(tmp_path: Path) -> None:
    embedder = load(tiny("bert", **ENCODER, vocab_size=8), tmp_path)
    assert embedder.describe()["batches"] == "padded"


@pytest.mark.parametrize(
    ("model_type", "wish", "limit"),
    [("bert", None, 128), ("bert", 64, 64), ("bert", 999, 128), ("roberta", None, 127)],
)
def test_an_input_may_be_as_long_as_there_are_positions(
    tmp_path: Path, model_type: str, wish: int | None, limit: int
) -> None:
    embedder = load(tiny(model_type, **ENCODER), tmp_path, max_tokens=wish)
    assert embedder.max_context == limit
    assert embedder.describe()["context"].startswith(f"{limit} tokens")
    assert len(embedder.embed([[5] * limit])) == 1


def test_padding_is_masked() -> None:
    ids, mask = padded([[5, 6, 7], [8]], 1)
    assert ids.tolist() == [[5, 6, 7], [8, 1, 1]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]


async def test_a_causal_model_embeds_by_its_last_token(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = AutoConfig.for_model("llama", **{**SMALL, "vocab_size": 261})
    causal: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    causal.save_pretrained(tmp_path)
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    engine = EngineSettings(dtype="float32")
    settings = ModelSettings(name="m", task="embed", source=str(tmp_path), engine=engine)
    model = build_batched(settings)
    try:
        embedded = await model.embed(EmbedRequest(id="1", inputs=(TextPrompt("abc"),)))
    finally:
        model.close()
    expected = functional.normalize(hidden_alone(causal.model, list(b"abc"))[-1], dim=0)
    vector = torch.tensor(struct.unpack(f"<{SMALL['hidden_size']}f", embedded.vectors[0]))
    torch.testing.assert_close(vector, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["BertModel", "BertForMaskedLM"])
def test_an_embedding_model_is_not_asked_to_generate(tmp_path: Path, name: str) -> None:
    model = tiny("bert", **ENCODER)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"architectures": [name]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="is an embedding model: give it `task: embed`"):
        build_model(ModelSettings(name="m", source=str(tmp_path)), LlmMetrics("m"))


@pytest.mark.slow
async def test_minilm_says_what_transformers_computes(minilm: str) -> None:
    folder = resolve(minilm)
    near = ["A cat sits on the mat.", "A feline rests on a rug."]
    texts = [*near, "The stock market fell today.", "word " * 200]
    engine = EngineSettings(dtype="float32")
    model = build_batched(ModelSettings(name="m", task="embed", source=minilm, engine=engine))
    try:
        prompts = tuple(TextPrompt(text) for text in texts)
        embedded = await model.embed(EmbedRequest(id="1", inputs=prompts))
    finally:
        model.close()
    vectors = torch.tensor([struct.unpack("<384f", one) for one in embedded.vectors])
    expected = reference(folder, texts)
    torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=1e-4)
    alike, other = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert alike > 0.5 > 0.3 > other
    assert model.max_context == 256


@torch.inference_mode()
def reference(folder: Path, texts: list[str]) -> Tensor:
    """As the model's own card computes it with transformers."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32)
    encoded = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    hidden = model(**encoded).last_hidden_state
    mask = encoded["attention_mask"][..., None].float()
    pooled = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
    normalized: Tensor = functional.normalize(pooled, p=2, dim=1)
    return normalized
