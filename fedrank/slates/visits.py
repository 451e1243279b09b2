"""Users who come to all platforms of a learner: played between showing and learning, and in fresh episodes.

Nothing here crosses and no coordinator sees it. Each platform learns which slate it showed, and, if it has feedback,
what was clicked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.protocol import Environment
from fedrank.slates.learner import SlateLearner
from fedrank.slates.world.rollout import Policy
from fedrank.slates.world.satisfaction import Satisfaction, Scene, Turn


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
        views = jax.vmap(self.learner.greeted)(own, scene.observed, scene.documents)
        return scene, own._replace(view=self.learner.together(views))

    @override
    def happen(self, world, own, key, number):
        after, turns, over = self.users.round(world, own.slate, self.users.draw(key))
        number = jnp.asarray(number, jnp.int32)

        def of_platform(own, turn, observed, documents):
            view = self.learner.view_after(own, turn, observed, documents, over)
            return self.learner.remembered(own, turn, number, over)._replace(view=view)

        own = jax.vmap(of_platform)(own, turns, after.observed, after.documents)
        own = own._replace(view=self.learner.together(own.view))
        return after, own, {"engagement": turns.engagement, "over": over}


class LastRound(NamedTuple):
    """What a policy remembers of the round before.

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


@partial(jax.tree_util.register_dataclass, data_fields=("shared", "own"), meta_fields=("learner",))
@dataclass(frozen=True)
class LearnedPolicy(Policy):
    """What the platforms of a learner show without exploration, for fresh episodes.

    Attributes:
        learner: The learner.
        shared: The coordinator's model.
        own: What each platform has, leaves [K, ...].
    """

    learner: SlateLearner
    shared: Any  # JAX also puts its own placeholders into pytrees
    own: Any

    @property
    @override
    def name(self) -> str:
        return self.learner.name

    @override
    def begin(self) -> LastRound:
        k, world = self.learner.world.platforms, self.learner.world
        zero, documents = jnp.zeros(k), jnp.zeros((k, world.candidates))
        views = self.learner.together(jax.vmap(self.learner.greeted)(self.own, zero, documents))
        nothing = Turn(jnp.zeros(k, jnp.int32), jnp.zeros(k, jnp.int32), zero, zero)
        return LastRound(jnp.bool_(True), views, jnp.zeros((k, world.slate), jnp.int32), nothing)

    def _views(self, memory: LastRound, scene: Scene) -> PyTree:
        """What the platforms see now."""
        learner = self.learner
        own = self.own._replace(view=memory.views, slate=memory.slates)
        later = partial(learner.view_after, over=jnp.bool_(False))
        after = learner.together(jax.vmap(later)(own, memory.turns, scene.observed, scene.documents))
        first = learner.together(jax.vmap(learner.greeted)(own, scene.observed, scene.documents))
        return jax.tree.map(lambda a, b: jnp.where(memory.none, a, b), first, after)

    @override
    def act(self, memory, scene, key) -> Int[Array, "platforms slots"]:
        learner, own = self.learner, self.own._replace(view=self._views(memory, scene))
        values: Float[Array, "platforms values"] = jax.vmap(learner.values)(own)
        return jax.vmap(learner.best)(own, learner.joined(self.shared, values, key))

    @override
    def notice(self, memory, scene, slates, turns):
        return LastRound(jnp.bool_(False), self._views(memory, scene), slates, turns)
