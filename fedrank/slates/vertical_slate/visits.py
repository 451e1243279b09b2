"""Users who come to all platforms: what a simulator plays between recommending and learning, and fresh episodes.

Nothing here crosses and no coordinator sees it. Each platform looks at the slate that it showed, and, if it has
feedback, at what was clicked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from fedrank.core.protocol import Encounter
from fedrank.slates.vertical_slate.settings import SlateSettings
from fedrank.slates.vertical_slate.state import (
    PlatformOwn,
    View,
    chosen_slate,
    empty_view,
    items_of,
    mean_after,
    moment_of,
    own_features,
    seen_next,
    user_of,
)
from fedrank.slates.world.rollout import Policy
from fedrank.slates.world.satisfaction import Scene, Turn

if TYPE_CHECKING:
    from fedrank.slates.vertical_slate import VerticalSlate


@dataclass(frozen=True)
class Visits(Encounter):
    """One user visits all platforms, round by round; a new one comes when the time is over.

    Attributes:
        settings: The settings, and the world among them.
    """

    settings: SlateSettings

    def begin(self, key: Any, own: PlatformOwn) -> tuple[Scene, PlatformOwn]:
        """The first user, whom platforms see."""
        s = self.settings
        scene = s.world.first(s.world.draw(key))
        return scene, own._replace(view=first_views(s, scene))

    def happen(
        self, world: Scene, own: PlatformOwn, key: Any, number: Any
    ) -> tuple[Scene, PlatformOwn, dict[str, Any]]:
        """The user looks at every platform's slate, and every platform remembers what it was told of it."""
        s = self.settings
        after, turns, over = s.world.round(world, own.slate, s.world.draw(key))
        place = jnp.asarray(number, jnp.int32) % s.memory

        def remembers(own, turn, observed, documents):
            row = moment_of(s, own, turn, over)
            memory = jax.tree.map(lambda kept, new: kept.at[place].set(new), own.memory, row)
            view = seen_next(s, own, turn, observed, documents, over)
            return own._replace(memory=memory, view=view, rounds=own.rounds + 1, mean=mean_after(s, own, turn))

        own = jax.vmap(remembers)(own, turns, after.observed, after.documents)
        own = own._replace(view=together(s, own.view))
        return after, own, {"engagement": turns.engagement, "over": over}


def first_views(s: SlateSettings, scene: Scene) -> View:
    """What all platforms see of a user who has just come: leaves [K, ...]."""

    def view(observed, documents):
        return empty_view(s)._replace(observed=observed, documents=documents)

    return together(s, jax.vmap(view)(scene.observed, scene.documents))


def together(s: SlateSettings, views: View) -> View:
    """Views [K, ...] with what the other platforms know, where one learner sees everything."""
    if not s.central or s.platforms == 1:
        return views
    features = jax.vmap(lambda view: own_features(s, view))(views)
    others = [jnp.concatenate([features[q] for q in range(s.platforms) if q != p]) for p in range(s.platforms)]
    return views._replace(others=jnp.stack(others))


class Last(NamedTuple):
    """What a policy remembers of the round before.

    Attributes:
        none: bool, there was none: a user has just come.
        views: What the platforms saw, leaves [K, ...].
        slates: int32 [K, n], what they showed.
        turns: What came of it.
    """

    none: Any
    views: View
    slates: Any
    turns: Turn


@partial(jax.tree_util.register_dataclass, data_fields=("weights", "own"), meta_fields=("protocol",))
@dataclass(frozen=True)
class Greedy(Policy):
    """The platforms' policy without exploration, for fresh episodes.

    Attributes:
        protocol: The protocol.
        weights: Ω.
        own: What each platform has, leaves [K, ...].
    """

    protocol: VerticalSlate
    weights: Any
    own: PlatformOwn

    @property
    def name(self) -> str:
        """As the protocol."""
        return self.protocol.name

    def begin(self) -> Last:
        """Nothing."""
        s = self.protocol.settings
        k = s.platforms
        views = jax.vmap(lambda _: empty_view(s))(jnp.arange(k))
        nothing = Turn(jnp.zeros(k, jnp.int32), jnp.zeros(k, jnp.int32), jnp.zeros(k), jnp.zeros(k))
        return Last(jnp.bool_(True), views, jnp.zeros((k, s.world.slate), jnp.int32), nothing)

    def _views(self, memory: Last, scene: Scene) -> View:
        """What the platforms see now."""
        s = self.protocol.settings
        own = self.own._replace(view=memory.views, slate=memory.slates)

        def later(own, turn, observed, documents):
            return seen_next(s, own, turn, observed, documents, jnp.bool_(False))

        after = together(s, jax.vmap(later)(own, memory.turns, scene.observed, scene.documents))
        first = first_views(s, scene)
        return jax.tree.map(lambda a, b: jnp.where(memory.none, a, b), first, after)

    def act(self, memory: Last, scene: Scene, key: Any) -> jax.Array:
        """The best slates by the federated values, int32 [K, n]."""
        p, s = self.protocol, self.protocol.settings
        views = self._views(memory, scene)
        users = jax.vmap(lambda view: user_of(s, view))(views)
        items = jax.vmap(lambda view: items_of(s, view))(views)
        values = jax.vmap(p.local)(self.own.weights, users, items)
        joint = p.played(self.weights, values, key)
        return jax.vmap(lambda c, u, i, q: chosen_slate(s, c, u, i, q))(self.own.choice, users, items, joint)

    def notice(self, memory: Last, scene: Scene, slates: Any, turns: Turn) -> Last:
        """Keep the round."""
        return Last(jnp.bool_(False), self._views(memory, scene), slates, turns)
