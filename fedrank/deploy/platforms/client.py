"""Client for a platform's own application: sessions of users, their slates and outcomes.

::

    client = PlatformClient.of_folder("platform-a")
    client.begin("s-17")
    for place in client.slate("s-17", candidates=[0.3, 0.9, …], observed=0.52):
        ...
    client.outcome("s-17", slot=1, engagement=23.4)
    client.end("s-17")

An application in another language sends the same JSON; see :mod:`fedrank.deploy.platforms.service`.

**Simulated users**, :func:`visits`, come to all platforms through this client, any number at once. One process
simulates them. It alone knows their state; a platform gets from it what an application of that platform would know: its
candidates, its observation of the user, and, if it has feedback, what was clicked. A platform that does not answer in a
round is skipped; the user has one tick less.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32

from fedrank.core.errors import RunError
from fedrank.core.native import map_trees
from fedrank.core.trees import Json
from fedrank.deploy.http.client import ClientResponse, PersistentClient
from fedrank.deploy.platforms.folder import LARGEST_REQUEST, PlatformFolder, Terms
from fedrank.slates.world.satisfaction import Scene

#: Pause before a platform that did not answer is asked again, in seconds.
_PAUSE = 0.1
#: Largest body of a response in bytes; of a batch, whose places in long lists take up to four times what was sent.
_LIMIT, _LIMIT_OF_BATCH = 1 << 20, 8 * LARGEST_REQUEST


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
        """Sizes that were agreed, and how many sessions there were and are."""
        return self._ask("GET", "/v1/state").json()

    def register(self, items: Mapping[str, Any]) -> None:
        """Keep features of items, so that candidates can be named by id.

        Args:
            items: By id, the item's feature, or its d features.

        Raises:
            RunError: The platform does not answer, or refuses; says why.
        """
        self._ask("POST", "/v1/register", {"items": dict(items)})

    def begin(self, session: str) -> None:
        """A user comes; errors as :meth:`register`.

        Args:
            session: The application's name of the stay.
        """
        self._ask("POST", "/v1/begin", {"session": session})

    def slate(
        self,
        session: str,
        candidates: Sequence[Any] | None = None,
        items: Sequence[str] | None = None,
        observed: float | None = None,
        present: Sequence[int] | None = None,
    ) -> list[int]:
        """The slate to show: places of candidates, in the order of the slate; errors as :meth:`register`.

        Args:
            session: Of a user who has come.
            candidates: Features of each item that could be shown.
            items: Ids of registered items, in place of features.
            observed: The platform's observation of the user's satisfaction; None: as last time.
            present: The slate that would be shown without a plan, as places; a trial compares with it.
        """
        given = {"session": session, "candidates": candidates, "items": items, "observed": observed, "present": present}
        said: dict[str, Json] = {name: value for name, value in given.items() if value is not None}
        slate = self._ask("POST", "/v1/slate", said).json().get("slate")
        if not isinstance(slate, list):
            raise RunError(f"platform at {self._client.url}: an answer without a slate.")
        return slate

    def outcome(self, session: str, slot: int | None = None, engagement: float = 0.0) -> None:
        """Report the outcome of a slate; errors as :meth:`register`.

        Args:
            session: Of the user.
            slot: Slot of the slate that was clicked; None: none was, or it is not known here.
            engagement: Engagement with the clicked item, at least 0.
        """
        said: dict[str, Json] = {} if slot is None else {"slot": slot, "engagement": float(engagement)}
        self._ask("POST", "/v1/outcome", {"session": session, **said})

    def end(self, session: str) -> None:
        """The user has left; errors as :meth:`register`."""
        self._ask("POST", "/v1/end", {"session": session})

    def batch(self, calls: Sequence[Mapping[str, Json]]) -> list[dict[str, Json]]:
        """Several calls in order; what each gives, or why it was refused.

        They are sent once. Calls that change nothing when they come twice do so one at a time only.

        Args:
            calls: As of :meth:`.PlanningPlatform.batch`.

        Raises:
            RunError: There was no answer, and calls may have been done; or the platform refuses; says why.
        """
        self._client.close()  # over a new connection nothing is sent twice
        return self._ask("POST", "/v1/batch", list(calls), once=True).json()["answers"]

    def close(self) -> None:
        """Close the connection to the platform."""
        self._client.close()

    def _ask(self, method: str, path: str, said: Json = None, once: bool = False) -> ClientResponse:
        body = None if said is None else json.dumps(said).encode()
        end, limit = time.monotonic() + self._patience, _LIMIT_OF_BATCH if once else _LIMIT
        while True:
            try:
                answer = self._client.ask(method, path, body, limit=limit)
            except OSError as error:
                why, pause = str(error), _PAUSE
            else:
                if answer.status in (200, 204):
                    return answer
                why, pause = answer.reason or f"status {answer.status}", _PAUSE
                if answer.reason not in ("unavailable", "too-many"):
                    said, end = answer.json(), -math.inf
                    why = "; ".join([why, *(f"{name} {said[name]}" for name in ("expected", "found") if name in said)])
            if once and end > -math.inf:
                why, end = f"{why}; calls of it may have been done, see state()", -math.inf
            if time.monotonic() + pause >= end:
                raise RunError(f"platform at {self._client.url}: {method} {path} was not done ({why}).")
            time.sleep(pause)


_log = logging.getLogger("fedrank.users")


@dataclass(frozen=True)
class Visited:
    """One round of a user.

    Attributes:
        user: Number of the user.
        round: Number of the round in the user's stay.
        slates: Slate that each platform showed; None: it did not answer.
        engagement: Engagement at each platform, float32 [K].
        over: Whether the user has left.
    """

    user: int
    round: int
    slates: list[list[int] | None]
    engagement: Float32[np.ndarray, " platforms"]
    over: bool


def visits(terms: Terms, clients: Sequence[PlatformClient], users: int, *, at_once: int = 1) -> Iterator[Visited]:
    """Let users visit until a number of them have left, those of earlier processes included.

    Args:
        terms: Terms of the federation, which define the world.
        clients: Clients of all platforms, in order.
        users: Users in all.
        at_once: Users at the same time, who take turns round by round.

    Raises:
        RunError: There are not as many platforms as the world has, or no platform answers.
    """
    if len(clients) != terms.protocol.world.platforms:
        raise RunError(
            f"there are {len(clients)} platforms, and the configuration has {terms.protocol.world.platforms}."
        )
    coming = range(max(int(client.state()["begun"]) for client in clients), users)
    waiting, here = deque(coming), deque()
    while waiting or here:
        while waiting and len(here) < at_once:
            here.append(_stay(terms, clients, waiting.popleft()))
        user = here.popleft()
        seen = next(user)
        if not seen.over:
            here.append(user)
        yield seen


def _stay(terms: Terms, clients: Sequence[PlatformClient], user: int) -> Iterator[Visited]:
    """The rounds of one simulated user's stay, played on all platforms; yields what was shown in each round."""
    world, feedback, name = terms.protocol.world, terms.protocol.feedback, f"user {user}"
    first = user * world.rounds_per_episode
    scene = world.first(world.draw(terms.world_key(first - 1 if first else None)))
    for client in clients:
        _if_there(lambda client=client: client.begin(name))
    for round_ in range(world.rounds_per_episode):
        draws, moving = world.draw(terms.world_key(first + round_)), scene.user
        slates: list[list[int] | None] = [None] * world.platforms
        engagement, observed = np.zeros(world.platforms, np.float32), np.asarray(scene.observed).copy()
        for k in np.asarray(draws.order).tolist():
            documents = scene.documents[k] if world.features == 1 else world.item_features(scene.documents[k])
            candidates, seen = np.asarray(documents, np.float64).tolist(), float(scene.observed[k])
            slate = _if_there(lambda k=k, c=candidates, s=seen: clients[k].slate(name, c, observed=s))
            if slate is _AWAY:
                continue
            slates[k] = slate
            ticks = map_trees(lambda leaf, k=k: leaf[k], draws.ticks)
            moving, turn = world.step(moving, scene.documents[k], np.asarray(slate, np.int32), ticks, np.int32(k))
            engagement[k], observed[k] = turn.engagement, turn.observed
            clicked = feedback[k] and int(turn.slot) < world.slate
            said = (int(turn.slot), float(turn.engagement)) if clicked else ()
            _if_there(lambda k=k, said=said: clients[k].outcome(name, *said))
        if all(slate is None for slate in slates):
            raise RunError("no platform is there. Start them, then come again.")
        fresh = world.observe(moving, draws.observation)
        scene = Scene(moving, draws.documents, fresh if world.fresh else observed)
        over = round_ + 1 == world.rounds_per_episode
        if over:
            for client in clients:
                _if_there(lambda client=client: client.end(name))
        yield Visited(user, round_, slates, engagement, over)


_AWAY = object()


def _if_there(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except RunError as error:
        _log.warning("%s", error)
        return _AWAY
