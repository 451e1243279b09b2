"""IFCA: as many models as clusters, and every silo trains the one that fits it best.

Ghosh, Chung, Yin, Ramchandran: *An efficient framework for clustered federated learning*, NeurIPS 2020, Algorithm 1
with model averaging (Option II). One round::

    server   hands out θ_1 … θ_C                                                               Models
    silos    ĵ = argmin_j F_k(θ_j), the mean loss on the silo's training rows; train from θ_ĵ   TrainedInCluster
    server   θ_j ← Σ n_k θ_k / Σ n_k over the silos that chose j; where none did, θ_j stays

The paper's silos have equally many rows; here they are weighted by n_k, as in federated averaging. The fresh networks
differ, each drawn by itself: the paper asks for a start that already tells clusters apart and otherwise for several
attempts, so with few silos a cluster may stay empty. The opening is that of all methods: before round 0 every silo
trains the fresh network that fits it best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from fedrank.core.errors import ConfigError
from fedrank.core.messages import Layout
from fedrank.core.protocol import Exchange, Party
from fedrank.silos.personalised.messages import Models, TrainedInCluster, models_layout, trained_in_cluster_layout
from fedrank.silos.personalised.state import (
    PersonalisedProtocol,
    Pretrain,
    ServerState,
    Train,
    average,
    finite,
    loss_on,
)


@dataclass(frozen=True)
class Ifca(PersonalisedProtocol):
    """The protocol's settings.

    Attributes:
        clusters: C, at least 1; 1 is federated averaging.
    """

    clusters: int = 2

    name = "ifca"

    def __post_init__(self):
        super().__post_init__()
        if not 1 <= self.clusters <= 1000:
            raise ConfigError(f"clusters must be in 1..1,000, got {self.clusters}.")

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Pre-training in round 0, and training."""
        return (*((Pretrain(self),) if self.pretrain else ()), TrainInCluster(self))

    def init(self, key: Any) -> ServerState:
        """C fresh networks; ``key`` is consumed."""
        keys = jax.random.split(key, self.clusters)
        return ServerState(jnp.uint32(0), jax.vmap(self.first_model)(keys), jnp.zeros(self.silos, jnp.float32))

    @property
    def offered(self) -> Layout[Models]:
        """Round and all models."""
        return models_layout(self.parameters, self.clusters)

    def offer(self, state: ServerState) -> Models:
        """All models."""
        return Models(state.round, state.weights)

    def fits(self, weights: jax.Array, party: Party) -> jax.Array:
        """ĵ, the model of least loss on the silo's training rows, int32; a loss that is not a number is the largest."""
        losses = jax.vmap(lambda w: loss_on(self, self.received(w, party.own), party, "train"))(weights)
        return jnp.argmin(jnp.where(jnp.isnan(losses), jnp.inf, losses)).astype(jnp.int32)

    def start(self, weights: jax.Array, party: Party) -> jax.Array:
        """θ_ĵ."""
        return self.received(weights[self.fits(weights, party)], party.own)

    def current(self, weights: jax.Array, party: Party) -> jax.Array:
        """θ_ĵ, chosen anew."""
        return self.start(weights, party)


@dataclass(frozen=True)
class TrainInCluster(Train):
    """A round: everybody chooses, trains and sends."""

    @property
    def reply(self) -> Layout[TrainedInCluster]:
        """The silo's model, its rows and its choice."""
        return trained_in_cluster_layout(self.settings.parameters, self.settings.clusters)

    def respond(self, request: Models, party: Party, draws: Any) -> tuple[Party, TrainedInCluster]:
        """As with one model; the choice goes with it."""
        chosen = self.settings.fits(request.weights, party).astype(jnp.uint32)
        party, trained = super().respond(request, party, draws)
        return party, TrainedInCluster(trained.weights, trained.rows, chosen)

    def tell(self, state: ServerState, replies: TrainedInCluster, arrived: jax.Array) -> ServerState:
        """The average of each cluster."""
        heard = arrived & finite(replies.weights)
        rows = jnp.where(heard, replies.rows.astype(jnp.float32), state.rows)
        number = jnp.arange(self.settings.clusters)[:, None]
        which = heard[None] & (replies.cluster.astype(jnp.int32)[None] == number)
        weights = average(replies.weights, rows, which, state.weights)
        return ServerState(state.round + 1, weights, rows)
