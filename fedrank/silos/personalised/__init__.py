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

The opening, the average and how a silo remembers its best model are those of
:mod:`fedrank.silos.personalised.state`. Pooled data, the upper bound, is "local only" with one silo and the rows of
:func:`fedrank.silos.data.splits.pooled`.

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

import jax
import jax.numpy as jnp

from fedrank.core.errors import ConfigError
from fedrank.core.messages import Layout
from fedrank.core.protocol import Exchange, Party
from fedrank.privacy.randomised_response import os_words
from fedrank.privacy.unprotected import Unprotected
from fedrank.silos.messages import Model
from fedrank.silos.network import TabularNetwork
from fedrank.silos.party import SiloExchange, rows_of
from fedrank.silos.personalised.messages import Nothing, nothing_layout
from fedrank.silos.personalised.state import PersonalisedProtocol, PersonalOwn, ServerState

#: Words of a key of :func:`jax.random.key`.
_KEY_WORDS = (2,)


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

    def current(self, weights: jax.Array, party: Party) -> jax.Array:
        """The silo's local model."""
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
    keeps = True
    trainings = 2

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.pull < 1e6:
            raise ConfigError(f"pull, Ditto's λ, must not be negative, got {self.pull}.")

    def current(self, weights: jax.Array, party: Party) -> jax.Array:
        """The personal model v."""
        return party.own.personal

    def learnt(self, start: jax.Array, party: Party, words: jax.Array) -> PersonalOwn:
        """θ_k from θ, then v ← v − η·(∇F_k(v) + λ·(v − θ))."""
        epochs, cut = self.sgd.epochs, self.network.trainable
        model = self.trained(start, party, words[:epochs])

        def penalty(v: jax.Array) -> jax.Array:
            return 0.5 * self.pull * jnp.sum((v - start[:cut]) ** 2)

        personal = self.trained(party.own.personal, party, words[epochs:], penalty=penalty)
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
    keeps = True

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.share <= 1:
            raise ConfigError(f"share, APFL's α, must be in [0, 1], got {self.share}.")

    @property
    def first_share(self) -> float:
        """α before the first round."""
        return self.share

    def current(self, weights: jax.Array, party: Party) -> jax.Array:
        """α·v + (1 − α)·θ."""
        own = party.own
        return own.share * own.personal + (1 - own.share) * self.received(weights, own)

    def learnt(self, start: jax.Array, party: Party, words: jax.Array) -> PersonalOwn:
        """α, then w from θ and v, step by step."""
        own, cut = party.own, self.network.trainable
        rows = rows_of(party, "train")
        share = self._adapted(start[:cut], party) if self.adaptive else own.share
        both = _Mixture(self.network.n_features, self.network.widths, self.network.norm, self.network.momentum)
        parts = (start[:cut], own.personal[:cut], share[None], start[cut:], own.personal[cut:])
        still = jnp.arange(both.trainable) == both.trainable - 1
        before = jnp.concatenate(parts)
        after = replace(self.sgd, network=both).train(before, rows, words, frozen=still)
        after = jnp.where(jnp.all(jnp.isfinite(after)), after, before)  # as every silo does when training runs away
        w, v, statistics = after[:cut], after[cut : 2 * cut], after[both.trainable :].reshape(2, -1)
        return own._replace(
            model=jnp.concatenate([w, statistics[0]]), personal=jnp.concatenate([v, statistics[1]]), share=share
        )

    def _adapted(self, w: jax.Array, party: Party) -> jax.Array:
        """α − η·⟨v − w, ∇F_k(α·v + (1 − α)·w)⟩, within [0, 1]; α where that is not finite."""
        own, rows = party.own, rows_of(party, "train")
        v, where = own.personal[: self.network.trainable], jnp.arange(rows.x.shape[0]) < rows.n

        def loss(share: jax.Array) -> jax.Array:
            return self.network.loss(share * v + (1 - share) * w, rows.x, rows.y, where)[0]

        after = jnp.clip(own.share - self.sgd.learning_rate * jax.grad(loss)(own.share), 0.0, 1.0)
        return jnp.where(jnp.isfinite(after), after, own.share)


@dataclass(frozen=True)
class _Mixture(TabularNetwork):
    """APFL's two models as one to train: w, v and α, and the statistics of w and of α·v + (1 − α)·w."""

    @property
    def trainable(self) -> int:
        """Numbers of w, of v, and α, which comes last."""
        return 2 * super().trainable + 1

    @property
    def statistics(self) -> int:
        """Those of both."""
        return 2 * super().statistics

    def loss(self, trainable: jax.Array, x: jax.Array, y: jax.Array, where: jax.Array) -> tuple[jax.Array, jax.Array]:
        """F(w) + F(α·v + (1 − α)·w), of which the second says nothing to w; arguments as of one model."""
        w, v = trainable[:-1].reshape(2, -1)
        share = trainable[-1]
        one, seen_one = super().loss(w, x, y, where)
        mixed, seen_mixed = super().loss(share * v + (1 - share) * jax.lax.stop_gradient(w), x, y, where)
        return one + mixed, jnp.concatenate([seen_one, seen_mixed])


@dataclass(frozen=True)
class LocalOnly(PersonalisedProtocol):
    """Every silo trains by itself; nothing crosses.

    A silo draws its own fresh network. Rounds are rounds of E epochs, so that it has trained as much as in any other
    method. The exchanges are *silent*: a simulator lets every silo answer and must count no message.
    """

    name = "local-only"

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """A fresh network and, if asked for, its first training; then a round's training."""
        return (Begin(self), TrainAlone(self))

    def init(self, key: Any) -> ServerState:
        """A server that has no model; ``key`` is not needed."""
        return ServerState(jnp.uint32(0), jnp.zeros(0, jnp.float32), jnp.zeros(self.silos, jnp.float32))

    def offer(self, state: Any) -> Model:
        """No model."""
        return Model(state.round, state.weights)

    def current(self, weights: jax.Array, party: Party) -> jax.Array:
        """The silo's own model."""
        return party.own.model

    def account(self, rounds: int, delta: float) -> Unprotected:
        """Nothing crosses, and nothing else is promised."""
        return Unprotected(rounds, "Nothing crosses. What is done with a silo's model is the silo's own affair.", ())


@dataclass(frozen=True)
class Pooled(LocalOnly):
    """One learner with the rows of all silos (:func:`fedrank.silos.data.splits.pooled`): nothing is federated."""

    name = "pooled"

    def account(self, rounds: int, delta: float) -> Unprotected:
        """Everything lies in one place."""
        return Unprotected(rounds, "The training rows of all silos lie in one place, as they are. For comparison only.")


@dataclass(frozen=True)
class TrainAlone(SiloExchange):
    """A round of a silo by itself."""

    name = "train"

    #: Nothing crosses: the messages have no content and are not sent.
    silent = True

    @property
    def request(self) -> Layout[Nothing]:
        """Nothing."""
        return nothing_layout()

    @property
    def reply(self) -> Layout[Nothing]:
        """Nothing."""
        return nothing_layout()

    def ask(self, state: ServerState) -> Nothing:
        """Nothing."""
        return Nothing()

    def respond(self, request: Nothing, party: Party, draws: Any) -> tuple[Party, Nothing]:
        """Train on, and judge the outcome."""
        s = self.settings
        party = s.kept(party, s.trained(party.own.model, party, draws))
        return s.remembered(party.own.model, party), Nothing()

    def tell(self, state: ServerState, replies: Nothing, arrived: jax.Array) -> ServerState:
        """A round is over."""
        return state._replace(round=state.round + 1)


@dataclass(frozen=True)
class Begin(TrainAlone):
    """Before round 0 a silo draws a fresh network and trains it for the first time."""

    name = "pretrain"

    def due(self, number: Any) -> Any:
        """In round 0."""
        return number == 0

    def draw(self, key: Any) -> Any:
        """Words of the training, and of the fresh network."""
        words, fresh = jax.random.split(key)
        return super().draw(words), jax.random.bits(fresh, _KEY_WORDS, jnp.uint32)

    def draw_from_os(self) -> Any:
        """The same from the operating system."""
        return super().draw_from_os(), jnp.asarray(os_words(_KEY_WORDS))

    def respond(self, request: Nothing, party: Party, draws: Any) -> tuple[Party, Nothing]:
        """A fresh network, trained if there is to be pre-training."""
        s, (words, fresh) = self.settings, draws
        model = s.network.initial(jax.random.wrap_key_data(fresh))
        if s.pretrain:
            model = s.trained(model, party, words)
        return party._replace(own=party.own._replace(model=model)), Nothing()

    def tell(self, state: ServerState, replies: Nothing, arrived: jax.Array) -> ServerState:
        """Nothing is known of it."""
        return state
