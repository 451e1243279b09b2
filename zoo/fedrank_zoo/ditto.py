"""Ditto: a personal model that is pulled to the average θ.

Li, Hu, Beirami, Smith: *Ditto*, ICML 2021, Algorithm 1. With F_k the mean loss on the silo's rows, a round is that of
federated averaging, and beside it a silo trains v_k on F_k(v) + λ/2·‖v − θ‖², which never crosses.

Both models are trained for E epochs a round. In round 0, which after pre-training starts from the silo's own model, v
starts from there and is pulled to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.protocol import Exchange, Party
from fedrank.silos.averaging import PersonalisedProtocol, Train
from fedrank.silos.data.splits import SiloArrays
from fedrank.silos.messages import Model, Trained
from fedrank.silos.network import Gradient
from fedrank.silos.party import Pretrain, finite_or, row_count


@dataclass(frozen=True, kw_only=True)
class DittoSettings:
    """Settings that only Ditto has."""

    pull: float = setting(1.0, "λ, strength of the pull of a silo's model to the average of all silos.")


class DittoOwn(NamedTuple):
    """State of silos: the fields of :class:`fedrank.silos.party.SiloOwn`, and v.

    Attributes:
        number, split, model, best, best_model: As there.
        personal: v, the model that never crosses.
    """

    number: Int[np.ndarray, "*lead"]
    split: Int[np.ndarray, "*lead"]
    model: Float[np.ndarray, "*lead size"]
    best: Float[np.ndarray, "*lead"]
    best_model: Float[np.ndarray, "*lead size"]
    personal: Float[np.ndarray, "*lead size"]


@dataclass(frozen=True)
class Ditto(PersonalisedProtocol):
    """Silos: each silo's own model, pulled to the average of all silos."""

    personal: DittoSettings = field(default_factory=DittoSettings)

    name, paper = "ditto", "li2021ditto"
    published = "Li et al.: Ditto, ICML 2021"

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.personal.pull < 1e6:
            raise ConfigError(f"pull, Ditto's λ, must not be negative, got {self.personal.pull}.")

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (*((Pretrain(self),) if self.pretrain else ()), TrainBoth(self))

    @override
    def parties(self, arrays: SiloArrays, splits: Sequence[int] | Int[np.ndarray, " runs"] | None = None) -> Party:
        party = super().parties(arrays, splits)
        return party._replace(own=DittoOwn(*party.own, personal=party.own.model))

    @override
    def personal_model(self, weights: Float[np.ndarray, "silos ..."], party: Party) -> Float[np.ndarray, "silos size"]:
        return party.own.personal

    def pull_step(self, models: Float[np.ndarray, "models numbers"]) -> Any:
        """A step v ← v − η·(∇F_k(v) + λ·(v − θ)) of models that hold v and, after it, what gradients change of θ."""
        net, pull = self.net, np.float32(self.personal.pull)
        v, near = models[:, : net.size], pull * models[:, net.size :]
        gradient = Gradient(net, v)

        def step(x: Any, y: Any) -> None:
            slopes = gradient(x, y)
            slopes += pull * v[:, : net.trainable] - near
            self.sgd.move(v, slopes, gradient.statistics)

        return step


@dataclass(frozen=True)
class TrainBoth(Train, request=Model, reply=Trained):
    """A round: every silo trains θ_k from θ, which it sends, and v."""

    @override
    def rng_shape(self) -> tuple[int, int]:
        epochs, rows = super().rng_shape()
        return 2 * epochs, rows

    @override
    def respond(self, request: Model, party: Party, draws: PyTree) -> tuple[Party, Trained]:
        s, epochs = self.settings, self.settings.sgd.epochs
        party, start = self.begin(request, party)
        own, first = party.own, np.asarray(request.round) == 0
        before = np.where(first[:, None], start, own.personal)
        model = s.train(start, party, draws[:, :epochs])
        beside = np.concatenate([before, start[:, : s.net.trainable]], axis=1)
        personal = s.train(beside, party, draws[:, epochs:], s.pull_step)[:, : s.net.size]
        own = own._replace(model=finite_or(model, own.model), personal=finite_or(personal, before))
        return party._replace(own=own), Trained(s.shared_part(model), row_count(party))
