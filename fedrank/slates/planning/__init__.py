"""Platforms that share users fit one small model of engagement together, and each plans the user's whole stay alone.

FedSlate learns values of items from engagement, which is log-normal, a batch of 32 at a time, and sends values, targets
and gradients thousands of times. What a platform lacks is less than that: how the logarithm of engagement changes with
what the user clicked before. Everything else that a plan needs it knows by itself: what it showed, what it can show,
and when the user leaves. So::

    show      each platform shows slates of one taste for several rounds, then of the other; users act, nothing crosses
    release   once, after the explorers: a platform with feedback sends Σ f y over its users' stays, with f = (1,
              trace / 2, item), whitened, and y the logarithm of engagement: three numbers, which are added up
    plan      all are sent θ, the weights of least squares: three numbers. Each plans the stay by dynamic programming
              over its own trace and the rounds that are left (:mod:`fedrank.slates.planning.stay`), and never explores
              again

A platform without feedback is lent the model: its trace is of the clicks that it expects. Each plans for everybody's
engagement, and the part of the others' that its own clicks change follows from the model, so that nobody's rounds need
be joined with anybody else's.

**Privacy.** A user's whole stay at a platform is one vector of three numbers, shortened to a clip and counted once.
With ``epsilon`` each platform adds discrete Gaussian noise to its sums before they leave, so that nobody is trusted;
ε is of the whole stay at all platforms together, with any stay replaced by any other.

What it rests on: engagement is log-linear in the trace and the item, as in the worlds here; how users choose from a
slate, how fast the past fades and how long a stay is are known. What it replaces is a critic of least squares
(Lagoudakis and Parr: Least-Squares Policy Iteration, JMLR 2003), whose weights hold the chance of every click to come;
those of engagement do not. reproductions/fedslate_2024/README.md has both numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray, UInt32
from typing_extensions import override

from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Environment, Exchange, Party
from fedrank.core.trees import Json
from fedrank.privacy.accounts.sums import sum_account
from fedrank.privacy.noise.discrete import discrete_gaussian
from fedrank.privacy.noise.simulated import simulated_discrete_gaussian
from fedrank.slates.planning.engagement import FEATURES, STEPS, fitted
from fedrank.slates.planning.messages import Done, EngagementModel, RoundStart, Statistics
from fedrank.slates.planning.platform import (
    PlannedPolicy,
    PlanningSettings,
    PlatformState,
    UserVisits,
    explored,
    first_state,
    planned,
)
from fedrank.slates.planning.stay import plan
from fedrank.slates.protocol import PlatformProtocol
from fedrank.slates.world.satisfaction import Satisfaction

_SEEN = "Sums of three numbers over all explorers of each platform with feedback, clipped but without noise."
_COVERS = (
    "A user's whole stay, at all platforms together: replaced by any other stay, it changes what crosses by no more "
    "than ε and δ say. Everything after it follows from what crossed.",
)
_NOT_COVERED = (
    "That a user came, and how many did: the number of explorers is public.",
    "Users after the explorers: nothing of them crosses.",
)


class CoordinatorState(NamedTuple):
    """What the coordinator has.

    Attributes:
        round: Rounds so far.
        model: The model of engagement; zeros before the sums have come.
    """

    round: UInt32[Array, ""]
    model: Float[Array, " features"]


@dataclass(frozen=True)
class Show(Exchange, request=RoundStart, reply=Done):
    """Every platform shows a slate: of a taste while it explores, of its plan afterwards. Nothing crosses."""

    settings: PlanningSettings

    name = "show"
    silent = True

    @property
    def environment(self) -> Environment:  # type: ignore[override] - elsewhere an attribute of the class
        """Users come to each platform and look at its slate."""
        return UserVisits(self.settings)

    @override
    def ask(self, state):
        return RoundStart(state.round)

    @override
    def draw(self, key: PRNGKeyArray):
        return jax.random.uniform(key, (2,))

    @override
    def draw_from_os(self):
        # Exploring protects nobody; it may come from any generator.
        return jnp.asarray(np.random.default_rng().random(2), jnp.float32)

    @override
    def respond(self, request, party, draws):
        s, own = self.settings, party.own
        exploring = explored(s, own, draws)
        slate = jnp.where(own.rounds <= s.release_round, exploring.slate, planned(s, own))
        return party._replace(own=exploring._replace(slate=slate)), Done()

    @override
    def tell(self, state, replies, arrived: Bool[Array, " platforms"]):
        return state._replace(round=state.round + 1)


@dataclass(frozen=True)
class Release(Exchange, request=RoundStart, reply=Statistics):
    """Once, after the explorers: platforms with feedback send their sums; the coordinator fits the model."""

    settings: PlanningSettings

    name = "release"

    @override
    def due(self, number):
        return number == self.settings.release_round

    @override
    def asked(self, state, parties):
        return jnp.asarray(self.settings.feedback)

    @override
    def max_asked(self, parties):
        return self.settings.releases

    @override
    def ask(self, state):
        return RoundStart(state.round)

    @override
    def draw(self, key: PRNGKeyArray):
        sigma = self.settings.sigma
        return () if sigma is None else simulated_discrete_gaussian(key, (FEATURES,), sigma)

    @override
    def draw_from_os(self):
        sigma = self.settings.sigma
        return () if sigma is None else jnp.asarray(discrete_gaussian(sigma, FEATURES), jnp.int32)

    @override
    def respond(self, request, party, draws):
        sums = party.own.sums
        return party, Statistics(sums if self.settings.sigma is None else sums + draws)

    @override
    def tell(self, state, replies, arrived: Bool[Array, " platforms"]):
        s = self.settings
        heard = arrived & jnp.asarray(s.feedback)
        steps = jnp.where(heard[:, None], replies.sums, 0).astype(jnp.float32)
        rounds = jnp.sum(heard) * float(s.explorers * s.world.rounds_per_episode)
        model = fitted(jnp.sum(steps, axis=0) * (s.clip / STEPS), rounds, s.whiten)
        return state._replace(model=jnp.where(jnp.any(heard), model, state.model))


@dataclass(frozen=True)
class Plan(Exchange, request=EngagementModel, reply=Done):
    """Once, after the sums: every platform is sent the model, and plans a user's stay."""

    settings: PlanningSettings

    name = "plan"

    @override
    def due(self, number):
        return number == self.settings.release_round

    @override
    def ask(self, state):
        return EngagementModel(state.model)

    @override
    def respond(self, request, party, draws):
        s, own = self.settings, party.own
        table = plan(s.world, s.fade, request.weights, own.lists, own.number)
        good = jnp.all(jnp.isfinite(table))
        table, model = (jnp.where(good, new, old) for new, old in ((table, own.table), (request.weights, own.model)))
        return party._replace(own=own._replace(table=table, model=model)), Done()

    @override
    def tell(self, state, replies, arrived: Bool[Array, " platforms"]):
        return state


@dataclass(frozen=True)
class PlannedSlates(PlatformProtocol):
    """Platforms that fit a model of engagement together, once, and plan by themselves.

    Attributes:
        settings: What everybody agrees on.
    """

    settings: PlanningSettings

    name = "planned-slates"

    @property
    def world(self) -> Satisfaction:  # type: ignore[override] - elsewhere an attribute of the class
        """The simulated users that all platforms share."""
        return self.settings.world

    @property
    @override
    def feedback(self) -> tuple[bool, ...]:
        return self.settings.feedback

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return Show(self.settings), Release(self.settings), Plan(self.settings)

    @override
    def init(self, key: PRNGKeyArray | None) -> CoordinatorState:
        return CoordinatorState(jnp.uint32(0), jnp.zeros(FEATURES, jnp.float32))

    @override
    def parties(self, keys: Key[Array, " runs"]) -> Party:
        numbers = jnp.arange(self.settings.world.platforms)
        return Party(
            None, jax.vmap(lambda _: jax.vmap(lambda number: first_state(self.settings, number))(numbers))(keys)
        )

    @override
    def weights(self, state: CoordinatorState) -> Float[Array, "*runs features"]:
        return state.model

    @override
    def policy(self, state: CoordinatorState, own: PlatformState) -> PlannedPolicy:
        return PlannedPolicy(self.settings, own)

    @override
    def describe(self) -> dict[str, Json]:
        return {"network": "log-linear model of engagement, planned by", "n_features": FEATURES, "parameters": FEATURES}

    @override
    def platform_tensors(self, own: PlatformState) -> dict[str, Float[Array, "runs platforms *shape"]]:
        return {"plan": own.table}

    @override
    def watch(self, state: CoordinatorState) -> dict[str, Float[Array, ""]]:
        """What the trace does to engagement: its weight in the model."""
        return {"trace_weight": state.model[1]}

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        """What noise on the sums promises: of one message a platform with feedback, however long the run is."""
        s = self.settings
        if s.sigma is None:
            return PrivacyReport.none(rounds, _SEEN, _NOT_COVERED)
        report = sum_account(
            mechanism="gaussian",
            scale=s.sigma,
            sensitivity=s.sensitivity,
            rounds=s.releases,
            enough=1,
            secure_sum=False,
            parameters=FEATURES,
            delta=s.delta,
        )
        return replace(report, covers=_COVERS, not_covered=(*_NOT_COVERED, *report.not_covered))
