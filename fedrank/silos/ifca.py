"""IFCA: as many models as clusters, and every silo trains the one that fits it best.

Ghosh, Chung, Yin, Ramchandran: *An efficient framework for clustered federated learning*, NeurIPS 2020, Algorithm 1
with model averaging (Option II). One round::

    server   hands out θ_1 … θ_C                                                               Models
    silos    ĵ = argmin_j F_k(θ_j), the mean loss on the silo's training rows; train from θ_ĵ   TrainedInCluster
    server   θ_j ← Σ n_k θ_k / Σ n_k over the silos that chose j; where none did, θ_j stays

The paper's silos have equally many rows; here they are weighted by n_k, as in federated averaging. The fresh networks
differ, each drawn by itself: the paper asks for a start that already tells clusters apart and otherwise for several
attempts, so with few silos a cluster may stay empty. The setup is that of all methods: before round 0 every silo
trains the fresh network that fits it best.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int, Key
from typing_extensions import override

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.protocol import Exchange, Party
from fedrank.silos.averaging import PersonalisedProtocol, ServerState, Train, average, loss_on
from fedrank.silos.messages import Models, TrainedInCluster
from fedrank.silos.party import Pretrain, is_finite, update_rows


@dataclass(frozen=True)
class Ifca(PersonalisedProtocol):
    """IFCA with its settings.

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
    @override
    def sizes(self) -> dict[str, int]:
        return {"parameters": self.parameters, "models": self.clusters, "largest_cluster": self.clusters - 1}

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (*((PretrainInCluster(self),) if self.pretrain else ()), TrainInCluster(self))

    @override
    def init(self, key: Key[Array, ""]) -> ServerState:
        keys = jax.random.split(key, self.clusters)
        return ServerState(jnp.uint32(0), jax.vmap(self.first_model)(keys), jnp.zeros(self.silos, jnp.float32))

    @override
    def offer(self, state: ServerState) -> Models:
        return Models(state.round, state.weights)

    def best_fit(self, weights: Float[AnyArray, "clusters parameters"], party: Party) -> Int[AnyArray, ""]:
        """ĵ, the model of least loss on the silo's training rows; a loss that is not a number is the largest."""
        losses = jax.vmap(lambda w: loss_on(self, self.whole_model(w, party.own), party, "train"))(weights)
        return jnp.argmin(jnp.where(jnp.isnan(losses), jnp.inf, losses)).astype(jnp.int32)

    @override
    def starting_model(self, weights: Float[AnyArray, "..."], party: Party) -> Float[AnyArray, " size"]:
        return self.whole_model(weights[self.best_fit(weights, party)], party.own)

    @override
    def personal_model(self, weights: Float[AnyArray, "..."], party: Party) -> Float[AnyArray, " size"]:
        return self.starting_model(weights, party)  # θ_ĵ, chosen anew


@dataclass(frozen=True)
class PretrainInCluster(Pretrain, request=Models):
    """Before round 0 every silo trains the fresh network that fits it best."""


@dataclass(frozen=True)
class TrainInCluster(Train, request=Models, reply=TrainedInCluster):
    """A round: every silo chooses a model, trains it and sends the outcome and its choice."""

    @override
    def respond(self, request: Models, party: Party, draws: PyTree) -> tuple[Party, TrainedInCluster]:
        chosen = self.settings.best_fit(request.weights, party).astype(jnp.uint32)
        party, trained = super().respond(request, party, draws)
        return party, TrainedInCluster(trained.weights, trained.rows, chosen)

    @override
    def tell(self, state: ServerState, replies: TrainedInCluster, arrived: Bool[AnyArray, " silos"]) -> ServerState:
        heard = arrived & is_finite(replies.weights)
        rows = update_rows(state.rows, replies.rows, heard)
        number = jnp.arange(self.settings.clusters)[:, None]
        which = heard[None] & (replies.cluster.astype(jnp.int32)[None] == number)
        weights = average(replies.weights, rows, which, state.weights)
        return ServerState(state.round + 1, weights, rows)
