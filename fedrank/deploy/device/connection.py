"""A device's requests to its hub, what they can come to, and how long to wait after a failure."""

from __future__ import annotations

import enum
import hashlib
import json
import math
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from fedrank.core.errors import WireError
from fedrank.deploy.device.outbox import COUNTED, OVER, REFUSED, TOO_LATE
from fedrank.deploy.http.client import ClientResponse, HttpClient
from fedrank.deploy.terms import Terms

#: Longest wait after a refusal, in seconds.
LONGEST_WAIT = 3600.0
#: Wait after the first failure is up to twice this, in seconds; it doubles with each further one.
_FIRST_WAIT = 1.0
_TOKEN = re.compile(r"[!-~]{8,512}")
#: The operating system's chance, for pauses: devices that were refused together must not come back together.
CHANCE = random.SystemRandom()
#: Bytes that a hub's answer to an enrolment may have; the most values that a reward can have.
_ENROLMENT, _VALUES = 65_536, 65_537
#: What becomes of a message, by the status of the answer; other answers say nothing about it.
_OUTCOMES = {200: COUNTED, 201: COUNTED, 400: REFUSED, 409: TOO_LATE, 410: OVER, 413: REFUSED, 422: REFUSED}
#: The hub's own reasons after which a message was certainly not counted, and may be later.
_NOT_NOW = ("unauthorised", "between-rounds", "unavailable", "too-many")


class State(enum.StrEnum):
    """How a device stands with its hub."""

    OK = "OK"  #: In step.
    RETRY = "RETRY"  #: The hub asks to come back later, or makes no sense.
    STALE = "STALE"  #: A message came too late; there is a newer model to fetch.
    DONE = "DONE"  #: Training is over; the model stays.
    OFFLINE = "OFFLINE"  #: No response.
    SILENT = "SILENT"  #: No message is sent: the user opted out, or more would not be private enough.


@dataclass(frozen=True)
class Synced:
    """What became of a look at the hub.

    Attributes:
        state: How the device stands with it.
        sent: Messages that it counted, this time.
        next_in: Seconds until it is worth looking again.
        why: The reason, where all is not well.
        lasting: What the device keeps outlives the process.
    """

    state: State
    sent: int
    next_in: float
    why: str = ""
    lasting: bool = True


@dataclass(frozen=True)
class Refusal:
    """The hub did not do what was asked, or said something that makes no sense.

    Attributes:
        why: In words.
        retry_after: Seconds that it asks to wait; None if it does not.
        unauthorised: It does not know the token.
        not_counted: What was sent has certainly not been counted.
    """

    why: str
    retry_after: float | None = None
    unauthorised: bool = False
    not_counted: bool = False


def tag_of(terms: Terms, round_: int, weights: bytes) -> str:
    """The entity tag that a hub gives a model.

    It names the content: a hub that was put back from a copy may show another model in the same round.

    Args:
        terms: Of the hub.
        round_: Of the model.
        weights: Little-endian float32.
    """
    return f'"{terms.hub[:8]}-{round_}-{hashlib.sha256(weights).hexdigest()[:8]}"'


def usable_token(token: object) -> bool:
    """Whether a token can stand in a header."""
    return isinstance(token, str) and _TOKEN.fullmatch(token) is not None


class HubClient(HttpClient):
    """A device's requests to its hub; arguments as of :class:`~fedrank.deploy.http.client.HttpClient`."""

    def enrol(self, enrolment: str) -> tuple[str, Terms] | Refusal:
        """Become a device of the hub: its token, and the hub's terms. Errors as :meth:`request`."""
        response = self.request("POST", "/v1/enrol", enrolment, body=b"", limit=_ENROLMENT)
        if response.status != 201:
            return _refusal("enrolment", response)
        try:
            given = json.loads(response.body)
            token, terms = given["token"], given["terms"]
            if not usable_token(token) or int(terms.get("reward_values") or 0) > _VALUES:
                raise WireError("no device token, or a reward that no device can compute")
            return token, Terms.from_json(json.dumps(terms))
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
            return Refusal(f"enrolment: the hub's answer cannot be read ({type(error).__name__})")

    def model(self, token: str, terms: Terms, etag: str) -> tuple[bytes | None, bool] | Refusal:
        """The newest model.

        Args:
            token: Of the device.
            terms: Of the hub.
            etag: Of the model that the device has, see :func:`tag_of`; empty if it has none.

        Returns:
            The model's bytes, checked, or None if the device has it; and whether training is over.
        """
        response = self.request("GET", "/v1/model", token, etag=etag, limit=terms.request.nbytes)
        if response.status == 304 and etag:
            return None, response.over
        if response.status != 200:
            return _refusal("model", response)
        try:
            terms.request.decode(response.body)
        except WireError as error:
            return Refusal(f"model: {error}")
        return response.body, response.over

    def report(self, token: str, round_: int, body: bytes) -> str | Refusal:
        """Send a message; its outcome, as the ledger has it."""
        response = self.request("POST", f"/v1/report/{round_}", token, body=body)
        if response.status == 409 and response.reason != "stale-round":
            return (
                REFUSED if response.reason else _refusal("report", response)
            )  # without a reason, it is not the hub's word
        return _OUTCOMES.get(response.status) or _refusal("report", response)

    def leave(self, token: str) -> Refusal | None:
        """Have the token forgotten; None: the hub does not know it any more."""
        response = self.request("DELETE", "/v1/device", token)
        return None if response.status in (204, 401) else _refusal("leaving", response)


def _refusal(what: str, response: ClientResponse) -> Refusal:
    said = f"status {response.status}" + (f", {response.reason}" if response.reason else "")
    return Refusal(f"{what}: {said}", response.retry_after, response.status == 401, response.reason in _NOT_NOW)


class Backoff:
    """How long to wait after failures: uniformly between 0 and a bound that doubles (full jitter), at most an hour.

    A process that is started again goes on waiting. If the clock was set back in between it does not: the wait that is
    left can never be longer than the whole one.

    Args:
        kept: What :meth:`as_json` gave; None at the beginning.
    """

    def __init__(self, kept: str | None = None):
        self.failures, self._until, self._wait = 0, -math.inf, 0.0
        try:
            failures, until, wait = json.loads(kept or "")
            left = float(until) - time.time()
            self.failures = min(max(int(failures), 0), 64)
            if 0 < left <= min(float(wait), LONGEST_WAIT):
                self._until, self._wait = monotonic() + left, left
        except (ValueError, TypeError, OverflowError, RecursionError):
            pass  # nothing was kept, or nothing that makes sense: no wait

    def later(self, retry_after: float | None = None, uniform: Callable[[float, float], float] | None = None) -> float:
        """Count a failure.

        Args:
            retry_after: Seconds that the hub asked for; kept to, and jitter on top, up to an hour in all.
            uniform: Draws between two numbers; the operating system's randomness by default.

        Returns:
            Seconds to wait.
        """
        self.failures = min(self.failures + 1, 64)
        bound = min(LONGEST_WAIT, _FIRST_WAIT * 2.0**self.failures)
        self._wait = min(LONGEST_WAIT, (retry_after or 0.0) + (uniform or CHANCE.uniform)(0.0, bound))
        self._until = monotonic() + self._wait
        return self._wait

    def left(self) -> float:
        """Seconds that are still to be waited, ≥ 0."""
        return max(0.0, self._until - monotonic())

    def over(self) -> None:
        """All went well."""
        self.failures, self._until, self._wait = 0, -math.inf, 0.0

    def as_json(self) -> str:
        """To be kept."""
        left = self.left()
        return json.dumps([self.failures, time.time() + left, left])
