"""Simulated users who come to all platforms, through the interface for the platforms' applications.

One process simulates the users. It alone knows their state; a platform gets from it what an application of that
platform would know: its candidates, its observation of the user, and, if it has feedback, what was clicked. The order
is that of :meth:`fedrank.slates.world.satisfaction.Satisfaction.round`: all platforms learn that the user has come,
then each in turn shows its slate and the user acts.

A platform that does not answer in a round is skipped; the user has one tick less.
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
from jaxtyping import Float32

from fedrank.core.arrays import PyTree
from fedrank.core.errors import RunError
from fedrank.deploy.platforms.client import PlatformClient
from fedrank.deploy.platforms.terms import Terms
from fedrank.slates.world.satisfaction import Satisfaction, Scene, Turn

_log = logging.getLogger("fedrank.users")


@dataclass(frozen=True)
class Visited:
    """One round of a user.

    Attributes:
        number: Number of the round.
        slates: Slate that each platform showed; None: it did not answer.
        engagement: Engagement at each platform, float32 [K].
        over: Whether the user has left.
    """

    number: int
    slates: list[list[int] | None]
    engagement: Float32[np.ndarray, " platforms"]
    over: bool


def visits(terms: Terms, clients: Sequence[PlatformClient], rounds: int, *, seeded: bool = False) -> Iterator[Visited]:
    """Let users visit until the given number of rounds is over, starting at the round in which the platforms are.

    Args:
        terms: Terms of the federation, which define the world.
        clients: Clients of all platforms, in order.
        rounds: Total number of rounds, those of earlier processes included.
        seeded: Draw the users from the run's seed, as a simulator does.

    Raises:
        RunError: There are not as many platforms as the world has, or no platform answers.
    """
    world = terms.protocol.settings.world
    feedback = terms.protocol.settings.feedback
    if len(clients) != world.platforms:
        raise RunError(f"there are {len(clients)} platforms, and the configuration has {world.platforms}.")
    number = max(int(client.state()["next"]) for client in clients)
    scene = _first(world, terms.world_key(number - 1 if number else None, seeded))
    strangers = [True] * world.platforms  # the platforms that have not seen this user yet
    while number < rounds:
        here = [_report_visit(client, number, scene, k, strangers[k]) for k, client in enumerate(clients)]
        if not any(here):
            raise RunError("no platform is there. Start them, then come again.")
        strangers = [stranger and not there for stranger, there in zip(strangers, here, strict=True)]
        draws = _drawn(world, terms.world_key(number, seeded))
        user = scene.user
        slates: list[list[int] | None] = [None] * world.platforms
        engagement, observed = np.zeros(world.platforms, np.float32), np.asarray(scene.observed).copy()
        for k in np.asarray(draws.order).tolist():
            slate = slates[k] = _slate_of(clients[k], number) if here[k] else None
            if slate is None:
                continue
            user, turn = _tick(world, user, scene.documents[k], jnp.asarray(slate, jnp.int32), _of(draws.ticks, k), k)
            engagement[k], observed[k] = turn.engagement, turn.observed
            _report_outcome(clients[k], number, turn if feedback[k] else None, world.slate)
        scene, over = _after(world, user, jnp.asarray(observed), draws)
        if over:
            strangers = [True] * world.platforms
        yield Visited(number, slates, engagement, bool(over))
        number += 1


def _report_visit(client: PlatformClient, number: int, scene: Scene, k: int, newcomer: bool) -> bool:
    """Report a visit; returns whether the platform answered."""
    candidates = np.asarray(scene.documents[k], np.float64).tolist()
    return _if_there(lambda: client.visit(number, candidates, float(scene.observed[k]), newcomer)) is not _AWAY


def _slate_of(client: PlatformClient, number: int) -> list[int] | None:
    slate: Any = _if_there(lambda: client.slate(number))
    return None if slate is _AWAY else slate


def _report_outcome(client: PlatformClient, number: int, turn: Turn | None, n: int) -> None:
    """Report an outcome; None: the platform has no feedback."""
    if turn is None or int(turn.slot) == n:
        _if_there(lambda: client.outcome(number))
    else:
        _if_there(lambda: client.outcome(number, int(turn.slot), float(turn.engagement)))


_AWAY = object()


def _if_there(act: Any) -> Any:
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
def _tick(world: Satisfaction, user: Any, documents: Any, slate: Any, draws: PyTree, platform: Any) -> Any:
    return world.step(user, documents, slate, draws, platform)


def _of(ticks: Any, k: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[k], ticks)


@partial(jax.jit, static_argnums=0)
def _after(world: Satisfaction, user: Any, observed: Any, draws: PyTree) -> tuple[Scene, Any]:
    """The next round's scene, of a new user if this one has left, and whether this user has left."""
    done = user.left <= 0
    new = world.new_user(draws.newcomer)
    user = jax.tree.map(lambda arriving, staying: jnp.where(done, arriving, staying), new, user)
    fresh = world.observe(user, draws.observation)
    return Scene(user, draws.documents, fresh if world.fresh else jnp.where(done, fresh, observed)), done
