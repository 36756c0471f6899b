"""The feed-forward half of a layer as the library reads it."""

from __future__ import annotations

from dataclasses import asdict

from models.step.native.experts import Experts
from models.step.native.gated import Activation, Gated
from models.step.native.library import Activation as ActivationStruct
from models.step.native.library import ExpertsWeights, GatedWeights, RoutingRule, Weight
from models.step.native.weights import Weights


def gated_weights(gated: Gated, held: Weights) -> GatedWeights:
    """Good while ``held`` is."""
    rows = {"gate": gated.gate, "down": gated.down} | ({} if gated.up is None else {"up": gated.up})
    return GatedWeights(
        **held.linears(rows),
        inner=gated.inner,
        activation=_activation(gated.activation),
    )


def experts_weights(experts: Experts, held: Weights) -> ExpertsWeights:
    """Good while ``held`` is."""
    router, biases = experts.router, experts.biases
    each = {name: held.given(m, biases.get(name)) for name, m in experts.matrices.items()}
    share, preference = experts.shared_share, router.preference
    return ExpertsWeights(
        rule=RoutingRule(**asdict(router.rule)),
        router=held.given(router.weight.detach(), router.bias),
        preference=None if preference is None else held.pointer(preference),
        each=GatedWeights(**each, inner=experts.inner, activation=_activation(experts.activation)),
        step=experts.step,
        shared=GatedWeights() if experts.shared is None else gated_weights(experts.shared, held),
        shared_share=Weight() if share is None else held.given(share.detach()),
    )


def _activation(activation: Activation) -> ActivationStruct:
    return ActivationStruct(**asdict(activation))
