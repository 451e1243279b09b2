"""FedFomo: every silo downloads other silos' models and mixes them by what they are worth on its validation rows.

Zhang, Sapra, Fidler, Yeung, Alvarez: *Personalized federated learning with first order model optimization*, ICLR 2021.
One round::

    server   hands out silos' models of the last round, all or M for each silo                 Others
    silo i   with θ_i the model that its last training started from, θ_n each of the models
             and its own newest, L its mean loss on validation rows:
                 w_n ∝ max(0, (L(θ_i) − L(θ_n)) / ‖θ_n − θ_i‖), Σ w_n = 1   (equations 5 and 6)
                 θ_i ← θ_i + Σ w_n (θ_n − θ_i)
             trains from θ_i for E epochs; sends the outcome and the weights                   TrainedOnMix

If nothing is better than θ_i, θ_i stays, its own training included. Distances are over what gradients change and what
crosses: batch normalisation's running variances would outweigh all else. A mix has the running statistics of the mix.

**Which models.** With ``downloads`` all are sent to every silo, k models a message, a silo's own among them. With M
fewer a silo gets M of the others: in each place, with probability ε, one at random, otherwise the one that it has mixed
most of so far (the affinities of Algorithm 1, ties at random).

**What it reveals.** Silos see each other's models as they are.

The setup is that of all methods, but the models after pre-training are sent, so that round 0 can mix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32
from typing_extensions import override

from fedrank.core import messages as wire
from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.messages import f4, message, u4
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party
from fedrank.core.streams import fold_words, split, stream, uniforms
from fedrank.silos.averaging import PersonalisedProtocol
from fedrank.silos.data.splits import SiloArrays
from fedrank.silos.messages import SEEN, Model, Trained
from fedrank.silos.party import Pretrain, SiloExchange, is_finite, row_count, update_rows

#: Most silos that can be sent different models: each of them is an exchange.
MOST_APART = 32


@dataclass(frozen=True, kw_only=True)
class FedFomoSettings:
    """Settings that only FedFomo has."""

    downloads: int | None = setting(None, "Number of other silos' models that a silo is sent; without it all.")
    explore: float = setting(0.3, "Probability that one of them is random.")


@message(kind=11)
class Others:
    """FedFomo's server to a silo: models of other silos."""

    round: wire.Array = wire.field(u4, "number of the round")
    who: wire.Array = wire.field(u4["models"], "whose models these are")
    weights: wire.Array = wire.field(f4["models", "parameters"], "silos' models as they were sent")


@message(kind=12)
class TrainedOnMix:
    """FedFomo's silo to server: its local model, and what it mixed before; the weights add up to at most 1."""

    weights: wire.Array = wire.field(f4["parameters"], "the model after training on the silo's rows")
    rows: wire.Array = wire.field(u4, "number of rows that the silo trains on")
    mixed: wire.Array = wire.field(f4["models"], "how much of each model the silo mixed into its own")


class FomoOwn(NamedTuple):
    """State of silos: the fields of :class:`fedrank.silos.party.SiloOwn`, and a second model.

    Attributes:
        number, split, model, best, best_model: As there.
        personal: θ_i, the model that the last training started from.
    """

    number: Int[np.ndarray, "*lead"]
    split: Int[np.ndarray, "*lead"]
    model: Float[np.ndarray, "*lead size"]
    best: Float[np.ndarray, "*lead"]
    best_model: Float[np.ndarray, "*lead size"]
    personal: Float[np.ndarray, "*lead size"]


class FomoState(NamedTuple):
    """State of the server between rounds; a message holds ``models`` models.

    Attributes:
        round: Number of the round.
        key: Both words of the key of the draws that decide which models are tried.
        rows: n_k, as far as the silos have said.
        models: The newest model that was heard from each silo in the rounds before; at first the fresh one.
        newest: The same with what was heard in this round.
        affinity: How much of each model each silo has mixed so far.
        chosen: Whose models each silo is sent.
        mixed: What each silo mixed last; the rest to 1 is its own newest, or all are 0.
    """

    round: UInt32[AnyArray, ""]
    key: UInt32[np.ndarray, "2"]
    rows: Float[np.ndarray, " silos"]
    models: Float[np.ndarray, "silos parameters"]
    newest: Float[np.ndarray, "silos parameters"]
    affinity: Float[np.ndarray, "silos silos"]
    chosen: Int[np.ndarray, "silos models"]
    mixed: Float[np.ndarray, "silos silos"]


@dataclass(frozen=True)
class FedFomo(PersonalisedProtocol):
    """Silos: each mixes the others' models by how much they help it."""

    personal: FedFomoSettings = field(default_factory=FedFomoSettings)

    name, paper = "fedfomo", "zhang2021fedfomo"
    published = "Zhang et al.: Personalized Federated Learning with First Order Model Optimization, ICLR 2021"

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.personal.explore <= 1:
            raise ConfigError(f"explore must be in [0, 1], got {self.personal.explore}.")
        if self.downloads is None or self.sgd is None:
            return
        if not 1 <= self.downloads < self.silos:
            raise ConfigError(f"downloads must be in 1..{self.silos - 1}, fewer than silos; got {self.downloads}.")
        if self.silos > MOST_APART:
            raise ConfigError(
                f"downloads can be chosen for at most {MOST_APART} silos, got {self.silos}; leave it out to send all."
            )

    @property
    def downloads(self) -> int | None:
        """M, number of models of others that a silo is sent; None: all."""
        return self.personal.downloads

    @property
    def sent_models(self) -> int:
        """Number of models in a message."""
        return self.silos if self.downloads is None else self.downloads

    @property
    @override
    def sizes(self) -> dict[str, int]:
        return {"parameters": self.parameters, "models": self.sent_models}

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        # Training is one exchange of all silos or, where each is sent other models, one a silo.
        first = (PretrainAndSend(self),) if self.pretrain else ()
        if self.downloads is None:
            return (*first, MixAndTrain(self))
        last = self.silos - 1
        return (*first, *(MixAndTrain(self, silo, silo == last) for silo in range(self.silos)))

    @override
    def parties(self, arrays: SiloArrays, splits: Sequence[int] | Int[np.ndarray, " runs"] | None = None) -> Party:
        party = super().parties(arrays, splits)
        return party._replace(own=FomoOwn(*party.own, personal=party.own.model))

    @override
    def init(self, key: UInt32[np.ndarray, "2"] | None) -> FomoState:
        assert key is not None
        k = self.silos
        models = np.broadcast_to(self.first_model(fold_words(key, 0)), (k, self.parameters))
        pairs, rows = np.zeros((k, k), np.float32), np.zeros(k, np.float32)
        chosen = np.zeros((k, self.sent_models), np.int32)
        return self.choose_models(
            FomoState(np.asarray(0, np.uint32), fold_words(key, 1), rows, models, models, pairs, chosen, pairs)
        )

    def choose_models(self, state: FomoState) -> FomoState:
        """The state with ``chosen`` for the next round."""
        k, m = self.silos, self.sent_models
        if m == k:
            return state._replace(chosen=np.broadcast_to(np.arange(k, dtype=np.int32), (k, k)))
        keys = split(fold_words(state.key, 1), k)
        chosen = [self._choose_for(state.affinity[silo], silo, keys[silo]) for silo in range(k)]
        return state._replace(key=fold_words(state.key, 0), chosen=np.stack(chosen))

    def _choose_for(
        self, affinity: Float[np.ndarray, " silos"], silo: int, key: UInt32[np.ndarray, "2"]
    ) -> Int[np.ndarray, " models"]:
        """Silos whose models one silo is sent."""
        tries, ties, luck = split(key, 3)
        explore = uniforms(stream(tries, self.sent_models)) < np.float32(self.personal.explore)
        order = np.lexsort((uniforms(stream(ties, self.silos)), affinity))
        rank = np.zeros(self.silos, np.float32)
        rank[order] = np.arange(self.silos)
        random = uniforms(stream(luck, self.silos))
        taken, chosen = np.arange(self.silos) == silo, []
        for place in range(self.sent_models):
            chosen.append(np.argmax(np.where(taken, -1.0, random if explore[place] else rank)))
            taken = taken | (np.arange(self.silos) == chosen[-1])
        return np.array(chosen, np.int32)

    @override
    def weights(self, state: FomoState) -> Float[np.ndarray, "silos parameters"]:
        return state.models

    @override
    def models(self, state: FomoState, party: Party) -> dict[str, Float[np.ndarray, "silos size"]]:
        who = state.chosen[party.own.number]
        last = self.mix(who, state.models[who], party)[0]
        own = self.remember_best(last, party).own
        best = np.where((own.best > -np.inf)[:, None], own.best_model, last)
        return {"last": self.usable(last, party), "best": self.usable(best, party)}

    @override
    def watch(self, state: FomoState) -> dict[str, Any]:
        return {"mixed": state.mixed, "affinity": state.affinity}

    def mix(
        self, who: Int[np.ndarray, "silos models"], weights: Float[np.ndarray, "silos models parameters"], party: Party
    ) -> tuple[Float[np.ndarray, "silos size"], Float[np.ndarray, "silos models"]]:
        """Equations 5 and 6.

        Args:
            who: Whose the models are; a silo's own among them is left out.
            weights: The models that each silo is sent.
            party: The silos, with their newest models and those that their last training started from.

        Returns:
            The mixed model of each silo, and the weight of each of the models.
        """
        own, before = party.own, party.own.personal[:, None]
        newest = own.model[:, None]
        candidates = np.concatenate([self.whole_model(weights, newest), newest], axis=1)
        there = np.concatenate([who != own.number[:, None], np.ones((len(who), 1), bool)], axis=1)
        moves = np.where((there & is_finite(candidates))[..., None], candidates - before, np.float32(0))
        compared = self.shared_positions[self.shared_positions < self.net.trainable]
        distance = np.sqrt(np.sum(moves[..., compared] ** 2, axis=-1))
        gain = self.performance(before + moves, party, "vali", "log-loss")
        gain = gain - self.performance(before, party, "vali", "log-loss")
        better = (distance > 0) & (gain > 0) & np.isfinite(gain)
        worth = np.where(better, gain / np.where(distance > 0, distance, 1), np.float32(0))
        total = np.sum(worth, axis=1, keepdims=True)
        share = worth / np.where(total > 0, total, 1)
        return (before + share[:, None] @ moves)[:, 0], share[:, :-1]

    @override
    def local_update(self, start: Float[np.ndarray, "silos size"], party: Party, draws: PyTree) -> PyTree:
        # The next mix is compared with the model that the training started from.
        return party.own._replace(model=self.train(start, party, draws), personal=start)

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        return PrivacyReport.none(
            rounds, SEEN, ("No row is in a message. Silos are shown other silos' models as they are.",)
        )


@dataclass(frozen=True)
class PretrainAndSend(Pretrain, request=Model, reply=Trained):
    """Before round 0 every silo trains the same fresh network and sends the outcome."""

    @override
    def ask(self, state: FomoState) -> Model:
        return Model(state.round, state.models[0])  # all are the fresh network

    @override
    def respond(self, request: Model, party: Party, draws: PyTree) -> tuple[Party, Trained]:
        s = self.settings
        party = party._replace(own=s.local_update(s.starting_model(request.weights, party), party, draws))
        return party, Trained(s.shared_part(party.own.model), row_count(party))

    @override
    def tell(self, state: FomoState, replies: Trained, arrived: Bool[np.ndarray, " silos"]) -> FomoState:
        heard = arrived & is_finite(replies.weights)
        models = np.where(heard[:, None], replies.weights, state.models)
        return state._replace(models=models, newest=models, rows=update_rows(state.rows, replies.rows, heard))


@dataclass(frozen=True)
class MixAndTrain(SiloExchange, request=Others, reply=TrainedOnMix):
    """A round of all silos, or of one.

    Attributes:
        silo: Which silo is asked; None: all are.
        last: Whether the round ends here.
    """

    silo: int | None = None
    last: bool = True

    name = "train"

    @override
    def asked(self, state: FomoState, parties: int) -> Bool[np.ndarray, " silos"] | None:
        return None if self.silo is None else np.arange(parties) == self.silo

    @override
    def max_asked(self, parties: int) -> int:
        return parties if self.silo is None else 1

    @override
    def ask(self, state: FomoState) -> Others:
        who = state.chosen[self.silo or 0]
        return Others(state.round, who.astype(np.uint32), state.models[who])

    @override
    def respond(self, request: Others, party: Party, draws: PyTree) -> tuple[Party, TrainedOnMix]:
        s, first = self.settings, np.asarray(request.round) == 0
        if not s.pretrain:  # the silos have no model yet: all that they are sent are the same fresh one
            own, fresh = party.own, s.whole_model(request.weights[:, 0], party.own.model)
            model, personal = (np.where(first[:, None], fresh, before) for before in (own.model, own.personal))
            party = party._replace(own=own._replace(model=model, personal=personal))
        start, mixed = s.mix(request.who.astype(np.int32), request.weights, party)
        party = s.remember_best(start, party, ~first)
        party = party._replace(own=s.local_update(start, party, draws))
        return party, TrainedOnMix(s.shared_part(party.own.model), row_count(party), mixed)

    @override
    def tell(self, state: FomoState, replies: TrainedOnMix, arrived: Bool[np.ndarray, " silos"]) -> FomoState:
        s = self.settings
        heard = arrived & is_finite(replies.weights)
        row = np.arange(s.silos)[:, None]
        shares = np.where(np.isfinite(replies.mixed), replies.mixed, 0.0)
        mixed = np.zeros((s.silos, s.silos), np.float32)
        np.add.at(mixed, (row, state.chosen), shares)
        mixed = np.where(heard[:, None], mixed, 0.0)
        state = state._replace(
            rows=update_rows(state.rows, replies.rows, heard),
            newest=np.where(heard[:, None], replies.weights, state.newest),
            affinity=state.affinity + mixed,
            mixed=mixed if self.silo in (None, 0) else state.mixed + mixed,
        )
        if not self.last:
            return state
        # What came is what silos are sent in the next round.
        return s.choose_models(state._replace(models=state.newest, round=state.round + 1))
