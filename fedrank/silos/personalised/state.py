"""What the methods of one exchange a round have in common: all silos train, the server averages.

One round::

    server   hands out θ                                                                      Model
    silos    judge the model that they could use now on their own validation rows, and
             keep it if it is their best so far; train from θ; send weights and rows n_k      Trained
    server   θ ← Σ n_k θ_k / Σ n_k over the silos that were heard

A method (:mod:`fedrank.silos.personalised`) says what a silo trains and which model it uses in the end. Every silo
is personalised for in one run.

**One evaluator.** Every method has the same opening as MAB-FL (before round 0 all silos train the same fresh network
for E epochs and go on from there in round 0) and the same choice in the end: the last model, or the best so far. What
is best a silo finds out with its own validation rows; no message is needed.

**Drop-outs.** Silos that were not heard, or sent something that is not finite, are left out of the average. If nobody
is left θ stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedrank.core.messages import Layout
from fedrank.core.protocol import Exchange, Party
from fedrank.metrics.auc import log_loss
from fedrank.privacy.unprotected import Unprotected
from fedrank.silos.data.splits import SiloArrays
from fedrank.silos.messages import SEEN, Model, Ready, Trained, model_layout, ready_layout, trained_layout
from fedrank.silos.party import SiloExchange, SiloProtocol, rows_of


class ServerState(NamedTuple):
    """What the server keeps between rounds.

    Attributes:
        round: uint32.
        weights: float32 [P], θ; [models, P] of a method with several.
        rows: float32 [k], n_k, as far as the silos have said.
    """

    round: Any
    weights: Any
    rows: Any


class PersonalOwn(NamedTuple):
    """What a silo has for itself.

    Attributes:
        number, split, model: As :class:`~fedrank.silos.party.SiloOwn` has them.
        best: float32, how good the best model so far is on the silo's validation rows; −∞ before.
        best_model: float32 [size], that model.
        personal: float32 [size], a second model that never crosses; [0] where a method needs none.
        share: float32, APFL's α.
    """

    number: Any
    split: Any
    model: Any
    best: Any
    best_model: Any
    personal: Any
    share: Any


@dataclass(frozen=True)
class PersonalisedProtocol(SiloProtocol):
    """Settings that these methods have; each fills in :meth:`current` and :meth:`learnt` where it differs from FedAvg.

    Attributes:
        pretrain: Train for E epochs before the first round.
    """

    pretrain: bool = True

    #: Whether a silo keeps a second model.
    keeps = False
    #: Local trainings of a round.
    trainings = 1
    #: What silos see of each other.
    shown = "Rows never leave a silo. Every silo is shown averages of silos' models; of two it can work out the other."

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Pre-training in round 0, and training."""
        return (*((Pretrain(self),) if self.pretrain else ()), Train(self))

    def parties(self, arrays: SiloArrays, splits: Any = None) -> Party:
        """All silos of a simulation; arguments and errors as :meth:`SiloProtocol.parties`."""
        party = super().parties(arrays, splits)
        silo = party.own
        shape = silo.model.shape[:-1]
        own = PersonalOwn(
            *silo,
            personal=silo.model if self.keeps else jnp.zeros((*shape, 0), jnp.float32),
            share=jnp.full(shape, self.first_share, jnp.float32),
        )
        return party._replace(own=own)

    @property
    def first_share(self) -> float:
        """APFL's α before the first round."""
        return 0.0

    def init(self, key: Any) -> ServerState:
        """A fresh network, the one that MAB-FL begins with under the same key; ``key`` is consumed."""
        weights = self.first_model(jax.random.split(key)[0])
        return ServerState(jnp.uint32(0), weights, jnp.zeros(self.silos, jnp.float32))

    def weights(self, state: Any) -> jax.Array:
        """θ, float32 [parameters]; of a method with several models, [models, parameters]."""
        return state.weights

    @property
    def offered(self) -> Layout[Any]:
        """Layout of what the server hands out."""
        return model_layout(self.parameters)

    def offer(self, state: Any) -> Any:
        """What the server hands out."""
        return Model(state.round, state.weights)

    def start(self, weights: jax.Array, party: Party) -> jax.Array:
        """The model [size] that a silo's training starts from, of what was handed out."""
        return self.received(weights, party.own)

    def current(self, weights: jax.Array, party: Party) -> jax.Array:
        """The model [size] that a silo would use, of what is handed out after a round and what it has itself."""
        return self.received(weights, party.own)

    def learnt(self, start: jax.Array, party: Party, words: jax.Array) -> PersonalOwn:
        """A silo after its training from ``start`` [size].

        Args:
            start: What the round's training starts from.
            party: The silo.
            words: uint32 [trainings · E, rows], chance of the shuffles.
        """
        return party.own._replace(model=self.trained(start, party, words))

    def remembered(self, model: jax.Array, party: Party, when: Any = True) -> Party:
        """The silo with its best model so far, after it has judged one more; where AUC is undefined it has none."""
        own, value = party.own, self.judged(model, party)
        better = (value > own.best) & when
        return party._replace(
            own=own._replace(
                best=jnp.where(better, value, own.best),
                best_model=jnp.where(better, model, own.best_model),
            )
        )

    def models(self, state: Any, party: Party) -> dict[str, jax.Array]:
        """The silo's model after the last round, and its best so far by its own validation rows."""
        last = self.current(self.offer(state).weights, party)
        own = self.remembered(last, party).own
        best = jnp.where(own.best > -jnp.inf, own.best_model, last)
        return {"last": self.usable(last, party), "best": self.usable(best, party)}

    def account(self, rounds: int, delta: float) -> Unprotected:
        """Nothing is noised."""
        return Unprotected(rounds, SEEN, (self.shown,))


def sound(after: jax.Array, before: jax.Array) -> jax.Array:
    """A model after training; the one before, where training ran away."""
    return jnp.where(jnp.all(jnp.isfinite(after)), after, before)


@dataclass(frozen=True)
class Pretrain(SiloExchange):
    """Before round 0: everybody trains the same fresh network (Lundahl 2021, Section 8.5)."""

    name = "pretrain"

    def due(self, number: Any) -> Any:
        """In round 0."""
        return number == 0

    @property
    def request(self) -> Layout[Any]:
        """The fresh network."""
        return self.settings.offered

    @property
    def reply(self) -> Layout[Any]:
        """That it is done."""
        return ready_layout()

    def ask(self, state: Any) -> Any:
        """The fresh network."""
        return self.settings.offer(state)

    def respond(self, request: Any, party: Party, draws: Any) -> tuple[Party, Any]:
        """Train, and keep the model for round 0."""
        s = self.settings
        return s.kept(party, s.trained(s.start(request.weights, party), party, draws)), Ready(rows_at(party))

    def tell(self, state: Any, replies: Any, arrived: jax.Array) -> Any:
        """How many rows each has."""
        return state._replace(rows=jnp.where(arrived, replies.rows.astype(jnp.float32), state.rows))


@dataclass(frozen=True)
class Train(SiloExchange):
    """A round: everybody judges, trains and sends."""

    name = "train"

    @property
    def request(self) -> Layout[Any]:
        """Round and θ."""
        return self.settings.offered

    @property
    def reply(self) -> Layout[Any]:
        """The silo's model and how many rows it has."""
        return trained_layout(self.settings.parameters)

    def _shape(self) -> tuple[int, int]:
        epochs, rows = super()._shape()
        return epochs * self.settings.trainings, rows

    def ask(self, state: Any) -> Any:
        """θ."""
        return self.settings.offer(state)

    def respond(self, request: Any, party: Party, draws: Any) -> tuple[Party, Any]:
        """Judge the model of the round before, then train; in round 0 from the silo's own pre-trained model."""
        s, first = self.settings, request.round == 0
        party = s.remembered(s.current(request.weights, party), party, ~first)
        start = s.start(request.weights, party)
        if s.pretrain:
            start = jnp.where(first, party.own.model, start)
        if s.keeps:
            party = party._replace(own=party.own._replace(personal=jnp.where(first, start, party.own.personal)))
        after, before = s.learnt(start, party, draws), party.own
        # What ran away is sent, and not heard; the silo keeps what it had.
        kept = after._replace(model=sound(after.model, before.model), personal=sound(after.personal, before.personal))
        return party._replace(own=kept), Trained(s.sent(after.model), rows_at(party))

    def tell(self, state: Any, replies: Any, arrived: jax.Array) -> Any:
        """The average."""
        heard = arrived & finite(replies.weights)
        rows = jnp.where(heard, replies.rows.astype(jnp.float32), state.rows)
        weights = average(replies.weights, rows, heard, state.weights)
        return state._replace(round=state.round + 1, weights=weights, rows=rows)


def rows_at(party: Party) -> jax.Array:
    """How many rows a silo has to train on, uint32."""
    return rows_of(party, "train").n.astype(jnp.uint32)


def finite(models: jax.Array) -> jax.Array:
    """Which models [..., P] have no NaN and no infinity: bool [...]."""
    return jnp.all(jnp.isfinite(models), axis=-1)


def average(models: jax.Array, rows: jax.Array, which: jax.Array, otherwise: jax.Array) -> jax.Array:
    """Federated averages, weighted by rows (McMahan et al. 2017, Algorithm 1).

    Args:
        models: float32 [k, P].
        rows: float32 [k], n_k.
        which: bool [..., k], whose models are in the average.
        otherwise: float32 [..., P], what stands where nobody is.

    Returns:
        float32 [..., P].
    """
    anybody = jnp.any(which, axis=tuple(range(which.ndim - 1)))
    amounts = jnp.where(which, jnp.maximum(rows.reshape((1,) * (which.ndim - 1) + (-1,)), 1.0), 0.0)
    total = jnp.sum(amounts, -1, keepdims=True)
    sent = jnp.where(anybody[:, None], models, 0.0)  # zero times NaN is NaN
    mean = jnp.matmul(amounts / jnp.maximum(total, 1.0), sent, precision=jax.lax.Precision.HIGHEST)
    return jnp.where(total > 0, mean, otherwise)


def loss_on(protocol: SiloProtocol, model: jax.Array, party: Party, part: str) -> jax.Array:
    """Mean cross-entropy of a model [size] on a silo's rows of a part, float32; NaN without rows."""
    rows = rows_of(party, part)
    logits = protocol.network.logits(protocol.usable(model, party), rows.x)
    return log_loss(logits, rows.y, jnp.arange(rows.x.shape[0]) < rows.n)
