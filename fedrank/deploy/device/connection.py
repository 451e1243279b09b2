"""What a device says to its hub: bounded HTTP/1.1 with the standard library, and how long to wait after a refusal.

The hub, or whoever answers in its place, is not trusted to behave. An answer is read up to a given number of bytes and
one more, headers up to what :mod:`http.client` allows; a redirect is an answer like any other and is not followed, so
that a token never goes to another host; an answer that trickles in ends at a deadline. No proxy is looked up.
"""

from __future__ import annotations

import enum
import hashlib
import http.client
import io
import ipaddress
import json
import math
import os
import random
import re
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from urllib.parse import urlsplit

from fedrank.core.errors import ConfigError, WireError
from fedrank.deploy.device.outbox import COUNTED, OVER, REFUSED, TOO_LATE
from fedrank.deploy.terms import Terms

#: Longest wait after a refusal, in seconds.
LONGEST_WAIT = 3600.0
#: Wait after the first failure is up to twice this, in seconds; it doubles with each further one.
_FIRST_WAIT = 1.0
#: A whole answer must be there after so many timeouts.
_WHOLE = 6
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
    OFFLINE = "OFFLINE"  #: No answer.
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
class Answer:
    """What came back.

    Attributes:
        status: HTTP status.
        body: At most one byte more than was asked for; then it was too long.
        over: The hub says that its training is over.
        retry_after: Seconds that the hub asks to wait; None if it does not.
        reason: Of a refusal, as in the protocol; empty if there is none.
    """

    status: int
    body: bytes
    over: bool = False
    retry_after: float | None = None
    reason: str = ""


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


class Connection:
    """Requests to one hub, one connection each.

    Args:
        url: ``https://host[:port][/path]``.
        ca: File with the certificates to trust in place of the system's; for https.
        allow_http: Let tokens and messages cross a network without TLS.
        timeout: Longest silence in seconds; a whole answer may take six times as long.

    Attributes:
        url: The address in one spelling.

    Raises:
        ConfigError: An address that can never work, plain http to another machine, or a CA file that is none.
    """

    def __init__(
        self,
        url: str,
        *,
        ca: str | os.PathLike[str] | None = None,
        allow_http: bool = False,
        timeout: float = 10.0,
    ):
        wrong = "hub must be an address like https://hub.example.org, without user, query or fragment"
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except (ValueError, TypeError, AttributeError):
            raise ConfigError(f"{wrong}; what was given is not one.") from None
        if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or parts.query or parts.fragment:
            raise ConfigError(f"{wrong}; what was given is not one.")  # it may hold a password: not repeated here
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ConfigError(f"{wrong}; it may have printable ASCII characters only.")
        if parts.scheme == "http" and not allow_http and not _loopback(host):
            raise ConfigError(
                f"hub {host}: plain http to another machine lets everybody on the way read the device's token. "
                "Use https, or allow_http=True where the network itself is protected."
            )
        if not 0 < timeout < math.inf:
            raise ConfigError(f"timeout must be positive and finite, got {timeout}.")
        self._host, self._secure, self._timeout = host, parts.scheme == "https", timeout
        self._port = port or (443 if self._secure else 80)
        self._path = parts.path.rstrip("/")
        self.url = f"{parts.scheme}://{host}:{self._port}{self._path}"
        self._tls: ssl.SSLContext | None = None
        if self._secure:
            try:
                self._tls = ssl.create_default_context(cafile=None if ca is None else os.fspath(ca))
            except OSError as error:
                raise ConfigError(f"ca {os.fspath(ca or '')}: no certificates can be read there ({error}).") from error

    def request(
        self, method: str, path: str, token: str, *, body: bytes | None = None, etag: str = "", limit: int = 4096
    ) -> Answer:
        """One request and its answer.

        Args:
            method: ``GET``, ``POST`` or ``DELETE``.
            path: Below the hub's address.
            token: For the header ``Authorization``.
            body: Of the request.
            etag: For the header ``If-None-Match``; none if empty.
            limit: Bytes wanted of the answer's body.

        Raises:
            OSError: No answer, or none in HTTP, or not in time.
        """
        headers = {"Authorization": f"Bearer {token}", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/octet-stream"
        if etag:
            headers["If-None-Match"] = etag
        if self._tls is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        else:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)
        try:
            connection.request(method, self._path + path, body, headers)
            paced = _Paced(connection.sock, self._timeout)
            response = http.client.HTTPResponse(paced, method=method)  # type: ignore[arg-type]
            with response:
                response.begin()
                return _answer(response, limit)
        except (http.client.HTTPException, ValueError) as error:
            raise ConnectionError(f"no answer in HTTP ({type(error).__name__})") from error
        finally:
            connection.close()

    def enrol(self, enrolment: str) -> tuple[str, Terms] | Refusal:
        """Become a device of the hub: its token, and the hub's terms. Errors as :meth:`request`."""
        answer = self.request("POST", "/v1/enrol", enrolment, body=b"", limit=_ENROLMENT)
        if answer.status != 201:
            return _refusal("enrolment", answer)
        try:
            given = json.loads(answer.body)
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
        answer = self.request("GET", "/v1/model", token, etag=etag, limit=terms.request.nbytes)
        if answer.status == 304 and etag:
            return None, answer.over
        if answer.status != 200:
            return _refusal("model", answer)
        try:
            terms.request.decode(answer.body)
        except WireError as error:
            return Refusal(f"model: {error}")
        return answer.body, answer.over

    def report(self, token: str, round_: int, body: bytes) -> str | Refusal:
        """Send a message; its outcome, as the ledger has it."""
        answer = self.request("POST", f"/v1/report/{round_}", token, body=body)
        if answer.status == 409 and answer.reason != "stale-round":
            return (
                REFUSED if answer.reason else _refusal("report", answer)
            )  # without a reason, it is not the hub's word
        return _OUTCOMES.get(answer.status) or _refusal("report", answer)

    def leave(self, token: str) -> Refusal | None:
        """Have the token forgotten; None: the hub does not know it any more."""
        answer = self.request("DELETE", "/v1/device", token)
        return None if answer.status in (204, 401) else _refusal("leaving", answer)


def _refusal(what: str, answer: Answer) -> Refusal:
    said = f"status {answer.status}" + (f", {answer.reason}" if answer.reason else "")
    return Refusal(f"{what}: {said}", answer.retry_after, answer.status == 401, answer.reason in _NOT_NOW)


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _answer(response: http.client.HTTPResponse, limit: int) -> Answer:
    body = response.read(limit + 1)
    asked = (response.getheader("Retry-After") or "").strip()
    reason = ""
    if response.status >= 400:
        try:
            refusal = json.loads(body)
            said = refusal.get("error") if isinstance(refusal, dict) else None
            reason = said if isinstance(said, str) and re.fullmatch("[a-z0-9-]{1,40}", said) else ""
        except (ValueError, RecursionError):
            pass  # the page of a proxy
    return Answer(
        response.status,
        body,
        (response.getheader("Fedrank-State") or "").strip().lower() == "done",
        float(asked) if asked.isascii() and asked.isdigit() and len(asked) < 10 else None,
        reason,
    )


class _Paced(io.RawIOBase):
    """A socket's bytes, until a deadline: what :class:`http.client.HTTPResponse` takes for a socket."""

    def __init__(self, sock: socket.socket, timeout: float):
        self._sock, self._timeout, self._end = sock, timeout, monotonic() + _WHOLE * timeout

    def makefile(self, mode: str) -> io.BufferedReader:
        del mode
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[override]
        left = self._end - monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        self._sock.settimeout(min(left, self._timeout))
        return self._sock.recv_into(buffer)


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
