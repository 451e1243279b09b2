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

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32
from typing_extensions import override

from fedrank.core import messages as wire
from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.messages import f4, message, u4
from fedrank.core.protocol import Exchange, Party
from fedrank.core.streams import split
from fedrank.silos.averaging import PersonalisedProtocol, ServerState, Train, average
from fedrank.silos.party import Pretrain, is_finite, update_rows


@dataclass(frozen=True, kw_only=True)
class IfcaSettings:
    """Settings that only IFCA has."""

    clusters: int = setting(2, "Number of models that silos choose from.")


@message(kind=9)
class Models:
    """IFCA's server to silos: the model of each cluster."""

    round: wire.Array = wire.field(u4, "number of the round")
    weights: wire.Array = wire.field(f4["models", "parameters"], "the models to choose from, one a cluster")


@message(kind=10)
class TrainedInCluster:
    """IFCA's silo to server: its local model, and the cluster whose model it started from."""

    weights: wire.Array = wire.field(f4["parameters"], "the model after training on the silo's rows")
    rows: wire.Array = wire.field(u4, "number of rows that the silo trains on")
    cluster: wire.Array = wire.field(u4, "which model fits the silo's training rows best", largest="largest_cluster")


@dataclass(frozen=True)
class Ifca(PersonalisedProtocol):
    """Silos: several averages, each silo picks the one that suits it."""

    personal: IfcaSettings = field(default_factory=IfcaSettings)

    name, paper = "ifca", "ghosh2020ifca"
    published = "Ghosh et al.: An Efficient Framework for Clustered Federated Learning, NeurIPS 2020"

    def __post_init__(self):
        super().__post_init__()
        if not 1 <= self.clusters <= 1000:
            raise ConfigError(f"clusters must be in 1..1,000, got {self.clusters}.")

    @property
    def clusters(self) -> int:
        """C, number of models; 1 is federated averaging."""
        return self.personal.clusters

    @property
    @override
    def sizes(self) -> dict[str, int]:
        return {"parameters": self.parameters, "models": self.clusters, "largest_cluster": self.clusters - 1}

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (*((PretrainInCluster(self),) if self.pretrain else ()), TrainInCluster(self))

    @override
    def init(self, key: UInt32[np.ndarray, "2"] | None) -> ServerState:
        assert key is not None
        weights = self.first_model(split(key, self.clusters))
        return ServerState(np.asarray(0, np.uint32), weights, np.zeros(self.silos, np.float32))

    @override
    def offer(self, state: ServerState) -> Models:
        return Models(state.round, state.weights)

    def best_fit(
        self, weights: Float[np.ndarray, "silos clusters parameters"], party: Party
    ) -> Int[np.ndarray, " silos"]:
        """ĵ, the model of least loss on each silo's training rows; a loss that is not a number is the largest."""
        losses = -self.performance(self.whole_model(weights, party.own.model[:, None]), party, "train", "log-loss")
        return np.argmin(np.where(np.isnan(losses), np.inf, losses), axis=1)

    @override
    def starting_model(self, weights: Float[np.ndarray, "silos ..."], party: Party) -> Float[np.ndarray, "silos size"]:
        chosen = self.best_fit(weights, party)
        return self.whole_model(weights[np.arange(len(chosen)), chosen], party.own.model)

    @override
    def personal_model(self, weights: Float[np.ndarray, "silos ..."], party: Party) -> Float[np.ndarray, "silos size"]:
        return self.starting_model(weights, party)  # θ_ĵ, chosen anew


@dataclass(frozen=True)
class PretrainInCluster(Pretrain, request=Models):
    """Before round 0 every silo trains the fresh network that fits it best."""


@dataclass(frozen=True)
class TrainInCluster(Train, request=Models, reply=TrainedInCluster):
    """A round: every silo chooses a model, trains it and sends the outcome and its choice."""

    @override
    def respond(self, request: Models, party: Party, draws: PyTree) -> tuple[Party, TrainedInCluster]:
        chosen = self.settings.best_fit(request.weights, party).astype(np.uint32)
        party, trained = super().respond(request, party, draws)
        return party, TrainedInCluster(trained.weights, trained.rows, chosen)

    @override
    def tell(self, state: ServerState, replies: TrainedInCluster, arrived: Bool[np.ndarray, " silos"]) -> ServerState:
        heard = arrived & is_finite(replies.weights)
        rows = update_rows(state.rows, replies.rows, heard)
        number = np.arange(self.settings.clusters)[:, None]
        which = heard[None] & (replies.cluster.astype(np.int32)[None] == number)
        weights = average(replies.weights, rows, which, state.weights)
        return ServerState(state.round + 1, weights, rows)
