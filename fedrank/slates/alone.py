"""Platforms whose learners need nothing of each other: each keeps to itself, and nothing crosses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, UInt32
from typing_extensions import override

from fedrank.core.messages import Array as WireArray
from fedrank.core.messages import field, message, u4
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Environment, Exchange, Party
from fedrank.slates.learner import SlateLearner
from fedrank.slates.protocol import PlatformProtocol
from fedrank.slates.visits import LearnedPolicy, UserVisits
from fedrank.slates.world.satisfaction import Satisfaction


@message(kind=0)
class RoundStart:
    """Coordinator to platforms: a round begins."""

    round: WireArray = field(u4, "number of the round")


@message(kind=1)
class Done:
    """Platform to coordinator: it has done so. Has no field."""


@dataclass(frozen=True)
class ShowAlone(Exchange, request=RoundStart, reply=Done):
    """Every platform shows the slate of its own values; users act, nothing crosses."""

    learner: SlateLearner

    name = "show"
    silent = True

    @property
    def environment(self) -> Environment:  # type: ignore[override] - elsewhere an attribute of the class
        """Users come to each platform and look at its slate."""
        return UserVisits(self.learner)

    @override
    def ask(self, state):
        return RoundStart(state)

    @override
    def respond(self, request, party, draws):
        own = party.own
        return party._replace(own=own._replace(slate=self.learner.best(own, self.learner.values(own)))), Done()

    @override
    def tell(self, state, replies, arrived):
        return state + 1


@dataclass(frozen=True)
class AloneSlates(PlatformProtocol):
    """Platforms that keep to themselves.

    Attributes:
        learner: What each learns, if anything.
    """

    learner: SlateLearner

    quick = True

    @property
    def name(self) -> str:  # type: ignore[override] - elsewhere an attribute of the class
        """Name of the learner."""
        return self.learner.name

    @property
    def world(self) -> Satisfaction:  # type: ignore[override] - elsewhere an attribute of the class
        """The simulated users that all platforms share."""
        return self.learner.world

    @property
    @override
    def feedback(self) -> tuple[bool, ...]:
        return self.learner.feedback

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (ShowAlone(self.learner),)

    @override
    def init(self, key) -> UInt32[Array, ""]:
        return jnp.uint32(0)

    @override
    def parties(self, keys: Key[Array, " runs"]) -> Party:
        numbers = jnp.arange(self.learner.world.platforms)
        first = self.learner.first_state
        return Party(None, jax.vmap(lambda key: jax.vmap(lambda number: first(key, number))(numbers))(keys))

    @override
    def weights(self, state) -> Float[Array, "*runs 1"]:
        return jnp.zeros((*jnp.shape(state), 1), jnp.float32)

    @override
    def policy(self, state: Any, own: Any) -> LearnedPolicy:
        return LearnedPolicy(self.learner, (), own)

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        """Nothing crosses."""
        return PrivacyReport.none(rounds, "Nothing crosses.")
