"""Networks of the published FedSlate: over all places of the list of candidates at once."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from fedrank.core.lazy import jnp
from fedrank.slates.networks import FederatedQ, LocalQ, check_network, forward, layer_pairs
from fedrank_zoo.fedslate_2024.faults import PUBLISHED_WIDTHS


@dataclass(frozen=True)
class PositionalQ(LocalQ):
    """A platform's published network: one over [user ‖ items row by row], with an output for each place.

    Attributes:
        user_features: F.
        item_features: d.
        candidates: N.
        widths: Units of each hidden layer; published: five of 4,096.
        squash: Whether a hyperbolic tangent is applied to the outputs.
    """

    user_features: int
    item_features: int
    candidates: int
    widths: tuple[int, ...] = PUBLISHED_WIDTHS[0]
    squash: bool = True

    def __post_init__(self):
        check_network(self.widths, item_features=self.item_features, candidates=self.candidates)

    @property
    @override
    def layers(self) -> tuple[tuple[int, int], ...]:
        return layer_pairs(self.user_features + self.candidates * self.item_features, self.widths, self.candidates)

    @override
    def values(self, weights, user, items):
        together = jnp.concatenate([user, items.reshape(-1)])[None]
        out = forward(weights, self.layers, together)[0]
        return jnp.tanh(out) if self.squash else out


@dataclass(frozen=True)
class PositionalHead(FederatedQ):
    """The published federated network: one over [own ‖ others], with an output for each place.

    Attributes:
        candidates: N.
        widths: Units of each hidden layer; published: four of 2,048, where the paper says five layers.
        squash: Whether a hyperbolic tangent is applied to the outputs.
    """

    candidates: int
    widths: tuple[int, ...] = PUBLISHED_WIDTHS[1]
    squash: bool = True

    def __post_init__(self):
        check_network(self.widths, candidates=self.candidates)

    @property
    @override
    def layers(self) -> tuple[tuple[int, int], ...]:
        return layer_pairs(2 * self.candidates, self.widths, self.candidates)

    @override
    def values(self, weights, own, others):
        out = forward(weights, self.layers, jnp.concatenate([own, others])[None])[0]
        return jnp.tanh(out) if self.squash else out


@dataclass(frozen=True)
class PositionalLinearHead(PositionalHead):
    """The paper's ablation of the federated network: a single linear layer over [own ‖ others]."""

    widths: tuple[int, ...] = ()
    squash: bool = False
