"""Methods with one exchange a round, in which all silos train and the server averages: what MAB-FL is compared with.

One round::

    server   hands out θ                                                                      Model
    silos    judge the model that they could use now on their own validation rows, and
             keep it if it is their best so far; train from θ; send weights and rows n_k      Trained
    server   θ ← Σ n_k θ_k / Σ n_k over the silos that were heard

With F_k the mean loss on the silo's rows and E epochs of SGD on F_k written ``train``:

=================  ================================================  ====================================
method             a silo's training                                 the model that it uses
=================  ================================================  ====================================
FedAvg             θ_k ← train(θ)                                    θ
FedAvg, fine-tune  θ_k ← train(θ)                                    θ_k
=================  ================================================  ====================================

Others differ in either column, or in what crosses: FedPer, each silo alone, pooled rows and more are in the
distribution ``fedrank-zoo``.

**One evaluator.** Every method has the same setup as MAB-FL (before round 0 all silos train the same fresh network
for E epochs and go on from there in round 0) and the same choice in the end: the last model, or the best so far. What
is best a silo finds out with its own validation rows; no message is needed.

**Drop-outs.** Silos that were not heard, or sent something that is not finite, are left out of the average. If none
is left θ stays.

Sources:
    McMahan, Moore, Ramage, Hampson, Agüera y Arcas: *Communication-efficient learning of deep networks from
    decentralized data*, AISTATS 2017, Algorithm 1. Arivazhagan, Aggarwal, Singh, Choudhary: *Federated learning with
    personalization layers*, arXiv 1912.00818, 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.fields import bound
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party
from fedrank.core.streams import fold_words
from fedrank.silos.config import RecordPrivacy
from fedrank.silos.messages import SEEN, Model, Trained
from fedrank.silos.party import (
    Pretrain,
    SiloExchange,
    SiloProtocol,
    finite_or,
    is_finite,
    row_count,
    some_of,
    update_rows,
)
from fedrank.silos.records.account import run_account
from fedrank.silos.records.private_sgd import PrivateSgd


class ServerState(NamedTuple):
    """State of the server between rounds.

    Attributes:
        round: Number of the round.
        weights: θ; of a method with several models, [models, parameters].
        rows: n_k, as far as the silos have said.
    """

    round: UInt32[AnyArray, ""]
    weights: Float[np.ndarray, "*models parameters"]
    rows: Float[np.ndarray, " silos"]


@dataclass(frozen=True)
class PersonalisedProtocol(SiloProtocol):
    """A method with one exchange a round, in which all silos train and the server averages.

    A method overrides :meth:`personal_model` and :meth:`local_update` where it differs from FedAvg.

    Attributes:
        pretrain: Train for E epochs before the first round.
    """

    pretrain: bool = bound(True)

    crosses = "models"

    #: What silos see of each other, in sentences.
    revealed: ClassVar[str] = (
        "No row is in a message. Every silo is shown averages of silos' models; of two it can work out the other."
    )

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Pre-training in round 0, and training."""
        return (*((Pretrain(self),) if self.pretrain else ()), Train(self))

    @override
    def init(self, key: UInt32[np.ndarray, "2"] | None) -> PyTree:
        # The same network as MAB-FL's under the same key.
        assert key is not None
        return ServerState(
            np.asarray(0, np.uint32), self.first_model(fold_words(key, 0)), np.zeros(self.silos, np.float32)
        )

    @override
    def weights(self, state: PyTree) -> Float[np.ndarray, "*models parameters"]:
        return state.weights

    def personal_model(self, weights: Float[np.ndarray, "silos ..."], party: Party) -> Float[np.ndarray, "silos size"]:
        """The model that each silo would use, given the weights handed out after a round and what it has itself."""
        return self.whole_model(weights, party.own.model)

    def local_update(self, start: Float[np.ndarray, "silos size"], party: Party, draws: PyTree) -> PyTree:
        """The silos after their training of a round.

        Args:
            start: What the round's training starts from.
            party: The silos.
            draws: Random numbers of all trainings of the round, as the exchange draws them.
        """
        return party.own._replace(model=self.train(start, party, draws))

    def remember_best(
        self, models: Float[np.ndarray, "silos size"], party: Party, when: Bool[np.ndarray, " silos"] | None = None
    ) -> Party:
        """The silos with their best models so far, after those of ``when`` (None: all) have judged one more.

        A silo whose AUC is undefined has no best model.
        """
        own, value = party.own, np.full(len(models), np.nan, np.float32)
        which = np.ones(len(models), bool) if when is None else when
        if which.any():
            value[which] = self.performance(models[which][:, None], some_of(party, which))[:, 0]
        better = value > own.best
        best_model = np.where(better[:, None], models, own.best_model)
        return party._replace(own=own._replace(best=np.where(better, value, own.best), best_model=best_model))

    @override
    def models(self, state: PyTree, party: Party) -> dict[str, Float[np.ndarray, "silos size"]]:
        weights = self.offer(state).weights
        last = self.personal_model(np.broadcast_to(weights, (len(party.own.model), *weights.shape)), party)
        own = self.remember_best(last, party).own
        best = np.where((own.best > -np.inf)[:, None], own.best_model, last)
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
    def ask(self, state: PyTree) -> PyTree:
        return self.settings.offer(state)

    def begin(self, request: PyTree, party: Party) -> tuple[Party, Float[np.ndarray, "silos size"]]:
        """The silos after judging the last model, and the models from which they train."""
        s, first = self.settings, np.asarray(request.round) == 0
        party = s.remember_best(s.personal_model(request.weights, party), party, ~first)
        start = s.starting_model(request.weights, party)
        if s.pretrain:
            start = np.where(first[:, None], party.own.model, start)
        return party, start

    @override
    def respond(self, request: PyTree, party: Party, draws: PyTree) -> tuple[Party, Any]:
        s = self.settings
        party, start = self.begin(request, party)
        after = s.local_update(start, party, draws)
        # A model that diverged is sent, and not heard; the silo keeps the one before.
        kept = after._replace(model=finite_or(after.model, party.own.model))
        return party._replace(own=kept), Trained(s.shared_part(after.model), row_count(party))

    @override
    def tell(self, state: PyTree, replies: PyTree, arrived: Bool[np.ndarray, " silos"]) -> PyTree:
        heard = arrived & is_finite(replies.weights)
        rows = update_rows(state.rows, replies.rows, heard)
        weights = average(replies.weights, rows, heard, state.weights)
        return state._replace(round=state.round + 1, weights=weights, rows=rows)


def average(
    models: Float[np.ndarray, "silos parameters"],
    rows: Float[np.ndarray, " silos"],
    which: Bool[np.ndarray, "*averages silos"],
    otherwise: Float[np.ndarray, "*averages parameters"],
) -> Float[np.ndarray, "*averages parameters"]:
    """Federated averages, weighted by rows (McMahan et al. 2017, Algorithm 1).

    Args:
        models: Models of the silos.
        rows: n_k.
        which: Whose models are in each average.
        otherwise: The result of an average of no models.
    """
    used = np.any(which, axis=tuple(range(which.ndim - 1)))
    amounts = np.where(which, np.maximum(rows.reshape((1,) * (which.ndim - 1) + (-1,)), 1.0), 0.0)
    total = np.sum(amounts, -1, keepdims=True)
    sent = np.where(used[:, None], models, 0.0)  # zero times NaN is NaN
    return np.where(total > 0, (amounts / np.maximum(total, 1.0)) @ sent, otherwise)


@dataclass(frozen=True)
class FedAvg(PersonalisedProtocol):
    """Silos: the average of all silos' models."""

    privacy: RecordPrivacy = field(default_factory=RecordPrivacy)

    name, paper = "fedavg", "mcmahan2017fedavg"
    published = (
        "McMahan et al.: Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017"
    )


@dataclass(frozen=True)
class FineTuned(PersonalisedProtocol):
    """Silos: the average of all silos, trained on at each silo.

    The local model of the round is the fine-tuned θ. After t + 1 rounds a silo has θ of t rounds and E epochs from
    there, as many epochs as θ of t + 1 rounds has had. The last average is of no use to it and need not be sent.
    """

    privacy: RecordPrivacy = field(default_factory=RecordPrivacy)

    name, paper = "fedavg-finetune", "mcmahan2017fedavg"
    published = "McMahan et al., AISTATS 2017, and local training afterwards"

    @override
    def personal_model(self, weights: Float[np.ndarray, "silos ..."], party: Party) -> Float[np.ndarray, "silos size"]:
        return party.own.model
