"""Slates of one taste for ever, whatever users do: what every learner must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from typing_extensions import override

from fedrank.core.errors import ConfigError
from fedrank.slates.learner import SlateLearner
from fedrank.slates.sums.exploring import taste_slate
from fedrank.slates.world.satisfaction import Satisfaction

#: Sign of the candidates' chocolate in the value of a click.
_TASTES = {"choc": 1.0, "kale": -1.0}


class PlatformState(NamedTuple):
    """What a platform has: the candidates' feature, and the slate that it shows."""

    view: Float[Array, " candidates"]
    slate: Int[Array, " slots"]


@dataclass(frozen=True)
class Constant(SlateLearner):
    """The candidates with most chocolate, or with most kale: constant, nothing is learnt.

    Attributes:
        world: The users.
        feedback: Whether each platform sees clicks and engagement; nothing is made of it.
        taste: ``choc`` or ``kale``.
    """

    world: Satisfaction
    feedback: tuple[bool, ...]
    taste: str = "choc"

    name = "constant"

    def __post_init__(self):
        if self.taste not in _TASTES:
            raise ConfigError(f"taste must be one of {', '.join(_TASTES)}, got {self.taste!r}.")

    @override
    def first_state(self, key, number):
        return PlatformState(jnp.zeros(self.world.candidates), jnp.zeros(self.world.slate, jnp.int32))

    @override
    def greeted(self, own, observed, documents):
        return documents

    @override
    def view_after(self, own, turn, observed, documents, over):
        return documents

    @override
    def values(self, own: PlatformState):
        return _TASTES[self.taste] * self.world.chocolate(own.view)

    @override
    def best(self, own, values):
        return taste_slate(jnp.float32(1.0), values, self.world.slate)
