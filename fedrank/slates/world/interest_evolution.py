"""Interest evolution: what a viewer watches changes what they like, and good videos keep them longer.

RecSim's second stock world (Ie et al. 2019, Section 5.1; google-research/recsim, environments/interest_evolution.py),
for K platforms that share the viewer. A video is of one of 20 topics. Of the first 14 the quality is negative (from −3
up), of the others positive (up to 3). A viewer clicks rather what interests them, with the option of nothing, and
watches it to the end or as long as time is left:

* the interest x in the topic of what is watched moves by ``0.3 (1 − |x|)(1 − x)``: up with probability (x + 1) / 2,
  else down
* the time left falls by the minutes watched, and rises by 0.9 / 3.4 · quality for each of them; without a click it
  falls by half a minute

What is earned is minutes. A short-sighted platform shows what is liked; one that looks ahead, what keeps the viewer.
As with Choc and Kale, transitions are pure functions of explicit draws for one viewer: ``jax.vmap`` them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jit
from fedrank.slates.world.best_slate import best_slate
from fedrank.slates.world.choice import Proportional

#: Topics, and those of them that are trash.
TOPICS, TRASH = 20, 14
#: Mean quality of a topic's videos, and its standard deviation.
QUALITY = np.concatenate([np.linspace(-3.0, 0.0, TRASH), np.linspace(0.0, 3.0, TOPICS - TRASH)]).astype(np.float32)
QUALITY_SD = 0.1
#: Part of the minutes watched that the best quality gives back, and that quality.
_BACK, _BEST = 0.9, 3.4
#: Largest step of an interest.
_STEP = 0.3
#: Steps that the price of a minute takes towards its fixed point.
_PRICES = 6


class Viewer(NamedTuple):
    """The viewer's state.

    Attributes:
        interests: Of each topic, from −1 (disgust) to 1.
        left: Minutes left; the viewer has gone when there are none.
    """

    interests: Float[Array, "*viewers topics"]
    left: Float[Array, "*viewers"]


class Videos(NamedTuple):
    """A platform's candidates.

    Attributes:
        topic: 0 … 19; platforms see it.
        quality: Platforms see that of what was watched only.
    """

    topic: Int[Array, "*lists candidates"]
    quality: Float[Array, "*lists candidates"]


class Watched(NamedTuple):
    """The outcome of a tick.

    Attributes:
        slot: The slot that was clicked; n: nothing.
        item: The candidate; −1: nothing.
        minutes: Minutes watched.
    """

    slot: Int[Array, "*ticks"]
    item: Int[Array, "*ticks"]
    minutes: Float[Array, "*ticks"]


@dataclass(frozen=True)
class InterestEvolution:
    """The world's settings, and its transitions. Hashable: a static argument of ``jax.jit``.

    Attributes:
        candidates: N, videos a platform has in a round; new ones in every round.
        slate: n, videos it shows.
        platforms: K, which act in turns on one viewer.
        time_budget: Minutes that a viewer has at first.
        length: Minutes of a video.
        penalty: Minutes that a slate without a click costs.
        shared_candidates: All platforms have the same videos in a round, or each its own.
        most_rounds: Rounds after which a viewer is taken for gone: what is compiled needs an end.

    Raises:
        ConfigError: A setting is out of range.
    """

    candidates: int = 10
    slate: int = 3
    platforms: int = 1
    time_budget: float = 200.0
    length: float = 4.0
    penalty: float = 0.5
    shared_candidates: bool = True
    most_rounds: int = 512

    def __post_init__(self):
        for name in ("candidates", "slate", "platforms", "most_rounds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"A world needs {name} of at least 1, got {getattr(self, name)}.")
        if self.slate > self.candidates:
            raise ConfigError(f"A slate of {self.slate} videos cannot be filled from {self.candidates} candidates.")
        for name in ("time_budget", "length", "penalty"):
            if not 0.0 < getattr(self, name) < 1e6:
                raise ConfigError(f"{name} must be above 0 and below a million, got {getattr(self, name)}.")

    @property
    def choice(self) -> Proportional:
        """How viewers choose: in proportion to 1 + interest; nothing has the weight of an interest of 1."""
        return Proportional(minimum=-1.0, no_click=1.0)

    def new_viewer(self, uniform: Float[Array, " topics"]) -> Viewer:
        """A viewer with all the time left; interests uniform in ± 1 from numbers uniform in [0, 1)."""
        return Viewer(2.0 * uniform - 1.0, jnp.float32(self.time_budget))

    def step(
        self,
        viewer: Viewer,
        videos: Videos,
        slate: Int[Array, " slots"],
        choice: Float[Array, ""],
        taste: Float[Array, ""],
    ) -> tuple[Viewer, Watched]:
        """One platform shows a slate; the viewer watches, or not, and changes.

        Args:
            viewer: The viewer before; there is time left.
            videos: The platform's candidates.
            slate: Candidates in slot order.
            choice: Decides what is clicked; uniform in [0, 1).
            taste: Decides whether the interest rises or falls; uniform in [0, 1).
        """
        topics = videos.topic[slate]
        slot = self.choice.choose(viewer.interests[topics], choice)
        clicked, place = slot < slate.shape[-1], jnp.minimum(slot, slate.shape[-1] - 1)
        topic, item = topics[place], slate[place]
        interest = viewer.interests[topic]
        step = _STEP * (1.0 - jnp.abs(interest)) * (1.0 - interest)
        after = jnp.clip(interest + jnp.where(taste < (interest + 1.0) / 2.0, step, -step), -1.0, 1.0)
        minutes = jnp.where(clicked, jnp.minimum(viewer.left, self.length), 0.0)
        back = minutes * (_BACK / _BEST) * videos.quality[item]
        left = viewer.left + jnp.where(clicked, back - minutes, -self.penalty)
        interests = viewer.interests.at[topic].set(jnp.where(clicked, after, interest))
        return Viewer(interests, left), Watched(slot, jnp.where(clicked, item, -1), minutes)

    def draw_videos(self, key: PRNGKeyArray) -> Videos:
        """The candidates of all platforms in a round, entries [K, N]."""
        lists = 1 if self.shared_candidates else self.platforms
        shape, (one, two) = (lists, self.candidates), jax.random.split(key)
        topic = jax.random.randint(one, shape, 0, TOPICS)
        quality = jnp.asarray(QUALITY)[topic] + QUALITY_SD * jax.random.normal(two, shape)
        whole = self.platforms, self.candidates
        return Videos(jnp.broadcast_to(topic, whole), jnp.broadcast_to(quality, whole))

    def best_for(self, viewer: Viewer, topic: Int[Array, " candidates"], price: Float[Array, ""]) -> Array:
        """The slate that is worth most, where a minute of the viewer's time left is worth ``price`` minutes watched.

        With 0 nothing is looked ahead. The quality of a video is taken for its topic's mean, which platforms know.
        """
        back = (_BACK / _BEST) * self.length * jnp.asarray(QUALITY)[topic]
        worth = self.length + price * (back - self.length)
        return best_slate(self.choice, viewer.interests[topic], worth, self.slate, -price * self.penalty)


class Session(NamedTuple):
    """What came of a viewer.

    Attributes:
        minutes: Watched at each platform.
        slates: Slates that were shown.
        stayed: Whether the viewer was still there after the last round of all.
    """

    minutes: Float[Array, "*viewers platforms"]
    slates: Int[Array, "*viewers"]
    stayed: Bool[Array, "*viewers"]


@functools.partial(jit, quick=True, static_argnums=(0, 1))
def sessions(world: InterestEvolution, ahead: bool, price: Float[Array, ""], keys: Key[Array, " viewers"]) -> Session:
    """Viewers from their first slate to their last.

    Args:
        world: The world.
        ahead: Slates are the best for ``price``, as all platforms see the viewer's interests; False: at random.
        price: As of :meth:`InterestEvolution.best_for`.
        keys: Typed JAX keys, one a viewer.
    """

    def one_round(viewer, key):
        for_videos, for_slates, for_viewer = jax.random.split(key, 3)
        videos, minutes, shown = world.draw_videos(for_videos), [], jnp.int32(0)
        draws = jax.random.uniform(for_viewer, (world.platforms, 2))
        for k in range(world.platforms):
            mine, there = Videos(videos.topic[k], videos.quality[k]), viewer.left > 0
            if ahead:
                slate = world.best_for(viewer, mine.topic, price)
            else:
                order = jax.random.permutation(jax.random.fold_in(for_slates, k), world.candidates)
                slate = order[: world.slate].astype(jnp.int32)
            after, seen = world.step(viewer, mine, slate, draws[k, 0], draws[k, 1])
            viewer = jax.tree.map(lambda new, old, there=there: jnp.where(there, new, old), after, viewer)
            minutes.append(jnp.where(there, seen.minutes, 0.0))
            shown += there
        return viewer, (jnp.stack(minutes), shown)

    def of_viewer(key):
        first, rest = jax.random.split(key)
        viewer = world.new_viewer(jax.random.uniform(first, (TOPICS,)))
        end, (minutes, shown) = jax.lax.scan(one_round, viewer, jax.random.split(rest, world.most_rounds))
        return Session(jnp.sum(minutes, axis=0), jnp.sum(shown), end.left > 0)

    return jax.vmap(of_viewer)(keys)


def price_of_time(world: InterestEvolution, keys: Key[Array, " viewers"]) -> float:
    """What a minute of a viewer's time is worth in minutes watched, under the slates that are best for that price.

    Minutes watched for each of the time budget: the fixed point, from 0 in a few steps.
    """
    price = 0.0
    for _ in range(_PRICES):
        found = sessions(world, True, jnp.float32(price), keys)
        price = float(jnp.mean(jnp.sum(found.minutes, axis=1))) / world.time_budget
    return price
