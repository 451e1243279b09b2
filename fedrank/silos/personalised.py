"""Methods that MAB-FL is compared with, in which all silos train in every round and one exchange is enough.

With F_k the mean loss on the silo's rows, θ what the server averages and E epochs of SGD on F_k written ``train``:

=================  ==================================================================  =================================
method             a silo's training                                                   the model that it uses
=================  ==================================================================  =================================
FedAvg             θ_k ← train(θ)                                                      θ
FedPer, FedBN      the same; the last layer, or the normalisations, never cross        θ with its own last layer, or
                                                                                       normalisations
FedAvg, fine-tune  θ_k ← train(θ)                                                      θ_k
Ditto              θ_k ← train(θ); v_k ← train(v_k) on F_k(v) + λ/2·‖v − θ‖²           v_k
APFL               w_k ← train(θ); v_k by the gradient of F_k(α·v_k + (1 − α)·w_k)     α·v_k + (1 − α)·θ
local only         θ_k ← train(θ_k)                                                    θ_k
=================  ==================================================================  =================================

The setup, the average and how a silo remembers its best model are those of :mod:`fedrank.silos.averaging`. Pooled
data, the upper bound, is "local only" with one silo and the rows of :func:`fedrank.silos.data.splits.pooled`.

Sources:
    McMahan, Moore, Ramage, Hampson, Agüera y Arcas: *Communication-efficient learning of deep networks from
    decentralized data*, AISTATS 2017, Algorithm 1. Arivazhagan, Aggarwal, Singh, Choudhary: *Federated learning with
    personalization layers*, arXiv 1912.00818, 2019. Li, Jiang, Zhang, Kamp, Dou: *FedBN*, ICLR 2021. Li, Hu, Beirami,
    Smith: *Ditto*, ICML 2021, Algorithm 1. Deng, Kamani, Mahdavi: *Adaptive personalized federated learning*,
    arXiv 2003.13461, 2020, Algorithm 1 and equation 10.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Key, UInt32
from typing_extensions import override

from fedrank.core.arrays import JaxArray as Array
from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party
from fedrank.privacy.randomised_response import os_words
from fedrank.silos.averaging import PersonalisedProtocol, PersonalOwn, ServerState
from fedrank.silos.data.rows import AnyArray
from fedrank.silos.messages import Nothing
from fedrank.silos.network import TabularNetwork
from fedrank.silos.party import SiloExchange, finite_or, rows_of

#: Shape of the data of a key of :func:`jax.random.key`: uint32 [2].
_KEY_SHAPE = (2,)


@dataclass(frozen=True)
class FedAvg(PersonalisedProtocol):
    """Federated averaging; with ``crossing="head-local"`` FedPer, with ``crossing="local"`` FedBN."""

    @property
    def name(self) -> str:  # type: ignore[override]
        """``fedavg``, ``fedper`` or ``fedbn``."""
        return {"head-local": "fedper", "local": "fedbn"}.get(self.crossing, "fedavg")


@dataclass(frozen=True)
class FineTuned(PersonalisedProtocol):
    """Federated averaging and E epochs of training at each silo: the local model of the round is the fine-tuned θ.

    After t + 1 rounds a silo has θ of t rounds and E epochs from there, as many epochs as θ of t + 1 rounds has had.
    The last average is of no use to it and need not be sent.
    """

    name = "fedavg-finetune"

    @override
    def personal_model(self, weights: Float[AnyArray, "..."], party: Party) -> Float[AnyArray, " size"]:
        return party.own.model


@dataclass(frozen=True)
class Ditto(PersonalisedProtocol):
    """A personal model that is pulled to θ (Ditto, Algorithm 1): min F_k(v) + λ/2·‖v − θ‖².

    Both models are trained for E epochs a round. In round 0, which after pre-training starts from the silo's own model,
    v starts from there and is pulled to it.

    Attributes:
        pull: λ, at least 0; 0 is local training.
    """

    pull: float = 1.0

    name = "ditto"
    keeps_second = True
    trainings = 2

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.pull < 1e6:
            raise ConfigError(f"pull, Ditto's λ, must not be negative, got {self.pull}.")

    @override
    def personal_model(self, weights: Float[AnyArray, "..."], party: Party) -> Float[AnyArray, " size"]:
        return party.own.personal

    @override
    def local_update(
        self, start: Float[AnyArray, " size"], party: Party, rng_bits: UInt32[AnyArray, "epochs rows"]
    ) -> PersonalOwn:
        # θ_k from θ, then v ← v − η·(∇F_k(v) + λ·(v − θ)).
        epochs, cut = self.sgd.epochs, self.network.trainable
        model = self.train(start, party, rng_bits[:epochs])

        def penalty(v: Float[AnyArray, " trainable"]) -> Float[AnyArray, ""]:
            return 0.5 * self.pull * jnp.sum((v - start[:cut]) ** 2)

        personal = self.train(party.own.personal, party, rng_bits[epochs:], penalty=penalty)
        return party.own._replace(model=model, personal=personal)


@dataclass(frozen=True)
class Apfl(PersonalisedProtocol):
    """A mixture of a silo's own model and the server's (APFL, Algorithm 1): α·v + (1 − α)·w.

    In each step w moves by ∇F_k(w) and v by the gradient of F_k(α·v + (1 − α)·w) with respect to v, on the same batch.
    Normalisation's running statistics are mixed like all other numbers: those of the mixture's own training with α,
    those of θ with 1 − α. That is exact for α of 0 and 1; ``crossing="recalibrate"`` estimates them anew.

    Attributes:
        share: α before the first round, in [0, 1].
        adaptive: Whether a silo adapts α: once a round before its training, by a step along −∂F_k/∂α (equation 10) on
            all of its training rows, with the learning rate of SGD, and kept in [0, 1].
    """

    share: float = 0.5
    adaptive: bool = True

    name = "apfl"
    keeps_second = True

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.share <= 1:
            raise ConfigError(f"share, APFL's α, must be in [0, 1], got {self.share}.")

    @property
    @override
    def first_share(self) -> float:
        return self.share

    @override
    def personal_model(self, weights: Float[AnyArray, "..."], party: Party) -> Float[AnyArray, " size"]:
        own = party.own
        return own.share * own.personal + (1 - own.share) * self.whole_model(weights, own)

    @override
    def local_update(
        self, start: Float[AnyArray, " size"], party: Party, rng_bits: UInt32[AnyArray, "epochs rows"]
    ) -> PersonalOwn:
        # First α, then w from θ and v, step by step.
        own, cut = party.own, self.network.trainable
        rows = rows_of(party, "train")
        share = self._adapted_share(start[:cut], party) if self.adaptive else own.share
        both = _Mixture(self.network.n_features, self.network.widths, self.network.norm, self.network.momentum)
        parts = (start[:cut], own.personal[:cut], share[None], start[cut:], own.personal[cut:])
        is_share = jnp.arange(both.trainable) == both.trainable - 1
        before = jnp.concatenate(parts)
        after = replace(self.sgd, network=both).train(before, rows, rng_bits, frozen=is_share)
        after = finite_or(after, before)
        w, v, statistics = after[:cut], after[cut : 2 * cut], after[both.trainable :].reshape(2, -1)
        return own._replace(
            model=jnp.concatenate([w, statistics[0]]), personal=jnp.concatenate([v, statistics[1]]), share=share
        )

    def _adapted_share(self, w: Float[AnyArray, " trainable"], party: Party) -> Float[AnyArray, ""]:
        """α − η·⟨v − w, ∇F_k(α·v + (1 − α)·w)⟩, within [0, 1]; α where that is not finite."""
        own, rows = party.own, rows_of(party, "train")
        v, where = own.personal[: self.network.trainable], jnp.arange(rows.x.shape[0]) < rows.n

        def loss(share: Float[AnyArray, ""]) -> Float[AnyArray, ""]:
            return self.network.loss(share * v + (1 - share) * w, rows.x, rows.y, where)[0]

        after = jnp.clip(own.share - self.sgd.learning_rate * jax.grad(loss)(own.share), 0.0, 1.0)
        return jnp.where(jnp.isfinite(after), after, own.share)


@dataclass(frozen=True)
class _Mixture(TabularNetwork):
    """APFL's two models as one to train: w, v and α, and the statistics of w and of α·v + (1 − α)·w."""

    @property
    @override
    def trainable(self) -> int:
        return 2 * super().trainable + 1  # w, v, and α, which comes last

    @property
    @override
    def statistics(self) -> int:
        return 2 * super().statistics

    @override
    def loss(
        self,
        trainable: Float[AnyArray, " trainable"],
        x: Float[AnyArray, "rows features"],
        y: Float[AnyArray, " rows"],
        where: Bool[AnyArray, " rows"],
    ) -> tuple[Float[AnyArray, ""], Float[AnyArray, " statistics"]]:
        # F(w) + F(α·v + (1 − α)·w); the second term moves v only.
        w, v = trainable[:-1].reshape(2, -1)
        share = trainable[-1]
        one, statistics = super().loss(w, x, y, where)
        mixed, mixed_statistics = super().loss(share * v + (1 - share) * jax.lax.stop_gradient(w), x, y, where)
        return one + mixed, jnp.concatenate([statistics, mixed_statistics])


@dataclass(frozen=True)
class LocalOnly(PersonalisedProtocol):
    """Every silo trains by itself; nothing crosses.

    A silo draws its own fresh network. Rounds are rounds of E epochs, so that it has trained as much as in any other
    method. The exchanges are *silent*: a simulator lets every silo answer and must count no message.
    """

    name = "local-only"

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (DrawNetwork(self), TrainAlone(self))

    @override
    def init(self, key: Key[Array, ""]) -> ServerState:
        # The server has no model; the key is not needed.
        return self.first_state(np.zeros(0, np.float32))

    @override
    def personal_model(self, weights: Float[AnyArray, "..."], party: Party) -> Float[AnyArray, " size"]:
        return party.own.model

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        return PrivacyReport.none(
            rounds, "Nothing crosses. What is done with a silo's model is the silo's own affair.", ()
        )


@dataclass(frozen=True)
class Pooled(LocalOnly):
    """One learner with the rows of all silos (:func:`fedrank.silos.data.splits.pooled`): nothing is federated."""

    name = "pooled"

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        return PrivacyReport.none(
            rounds, "The training rows of all silos lie in one place, as they are. For comparison only."
        )


@dataclass(frozen=True)
class TrainAlone(SiloExchange, request=Nothing, reply=Nothing):
    """A round of a silo that trains by itself."""

    name = "train"

    #: The messages are empty and are not sent.
    silent = True

    @override
    def ask(self, state: ServerState) -> Nothing:
        return Nothing()

    @override
    def respond(self, request: Nothing, party: Party, draws: PyTree) -> tuple[Party, Nothing]:
        s = self.settings
        party = s.keep(party, s.train(party.own.model, party, draws))
        return s.remember_best(party.own.model, party), Nothing()

    @override
    def tell(self, state: ServerState, replies: Nothing, arrived: Bool[AnyArray, " silos"]) -> ServerState:
        return state._replace(round=state.round + 1)


@dataclass(frozen=True)
class DrawNetwork(TrainAlone):
    """Before round 0 a silo draws a fresh network and, if there is pre-training, trains it for the first time."""

    name = "pretrain"

    @override
    def due(self, number: Any) -> Any:
        return number == 0

    @override
    def draw(self, key: Key[Array, ""]) -> PyTree:
        training, network = jax.random.split(key)
        return super().draw(training), jax.random.bits(network, _KEY_SHAPE, jnp.uint32)

    @override
    def draw_from_os(self) -> PyTree:
        return super().draw_from_os(), jnp.asarray(os_words(_KEY_SHAPE))

    @override
    def respond(self, request: Nothing, party: Party, draws: PyTree) -> tuple[Party, Nothing]:
        s, (rng_bits, network) = self.settings, draws
        model = s.network.initial(jax.random.wrap_key_data(network))
        if s.pretrain:
            model = s.train(model, party, rng_bits)
        return party._replace(own=party.own._replace(model=model)), Nothing()

    @override
    def tell(self, state: ServerState, replies: Nothing, arrived: Bool[AnyArray, " silos"]) -> ServerState:
        return state
