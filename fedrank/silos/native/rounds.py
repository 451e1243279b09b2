"""Rounds of silos without JAX: what all protocols have in common.

The server's part is the exchanges' own ``ask``, ``asked`` and ``tell``, run by run, with arrays of NumPy: it is little
work. What silos do is written here for all silos of all runs at once: training (:mod:`fedrank.silos.native.training`)
and judging.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, UInt32
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.native import NativeRounds, NotNativeError, mapped
from fedrank.core.protocol import Exchange, Party
from fedrank.core.rng import INIT
from fedrank.core.streams import folded, normals, stream
from fedrank.engine.simulator import selective
from fedrank.metrics.auc import host_auc, host_log_loss
from fedrank.silos.data.rows import Rows
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.messages import Trained
from fedrank.silos.native.training import trained
from fedrank.silos.network import TabularNetwork
from fedrank.silos.party import Part, SiloExchange, is_finite

#: Numbers of a layer's units, over all rows and models, that are judged at once.
_AT_ONCE = 1 << 22


class Place(NamedTuple):
    """Where a round is.

    Attributes:
        keys: Both words of each run's key of the round.
        number: Of the round.
        index: Of the exchange.
    """

    keys: UInt32[np.ndarray, "runs 2"]
    number: int
    index: int


class NativeSilos(NativeRounds):
    """Rounds of protocols of silos for NumPy.

    Args:
        settings: The protocol.
        parties: All silos; leaves of ``own`` are [silos, ...] or [runs, silos, ...].

    Raises:
        NotNativeError: These settings need JAX.
    """

    backend = "numpy"

    def __init__(self, settings: Any, parties: Party):
        if type(settings.sgd) is not LocalSgd or type(settings.network) is not TabularNetwork:
            raise NotNativeError("a record's ε" if settings.sgd.draws_noise else "a training or a network of one's own")
        self.settings, self._at_once = settings, 1
        parts = ("train", "vali", "test")
        self._parts = {part: Rows(*map(np.asarray, getattr(parties.shared, part))) for part in parts}

    # ---------------------------------------------------------------------------------------------------------- rounds

    @override
    def begin(self, keys, parties):
        own = mapped(np.asarray, parties.own)
        if own.number.ndim == 1:
            own = mapped(lambda leaf: np.broadcast_to(leaf, (len(keys), *leaf.shape)), own)
        return stacked([self.first(key) for key in folded(keys, INIT)]), own

    def first(self, key: UInt32[np.ndarray, "2"]) -> PyTree:
        """A server's state before the first round.

        Args:
            key: Of the start, consumed.
        """
        return self.settings.first_state(self.fresh(folded(key, 0)))

    @override
    def round(self, state, own, keys, number, arrived, chunk):
        s, runs = self.settings, len(keys)
        self._at_once = chunk * runs
        states = [mapped(lambda leaf, run=run: leaf[run], state) for run in range(runs)]
        crossed = np.zeros((runs, len(s.exchanges), 2), np.int32)
        with np.errstate(all="ignore"):  # numbers of models that diverged
            for index, exchange in enumerate(s.exchanges):
                if not exchange.due(number):
                    continue
                everybody = np.ones(arrived.shape[1], bool)
                asked = [exchange.asked(one, arrived.shape[1]) for one in states]
                asked = np.stack([everybody if one is None else one for one in asked])
                requests = [exchange.ask(one) for one in states]
                at = Place(folded(keys, number), number, index)
                own, replies = self.answers(at, exchange, requests, own, asked)
                heard = arrived & asked
                for run in range(runs):
                    fields = {f.name: getattr(replies, f.name)[run] for f in dataclasses.fields(replies)}
                    states[run] = exchange.tell(states[run], type(replies)(**fields), heard[run])
                if not exchange.silent:
                    crossed[:, index] = np.stack([asked.sum(1), heard.sum(1)], axis=-1)
            watched = [s.watch(one) for one in states]
            states = stacked(states, state)
        told: dict[str, Any] = {}
        if watched[0]:
            told["watched"] = {name: np.stack([one[name] for one in watched]) for name in watched[0]}
        if selective(s):
            told["crossed"] = crossed
        return states, own, told

    @abc.abstractmethod
    def answers(
        self,
        at: Place,
        exchange: Exchange,
        requests: Sequence[Any],
        own: PyTree,
        asked: Bool[np.ndarray, "runs silos"],
    ) -> tuple[PyTree, Any]:
        """What silos keep, and their messages with fields [runs, silos, ...]: zeros of those that are not asked."""

    # ---------------------------------------------------------------------------------------------------------- models

    def usable_models(
        self, states: PyTree, own: PyTree, targets: Int[np.ndarray, "runs targets"]
    ) -> dict[str, Float32[np.ndarray, "runs targets size"]]:
        """The models that each target could use, by name, as it uses them.

        Args:
            states: Server states [runs, ...].
            own: What the silos keep, [runs, silos, ...].
            targets: Numbers of the silos that each run is measured for.
        """
        run = np.arange(len(targets))[:, None]
        with np.errstate(all="ignore"):
            models = self.models_for(states, mapped(lambda leaf: leaf[run, targets], own))
            mine = mapped(lambda leaf: leaf[run, targets], own)
            return {name: self.usable(model, mine) for name, model in models.items()}

    @abc.abstractmethod
    def models_for(self, states: PyTree, own: PyTree) -> dict[str, Float32[np.ndarray, "runs targets size"]]:
        """:meth:`fedrank.silos.party.SiloProtocol.models` of some silos of each run, before they are recalibrated."""

    def whole(
        self, weights: Float[np.ndarray, "*#lead parameters"], model: Float[np.ndarray, "*#lead size"]
    ) -> Float32[np.ndarray, "*lead size"]:
        """Models from the numbers that crossed, and those of silos' own models that do not."""
        s = self.settings
        if s.parameters == s.network.size:
            return np.broadcast_to(weights, np.broadcast_shapes(weights.shape, model.shape))
        lead = np.broadcast_shapes(weights.shape[:-1], model.shape[:-1])
        out = np.array(np.broadcast_to(model, (*lead, s.network.size)))
        out[..., s.crosses] = weights
        return out

    def shared_part(self, models: Float[np.ndarray, "*lead size"]) -> Float32[np.ndarray, "*lead parameters"]:
        """The numbers of models that cross."""
        s = self.settings
        return models if s.parameters == s.network.size else models[..., s.crosses]

    def fresh(self, keys: UInt32[np.ndarray, "*lead 2"]) -> Float32[np.ndarray, "*lead parameters"]:
        """The numbers of fresh networks that cross."""
        network = self.settings.network
        return self.shared_part(network.initial_of(normals(stream(keys, network.size))))

    def usable(self, models: Float[np.ndarray, "*lead size"], own: PyTree) -> Float32[np.ndarray, "*lead size"]:
        """Models as the silos use them: where ``recalibrate``, with statistics of their training rows.

        Args:
            models: One or more of each silo: axes of models come after those of ``own``.
            own: What the silos keep.
        """
        if self.settings.crossing != "recalibrate":
            return models
        rows = self.rows_of("train", own)
        more = models.ndim - 1 - own.number.ndim
        lead = models.shape[:-1]
        where = rows.where
        x, where = (
            np.broadcast_to(a.reshape(*own.number.shape, *(1,) * more, *a.shape[own.number.ndim :]), (*lead, *tail))
            for a, tail in ((rows.x, rows.x.shape[-2:]), (where, where.shape[-1:]))
        )
        return self.settings.network.recalibrated(models, x, where)

    # ------------------------------------------------------------------------------------------------ what silos do

    def rows_of(self, part: Part, own: PyTree) -> Rows:
        """Rows of silos: leading axes as those of ``own.number``."""
        return Rows(*(leaf[own.split, own.number] for leaf in self._parts[part]))

    def keys_of(self, at: Place, silos: int) -> UInt32[np.ndarray, "runs silos 2"]:
        """Keys of the silos in an exchange, as :meth:`fedrank.engine.simulator.Simulator._key` makes them."""
        keys = np.broadcast_to(at.keys[:, None], (len(at.keys), silos, 2))
        keys = folded(keys, np.broadcast_to(np.arange(silos), keys.shape[:-1]))
        return keys if len(self.settings.exchanges) == 1 else folded(keys, at.index)

    def train(
        self,
        keys: UInt32[np.ndarray, "runs silos 2"],
        exchange: SiloExchange,
        start: Float[np.ndarray, "runs silos size"],
        own: PyTree,
        who: Bool[np.ndarray, "runs silos"],
    ) -> Float32[np.ndarray, "runs silos size"]:
        """Models after E epochs at the silos that train; the others' as they were."""
        out = np.array(start, np.float32)
        for part in self.parts_of(who):
            rows = self.rows_of("train", mapped(lambda leaf, part=part: leaf[part], own))
            out[part] = trained(self.settings.sgd, out[part], rows, self.words(keys, exchange, part))
        return out

    def parts_of(self, who: Bool[np.ndarray, "runs silos"]) -> Iterator[Bool[np.ndarray, "runs silos"]]:
        """The silos that train, as many at once as the round's chunk allows in all runs: rows are copied for each."""
        places = np.flatnonzero(who)
        for first in range(0, len(places), self._at_once):
            part = np.zeros(who.size, bool)
            part[places[first : first + self._at_once]] = True
            yield part.reshape(who.shape)

    def words(
        self, keys: UInt32[np.ndarray, "runs silos 2"], exchange: SiloExchange, who: Bool[np.ndarray, "runs silos"]
    ) -> UInt32[np.ndarray, "trainings epochs rows"]:
        """Random bits of the shuffles of the silos that train."""
        epochs, rows = exchange.rng_shape()
        return stream(keys[who], epochs * rows).reshape(-1, epochs, rows)

    def sent(
        self, models: Float[np.ndarray, "runs silos size"], own: PyTree, who: Bool[np.ndarray, "runs silos"]
    ) -> Trained:
        """The messages of silos that trained; zeros of the others."""
        rows = np.where(who, self.row_counts(own), np.uint32(0))
        return Trained(np.where(who[..., None], self.shared_part(models), np.float32(0)), rows)

    def row_counts(self, own: PyTree) -> UInt32[np.ndarray, "*lead"]:
        """How many rows silos have to train on."""
        return np.asarray(self._parts["train"].n[own.split, own.number]).astype(np.uint32)

    def performances(
        self, models: Float[np.ndarray, "silos models size"], own: PyTree, part: Part = "vali"
    ) -> Float32[np.ndarray, "silos models"]:
        """:meth:`fedrank.silos.party.SiloProtocol.performance` of some models of each of some silos."""
        s = self.settings
        usable = self.usable(models, own)
        out = np.empty(models.shape[:2], np.float32)
        widest = max(s.network.n_features, 2, *s.network.widths)
        step = max(1, _AT_ONCE // (widest * self._parts[part].x.shape[-2] * max(1, models.shape[1])))
        for first in range(0, len(models), step):
            here = slice(first, first + step)
            rows = self.rows_of(part, mapped(lambda leaf, here=here: leaf[here], own))
            most = max(1, int(rows.n.max(initial=0)))  # no more padding than must be
            found = s.network.scores(usable[here], rows.x[:, None, :most])
            labels, where = (np.asarray(leaf)[:, None, :most] for leaf in (rows.y, rows.where))
            out[here] = host_auc(found, labels, where) if s.measure == "auc" else -host_log_loss(found, labels, where)
        return out

    def kept(
        self, own: PyTree, models: Float[np.ndarray, "runs silos size"], who: Bool[np.ndarray, "runs silos"]
    ) -> PyTree:
        """The silos with new local models, where they trained and training did not diverge."""
        return own._replace(model=np.where((who & is_finite(models))[..., None], models, own.model))

    def pretrained(
        self,
        at: Place,
        exchange: SiloExchange,
        requests: Sequence[Any],
        own: PyTree,
        who: Bool[np.ndarray, "runs silos"],
    ) -> Float32[np.ndarray, "runs silos size"]:
        """Models before the first round: the same fresh network, after E epochs at each silo."""
        weights = np.stack([request.weights for request in requests])[:, None]
        return self.train(self.keys_of(at, who.shape[1]), exchange, self.whole(weights, own.model), own, who)


def stacked(states: Sequence[PyTree], like: PyTree | None = None) -> PyTree:
    """States of runs as one with a leading axis, of the kinds of numbers of ``like``."""
    if like is None:
        return mapped(lambda *leaves: np.stack(leaves), *states)
    return mapped(lambda old, *leaves: np.stack(leaves).astype(old.dtype, copy=False), like, *states)
