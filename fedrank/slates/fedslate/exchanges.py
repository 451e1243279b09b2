"""A batch of indices, uniform without replacement, at a cost that depends on the batch only.

The exchanges of FedSlate in which platforms act: each values its candidates, and is told the federated values.

The exchanges of FedSlate in which platforms learn, in their order; see the package for the round.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Integer, Key, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.lazy import jax, jnp
from fedrank.core.messages import Layout
from fedrank.core.protocol import Environment, Exchange, Party
from fedrank.slates.fedslate.choice_model import fit_step
from fedrank.slates.fedslate.learner import ValueLearner, adam_step, federated_values, joint_values, others_mean
from fedrank.slates.fedslate.messages import (
    BatchAges,
    BatchValues,
    Done,
    LocalValues,
    LossGradient,
    LossInputs,
    NewValues,
    NextValues,
    RoundStart,
    SharedValues,
    Targets,
    ValueGradient,
)
from fedrank.slates.fedslate.settings import Slates
from fedrank.slates.fedslate.state import CoordinatorState, PlatformState, transitions
from fedrank.slates.learner import UserVisits


def sample_without_replacement(key: Key[Array, ""], size: Int[Array, ""] | int, batch: int) -> Int[Array, " batch"]:
    """Uniform indices without replacement, at the cost of ``batch`` draws, however many rows there are.

    Floyd's algorithm (Bentley and Floyd, *Programming pearls: a sample of brilliance*, CACM 30(9), 1987): for
    j = size − batch … size − 1 draw t uniform on 0 … j, and take t, or j if t has been taken already. Every subset is
    equally likely: by induction the picks before j are uniform subsets of 0 … j − 1, and the step makes j a member with
    probability (picks so far + 1) / (j + 1), as it should. The order is not uniform; a mean over the batch does not see
    it.

    Args:
        key: Typed JAX key, consumed.
        size: Number of rows to sample from; may be traced.
        batch: Number of indices, at least 1.

    Returns:
        Different indices in 0 … size − 1. With fewer rows than ``batch`` (learning should wait), some come again, none
        more than once oftener than another.
    """
    size = jnp.asarray(size, jnp.int32)
    last = jnp.maximum(size - batch, 0) + jnp.arange(batch, dtype=jnp.int32)
    drawn = jax.random.randint(key, (batch,), 0, last + 1, jnp.int32)

    def pick(i, picks):
        return picks.at[i].set(jnp.where(jnp.any(picks == drawn[i]), last[i], drawn[i]))

    none = jnp.full(batch, -1, jnp.int32)
    return jax.lax.fori_loop(0, batch, pick, none) % jnp.maximum(size, 1)


@dataclass(frozen=True)
class SlateExchange(Exchange):
    """An exchange of FedSlate.

    Attributes:
        learner: What platforms learn, and its settings.
    """

    learner: ValueLearner

    @property
    def settings(self) -> Slates:
        """Settings that platforms and coordinator agree on."""
        return self.learner.settings

    @property
    def silent(self) -> bool:  # type: ignore[override] - elsewhere an attribute of the class
        """Nothing crosses where platforms do not federate."""
        return self.settings.silent

    @property
    def sent(self) -> tuple[int, ...] | None:
        """Leading axes of the values that a platform sends, on which there may be noise; None: it sends none."""
        return None

    @override
    def draw(self, key: Key[Array, ""]) -> Any:
        s = self.settings
        if s.noise is None or self.sent is None:
            return ()
        return s.noise.draw(key, (*self.sent, s.world.candidates))

    @override
    def draw_from_os(self) -> Any:
        s = self.settings
        if s.noise is None or self.sent is None:
            return ()
        return s.noise.draw_from_os((*self.sent, s.world.candidates))

    def privatise(self, values: Float[Array, "*shape"], noise: Any) -> Float[Array, "*shape"]:
        """Values as they leave the platform: clipped and with noise, if the settings say so."""
        return values if self.settings.noise is None else self.settings.noise.apply(values, noise)


@dataclass(frozen=True)
class Look(SlateExchange, request=RoundStart, reply=LocalValues):
    """Every platform values its candidates: it sends Q(s)."""

    name = "look"
    sent = ()  # type: ignore[assignment] - elsewhere a property

    @override
    def ask(self, state):
        return RoundStart(state.round)

    @override
    def respond(self, request, party, draws):
        values = self.learner.values(party.own)
        return party, LocalValues(self.privatise(values, draws))

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
    def draw(self, key: Key[Array, ""]):
        words = jax.random.uniform(key, (1 + self.settings.world.candidates,))
        return ExplorationDraw(words[0], words[1:])

    @override
    def draw_from_os(self):
        # Exploring is no protection, but should not be foreseen either.
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
        explores = draws.explores < s.epsilon(round_)
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


#: Step size of the learnt choice model, whose gradients are of the mean log-likelihood of a batch.
_CHOICE_RATE = 0.05


@dataclass(frozen=True)
class LearningExchange(SlateExchange):
    """An exchange at the end of those rounds in which platforms learn."""

    @override
    def due(self, number):
        s = self.settings
        return (number >= s.burn_in) & ((number + 1) % s.learn_every == 0)  # type: ignore[operator] - resolved


@dataclass(frozen=True)
class Batch(LearningExchange, request=BatchAges, reply=BatchValues):
    """The coordinator says which transitions to learn from; every platform sends Q(s) and Q̄(s′) of them."""

    name = "batch"

    @override
    def ask(self, state):
        # Uniform without replacement among those that every platform still remembers, but for the newest, which have
        # no next one yet.
        kept = jnp.minimum(state.round.astype(jnp.int32), self.settings.memory)  # type: ignore[arg-type] - resolved
        key = jax.random.fold_in(state.key, state.round)
        ages = 1 + sample_without_replacement(key, kept - 1, self.settings.batch)
        return BatchAges(state.round, ages.astype(jnp.uint32))

    @property
    @override
    def sent(self) -> tuple[int, ...]:
        return 2, self.settings.batch

    @override
    def respond(self, request, party, draws):
        values = self.privatise(self.batch_values(party.own, request.ages), draws)
        return party._replace(own=party.own._replace(ages=request.ages)), BatchValues(*values)

    def batch_values(
        self, own: PlatformState, ages: UInt32[Array, " transitions"]
    ) -> Float[Array, "2 transitions candidates"]:
        """Q(s) and Q̄(s′) of one platform's transitions of these ages."""
        then, after = transitions(own, ages), transitions(own, ages - 1)
        values = self.learner.values_of(own.weights, then.user, then.items)
        following = self.learner.values_of(own.target, after.user, after.items)
        return jnp.stack([values, following])

    @override
    def tell(self, state, replies, arrived: Bool[Array, " platforms"]):
        values, following = (arrived_rows(rows, arrived) for rows in (replies.values, replies.following))
        return state._replace(batch=values, following=following)


@dataclass(frozen=True)
class FormTargets(LearningExchange, request=NextValues, reply=Targets):
    """Platforms with feedback say what their transitions were worth (equation 13)."""

    name = "targets"
    personal = True

    @override
    def asked(self, state, parties):
        return None if all(self.settings.sees) else jnp.asarray(self.settings.sees)

    @override
    def max_asked(self, parties):
        return sum(self.settings.sees)

    @override
    def ask(self, state):
        # Q̄_f(s′): Ω's target network of Q̄(s′), the others' part at the same later round.
        s, following, theirs = self.settings, state.following, self.others_values(state)

        def of_platform(p):
            return joint_values(s, state.target, following[p], others_mean(s, theirs, p))

        sees = np.flatnonzero(s.sees)  # only these are asked
        return NextValues(jnp.zeros_like(following).at[sees].set(jax.vmap(of_platform)(sees)))

    def others_values(self, state: CoordinatorState) -> Float[Array, "platforms transitions candidates"]:
        """The values of which the others' part of targets is made."""
        return state.following

    @override
    def respond(self, request, party, draws):
        targets, choice = self.form_targets(party.own, request.values)
        return party._replace(own=party.own._replace(choice=choice)), Targets(targets, choice)

    def form_targets(
        self, own: PlatformState, values: Float[Array, "transitions candidates"], of: Callable[..., Any] = lambda f: f
    ) -> tuple[Any, Float[Array, "2"]]:
        """Equation 13 of a batch, and the choice model after its step.

        Args:
            own: The platform.
            values: Q̄_f(s′), the federated target network's values one round later.
            of: What is made of the function from values to a target, for each transition.
        """
        s, learnt = self.settings, own.choice
        then, after = transitions(own, own.ages), transitions(own, own.ages - 1)
        if s.choice == "learned":
            shown = jnp.take_along_axis(self.learner.kaleness_of(then.items), then.slate, axis=1)
            learnt = fit_step(learnt, shown, then.slot, _CHOICE_RATE, s.world.choice.always_clicks)

        def target(values, row, after):
            return self.learner.target(values, row, after, learnt, own.mean)

        return jax.vmap(of(target))(values, then, after), learnt

    def heard(self, replies: Any, arrived: Bool[Array, " platforms"]) -> Bool[Array, " platforms"]:
        """The platforms with feedback whose targets arrived."""
        finite = jnp.all(jnp.isfinite(replies.targets), axis=1) & jnp.all(jnp.isfinite(replies.choice), axis=1)
        return arrived & jnp.asarray(self.settings.sees) & finite

    @override
    def tell(self, state, replies, arrived: Bool[Array, " platforms"]):
        # A platform learns from its own targets or from the mean; whoever has none, from the mean.
        heard = self.heard(replies, arrived)
        count = jnp.sum(heard)

        def mean(rows):
            return jnp.sum(jnp.where(heard[:, None], rows, 0.0), axis=0) / jnp.maximum(count, 1)

        alone = heard & (self.settings.objective == "own")
        return state._replace(
            targets=jnp.where(alone[:, None], replies.targets, mean(replies.targets)[None]),
            choice=jnp.where(count > 0, mean(replies.choice), state.choice),
            learnable=count > 0,
            compared=jnp.zeros_like(state.compared),
        )


@dataclass(frozen=True)
class SendLossGradient(LearningExchange, request=LossInputs, reply=LossGradient):
    """One platform compares federated values with targets (equations 14 and 15); Ω takes a step.

    Attributes:
        platform: Number of the platform.
    """

    platform: int

    name = "compare"

    @override
    def asked(self, state, parties):
        return (jnp.arange(parties) == self.platform) & state.learnable

    @override
    def max_asked(self, parties):
        return 1

    @override
    def ask(self, state):
        # Equation 9 or 10, with the values of the platforms that have already learnt from this batch.
        s, p = self.settings, self.platform
        values = joint_values(s, state.weights, state.batch[p], others_mean(s, state.batch, p))
        return LossInputs(values, state.targets[p], state.choice)

    @override
    def respond(self, request, party, draws):
        party, (gradient, _) = self.compare(request, party)
        return party, LossGradient(gradient)

    def compare(
        self, request: Any, party: Party
    ) -> tuple[Party, tuple[Float[Array, "transitions candidates"], Float[Array, " transitions"]]]:
        """The platform, and the gradients of its loss by the federated values and by the targets."""
        own: PlatformState = party.own
        learnt = jnp.where(own.feedback, own.choice, request.choice)  # without clicks, what others have learnt is taken
        of_batch = jax.grad(self.learner.loss, argnums=(0, 2))
        slopes = of_batch(request.values, transitions(own, own.ages), request.targets, learnt, own.feedback)
        return party._replace(own=own._replace(choice=learnt)), slopes

    @override
    def tell(self, state, replies, arrived: Bool[Array, " platforms"]):
        s, p, gradient = self.settings, self.platform, replies.gradient[self.platform]
        heard = arrived[p] & jnp.all(jnp.isfinite(gradient))
        gradient = jnp.where(heard, gradient, 0.0)
        others = others_mean(s, state.batch, p)
        _, back = jax.vjp(lambda weights, own: joint_values(s, weights, own, others), state.weights, state.batch[p])
        by_weights, by_values = back(gradient)
        by_values = self.gradient_of_values(by_values, state, replies, arrived)
        weights, optimiser = adam_step(s, state.weights, state.optimiser, by_weights)
        weights = jnp.where(heard, weights, state.weights)
        optimiser = jax.tree.map(lambda new, old: jnp.where(heard, new, old), optimiser, state.optimiser)
        back_to = state.gradient.at[p].set(by_values)
        compared = state.compared.at[p].set(heard)
        return state._replace(weights=weights, optimiser=optimiser, gradient=back_to, compared=compared)

    def gradient_of_values(
        self, gradient: Float[Array, "transitions candidates"], state: CoordinatorState, replies: Any, arrived: Any
    ) -> Float[Array, "transitions candidates"]:
        """The gradient by the platform's values, of the one that came back through Ω."""
        return gradient


@dataclass(frozen=True)
class Step(LearningExchange, request=ValueGradient):
    """One platform learns from the gradient that came back through Ω.

    Attributes:
        platform: Number of the platform.
        last: No platform learns from the batch after it, so that its new values are not needed.
    """

    platform: int
    last: bool

    name = "step"

    @property
    @override
    def reply(self) -> Layout:
        return self.layout(Done if self.last else NewValues)

    @override
    def asked(self, state, parties):
        return (jnp.arange(parties) == self.platform) & state.compared[self.platform]

    @override
    def max_asked(self, parties):
        return 1

    @override
    def ask(self, state):
        return ValueGradient(state.gradient[self.platform])

    @property
    @override
    def sent(self) -> tuple[int, ...] | None:
        return None if self.last else (self.settings.batch,)

    @override
    def respond(self, request, party, draws):
        own: PlatformState = party.own
        learner, batch = self.learner, transitions(own, own.ages)
        _, back = jax.vjp(lambda weights: learner.values_of(weights, batch.user, batch.items), own.weights)
        weights, optimiser = learner.step_weights(own.weights, own.optimiser, back(request.gradient)[0])
        party = party._replace(own=own._replace(weights=weights, optimiser=optimiser))
        if self.last:
            return party, Done()
        return party, NewValues(self.privatise(learner.values_of(weights, batch.user, batch.items), draws))

    @override
    def tell(self, state, replies, arrived: Bool[Array, " platforms"]):
        if self.last:
            return state
        # The platform that learns next gets the new values as the others'.
        new, p = replies.values[self.platform], self.platform
        finite: Bool[Array, ""] = arrived[p] & jnp.all(jnp.isfinite(new))
        return state._replace(batch=state.batch.at[p].set(jnp.where(finite, new, state.batch[p])))


@dataclass(frozen=True)
class CopyToTargets(SlateExchange, request=RoundStart, reply=Done):
    """Every ``copy_every`` rounds each network is copied to its target network; nothing crosses."""

    name = "copy"
    silent = True  # type: ignore[assignment]

    @override
    def due(self, number):
        return (number + 1) % self.settings.copy_every == 0

    @override
    def ask(self, state):
        return RoundStart(state.round)

    @override
    def respond(self, request, party, draws):
        own: PlatformState = party.own
        return party._replace(own=own._replace(target=own.weights)), Done()

    @override
    def tell(self, state, replies, arrived: Bool[Array, " platforms"]):
        return state._replace(target=state.weights)
