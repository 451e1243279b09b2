"""Bounds of what a federation of silos brings: each silo by itself, and one learner on the rows of all.

They have the setup and the choice of a model of :mod:`fedrank.silos.averaging`. A silo trains θ_k ← train(θ_k) and uses
θ_k; nothing crosses. Pooled rows, the upper bound, are a single silo with the rows of :func:`pool_training_rows`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, UInt32
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party
from fedrank.core.streams import fold_words, stream
from fedrank.privacy.randomised_response import os_words
from fedrank.silos.averaging import PersonalisedProtocol, ServerState
from fedrank.silos.data.splits import Rows, SiloArrays
from fedrank.silos.messages import Nothing
from fedrank.silos.party import Held, SiloExchange


@dataclass(frozen=True)
class LocalOnly(PersonalisedProtocol):
    """Silos: every silo by itself.

    A silo draws its own fresh network. Rounds are rounds of E epochs, so that it has trained as much as in any other
    method. The exchanges are *silent*: a simulator lets every silo answer and must count no message.
    """

    name, crosses = "local-only", "nothing"

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (DrawNetwork(self), TrainAlone(self))

    @override
    def init(self, key: UInt32[np.ndarray, "2"] | None) -> ServerState:
        # The server has no model; the key is not needed.
        return ServerState(np.asarray(0, np.uint32), np.zeros(0, np.float32), np.zeros(self.silos, np.float32))

    @override
    def personal_model(self, weights: Float[np.ndarray, "silos ..."], party: Party) -> Float[np.ndarray, "silos size"]:
        return party.own.model

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        return PrivacyReport.none(
            rounds, "Nothing crosses. What is done with a silo's model is the silo's own affair.", ()
        )


@dataclass(frozen=True)
class Pooled(LocalOnly):
    """Silos: one learner on the rows of all, a bound of what federating can reach."""

    name, crosses, tells_standards = "pooled", "everything: all rows", False

    @override
    def hold(self, held: Held) -> Held:
        target, *others = held.targets
        if others:
            raise ConfigError("pooled learns from the rows of all for one silo; name it as silos.target.")
        table = replace(held.table, silos=(held.table.silos[target],))
        return Held(table, pool_training_rows(held.arrays, target), (0,))

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
    def tell(self, state: ServerState, replies: Nothing, arrived: Bool[np.ndarray, " silos"]) -> ServerState:
        return state._replace(round=state.round + 1)


@dataclass(frozen=True)
class DrawNetwork(TrainAlone):
    """Before round 0 a silo draws a fresh network and, if there is pre-training, trains it for the first time."""

    name, once = "pretrain", True

    @override
    def draw(self, key: UInt32[np.ndarray, "silos 2"]) -> PyTree:
        # A key of a network is two random words.
        return super().draw(fold_words(key, 0)), stream(fold_words(key, 1), 2)

    @override
    def draw_from_os(self) -> PyTree:
        return super().draw_from_os(), os_words((2,))

    @override
    def respond(self, request: Nothing, party: Party, draws: PyTree) -> tuple[Party, Nothing]:
        s, (bits, network) = self.settings, draws
        model = s.net.initial(network)
        if s.pretrain:
            model = s.train(model, party, bits)
        return party._replace(own=party.own._replace(model=model)), Nothing()

    @override
    def tell(self, state: ServerState, replies: Nothing, arrived: Bool[np.ndarray, " silos"]) -> ServerState:
        return state


def pool_training_rows(arrays: SiloArrays, target: int) -> SiloArrays:
    """One silo that has the training rows of all and the target's rows to validate and test: an upper bound.

    It shows what could be learned if the rows were allowed to leave. Each silo has standardised its rows by itself, as
    in the federation, so a difference of two silos' means is not in the pooled rows either.

    Args:
        arrays: Leading axes [silos] or [..., silos].
        target: The target's number.

    Returns:
        Arrays with the same leading axes and one silo.
    """
    x, y, n = (np.asarray(a) for a in arrays.train)
    *leading, silos, rows, features = x.shape
    x, y = x.reshape(*leading, silos * rows, features), y.reshape(*leading, silos * rows)
    # Valid rows first, otherwise in the order they are in.
    order = np.argsort(~arrays.train.where.reshape(y.shape), axis=-1, kind="stable")
    total = n.sum(axis=-1, dtype=np.int32)
    order = order[..., : total.max()]
    x, y = np.take_along_axis(x, order[..., None], axis=-2), np.take_along_axis(y, order, axis=-1)
    axis = len(leading)
    train = Rows(*(np.expand_dims(a, axis) for a in (x, y, total)))
    own = [Rows(*(np.take(np.asarray(a), [target], axis=axis) for a in part)) for part in (arrays.vali, arrays.test)]
    return SiloArrays(train, *own)
