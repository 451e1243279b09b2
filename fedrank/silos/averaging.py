"""What the methods of one exchange a round have in common: all silos train, the server averages.

One round::

    server   hands out θ                                                                      Model
    silos    judge the model that they could use now on their own validation rows, and
             keep it if it is their best so far; train from θ; send weights and rows n_k      Trained
    server   θ ← Σ n_k θ_k / Σ n_k over the silos that were heard

A method (:mod:`fedrank.silos.personalised`) says what a silo trains and which model it uses in the end. Every silo
is personalised for in one run.

**One evaluator.** Every method has the same setup as MAB-FL (before round 0 all silos train the same fresh network
for E epochs and go on from there in round 0) and the same choice in the end: the last model, or the best so far. What
is best a silo finds out with its own validation rows; no message is needed.

**Drop-outs.** Silos that were not heard, or sent something that is not finite, are left out of the average. If nobody
is left θ stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Key, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray, PyTree, module_of
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.lazy import jax, jnp
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party
from fedrank.metrics.auc import log_loss
from fedrank.silos.data.splits import SiloArrays
from fedrank.silos.messages import SEEN, Model, Trained
from fedrank.silos.party import (
    Part,
    Pretrain,
    SiloExchange,
    SiloProtocol,
    finite_or,
    is_finite,
    row_count,
    rows_of,
    update_rows,
)
from fedrank.silos.private_sgd import PrivateSgd
from fedrank.silos.records.account import run_account


class ServerState(NamedTuple):
    """What the server keeps between rounds.

    Attributes:
        round: Number of the round.
        weights: θ; of a method with several models, [models, parameters].
        rows: n_k, as far as the silos have said.
    """

    round: UInt32[AnyArray, ""]
    weights: Float[AnyArray, "*models parameters"]
    rows: Float[AnyArray, " silos"]


class PersonalOwn(NamedTuple):
    """What a silo keeps for itself; in a simulator every leaf has leading axes [silos] or [runs, silos].

    Attributes:
        number, split, model: As :class:`~fedrank.silos.party.SiloOwn` has them.
        best: Performance of the best model so far on the silo's validation rows; −∞ before.
        best_model: That model.
        personal: A second model that never crosses; [0] where a method needs none.
        share: APFL's α.
    """

    number: Int[AnyArray, "*lead"]
    split: Int[AnyArray, "*lead"]
    model: Float[AnyArray, "*lead size"]
    best: Float[AnyArray, "*lead"]
    best_model: Float[AnyArray, "*lead size"]
    personal: Float[AnyArray, "*lead personal"]
    share: Float[AnyArray, "*lead"]


@dataclass(frozen=True)
class PersonalisedProtocol(SiloProtocol):
    """Settings that these methods have.

    A method overrides :meth:`personal_model` and :meth:`local_update` where it differs from FedAvg.

    Attributes:
        pretrain: Train for E epochs before the first round.
    """

    pretrain: bool = True

    #: Whether a silo keeps a second model.
    keeps_second: ClassVar[bool] = False
    #: Number of local trainings in a round.
    trainings: ClassVar[int] = 1
    #: What silos see of each other, in sentences.
    revealed: ClassVar[str] = (
        "No row is in a message. Every silo is shown averages of silos' models; of two it can work out the other."
    )

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Pre-training in round 0, and training."""
        return (*((Pretrain(self),) if self.pretrain else ()), Train(self))

    @override
    def parties(self, arrays: SiloArrays, splits: Sequence[int] | Int[np.ndarray, " runs"] | None = None) -> Party:
        party = super().parties(arrays, splits)
        silo = party.own
        shape = silo.model.shape[:-1]
        own = PersonalOwn(
            *silo,
            personal=silo.model if self.keeps_second else np.zeros((*shape, 0), np.float32),
            share=np.full(shape, self.first_share, np.float32),
        )
        return party._replace(own=own)

    @property
    def first_share(self) -> float:
        """APFL's α before the first round."""
        return 0.0

    @override
    def init(self, key: Key[Array, ""]) -> PyTree:
        # The same network as MAB-FL's under the same key.
        weights = self.first_model(jax.random.split(key)[0])
        return self.first_state(weights)

    def first_state(self, weights: Float[AnyArray, " parameters"]) -> PyTree:
        """The state before the first round, with arrays of JAX or NumPy as the weights are."""
        xp = module_of(weights)
        return ServerState(xp.uint32(0), weights, xp.zeros(self.silos, np.float32))

    @override
    def weights(self, state: PyTree) -> Float[AnyArray, "*models parameters"]:
        return state.weights

    def personal_model(self, weights: Float[AnyArray, "..."], party: Party) -> Float[AnyArray, " size"]:
        """The model that a silo would use, given the weights handed out after a round and what it has itself."""
        return self.whole_model(weights, party.own)

    def local_update(self, start: Float[AnyArray, " size"], party: Party, rng_bits: PyTree) -> PersonalOwn:
        """A silo after its training of a round.

        Args:
            start: What the round's training starts from.
            party: The silo.
            rng_bits: Random numbers of all trainings of the round, as the exchange draws them.
        """
        return party.own._replace(model=self.train(start, party, rng_bits))

    def remember_best(
        self, model: Float[AnyArray, " size"], party: Party, when: bool | Bool[AnyArray, ""] = True
    ) -> Party:
        """The silo with its best model so far, after it has judged one more; where AUC is undefined it has none."""
        own, value = party.own, self.performance(model, party)
        better = (value > own.best) & when
        return party._replace(
            own=own._replace(
                best=jnp.where(better, value, own.best),
                best_model=jnp.where(better, model, own.best_model),
            )
        )

    @override
    def models(self, state: PyTree, party: Party) -> dict[str, Float[AnyArray, " size"]]:
        last = self.personal_model(self.offer(state).weights, party)
        own = self.remember_best(last, party).own
        best = jnp.where(own.best > -jnp.inf, own.best_model, last)
        return {"last": self.usable(last, party), "best": self.usable(best, party)}

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        if isinstance(self.sgd, PrivateSgd):
            return run_account(self.sgd, rounds, delta, pretrain=self.pretrain)
        return PrivacyReport.none(rounds, SEEN, (self.revealed,))


@dataclass(frozen=True)
class Train(SiloExchange, request=Model, reply=Trained):
    """A round: every silo judges the last model, trains and sends its local model."""

    name = "train"

    @override
    def rng_shape(self) -> tuple[int, int]:
        epochs, rows = super().rng_shape()
        return epochs * self.settings.trainings, rows

    @override
    def ask(self, state: PyTree) -> PyTree:
        return self.settings.offer(state)

    @override
    def respond(self, request: PyTree, party: Party, draws: PyTree) -> tuple[Party, Any]:
        s, first = self.settings, request.round == 0
        party = s.remember_best(s.personal_model(request.weights, party), party, ~first)
        start = s.starting_model(request.weights, party)
        if s.pretrain:
            start = jnp.where(first, party.own.model, start)
        if s.keeps_second:
            party = party._replace(own=party.own._replace(personal=jnp.where(first, start, party.own.personal)))
        after, before = s.local_update(start, party, draws), party.own
        # A model that diverged is sent, and not heard; the silo keeps the one before.
        kept = after._replace(
            model=finite_or(after.model, before.model), personal=finite_or(after.personal, before.personal)
        )
        return party._replace(own=kept), Trained(s.shared_part(after.model), row_count(party))

    @override
    def tell(self, state: PyTree, replies: PyTree, arrived: Bool[AnyArray, " silos"]) -> PyTree:
        heard = arrived & is_finite(replies.weights)
        rows = update_rows(state.rows, replies.rows, heard)
        weights = average(replies.weights, rows, heard, state.weights)
        return state._replace(round=state.round + 1, weights=weights, rows=rows)


def average(
    models: Float[AnyArray, "silos parameters"],
    rows: Float[AnyArray, " silos"],
    which: Bool[AnyArray, "*averages silos"],
    otherwise: Float[AnyArray, "*averages parameters"],
) -> Float[AnyArray, "*averages parameters"]:
    """Federated averages, weighted by rows (McMahan et al. 2017, Algorithm 1).

    Args:
        models: Models of the silos.
        rows: n_k.
        which: Whose models are in each average.
        otherwise: The result where nobody is.
    """
    xp = module_of(models)
    anybody = xp.any(which, axis=tuple(range(which.ndim - 1)))
    amounts = xp.where(which, xp.maximum(rows.reshape((1,) * (which.ndim - 1) + (-1,)), 1.0), 0.0)
    total = xp.sum(amounts, -1, keepdims=True)
    sent = xp.where(anybody[:, None], models, 0.0)  # zero times NaN is NaN
    return xp.where(total > 0, weighted(amounts / xp.maximum(total, 1.0), sent), otherwise)


def weighted(
    amounts: Float[AnyArray, "*averages silos"], models: Float[AnyArray, "silos parameters"]
) -> Float[AnyArray, "*averages parameters"]:
    """Sums of models with weights, in single precision on every processor."""
    if module_of(models) is np:
        return amounts @ models
    return jnp.matmul(amounts, models, precision=jax.lax.Precision.HIGHEST)


def loss_on(protocol: SiloProtocol, model: Float[AnyArray, " size"], party: Party, part: Part) -> Float[AnyArray, ""]:
    """Mean cross-entropy of a model on a silo's rows of a part; NaN without rows."""
    rows = rows_of(party, part)
    logits = protocol.network.logits(protocol.usable(model, party), rows.x)
    return log_loss(logits, rows.y, jnp.arange(rows.x.shape[0]) < rows.n)
