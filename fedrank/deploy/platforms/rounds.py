"""A platform as its coordinator sees it, a :class:`Peer`: it is asked until it answers or the time is up.

What a platform says of itself is taken for itself only: one that answers with what cannot be read, or is another than
it was, is not heard, and stops no other.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from fedrank.core.errors import RunError
from fedrank.core.trees import Json
from fedrank.deploy.http.client import ClientResponse, PersistentClient
from fedrank.deploy.platforms.folder import EXCHANGE_PATH, SUM_PATH, Terms

_log = logging.getLogger("fedrank.coordinator")

#: First and longest pause before a platform is asked again, in seconds.
_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
#: Reasons after which a request is sent again.
_SOON = ("early-round", "unavailable", "too-many")
#: Reasons of refusals for good.
_FINAL = (
    *("unauthorised", "malformed", "out-of-range", "not-found", "method", "too-large", "not-due", "not-finite"),
    "unlike-agreed",
)


@dataclass(frozen=True)
class Silence:
    """A missing reply.

    Attributes:
        reason: Reason that the platform gave; ``"away"`` if it did not answer.
    """

    reason: str


class Peer:
    """The coordinator's connection to one platform.

    Args:
        terms: The terms of the federation.
        index: Number of the platform that should be there, from 0.
        client: HTTP client of the platform.
        stop: Set when the coordinator stops.
    """

    def __init__(self, terms: Terms, index: int, client: PersistentClient, *, stop: threading.Event):
        self._terms, self._index, self._client, self._stop = terms, index, client, stop
        self._met, self._complaint = False, ""  # whether it was once the platform that it should be; the last complaint
        client.on_connect = self._check

    def exchange(self, number: int, place: int, body: bytes, patience: float) -> bytes | Silence:
        """Send the request of an exchange and wait for the reply.

        Args:
            number: Number of the round.
            place: Index of the exchange in the protocol.
            body: The request's bytes.
            patience: Seconds to wait; may be infinite.

        Returns:
            The reply's bytes, of the right length; or why there is none.

        Raises:
            RunError: From the start, another platform is there, one with other settings, or one that refuses for good.
                Once it has been the right one, it is silent instead: it must not stop the others.
        """
        expected = self._terms.exchanges[place].reply.nbytes
        return self._answer(f"{EXCHANGE_PATH}{number}/{place}", f"exchange {place}", body, patience, expected)

    def sum_step(
        self, number: int, place: int, step: int, body: bytes, patience: float, expected: int
    ) -> bytes | Silence:
        """Send the request of a step of a secure sum, as :meth:`exchange`.

        Args:
            number: Number of the round.
            place: Index of the exchange whose replies are summed.
            step: Number of the step, from 0.
            body: The request's bytes.
            patience: Seconds to wait; may be infinite.
            expected: Length of the reply, in bytes.
        """
        path, what = f"{SUM_PATH}{number}/{place}/{step}", f"step {step} of the sum of exchange {place}"
        return self._answer(path, what, body, patience, expected)

    def _answer(self, path: str, what: str, body: bytes, patience: float, expected: int) -> bytes | Silence:
        end, pause = time.monotonic() + patience, _PAUSE
        while True:
            try:
                answer = self._client.ask("POST", path, body, limit=max(4096, expected))
            except _WrongPlatformError as error:
                return self._wrong(str(error))
            except OSError as error:
                silence = Silence("away")
                if pause == _PAUSE:
                    _log.warning("platform %d: %s", self._index, error)
            else:
                if answer.status == 200 and len(answer.body) == expected:
                    return answer.body
                if answer.status == 200:
                    return self._wrong(f"answers {what} with {len(answer.body)} bytes")
                silence = self._refuse(answer)
                if silence.reason not in _SOON:
                    return silence
            left = end - time.monotonic()
            if left <= 0 or self._stop.is_set():
                return silence
            if silence.reason != "early-round":  # for that the platform itself has waited
                self._stop.wait(min(pause, left))
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _check(self) -> None:
        """Check over a new connection that the platform is the expected one."""
        answer = self._client.ask("GET", "/v1/platform")
        if answer.status != 200:
            raise ConnectionError(self._refuse(answer).reason)
        said: dict[str, Json] = answer.json()
        here = {"platform": self._index, "terms": self._terms.fingerprint, "seeded": self._terms.seeded}
        for name, value in here.items():
            if said.get(name) != value:
                found = repr(said.get(name))[:100]
                raise _WrongPlatformError(f"says {name} = {found}, and this coordinator expects {value!r}")
        self._met = True

    def _refuse(self, answer: ClientResponse) -> Silence:
        if answer.reason in _FINAL:
            return self._wrong(f"refuses the coordinator: {answer.reason}", answer.reason)
        return Silence(answer.reason or f"status {answer.status}")

    def _wrong(self, what: str, reason: str = "malformed") -> Silence:
        """A platform that does what it should not: an error at the start, later silence and a line in the log."""
        error = (
            f"platform {self._index} at {self._client.url}: {what}. Give each platform's own address, in order, its "
            "token, and the same configuration to all."
        )
        if not self._met:
            raise RunError(error)
        if error != self._complaint:
            self._complaint = error
            _log.error("%s Until then it is not heard.", error)
        return Silence(reason)


class _WrongPlatformError(Exception):
    """Another platform answers than should."""
