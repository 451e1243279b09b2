"""Users who come to all platforms: played by a simulator between recommending and learning, and in fresh episodes.

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
from fedrank.slates.fedslate.equations import federated_values_with_noise, local_values
from fedrank.slates.fedslate.platform import (
    best_slate,
    finish_round,
    item_features,
    next_view,
    own_features,
    user_features,
)
from fedrank.slates.fedslate.settings import SlateSettings
from fedrank.slates.fedslate.state import PlatformState, View, empty_view
from fedrank.slates.world.rollout import Policy
from fedrank.slates.world.satisfaction import Scene, Turn


@dataclass(frozen=True)
class UserVisits(Environment):
    """One user visits all platforms, round by round; a new one comes when the time is over.

    Attributes:
        settings: The settings, and the world among them.
    """

    settings: SlateSettings

    @override
    def begin(self, key, own):
        s = self.settings
        scene = s.world.first(s.world.draw(key))
        return scene, own._replace(view=first_views(s, scene))

    @override
    def happen(self, world, own, key, number):
        s = self.settings
        after, turns, over = s.world.round(world, own.slate, s.world.draw(key))
        number = jnp.asarray(number, jnp.int32)

        def of_platform(own, turn, observed, documents):
            view = next_view(s, own, turn, observed, documents, over)
            return finish_round(s, own, turn, number, over)[0]._replace(view=view)

        own = jax.vmap(of_platform)(own, turns, after.observed, after.documents)
        own = own._replace(view=with_others(s, own.view))
        return after, own, {"engagement": turns.engagement, "over": over}


def first_views(s: SlateSettings, scene: Scene) -> View:
    """The views of all platforms of a user who has just come: leaves [K, ...]."""

    def view(observed, documents):
        return empty_view(s)._replace(observed=observed, documents=documents)

    return with_others(s, jax.vmap(view)(scene.observed, scene.documents))


def with_others(s: SlateSettings, views: View) -> View:
    """Views [K, ...] with what the other platforms know, where everything is seen centrally."""
    if not s.central or s.platforms == 1:
        return views
    features = jax.vmap(lambda view: own_features(s, view))(views)
    others = [jnp.concatenate([features[q] for q in range(s.platforms) if q != p]) for p in range(s.platforms)]
    return views._replace(others=jnp.stack(others))


class LastRound(NamedTuple):
    """What a policy remembers of the round before.

    Attributes:
        none: There was none: a user has just come.
        views: What the platforms saw, leaves [K, ...].
        slates: What they showed.
        turns: What came of it, leaves [K].
    """

    none: Bool[Array, ""]
    views: View
    slates: Int[Array, "platforms slots"]
    turns: Turn


@partial(jax.tree_util.register_dataclass, data_fields=("weights", "own"), meta_fields=("settings",))
@dataclass(frozen=True)
class GreedyPolicy(Policy):
    """The platforms' policy without exploration, for fresh episodes.

    Attributes:
        settings: The settings.
        weights: Ω, float32 [H].
        own: What each platform has, leaves [K, ...].
    """

    settings: SlateSettings
    weights: Any  # JAX also puts its own placeholders into pytrees
    own: PyTree

    @property
    @override
    def name(self) -> str:
        return "vertical-slate"

    @override
    def begin(self) -> LastRound:
        s, k = self.settings, self.settings.platforms
        views = jax.vmap(lambda _: empty_view(s))(jnp.arange(k))
        nothing = Turn(jnp.zeros(k, jnp.int32), jnp.zeros(k, jnp.int32), jnp.zeros(k), jnp.zeros(k))
        return LastRound(jnp.bool_(True), views, jnp.zeros((k, s.world.slate), jnp.int32), nothing)

    def _views(self, memory: LastRound, scene: Scene) -> View:
        """What the platforms see now."""
        s = self.settings
        own: PlatformState = self.own._replace(view=memory.views, slate=memory.slates)

        def later(own, turn, observed, documents):
            return next_view(s, own, turn, observed, documents, jnp.bool_(False))

        after = with_others(s, jax.vmap(later)(own, memory.turns, scene.observed, scene.documents))
        first = first_views(s, scene)
        return jax.tree.map(lambda a, b: jnp.where(memory.none, a, b), first, after)

    @override
    def act(self, memory, scene, key):
        s, views = self.settings, self._views(memory, scene)
        users = jax.vmap(partial(user_features, s))(views)
        items = jax.vmap(partial(item_features, s))(views)
        values = jax.vmap(partial(local_values, s))(self.own.weights, users, items)
        joint: Float[Array, "platforms candidates"] = federated_values_with_noise(s, self.weights, values, key)
        return jax.vmap(partial(best_slate, s))(self.own.choice, users, items, joint)

    @override
    def notice(self, memory, scene, slates, turns):
        return LastRound(jnp.bool_(False), self._views(memory, scene), slates, turns)
