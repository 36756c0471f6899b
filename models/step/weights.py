"""A model's weights as they lie in memory: how many, how large, rounded or not."""

from __future__ import annotations

from transformers import PreTrainedModel

from models.step.checkpoint import stored_as
from models.step.int8 import Int8Linear, quantise
from models.step.place import noted


def parameters_of(model: PreTrainedModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def weights_of(model: PreTrainedModel, parameters: int, size: int | None = None) -> str:
    """``parameters`` are those before any were quantised; ``size`` in bytes, None: as they lie."""
    if size is None:
        size = sum(parameter.nbytes for parameter in model.parameters())
        size += sum(m.packed.nbytes for m in model.modules() if isinstance(m, Int8Linear))
    name = noted(type(model).__name__, f"from {stored}" if (stored := stored_as(model)) else "")
    return f"{name}, {parameters / 1e6:.0f} M parameters, {size / 2**30:.2f} GiB"


def settled_weights(model: PreTrainedModel, *, int8: bool) -> str:
    """Rounds them to 8 bits if that is wished; what they are then."""
    parameters = parameters_of(model)
    note = quantise(model) if int8 else ""
    return noted(weights_of(model, parameters), note)
