"""What an adapter's folder says of itself, in PEFT's layout. Reads JSON only; imports no torch."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ValidationError

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
ALL_LINEAR = "all-linear"

# What changes nothing of what is computed: training's own, or only of use beside what is refused.
OF_TRAINING = {
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "fan_in_fan_out",  # how the base holds its weight, which its own module knows
    "inference_mode",
    "lora_dropout",
    "lora_ga_config",
    "megatron_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
    "velora_config",
}
READ = {
    "alpha_pattern",
    "exclude_modules",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "lora_alpha",
    "peft_type",
    "r",
    "rank_pattern",
    "target_modules",
    "use_rslora",
}
# Ways to begin training that leave the base's weights as they are.
BEGINNINGS = {True, False, None, "gaussian", "eva", "orthogonal"}


class AdapterError(ValueError):
    """An adapter that cannot be served; the message says why."""


@dataclass(frozen=True, slots=True)
class Lora:
    """``config`` is the adapter's own, of which nothing asks for more than there is here."""

    name: str
    folder: Path
    rank: int
    alpha: float
    config: Mapping[str, Any] = field(repr=False)

    def rank_of(self, module: str) -> int:
        return int(_of_pattern(self.config.get("rank_pattern"), module, self.rank))

    def scale_of(self, module: str) -> float:
        """What its product beside ``module`` is multiplied by."""
        alpha = float(_of_pattern(self.config.get("alpha_pattern"), module, self.alpha))
        rank = self.rank_of(module)
        return alpha / (math.sqrt(rank) if self.config.get("use_rslora") else rank)

    def targets(self, module: str) -> bool:
        """Whether it says that it adapts a linear layer of this name, as PEFT understands it."""
        excluded, wished = self.config.get("exclude_modules"), self.config["target_modules"]
        if excluded and _named(excluded, module):
            return False
        if isinstance(wished, str):
            return wished.lower() == ALL_LINEAR or bool(re.fullmatch(wished, module))
        return module in wished or (_named(wished, module) and self._transforms(module))

    def _transforms(self, module: str) -> bool:
        layers = self.config.get("layers_to_transform")
        if layers is None or layers == []:
            return True
        patterns = self.config.get("layers_pattern") or [r"[^.]*"]
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            if found := re.match(rf"(?:^|.*?\.){pattern}\.(\d+)\.", module):
                return int(found[1]) in ([layers] if isinstance(layers, int) else layers)
        return False


def read_lora(name: str, folder: Path) -> Lora:
    """Raises AdapterError that names the adapter, and what it asks for that is not supported."""
    for file in (CONFIG, WEIGHTS):
        if not (folder / file).is_file():
            raise AdapterError(f"adapter {name!r}: {folder} lacks {file}")
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except ValueError as error:
        raise AdapterError(f"adapter {name!r}: {folder / CONFIG} is no JSON: {error}") from error
    if objection := _objection(config):
        raise AdapterError(f"adapter {name!r}: {objection}")
    return Lora(name, folder, config["r"], config["lora_alpha"], config)


def _regular(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from error
    return text


Regular = Annotated[str, AfterValidator(_regular)]


class _Told(BaseModel, strict=True):
    """The types of what is read, but for the numbers, which have words of their own."""

    peft_type: str | None = None
    bias: str | None = None
    use_rslora: bool | None = None
    rank_pattern: dict[Regular, Any] | None = None
    alpha_pattern: dict[Regular, Any] | None = None
    target_modules: Regular | list[str] | None = None
    exclude_modules: Regular | list[str] | None = None
    layers_to_transform: int | list[int] | None = None
    layers_pattern: Regular | list[Regular] | None = None


def _objection(config: Any) -> str:
    if not isinstance(config, dict):
        return f"its {CONFIG} is no object"
    try:
        _Told.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        return f"`{first['loc'][0]}` cannot be {first['input']!r} ({first['msg']})"
    if (kind := config.get("peft_type")) != "LORA":
        return f"its `peft_type` is {kind}, and only LORA is supported"
    if config.get("bias", "none") != "none":
        return f"`bias: {config['bias']}` is not supported: only `none`"
    beginning = config.get("init_lora_weights")
    if isinstance(beginning, list | dict) or beginning not in BEGINNINGS:
        return (
            f"`init_lora_weights: {beginning}` changes the base's weights: convert it to plain LoRA"
        )
    known = {*OF_TRAINING, *READ, "bias"}
    unknown = [key for key, value in config.items() if value and key not in known]
    if unknown:
        return f"`{unknown[0]}` is not supported"
    ranks = [config.get("r"), *(config.get("rank_pattern") or {}).values()]
    alphas = [config.get("lora_alpha"), *(config.get("alpha_pattern") or {}).values()]
    if not all(type(rank) is int and rank > 0 for rank in ranks):
        return "`r` and `rank_pattern` must be whole numbers above 0"
    if not all(type(alpha) in (int, float) and math.isfinite(alpha) for alpha in alphas):
        return "`lora_alpha` and `alpha_pattern` must be numbers"
    return "" if config.get("target_modules") else "it names no `target_modules`"


def _named(names: str | Sequence[str], module: str) -> bool:
    """By a regular expression of the whole, or a list of how it may end."""
    if isinstance(names, str):
        return bool(re.fullmatch(names, module))
    return any(module == name or module.endswith(f".{name}") for name in names)


def _of_pattern(pattern: Mapping[str, Any] | None, module: str, otherwise: float) -> float:
    for key, value in (pattern or {}).items():
        if re.match(rf"(.*\.)?({key})$", module):
            return float(value)
    return otherwise
