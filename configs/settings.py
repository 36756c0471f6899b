"""Every setting of stepserve, typed. A wrong key or type is an error that names it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

# Settings by their names, for the checks below. How a model from a source is loaded, and what
# vectors it makes: a model of one's own decides these for itself.
LOADING = {
    "device",
    "dtype",
    "kernels",
    "cuda_graphs",
    "compile_layers",
    "threads",
    "block_size",
    "kv_cache_dtype",
    "kv_cache_gib",
    "prefix_cache",
    "speculative_tokens",
    "speculative_ngram",
}
POOLING = {"pooling", "normalize"}
# What only the generation of text needs: of its engine, and of the model itself.
GENERATING = {
    "kernels",
    "cuda_graphs",
    "compile_layers",
    "block_size",
    "kv_cache_dtype",
    "kv_cache_gib",
    "prefix_cache",
    "step_tokens",
    "step_ms",
    "stream_interval",
    "speculative_tokens",
    "speculative_ngram",
}
CONVERSING = {"chat_template", "reasoning", "tool_format"}
# What browsers send as `Origin`: without a path, not even a slash.
Origin = Annotated[str, Field(pattern=r"^(\*|[a-z][a-z0-9+.-]*://[^/\s]+)$")]

Storage = Annotated[str, Field(pattern=r"^(rediss?|valkeys?|unix)://.+$")]


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EngineSettings(Settings):
    """One Model replica: its device, its memory and how much it takes on."""

    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto: a GPU if there is one"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16", "int8", "int4"] = Field(
        "auto",
        description="of weights and what is computed; auto: bfloat16 where the device has units for"
        " it, else float32 on a CPU and float16 on a GPU; int8 (CPU): weights of linear layers in 8"
        " bits, and float32 arithmetic around them; int4: in 4 bits, where native kernels serve",
    )
    kernels: Literal["auto", "native", "sdpa", "varlen"] = Field(
        "auto",
        description="what computes: `native` (C++, for CPUs), or the model's own modules with"
        " attention by `sdpa` or `varlen` (CUDA); auto: the fastest that serves the model here",
    )
    cuda_graphs: bool = Field(
        True, description="record decode steps of a GPU, where the model and `varlen` allow it"
    )
    compile_layers: bool = Field(
        True,
        description="let torch compile the layers of the steps that are recorded, at the first"
        " start: fewer and larger kernels",
    )
    threads: Annotated[int, Field(ge=1)] | None = Field(
        None, description="torch's compute threads on a CPU; null: the cores this process may use"
    )
    max_context: Annotated[int, Field(ge=1)] | None = Field(
        None, description="tokens of prompt and answer together; null: what the model was made for"
    )
    block_size: Annotated[int, Field(ge=1)] = Field(16, description="tokens of one KV block")
    kv_cache_dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="of KV blocks; auto: what is computed in, and half precision where native"
        " kernels serve int8 or int4",
    )
    kv_cache_gib: Annotated[float, Field(gt=0)] | None = Field(
        None, description="memory for KV blocks in GiB; null: a share of what is free"
    )
    prefix_cache: bool = Field(True, description="share the KV blocks of equal prompt prefixes")
    step_tokens: Annotated[int, Field(ge=1)] = Field(
        2048, description="most tokens computed in one step, prompts and answers together"
    )
    step_ms: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="how long a step should take while answers are generated, prompts beside them"
        " included; null: what 512 prompt tokens take, 50 to 170",
    )
    stream_interval: Annotated[int, Field(ge=1)] = Field(
        1,
        description="tokens of an answer that are passed on together, as one event of a stream, but"
        " the first: more take less CPU beside the model, and a stop is noticed that much later",
    )
    speculative_tokens: Annotated[int, Field(ge=0)] = Field(
        0, description="most tokens guessed at once by what followed the same text; 0: no guesses"
    )
    speculative_ngram: Annotated[int, Field(ge=1)] = Field(
        3, description="how many tokens must have come before in the same order for a guess"
    )
    max_running: Annotated[int, Field(ge=1)] = Field(32, description="most sequences in a step")
    max_waiting: Annotated[int, Field(ge=0)] = Field(256, description="most sequences in the queue")
    max_waiting_tokens: Annotated[int, Field(ge=0)] = Field(
        262144, description="most prompt tokens in the queue, unless it is empty"
    )
    stall_timeout_s: Annotated[float, Field(gt=0)] = Field(
        120.0, description="a replica with work but no progress for so long is replaced"
    )

    @model_validator(mode="after")
    def _room_for_all(self) -> "EngineSettings":
        if self.step_tokens < self.max_running:
            raise ValueError(
                f"`step_tokens` ({self.step_tokens}) must be at least `max_running`"
                f" ({self.max_running}): each running sequence takes one in every step"
            )
        return self


class EmbedSettings(Settings):
    """How an embedding model makes one vector of a text, and how texts share a batch."""

    pooling: Literal["auto", "mean", "last", "cls", "max"] = Field(
        "auto",
        description="from tokens to a vector; auto: as its sentence-transformers files say, else"
        " `last` for a causal model, `mean` for others",
    )
    normalize: bool | None = Field(
        None, description="vectors of length one; null: as those files say, true without them"
    )
    min_dimensions: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="fewest `dimensions` that clients may ask for, of a model made for it; null:"
        " only all",
    )
    batch_tokens: Annotated[int, Field(ge=1)] = Field(
        1024, description="most tokens of a batch, its padding included; a longer text goes alone"
    )


class AdapterSettings(Settings):
    """A LoRA adapter of a model, which clients may name as they do the model."""

    name: Annotated[str, Field(min_length=1)] = Field(description="what clients send as `model`")
    source: Annotated[str, Field(min_length=1)] = Field(
        description="a folder in PEFT's layout, or a hub id `org/name[@revision]`"
    )


class ModelSettings(Settings):
    """One model that clients may name."""

    name: Annotated[str, Field(min_length=1)] = Field(description="what clients send as `model`")
    task: Literal["generate", "embed"] = Field(
        "generate", description="what it does: `generate` text, or `embed` it as vectors"
    )
    source: str | None = Field(
        None,
        description="a folder, a hub id `org/name[@revision]`, or `pypi:name==version#sha256=…`",
    )
    factory: str | None = Field(
        None, description="`package.module:factory` of a model of your own, instead of a source"
    )
    factory_args: dict[str, Any] = Field(
        default_factory=dict, description="keyword arguments of the factory"
    )
    adapters: list[AdapterSettings] = Field(
        default_factory=list,
        description="LoRA adapters, each a model of its own to clients; all share the weights",
    )
    tokenizer: str | None = Field(
        None, description="a source for the tokenizer, or `bytes`; null: the model's own"
    )
    chat_template: str | None = Field(
        None, description="a jinja file that replaces the tokenizer's chat template"
    )
    reasoning: Literal["auto", "off", "think", "mistral", "seed", "cohere", "harmony"] = Field(
        "auto", description="how its reasoning is marked; auto: as its chat template tells"
    )
    tool_format: Literal[
        "auto", "hermes", "qwen_coder", "llama", "mistral", "deepseek", "glm", "harmony", "json"
    ] = Field("auto", description="how it writes calls; auto: as its chat template tells")
    engine: EngineSettings = Field(
        EngineSettings(), description="the replica's device, memory and limits, below"
    )

    embed: EmbedSettings = Field(
        EmbedSettings(), description="of a model that embeds: its vectors and batches, below"
    )

    @model_validator(mode="after")
    def _only_what_its_task_needs(self) -> "ModelSettings":
        if self.task == "generate" and "embed" in self.model_fields_set:
            raise ValueError("`embed` is for a model whose `task` is `embed`")
        if self.task == "embed":
            _refuse(GENERATING, self.engine, "engine.", "of no use to a model that embeds")
            _refuse(CONVERSING, self, "", "of no use to a model that embeds")
            _refuse({"adapters"}, self, "", "not supported with a model that embeds")
            if self.engine.dtype in ("int8", "int4"):
                wish = self.engine.dtype
                raise ValueError(f"`engine.dtype`: `{wish}` is for a model that generates")
        return self

    @model_validator(mode="after")
    def _one_origin(self) -> "ModelSettings":
        if (self.source is None) == (self.factory is None):
            raise ValueError("give either `source` or `factory`")
        if self.source and self.factory_args:
            raise ValueError("`factory_args` are for a `factory`")
        if self.factory:
            _refuse(LOADING, self.engine, "engine.", "a `factory` decides")
            _refuse(POOLING, self.embed, "embed.", "a `factory` decides")
            _refuse({"adapters"}, self, "", "only for a model with a `source`")
        return self


class KeyLimits(Settings):
    """How much an API key may ask for."""

    requests_per_minute: Annotated[int, Field(ge=1)] | None = Field(
        None, description="most requests of a key in a minute, which slides; null: no limit"
    )
    tokens_per_minute: Annotated[int, Field(ge=1)] | None = Field(
        None, description="most tokens of its prompts and answers in a minute; null: no limit"
    )
    requests_at_once: Annotated[int, Field(ge=1)] | None = Field(
        None, description="most of its requests that are answered at once; null: no limit"
    )

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        limits = (self.requests_per_minute, self.tokens_per_minute, self.requests_at_once)
        return any(limit is not None for limit in limits)


class NamedKeyLimits(KeyLimits):
    """Limits of the keys of one name, in place of those of all."""

    name: Annotated[str, Field(min_length=1)] = Field(
        description="of an API key, or of several that share its limits"
    )


class RateLimits(KeyLimits):
    """Limits of all keys, and who counts."""

    keys: list[NamedKeyLimits] = Field(
        default_factory=list, description="limits of keys with a name, where they differ; below"
    )
    storage: Storage | None = Field(
        None,
        description="`redis://…`, `rediss://…`, `valkey://…` or `unix://…` of a server that counts"
        " for several graphs (Serve shows it); null: a replica of this graph counts",
    )

    def for_key(self, own: NamedKeyLimits) -> KeyLimits:
        """Those of a key: its own where they are given."""
        given = own.model_fields_set - {"name"}
        return self.model_copy(update={name: getattr(own, name) for name in given})

    @property
    def any_limits(self) -> bool:
        """Whether any key has limits."""
        return self.limited or any(one.limited for one in self.keys)

    @model_validator(mode="after")
    def _of_use(self) -> "RateLimits":
        names = [one.name for one in self.keys]
        if len(set(names)) != len(names):
            raise ValueError("`rate_limits.keys`: a name is there twice")
        if self.storage is not None and not self.any_limits:
            raise ValueError("`rate_limits.storage` is of no use without limits")
        return self


class BatchSettings(Settings):
    """Files and batches of OpenAI's Batch API."""

    folder: Annotated[str, Field(min_length=1)] = Field(
        description="where they are kept, for a restarted server too; of one server alone"
    )
    at_once: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="requests of batches that are asked at once; null: half of the smallest"
        " `max_running`, so that clients find places",
    )
    max_file_mib: Annotated[float, Field(gt=0)] = Field(
        100.0, description="larger files are refused"
    )
    max_requests: Annotated[int, Field(ge=1)] = Field(
        50_000, description="most requests of a batch"
    )
    max_folder_mib: Annotated[float, Field(gt=0)] = Field(
        4096.0,
        description="most disk that all take; where it is full, uploads are refused and batches"
        " wait",
    )
    kept_days: Annotated[float, Field(gt=0)] = Field(
        30.0, description="after so long files expire, and batches are forgotten"
    )


class AppSettings(Settings):
    """The arguments of ``deployments.app:build``."""

    models: Annotated[list[ModelSettings], Field(min_length=1)] = Field(
        description="the models that clients may name, below"
    )
    api_keys: list[str] = Field(
        default_factory=list,
        description="keys that clients may use, each with a name behind it or none (Serve shows its"
        " arguments); none: open to all",
    )
    api_keys_file: str | None = Field(
        None, description="a file with one key a line, and its name, which Serve does not show"
    )
    admin_keys_file: str | None = Field(
        None,
        description="a file with one key a line, for those who may end requests and empty prefix"
        " caches; null: nobody may",
    )
    rate_limits: RateLimits = Field(
        RateLimits(), description="how much each key may ask for, below"
    )
    chat_page: bool = Field(True, description="a page for browsers at `/`, to talk with the models")
    cors_origins: list[Origin] = Field(
        default_factory=list,
        description="web pages of these origins may ask (`*`: of all); none: CORS is off",
    )
    max_body_bytes: Annotated[int, Field(ge=1)] = Field(
        3_500_000, description="larger request bodies are refused with 413"
    )
    body_timeout_s: Annotated[float, Field(gt=0)] = Field(
        60.0, description="bodies that have not arrived by then are refused with 408"
    )
    request_timeout_s: Annotated[float, Field(gt=0)] = Field(
        600.0, description="longest wait of a request for its next token"
    )
    keep_alive_s: Annotated[float, Field(gt=0)] | None = Field(
        15.0,
        description="a stream that says nothing for so long writes a comment, lest a proxy give it"
        " up; null: never",
    )
    responses_kept: Annotated[int, Field(ge=0)] = Field(
        1000, description="most answers of `/v1/responses` kept for `previous_response_id`; 0: none"
    )
    responses_kept_mib: Annotated[float, Field(gt=0)] = Field(
        64.0, description="most memory for them in MiB; what was used longest ago goes first"
    )
    vllm_metrics: bool = Field(
        False, description="`/metrics` also has what vLLM's has, under the names that it gives them"
    )
    batches: BatchSettings | None = Field(
        None, description="`/v1/files` and `/v1/batches`, below; null: neither is there"
    )
    log_prompts: bool = Field(False, description="also log what clients send")

    @model_validator(mode="after")
    def _distinct_names(self) -> "AppSettings":
        names = [model.name for model in self.models]
        names += [adapter.name for model in self.models for adapter in model.adapters]
        if len(set(names)) != len(names):
            raise ValueError("two models or adapters have the same name")
        return self

    @model_validator(mode="after")
    def _limits_of_keys(self) -> "AppSettings":
        if self.rate_limits.any_limits and not self.api_keys and self.api_keys_file is None:
            raise ValueError("`rate_limits` are of API keys: give `api_keys` or an `api_keys_file`")
        return self


def _refuse(names: set[str], settings: Settings, prefix: str, why: str) -> None:
    """Raises ValueError if any setting of these names was given."""
    if given := sorted(names & settings.model_fields_set):
        raise ValueError(f"{', '.join(f'`{prefix}{name}`' for name in given)}: {why}")
