"""Client for a platform's own application: it reports visits, gets slates, and reports outcomes.

::

    client = PlatformClient.of_folder("platform-a")
    client.visit(0, candidates=[0.3, 0.9, …], observed=0.52, newcomer=True)
    for item in client.slate(0):
        ...
    client.outcome(0, slot=1, engagement=23.4)

An application in another language sends the same JSON; see :mod:`fedrank.deploy.platforms.service`.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
from typing import Any

from fedrank.core.errors import RunError
from fedrank.core.trees import Json
from fedrank.deploy.http.client import ClientResponse, PersistentClient
from fedrank.deploy.platforms.folder import PlatformFolder

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
        return self._asked("GET", "/v1/state").json()

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
        self._asked("PUT", f"/v1/visit/{number}", said)

    def slate(self, number: int) -> list[int]:
        """The slate to show: indices of candidates, in the order of the slate; errors as :meth:`visit`."""
        slate = self._asked("GET", f"/v1/slate/{number}").json().get("slate")
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
        self._asked("PUT", f"/v1/outcome/{number}", said)

    def close(self) -> None:
        """Close the connection to the platform."""
        self._client.close()

    def _asked(self, method: str, path: str, said: dict[str, Json] | None = None) -> ClientResponse:
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
