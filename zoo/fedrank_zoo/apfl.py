"""APFL: a mixture α·v + (1 − α)·w of a silo's own model and the server's.

Deng, Kamani, Mahdavi: *Adaptive personalized federated learning*, arXiv 2003.13461, 2020, Algorithm 1 and equation 10.
In each step w moves by ∇F_k(w) and v by the gradient of F_k(α·v + (1 − α)·w) with respect to v, on the same batch; w
crosses and is averaged.

Running statistics of a normalisation are mixed like all other numbers: those of the mixture's own training with α,
those of θ with 1 − α. That is exact for α of 0 and 1; ``crossing="recalibrate"`` estimates them anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.protocol import Exchange, Party
from fedrank.silos.averaging import PersonalisedProtocol, Train
from fedrank.silos.data.splits import SiloArrays
from fedrank.silos.messages import Model, Trained
from fedrank.silos.network import Gradient
from fedrank.silos.party import Pretrain, finite_or, row_count, rows_of


@dataclass(frozen=True, kw_only=True)
class ApflSettings:
    """Settings that only APFL has."""

    share: float = setting(0.5, "α, the part of a silo's own model before the first round.")
    adaptive: bool = setting(True, "Let every silo adapt α.")


class ApflOwn(NamedTuple):
    """State of silos: the fields of :class:`fedrank.silos.party.SiloOwn`, v and α.

    Attributes:
        number, split, model, best, best_model: As there.
        personal: v, the model that never crosses.
        share: α.
    """

    number: Int[np.ndarray, "*lead"]
    split: Int[np.ndarray, "*lead"]
    model: Float[np.ndarray, "*lead size"]
    best: Float[np.ndarray, "*lead"]
    best_model: Float[np.ndarray, "*lead size"]
    personal: Float[np.ndarray, "*lead size"]
    share: Float[np.ndarray, "*lead"]


@dataclass(frozen=True)
class Apfl(PersonalisedProtocol):
    """Silos: a mixture of a silo's own model and the average of all silos.

    Where it is adaptive a silo changes α once a round before its training, by a step along −∂F_k/∂α (equation 10) on
    all of its training rows, with the learning rate of SGD, and keeps it in [0, 1].
    """

    personal: ApflSettings = field(default_factory=ApflSettings)

    name, paper = "apfl", "deng2020apfl"
    published = "Deng, Kamani, Mahdavi: Adaptive Personalized Federated Learning, 2020"

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.personal.share <= 1:
            raise ConfigError(f"share, APFL's α, must be in [0, 1], got {self.personal.share}.")

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (*((Pretrain(self),) if self.pretrain else ()), TrainMixture(self))

    @override
    def parties(self, arrays: SiloArrays, splits: Sequence[int] | Int[np.ndarray, " runs"] | None = None) -> Party:
        party = super().parties(arrays, splits)
        share = np.full(party.own.number.shape, self.personal.share, np.float32)
        return party._replace(own=ApflOwn(*party.own, personal=party.own.model, share=share))

    @override
    def personal_model(self, weights: Float[np.ndarray, "silos ..."], party: Party) -> Float[np.ndarray, "silos size"]:
        own, share = party.own, party.own.share[:, None]
        return share * own.personal + (1 - share) * self.whole_model(weights, own.model)

    def adapt_share(
        self, w: Float[np.ndarray, "silos size"], v: Float[np.ndarray, "silos size"], party: Party
    ) -> Float32[np.ndarray, " silos"]:
        """α − η·⟨v − w, ∇F_k(α·v + (1 − α)·w)⟩, within [0, 1]; α where that is not finite."""
        rows, cut, share = rows_of(party, "train"), self.net.trainable, party.own.share
        w, v = w[:, :cut], v[:, :cut]
        mixed = np.ascontiguousarray(share[:, None] * v + (1 - share[:, None]) * w)
        slope = np.zeros(len(share), np.float32)
        for silo in np.flatnonzero(rows.n):
            n = rows.n[silo]
            gradient = Gradient(self.net, mixed[[silo]])
            slope[silo] = gradient(rows.x[[silo], :n], rows.y[[silo], :n] > 0.5)[0] @ (v[silo] - w[silo])
        after = np.clip(share - np.float32(self.sgd.learning_rate) * slope, 0, 1)
        return np.where(np.isfinite(after), after, share)

    def mixing(self, models: Float[np.ndarray, "models numbers"]) -> Any:
        """A step of models that hold w, v and α, one after the other."""
        size, cut = self.net.size, self.net.trainable
        w, v, share = models[:, :size], models[:, size : 2 * size], models[:, 2 * size :]
        mixed = np.empty((len(models), cut), np.float32)
        of_w, of_mixed = Gradient(self.net, w), Gradient(self.net, mixed)

        def step(x: Any, y: Any) -> None:
            mixed[:] = share * v[:, :cut] + (1 - share) * w[:, :cut]
            slopes = of_mixed(x, y)
            slopes *= share
            self.sgd.move(w, of_w(x, y), of_w.statistics)
            self.sgd.move(v, slopes, of_mixed.statistics)

        return step


@dataclass(frozen=True)
class TrainMixture(Train, request=Model, reply=Trained):
    """A round: first α, then w from θ, which is sent, and v, step by step."""

    @override
    def respond(self, request: Model, party: Party, draws: PyTree) -> tuple[Party, Trained]:
        s, size = self.settings, self.settings.net.size
        party, w = self.begin(request, party)
        own, first = party.own, np.asarray(request.round) == 0
        v = np.where(first[:, None], w, own.personal)
        share = s.adapt_share(w, v, party) if s.personal.adaptive else own.share
        before = np.concatenate([w, v, share[:, None]], axis=1)
        after = finite_or(s.train(before, party, draws, s.mixing), before)
        own = own._replace(model=after[:, :size], personal=after[:, size : 2 * size], share=share)
        return party._replace(own=own), Trained(s.shared_part(own.model), row_count(party))
