"""The exchanges of FedSlate in which platforms act: each values its candidates, and is told the federated values."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer, PRNGKeyArray
from typing_extensions import override

from fedrank.core.protocol import Environment, Exchange
from fedrank.slates.fedslate.equations import federated_values
from fedrank.slates.fedslate.learner import ValueLearner
from fedrank.slates.fedslate.messages import Done, LocalValues, RoundStart, SharedValues
from fedrank.slates.fedslate.settings import SlateSettings
from fedrank.slates.fedslate.state import PlatformState
from fedrank.slates.visits import UserVisits


@dataclass(frozen=True)
class SlateExchange(Exchange):
    """What all exchanges have in common.

    Attributes:
        learner: What platforms learn, and its settings.
    """

    learner: ValueLearner

    @property
    def settings(self) -> SlateSettings:
        """What everybody agrees on."""
        return self.learner.settings

    @property
    def silent(self) -> bool:  # type: ignore[override] - elsewhere an attribute of the class
        """Nothing crosses where platforms do not federate."""
        return self.settings.silent

    def noise(self, key: PRNGKeyArray | None, *lead: int) -> Any:
        """Noise for vectors of values, int32 [lead…, N]; () without noise.

        Args:
            key: Of a simulated platform; None: a real one, which draws from the operating system.
            lead: Leading axes.
        """
        noise, shape = self.settings.noise, (*lead, self.settings.world.candidates)
        if noise is None:
            return ()
        return noise.draw_from_os(shape) if key is None else noise.draw(key, shape)

    def privatised(self, values: Float[Array, "*shape"], noise: Any) -> Float[Array, "*shape"]:
        """Values as they leave the platform: clipped and with noise, if the settings say so."""
        return values if self.settings.noise is None else self.settings.noise.applied(values, noise)


@dataclass(frozen=True)
class Look(SlateExchange, request=RoundStart, reply=LocalValues):
    """Every platform values its candidates: it sends Q(s)."""

    name = "look"

    @override
    def ask(self, state):
        return RoundStart(state.round)

    @override
    def draw(self, key: PRNGKeyArray):
        return self.noise(key)

    @override
    def draw_from_os(self):
        return self.noise(None)

    @override
    def respond(self, request, party, draws):
        values = self.learner.values(party.own)
        return party, LocalValues(self.privatised(values, draws))

    @override
    def tell(self, state, replies, arrived: Bool[Array, " platforms"]):
        # Whoever is not heard values nothing.
        return state._replace(values=arrived_rows(replies.values, arrived))


class ExplorationDraw(NamedTuple):
    """A platform's random numbers in a round, uniform in [0, 1).

    Attributes:
        explores: The platform explores if it is below ε.
        order: The random slate has the candidates with the largest of these.
    """

    explores: Float[Array, ""]
    order: Float[Array, " candidates"]


@dataclass(frozen=True)
class Recommend(SlateExchange, request=SharedValues, reply=Done):
    """Every platform is sent its federated values (equations 9 and 10) and shows a slate; the users act."""

    name = "recommend"
    personal = True

    @property
    def environment(self) -> Environment:  # type: ignore[override] - elsewhere an attribute of the class
        """Users come to each platform and look at its slate."""
        return UserVisits(self.learner)

    @override
    def ask(self, state):
        s = self.settings
        rounds = jnp.broadcast_to(state.round, (s.platforms,))
        return SharedValues(rounds, federated_values(s, state.weights, state.values))

    @override
    def draw(self, key: PRNGKeyArray):
        words = jax.random.uniform(key, (1 + self.settings.world.candidates,))
        return ExplorationDraw(words[0], words[1:])

    @override
    def draw_from_os(self):
        # Exploring protects nobody, but nobody needs to foresee it either.
        return self.draw(jax.random.key(secrets.randbits(32)))

    @override
    def respond(self, request, party, draws):
        return party._replace(own=self.shown(party.own, request.round, request.values, draws)), Done()

    def shown(
        self,
        own: PlatformState,
        round_: Integer[Array, ""],
        values: Float[Array, " candidates"],
        draws: ExplorationDraw,
    ) -> PlatformState:
        """The platform with the slate that it shows: the best one, or with probability ε a random one.

        Args:
            own: The platform.
            round_: Number of the round.
            values: Federated values of its candidates.
            draws: Its random numbers; each platform explores by its own.
        """
        s = self.settings
        best = self.learner.best(own, values)
        explores = draws.explores < s.exploration.epsilon(round_)
        random = jax.lax.top_k(draws.order, s.world.slate)[1].astype(jnp.int32)
        return own._replace(slate=jnp.where(explores, random, best))

    @override
    def tell(self, state, replies, arrived: Bool[Array, " platforms"]):
        return state._replace(round=state.round + 1)


def arrived_rows(
    replies: Float[Array, "platforms *shape"], arrived: Bool[Array, " platforms"]
) -> Float[Array, "platforms *shape"]:
    """Replies of the platforms that were heard and sent finite numbers; zeros for the others."""
    there = arrived.reshape(-1, *(1,) * (replies.ndim - 1))
    return jnp.where(there & jnp.isfinite(replies), replies, 0.0)
