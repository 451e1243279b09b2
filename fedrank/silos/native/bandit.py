"""MAB-FL without JAX; what a round is stands in :mod:`fedrank.silos.bandit_fedavg`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt32
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.native import NotNativeError, check_own_class, mapped, native_rounds
from fedrank.core.protocol import Party
from fedrank.core.rng import INIT
from fedrank.core.streams import folded
from fedrank.silos.bandit_fedavg import BanditFedAvg
from fedrank.silos.bandit_fedavg.exchanges import Judge, PretrainAndSend, Probe, Train, TrainAndJudge
from fedrank.silos.bandits.rules import KINDS, Rule
from fedrank.silos.messages import Judged, Ready, Trained, TrainedAndJudged, encode_undefined
from fedrank.silos.native.rounds import NativeSilos, Place, stacked
from fedrank.silos.party import Pretrain


class NativeBandit(NativeSilos):
    """Rounds of :class:`~fedrank.silos.bandit_fedavg.BanditFedAvg`.

    :meth:`personalise` gives each run a target and a rule of its own.
    """

    settings: BanditFedAvg

    def __init__(self, settings: BanditFedAvg, parties: Party):
        super().__init__(settings, parties)
        check_own_class(settings, BanditFedAvg)
        if settings.judgements is not None:
            raise NotNativeError("a record's ε")
        if settings.arms == "clusters":
            raise NotNativeError("bandit.arms = 'clusters'")
        if any(KINDS[kind] == "thompson" for kind in settings.kinds or ()):
            raise NotNativeError("bandit.rule = 'thompson'")
        self._each: list[tuple[Rule, int]] | None = None

    def personalise(self, targets: Sequence[int], fixed: Sequence[int] | None = None) -> None:
        """Set what differs from run to run, before :meth:`begin`.

        Args:
            targets: The target of each run.
            fixed: The arm that each run always plays, where the rule is of that kind.
        """
        rule = self.settings.rule
        arms = [rule.fixed] * len(targets) if fixed is None else [np.asarray(arm, np.int32) for arm in fixed]
        self._each = [(rule._replace(fixed=arm), int(target)) for arm, target in zip(arms, targets, strict=True)]

    @override
    def begin(self, keys, parties):
        states, own = super().begin(keys, parties)
        if self._each is not None:
            begun = folded(keys, INIT)
            states = stacked([self._first(key, *each) for key, each in zip(begun, self._each, strict=True)])
        return states, own

    @override
    def first(self, key):
        return self._first(key, self.settings.rule, self.settings.target)

    def _first(self, key: UInt32[np.ndarray, "2"], rule: Rule, target: int) -> PyTree:
        return self.settings.first_state(self.fresh(folded(key, 0)), folded(key, 1), rule, target)

    @override
    def models_for(self, states, own):
        last = self.whole(states.weights[:, None], own.model)
        judged = (states.best > -np.inf)[:, None, None]
        best = self.whole(states.best_weights[:, None], np.where(judged, own.best_model, own.model))
        return {"last": last, "best": best}

    @override
    def answers(self, at, exchange, requests, own, asked):
        if isinstance(exchange, Pretrain):
            models = self.pretrained(at, exchange, requests, own, asked)
            own = self.kept(own, models, asked)
            if isinstance(exchange, PretrainAndSend):
                return own, self.sent(models, own, asked)
            return own, Ready(np.where(asked, self.row_counts(own), np.uint32(0)))
        if isinstance(exchange, TrainAndJudge):
            # Judge first: the averages are compared with the local model of their own round.
            judged = self._judged(requests, own, asked)
            own, sent = self._trained(at, exchange, requests, own, asked)
            return own, TrainedAndJudged(sent.weights, sent.rows, judged.own, judged.models)
        if isinstance(exchange, Train):
            return self._trained(at, exchange, requests, own, asked)
        assert isinstance(exchange, Judge | Probe)  # there are no others
        judged = self._judged(requests, own, asked)
        if isinstance(exchange, Judge):
            own = self._with_best(own, judged, asked, exchange.which == "all" and self.settings.has_alone)
        return own, judged

    def _trained(
        self,
        at: Place,
        exchange: Train,
        requests: Sequence[Any],
        own: PyTree,
        asked: Bool[np.ndarray, "runs silos"],
    ) -> tuple[PyTree, Trained]:
        """Local training from θ; in round 0 from the silos' own pre-trained models."""
        start = self.whole(np.stack([request.weights for request in requests])[:, None], own.model)
        if self.settings.pretrain:
            first = np.array([request.round == 0 for request in requests])
            start = np.where(first[:, None, None], own.model, start)
        models = self.train(self.keys_of(at, asked.shape[1]), exchange, start, own, asked)
        return self.kept(own, models, asked), self.sent(models, own, asked)

    def _judged(self, requests: Sequence[Any], own: PyTree, asked: Bool[np.ndarray, "runs silos"]) -> Judged:
        """The targets' judgements of their own local models and of those that were sent to them."""
        weights = np.stack([request.models for request in requests])
        runs, silos = np.nonzero(asked)
        mine = mapped(lambda leaf: leaf[runs, silos], own)
        models = self.whole(weights[runs], mine.model[:, None])
        values = self.performances(np.concatenate([mine.model[:, None], models], axis=1), mine)
        reply = np.zeros((*asked.shape, values.shape[1]), np.float32)
        reply[runs, silos] = encode_undefined(values)
        return Judged(reply[..., 0], reply[..., 1:])

    def _with_best(self, own: PyTree, judged: Judged, asked: Bool[np.ndarray, "runs silos"], alone: bool) -> PyTree:
        """:meth:`fedrank.silos.bandit_fedavg.BanditFedAvg.record_best` of the targets that were asked."""
        value = judged.models.max(axis=-1)
        value = np.maximum(value, judged.own) if alone else value
        better = asked & (value > own.best)
        return own._replace(
            best=np.where(better, value, own.best), best_model=np.where(better[..., None], own.model, own.best_model)
        )


native_rounds.register(BanditFedAvg, NativeBandit)
