"""Users who come to all platforms: the world of a simulator, played through what applications of platforms call.

One process plays the users. It alone knows their state; a platform hears from it what an application of that platform
would know: its candidates, what it can see of the user, and, if it has feedback, what was clicked. The order is that
of :meth:`fedrank.slates.world.satisfaction.Satisfaction.round`: all platforms learn that the user is there, then each
in its turn shows its slate and the user acts.

A platform that is away in a round is passed over; the user has that tick less.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.core.errors import RunError
from fedrank.deploy.platforms.client import PlatformClient
from fedrank.deploy.platforms.terms import Terms
from fedrank.slates.world.satisfaction import Satisfaction, Scene, Turn

_log = logging.getLogger("fedrank.users")


@dataclass(frozen=True)
class Visited:
    """One round of a user.

    Attributes:
        number: The round.
        slates: What each platform showed; None: it was away.
        engagement: float32 [K].
        over: The user has left.
    """

    number: int
    slates: list[list[int] | None]
    engagement: np.ndarray
    over: bool


def visits(terms: Terms, clients: Sequence[PlatformClient], rounds: int, *, seeded: bool = False) -> Iterator[Visited]:
    """Users visit, until so many rounds are over; a new user comes where the platforms are.

    Args:
        terms: Their world.
        clients: Of all platforms, in order.
        rounds: In all, those of earlier processes included.
        seeded: Users are those of the run's seed, as a simulator has them; otherwise new ones.

    Raises:
        RunError: There are not as many platforms as the world has, or no platform is there.
    """
    world = terms.protocol.settings.world
    feedback = terms.protocol.settings.feedback
    if len(clients) != world.platforms:
        raise RunError(f"there are {len(clients)} platforms, and the configuration has {world.platforms}.")
    number = max(int(client.state()["next"]) for client in clients)
    scene = _first(world, terms.world_key(number - 1 if number else None, seeded))
    strangers = [True] * world.platforms  # the platforms that have not seen this user yet
    while number < rounds:
        here = [_told(client, number, scene, k, strangers[k]) for k, client in enumerate(clients)]
        if not any(here):
            raise RunError("no platform is there. Start them, then come again.")
        strangers = [stranger and not there for stranger, there in zip(strangers, here, strict=True)]
        draws = _drawn(world, terms.world_key(number, seeded))
        user = scene.user
        slates: list[list[int] | None] = [None] * world.platforms
        engagement, observed = np.zeros(world.platforms, np.float32), np.asarray(scene.observed).copy()
        for k in np.asarray(draws.order).tolist():
            slate = slates[k] = _shown(clients[k], number) if here[k] else None
            if slate is None:
                continue
            user, turn = _tick(world, user, scene.documents[k], jnp.asarray(slate, jnp.int32), _of(draws.ticks, k))
            engagement[k], observed[k] = turn.engagement, turn.observed
            _say(clients[k], number, turn if feedback[k] else None, world.slate)
        scene, over = _after(world, user, jnp.asarray(observed), draws)
        if over:
            strangers = [True] * world.platforms
        yield Visited(number, slates, engagement, bool(over))
        number += 1


def _told(client: PlatformClient, number: int, scene: Scene, k: int, newcomer: bool) -> bool:
    """Whether a platform has heard that the user is there."""
    candidates = np.asarray(scene.documents[k], np.float64).tolist()
    return _tried(lambda: client.visit(number, candidates, float(scene.observed[k]), newcomer)) is not _AWAY


def _shown(client: PlatformClient, number: int) -> list[int] | None:
    slate: Any = _tried(lambda: client.slate(number))
    return None if slate is _AWAY else slate


def _say(client: PlatformClient, number: int, turn: Turn | None, n: int) -> None:
    """What came of it; None: the platform is not told."""
    if turn is None or int(turn.slot) == n:
        _tried(lambda: client.outcome(number))
    else:
        _tried(lambda: client.outcome(number, int(turn.slot), float(turn.engagement)))


_AWAY = object()


def _tried(act: Any) -> Any:
    try:
        return act()
    except RunError as error:
        _log.warning("%s", error)
        return _AWAY


@partial(jax.jit, static_argnums=0)
def _first(world: Satisfaction, key: Any) -> Scene:
    return world.first(world.draw(key))


@partial(jax.jit, static_argnums=0)
def _drawn(world: Satisfaction, key: Any) -> Any:
    return world.draw(key)


@partial(jax.jit, static_argnums=0)
def _tick(world: Satisfaction, user: Any, documents: Any, slate: Any, draws: Any) -> Any:
    return world.step(user, documents, slate, draws)


def _of(ticks: Any, k: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[k], ticks)


@partial(jax.jit, static_argnums=0)
def _after(world: Satisfaction, user: Any, observed: Any, draws: Any) -> tuple[Scene, Any]:
    """The next round's scene, and whether the user has left: then it is a new user's."""
    done = user.left <= 0
    new = world.new_user(draws.newcomer)
    user = jax.tree.map(lambda arriving, staying: jnp.where(done, arriving, staying), new, user)
    fresh = world.observe(user, draws.observation)
    return Scene(user, draws.documents, fresh if world.fresh else jnp.where(done, fresh, observed)), done
