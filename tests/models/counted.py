"""What an engine's metrics have counted."""

from __future__ import annotations

from models.token_engine import TokenEngine


def counted(engine: TokenEngine, name: str, **labels: str) -> float:
    """The counter ``stepserve_<name>_total``, of these labels if it has any but the model's."""
    (value,) = (
        value
        for sample, labelled, value in engine.metrics.samples()
        if sample == f"stepserve_{name}_total" and labels.items() <= dict(labelled).items()
    )
    return value
