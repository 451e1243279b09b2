"""A learner of slates: what platforms know of a user, how they value candidates, and how slates follow from values.

A learner is written for *one* platform, as functions of arrays::

    first_view  what the platform knows of a user who has just come                       state features
    next_view   what it knows after a round
    record      what it keeps of a round to learn from                                    memory
    values      how much a click on each candidate is worth now                           critic
    best        the slate that follows from values                                        improvement

How it learns depends on what its critic needs from other platforms, which is why there are two kinds:

* sums over users, now and then: a :class:`fedrank.slates.sums.learner.SumLearner`, played by
  :class:`fedrank.slates.sums.SummedSlates`, which clips each user's part, adds noise, and accounts for both;
* values of candidates in every round, and gradients of them: a :class:`fedrank.slates.fedslate.learner.ValueLearner`,
  played by :class:`fedrank.slates.fedslate.FedSlate`.

The users, the runs, their baselines and their reports are the same for all.

:class:`UserVisits` plays users between showing and learning, :class:`LearnedPolicy` in fresh episodes. Nothing of that
crosses. Each platform learns which slate it showed, and, if it has feedback, what was clicked.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Key
from typing_extensions import override

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.arrays import PyTree
from fedrank.core.lazy import dataclass_of_arrays, jax, jnp
from fedrank.core.protocol import Environment, Party
from fedrank.core.registry import Registry
from fedrank.core.streams import AnyKey
from fedrank.slates.protocol import PlatformProtocol
from fedrank.slates.world.policies import Policy
from fedrank.slates.world.satisfaction import Satisfaction, Scene, Turn


class SlateLearner(abc.ABC):
    """A learner of slates at one platform of several.

    A platform's state is a NamedTuple with at least ``view``, what is known of the present user and of the
    candidates, and ``slate``, int32 [n], what it shows in this round. Hashable, as a frozen dataclass is: compiled
    programs are made for it.

    Attributes:
        name: Short name.
        world: The users. A learner knows of them N, n, K, the rounds of a stay, and how they choose from a slate.
        feedback: Whether each platform sees clicks and engagement.
    """

    name: str
    world: Satisfaction
    feedback: tuple[bool, ...]

    @property
    def sizes_of_model(self) -> dict[str, Any]:
        """Sizes and settings, by name, that must be the same in two runs if one starts from a model of the other."""
        world = self.world
        sizes = {"platforms": world.platforms, "candidates": world.candidates, "features": world.features}
        return {"learner": self.name, **sizes, "rounds of a stay": world.rounds_per_episode}

    @abc.abstractmethod
    def first_state(self, key: Key[Array, ""], number: Int[Array, "*#users"] | int) -> Any:
        """A platform's state before its first user.

        Args:
            key: Consumed.
            number: Number of the platform, from 0.
        """

    @abc.abstractmethod
    def first_view(
        self, own: Any, observed: Float[Array, "*#users"], documents: Float[Array, "*#users candidates"]
    ) -> PyTree:
        """The view of a user who has just come.

        Args:
            own: The platform's state.
            observed: The satisfaction that the platform observes.
            documents: The feature of each candidate, in [0, 1].
        """

    @abc.abstractmethod
    def next_view(
        self,
        own: Any,
        turn: Turn,
        observed: Float[Array, "*#users"],
        documents: Float[Array, "*#users candidates"],
        over: Bool[Array, "*#users"] | bool,
    ) -> PyTree:
        """The view after a round; other arguments as of :meth:`first_view`.

        Args:
            own: The platform's state in the round.
            turn: The outcome of its slate; a platform without feedback uses nothing of it.
            observed: What it observes now.
            documents: The candidates now.
            over: Whether another user has come; False where it is known that none has.
        """

    def pool_views(self, views: PyTree) -> PyTree:
        """Views of all platforms, leaves [K, ...], where they see each other's; by default none does."""
        return views

    def record(self, own: Any, turn: Turn, number: Int[Array, "*#users"], over: Bool[Array, "*#users"]) -> Any:
        """The state with what is kept of a round, the view of which is still there; by default nothing is kept.

        Args:
            own: The platform's state in the round.
            turn: The outcome of its slate.
            number: Number of the round.
            over: Whether the user has left.
        """
        return own

    @abc.abstractmethod
    def values(self, own: Any) -> Float[Array, "*#users values"]:
        """Value of a click on each candidate now; one more where a round without a click is worth anything."""

    def join_values(
        self, shared: PyTree, values: Float[Array, "*#users platforms values"], key: Key[Array, ""]
    ) -> Float[Array, "*#users platforms values"]:
        """Values of all platforms as slates are made by them; by default each platform's own.

        Args:
            shared: The coordinator's model.
            values: Each platform's own.
            key: Consumed, by noise on what is sent.
        """
        return values

    @abc.abstractmethod
    def best(self, own: Any, values: Float[Array, "*#users values"]) -> Int[Array, "*#users slots"]:
        """The slate that follows from values; places of candidates in slot order."""


#: Learners by name; what each needs from other platforms decides which protocol plays it.
LEARNERS: Registry[type[SlateLearner]] = Registry("learner of slates", "fedrank.slate_learners")


@dataclass(frozen=True)
class UserVisits(Environment):
    """One user visits all platforms, round by round; a new one comes when the time is over.

    Attributes:
        learner: What platforms make of it.
        world: The users; None: the learner's.
    """

    learner: SlateLearner
    world: Satisfaction | None = None

    @property
    def users(self) -> Satisfaction:
        """The users."""
        return self.world or self.learner.world

    @override
    def begin(self, key, own):
        scene = self.users.first(self.users.draw(key))
        views = jax.vmap(self.learner.first_view)(own, scene.observed, scene.documents)
        return scene, own._replace(view=self.learner.pool_views(views))

    @override
    def happen(self, world, own, key, number):
        after, turns, over = self.users.round(world, own.slate, self.users.draw(key))
        number = jnp.asarray(number, jnp.int32)

        def of_platform(own, turn, observed, documents):
            view = self.learner.next_view(own, turn, observed, documents, over)
            return self.learner.record(own, turn, number, over)._replace(view=view)

        own = jax.vmap(of_platform)(own, turns, after.observed, after.documents)
        own = own._replace(view=self.learner.pool_views(own.view))
        return after, own, {"engagement": turns.engagement, "over": over}


class LastRound(NamedTuple):
    """Memory of a policy: the round before.

    Attributes:
        none: There was none: a user has just come.
        views: What the platforms saw, leaves [K, ...].
        slates: What they showed.
        turns: The outcome, leaves [K].
    """

    none: Bool[Array, ""]
    views: PyTree
    slates: Int[Array, "platforms slots"]
    turns: Turn


@dataclass_of_arrays
@dataclass(frozen=True)
class LearnedPolicy(Policy):
    """Slates of the platforms of a learner without exploration, for fresh episodes.

    Attributes:
        learner: The learner.
        shared: The coordinator's model.
        own: What each platform has, leaves [K, ...].
        greedy: Slates are the best for now by the model; of learners from sums, with NumPy.
    """

    learner: SlateLearner = field(metadata={"static": True})
    shared: Any  # JAX also puts its own placeholders into pytrees
    own: Any
    greedy: bool = field(default=False, metadata={"static": True})

    @override
    def begin(self) -> LastRound | None:
        if isinstance(self.own.slate, np.ndarray):  # together, with leading axes of users: there was no round
            return None
        k, world = self.learner.world.platforms, self.learner.world
        zero, documents = jnp.zeros(k), jnp.zeros((k, world.candidates))
        views = self.learner.pool_views(jax.vmap(self.learner.first_view)(self.own, zero, documents))
        nothing = Turn(jnp.zeros(k, jnp.int32), jnp.zeros(k, jnp.int32), zero, zero)
        return LastRound(jnp.bool_(True), views, jnp.zeros((k, world.slate), jnp.int32), nothing)

    def _views(self, memory: LastRound | None, scene: Scene) -> PyTree:
        """Views of the platforms now."""
        learner = self.learner
        if memory is None:
            return learner.first_view(self.own, scene.observed, scene.documents)
        if isinstance(scene.observed, np.ndarray):
            own = self.own._replace(view=memory.views, slate=memory.slates)
            return learner.next_view(own, memory.turns, scene.observed, scene.documents, over=False)
        own = self.own._replace(view=memory.views, slate=memory.slates)
        later = partial(learner.next_view, over=jnp.bool_(False))
        after = learner.pool_views(jax.vmap(later)(own, memory.turns, scene.observed, scene.documents))
        first = learner.pool_views(jax.vmap(learner.first_view)(own, scene.observed, scene.documents))
        return jax.tree.map(lambda a, b: jnp.where(memory.none, a, b), first, after)

    @override
    def act(self, memory, scene, key) -> Int[Array, "*#users platforms slots"]:
        learner, own = self.learner, self.own._replace(view=self._views(memory, scene))
        if isinstance(scene.observed, np.ndarray):
            of_sums: Any = learner
            if of_sums.has_fallen(own).all():
                return of_sums.fall_back(own, np.zeros((*scene.observed.shape, learner.world.slate), np.int32))
            return learner.best(own, (of_sums.greedy_values if self.greedy else learner.values)(own))
        values: Float[Array, "platforms values"] = jax.vmap(learner.values)(own)
        return jax.vmap(learner.best)(own, learner.join_values(self.shared, values, key))

    @override
    def notice(self, memory, scene, slates, turns):
        none: Any = np.False_ if isinstance(slates, np.ndarray) else jnp.bool_(False)
        return LastRound(none, self._views(memory, scene), slates, turns)


class LearnerProtocol(PlatformProtocol):
    """A protocol that plays one learner on every platform.

    Attributes:
        learner: The learner.
    """

    learner: Any

    def platform(self, key: AnyKey | None, number: Int[Array, "*#users"] | int) -> Any:
        """A platform's state before its first user; arguments as of :meth:`SlateLearner.first_state`."""
        return self.learner.first_state(key, number)

    @override
    def parties(self, keys: Key[Array, " runs"]) -> Party:
        numbers = jnp.arange(self.learner.world.platforms)

        def of_run(key):
            return jax.vmap(lambda number: self.platform(jax.random.fold_in(key, number), number))(numbers)

        return Party(None, jax.vmap(of_run)(keys))

    @override
    def policy(self, state: Any, own: Any) -> LearnedPolicy:
        return LearnedPolicy(self.learner, self.weights(state), own)


def platforms_that_see(feedback: str, platforms: int) -> tuple[bool, ...]:
    """For each platform, true if it sees clicks and engagement: the ``"first"`` only, or ``"all"``."""
    return tuple(feedback == "all" or number == 0 for number in range(platforms))
