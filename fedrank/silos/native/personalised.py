"""FedAvg, its fine-tuning, Ditto, and silos by themselves without JAX; see :mod:`fedrank.silos.personalised`."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Float32, UInt32
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.native import check_own_class, mapped, native_rounds
from fedrank.core.protocol import Party
from fedrank.core.streams import folded, normals, stream
from fedrank.silos.averaging import PersonalisedProtocol, Train
from fedrank.silos.messages import Nothing, Ready, Trained
from fedrank.silos.native.rounds import NativeSilos
from fedrank.silos.native.training import trained
from fedrank.silos.party import Pretrain, is_finite
from fedrank.silos.personalised import Ditto, DrawNetwork, FedAvg, FineTuned, LocalOnly, Pooled, TrainAlone


@native_rounds.register(FedAvg)
@native_rounds.register(FineTuned)
@native_rounds.register(Ditto)
@native_rounds.register(LocalOnly)
@native_rounds.register(Pooled)
class NativePersonalised(NativeSilos):
    """Rounds of FedAvg, with fine-tuning or without, of Ditto, and of silos that train by themselves."""

    settings: PersonalisedProtocol

    def __init__(self, settings: PersonalisedProtocol, parties: Party):
        super().__init__(settings, parties)
        known = (FedAvg, FineTuned, Ditto, LocalOnly, Pooled)
        check_own_class(settings, next((kind for kind in known if type(settings) is kind), FedAvg))

    @override
    def first(self, key):
        if isinstance(self.settings, LocalOnly):
            return self.settings.first_state(np.zeros(0, np.float32))
        return super().first(key)

    def _personal(
        self, weights: Float[np.ndarray, "runs 1 parameters"], own: PyTree
    ) -> Float32[np.ndarray, "r s size"]:
        """The models that silos would use."""
        if isinstance(self.settings, FedAvg):
            return self.whole(weights, own.model)
        return own.personal if isinstance(self.settings, Ditto) else own.model

    def _remembered(
        self, own: PyTree, models: Float[np.ndarray, "runs silos size"], who: Bool[np.ndarray, "runs silos"]
    ) -> PyTree:
        """The silos with their best models so far, after they have judged one more."""
        value = np.full(who.shape, np.nan, np.float32)
        mine = mapped(lambda leaf: leaf[who], own)
        value[who] = self.performances(models[who][:, None], mine)[:, 0]
        better = value > own.best
        return own._replace(
            best=np.where(better, value, own.best), best_model=np.where(better[..., None], models, own.best_model)
        )

    @override
    def models_for(self, states, own):
        last = self._personal(states.weights[:, None], own)
        known = self._remembered(own, last, np.ones(own.number.shape, bool))
        best = np.where((known.best > -np.inf)[..., None], known.best_model, last)
        return {"last": last, "best": best}

    @override
    def answers(self, at, exchange, requests, own, asked):
        s = self.settings
        if isinstance(exchange, Pretrain):
            models = self.pretrained(at, exchange, requests, own, asked)
            return self.kept(own, models, asked), Ready(np.where(asked, self.row_counts(own), np.uint32(0)))
        keys = self.keys_of(at, asked.shape[1])
        if isinstance(exchange, DrawNetwork):
            words = stream(folded(keys, 1), 2)
            models = np.asarray(s.network.initial_of(normals(stream(words, s.network.size))))
            if s.pretrain:
                models = self.train(folded(keys, 0), exchange, models, own, asked)
            return own._replace(model=models), Nothing()
        if isinstance(exchange, TrainAlone):
            own = self.kept(own, self.train(keys, exchange, own.model, own, asked), asked)
            return self._remembered(own, own.model, asked), Nothing()
        assert isinstance(exchange, Train)  # there are no others
        weights = np.stack([request.weights for request in requests])[:, None]
        first = np.array([request.round == 0 for request in requests])
        if not first.all():
            own = self._remembered(own, self._personal(weights, own), asked & ~first[:, None])
        start = self.whole(weights, own.model)
        if s.pretrain:
            start = np.where(first[:, None, None], own.model, start)
        if isinstance(s, Ditto):
            personal = np.where(first[:, None, None], start, own.personal)
            return self._ditto(keys, exchange, start, own._replace(personal=personal), asked)
        models = self.train(keys, exchange, start, own, asked)
        return self.kept(own, models, asked), self.sent(models, own, asked)

    def _ditto(
        self,
        keys: UInt32[np.ndarray, "runs silos 2"],
        exchange: Train,
        start: Float[np.ndarray, "runs silos size"],
        own: PyTree,
        asked: Bool[np.ndarray, "runs silos"],
    ) -> tuple[PyTree, Trained]:
        """θ_k from θ, and a second model from where it was, pulled to θ."""
        assert isinstance(self.settings, Ditto)
        sgd = self.settings.sgd
        models, second = np.array(start, np.float32), np.array(own.personal, np.float32)
        for part in self.parts_of(asked):
            words = self.words(keys, exchange, part)
            rows = self.rows_of("train", mapped(lambda leaf, part=part: leaf[part], own))
            models[part] = trained(sgd, start[part], rows, words[:, : sgd.epochs])
            pulled = trained(sgd, second[part], rows, words[:, sgd.epochs :], self.settings.pull, start[part])
            second[part] = np.where(is_finite(pulled)[:, None], pulled, second[part])
        return self.kept(own, models, asked)._replace(personal=second), self.sent(models, own, asked)
