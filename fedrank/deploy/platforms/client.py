"""Client for a platform's own application: it reports visits, gets slates, and reports outcomes.

::

    client = PlatformClient.of_folder("platform-a")
    client.visit(0, candidates=[0.3, 0.9, …], observed=0.52, newcomer=True)
    for item in client.slate(0):
        ...
    client.outcome(0, slot=1, engagement=23.4)

An application in another language sends the same JSON; see :mod:`fedrank.deploy.platforms.service`.

**Simulated users**, :func:`visits`, come to all platforms through this client. One process simulates them. It alone
knows their state; a platform gets from it what an application of that platform would know: its candidates, its
observation of the user, and, if it has feedback, what was clicked. The order is that of
:meth:`fedrank.slates.world.satisfaction.Satisfaction.round`: all platforms learn that the user has come, then each in
turn shows its slate and the user acts.

A platform that does not answer in a round is skipped; the user has one tick less.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32

from fedrank.core.arrays import PyTree, module_of
from fedrank.core.errors import RunError
from fedrank.core.native import map_trees
from fedrank.core.trees import Json
from fedrank.deploy.http.client import ClientResponse, PersistentClient
from fedrank.deploy.platforms.folder import PlatformFolder
from fedrank.deploy.platforms.terms import Terms
from fedrank.slates.world.satisfaction import Satisfaction, Scene, Turn

#: Pause before a platform that did not answer is asked again, in seconds.
_PAUSE = 0.1
#: Largest body of a response in bytes.
_LIMIT = 1 << 20


class PlatformClient:
    """A platform as its application sees it; for one thread.

    Args:
        url: The platform's URL for its application, on this machine.
        token: Token of the application.
        patience: Seconds for which a platform may not answer before an error is raised; may be infinite.
        timeout: Longest silence of a connection, in seconds.
    """

    def __init__(self, url: str, token: str, *, patience: float = 30.0, timeout: float = 10.0):
        self._client, self._patience = PersistentClient(url, token, timeout=timeout), patience

    @classmethod
    def of_folder(cls, folder: str | os.PathLike[str], **options: Any) -> PlatformClient:
        """Client of the platform that is served from a folder of this machine; options as of the class.

        Raises:
            RunError: No platform is served from it.
        """
        home = PlatformFolder(folder)
        return cls(home.url("application"), home.token("application"), **options)

    def state(self) -> dict[str, Json]:
        """State of the platform; ``next`` is the first round whose slate can still be made."""
        return self._ask("GET", "/v1/state").json()

    def visit(self, number: int, candidates: Sequence[float], observed: float, newcomer: bool) -> None:
        """Report that a user has come.

        Args:
            number: Number of the round, the same at all platforms that the user comes to.
            candidates: The feature of each of the N candidates that could be shown.
            observed: The platform's observation of the user.
            newcomer: Whether it is another user than in this platform's last round.

        Raises:
            RunError: The platform does not answer, or refuses; says why.
        """
        said = {"candidates": [float(one) for one in candidates], "observed": float(observed), "newcomer": newcomer}
        self._ask("PUT", f"/v1/visit/{number}", said)

    def slate(self, number: int) -> list[int]:
        """The slate to show: indices of candidates, in the order of the slate; errors as :meth:`visit`."""
        slate = self._ask("GET", f"/v1/slate/{number}").json().get("slate")
        if not isinstance(slate, list):
            raise RunError(f"platform at {self._client.url}: an answer without a slate.")
        return slate

    def outcome(self, number: int, slot: int | None = None, engagement: float = 0.0) -> None:
        """Report the outcome of a slate; errors as :meth:`visit`.

        Args:
            number: Number of the round.
            slot: Slot of the slate that was clicked; None: none was, or it is not known here.
            engagement: Engagement with the clicked item, at least 0.
        """
        said: dict[str, Json] = {} if slot is None else {"slot": slot, "engagement": float(engagement)}
        self._ask("PUT", f"/v1/outcome/{number}", said)

    def close(self) -> None:
        """Close the connection to the platform."""
        self._client.close()

    def _ask(self, method: str, path: str, said: dict[str, Json] | None = None) -> ClientResponse:
        body = None if said is None else json.dumps(said).encode()
        end = time.monotonic() + self._patience
        while True:
            try:
                answer = self._client.ask(method, path, body, limit=_LIMIT)
            except OSError as error:
                why, pause = str(error), _PAUSE
            else:
                if answer.status in (200, 204):
                    return answer
                why, pause = answer.reason or f"status {answer.status}", _PAUSE
                if answer.reason == "early-round":  # it has waited itself
                    pause = 0.0
                elif answer.reason not in ("unavailable", "too-many"):
                    end = -math.inf
            if time.monotonic() + pause >= end:
                raise RunError(f"platform at {self._client.url}: {method} {path} was not done ({why}).")
            time.sleep(pause)


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
    world = terms.protocol.world
    feedback = terms.protocol.feedback
    if len(clients) != world.platforms:
        raise RunError(f"there are {len(clients)} platforms, and the configuration has {world.platforms}.")
    number = max(int(client.state()["next"]) for client in clients)
    scene = terms.compute(_first, world, terms.world_key(number - 1 if number else None, seeded))
    strangers = [True] * world.platforms  # the platforms that have not seen this user yet
    while number < rounds:
        here = [_report_visit(client, number, scene, k, strangers[k]) for k, client in enumerate(clients)]
        if not any(here):
            raise RunError("no platform is there. Start them, then come again.")
        strangers = [stranger and not there for stranger, there in zip(strangers, here, strict=True)]
        draws = terms.compute(_drawn, world, terms.world_key(number, seeded))
        user = scene.user
        slates: list[list[int] | None] = [None] * world.platforms
        engagement, observed = np.zeros(world.platforms, np.float32), np.asarray(scene.observed).copy()
        for k in np.asarray(draws.order).tolist():
            slate = slates[k] = _slate_of(clients[k], number) if here[k] else None
            if slate is None:
                continue
            ticks = map_trees(lambda leaf, k=k: leaf[k], draws.ticks)
            shown, platform = np.asarray(slate, np.int32), np.int32(k)
            user, turn = terms.compute(_tick, world, user, scene.documents[k], shown, ticks, platform)
            engagement[k], observed[k] = turn.engagement, turn.observed
            _report_outcome(clients[k], number, turn if feedback[k] else None, world.slate)
        scene, over = terms.compute(_after, world, user, observed, draws)
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


def _first(world: Satisfaction, key: Any) -> Scene:
    return world.first(world.draw(key))


def _drawn(world: Satisfaction, key: Any) -> Any:
    return world.draw(key)


def _tick(world: Satisfaction, user: Any, documents: Any, slate: Any, draws: PyTree, platform: Any) -> Any:
    return world.step(user, documents, slate, draws, platform)


def _after(world: Satisfaction, user: Any, observed: Any, draws: PyTree) -> tuple[Scene, Any]:
    """The next round's scene, of a new user if this one has left, and whether this user has left."""
    xp, done = module_of(user.left), user.left <= 0
    new = world.new_user(draws.newcomer)
    user = map_trees(lambda arriving, staying: xp.where(done, arriving, staying), new, user)
    fresh = world.observe(user, draws.observation)
    return Scene(user, draws.documents, fresh if world.fresh else xp.where(done, fresh, observed)), done
