"""A device's requests to its hub, what they can come to, and how long to wait after a failure."""

from __future__ import annotations

import base64
import contextlib
import enum
import hashlib
import json
import math
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from fedrank.core.errors import WireError
from fedrank.core.trees import Json
from fedrank.deploy.device.outbox import COUNTED, NOT_DUE, OVER, REFUSED, TOO_LATE
from fedrank.deploy.draws import Beacon
from fedrank.deploy.http.client import ClientResponse, HttpClient, response_of
from fedrank.deploy.log.proof import LARGEST
from fedrank.deploy.oblivious.encapsulation import (
    LONGEST_BATCH,
    OTHERS,
    REPORTS,
    REQUEST_LENGTH,
    RESPONSE_OVERHEAD,
    STATEMENT_LENGTH,
    STATEMENTS,
    TOO_FEW,
    BinaryRequest,
    decode_response,
    encapsulate,
    encode_request,
    public_key_in,
    response_length,
)
from fedrank.deploy.terms import Terms

#: Longest wait after a refusal, in seconds.
LONGEST_WAIT = 3600.0
#: Wait after the first failure is up to twice this, in seconds; it doubles with each further one.
_FIRST_WAIT = 1.0
_TOKEN = re.compile(r"[!-~]{8,512}")
#: Random numbers from the operating system, for pauses: devices refused together must not come back together.
CHANCE = random.SystemRandom()
#: Largest response to an enrolment in bytes; most values that a reward can have.
_ENROLMENT, _VALUES = 65_536, 65_537
#: Outcome of a message by the status code of the response; other codes say nothing about it.
_OUTCOMES = {200: COUNTED, 201: COUNTED, 400: REFUSED, 410: OVER, 413: REFUSED, 422: REFUSED}
#: The same by the hub's own reason where the status is 409; by any other the message was refused.
_CONFLICTS = {"stale-round": TOO_LATE, "early-round": TOO_LATE, "not-due": NOT_DUE}
#: The hub's own reasons after which a message was certainly not counted, and may be later.
_NOT_NOW = ("unauthorised", "between-rounds", "unavailable", "too-many")


class State(enum.StrEnum):
    """State of a device with respect to its hub."""

    OK = "OK"  #: All is well.
    RETRY = "RETRY"  #: The hub asks to come back later, or its response cannot be read.
    STALE = "STALE"  #: A message came too late; a newer model is to be fetched.
    DONE = "DONE"  #: Training is over; the model stays.
    OFFLINE = "OFFLINE"  #: No response.
    #: No message is sent: the hub's terms are not those that the app agreed to; see :meth:`Device.agree`.
    TERMS_CHANGED = "TERMS_CHANGED"
    #: The hub's newest model is not used: nothing proves that all devices get the same.
    UNPROVEN = "UNPROVEN"
    SILENT = "SILENT"  #: No message is sent: the user opted out, or another message would exceed the allowed ε.


@dataclass(frozen=True)
class Synced:
    """Result of a synchronisation with the hub.

    Attributes:
        state: State of the device.
        sent: Number of messages that the hub counted this time.
        next_in: Seconds until the next synchronisation is useful.
        why: The reason of a state other than OK.
        lasting: Whether the device's data outlives the process.
    """

    state: State
    sent: int
    next_in: float
    why: str = ""
    lasting: bool = True


#: What makes statements: of the hub's challenge and the kinds that it accepts, one of them and the statement.
Attest = Callable[[bytes, tuple[str, ...]], tuple[str, dict[str, Json]]]


@dataclass(eq=False)
class HubRefusedError(Exception):
    """A request that the hub refused, or answered with something that cannot be read.

    Attributes:
        why: The reason as text.
        retry_after: Seconds that the hub asks to wait; None if it does not.
        unauthorised: Whether the hub does not know the token.
        not_counted: Whether a message that was sent has certainly not been counted.
        reason: The hub's own word for it; empty if it said none.
    """

    why: str
    retry_after: float | None = None
    unauthorised: bool = False
    not_counted: bool = False
    reason: str = ""

    def __str__(self) -> str:
        return self.why


@dataclass(frozen=True)
class OnSale:
    """Answer of a hub about its tokens.

    Attributes:
        round: The open round.
        over: Reports are not wanted any more.
        etag: Entity tag of the model.
        epoch: Epoch whose tokens are sold.
        offer: The issuer's key and the commitment of that epoch.
        beacon: Beacon of the open round's epoch; None: none of its tokens is good.
    """

    round: int
    over: bool
    etag: str
    epoch: int
    offer: bytes
    beacon: Beacon | None


def tag_of(terms: Terms, round_: int, weights: bytes) -> str:
    """The entity tag that a hub gives a model.

    It depends on the content: a hub that was restored from a copy may have another model in the same round.

    Args:
        terms: Terms of the hub.
        round_: Round of the model.
        weights: Little-endian float32.
    """
    return f'"{terms.hub[:8]}-{round_}-{hashlib.sha256(weights).hexdigest()[:8]}"'


def usable_token(token: object) -> bool:
    """True if a token can stand in a header."""
    return isinstance(token, str) and _TOKEN.fullmatch(token) is not None


class HubClient(HttpClient):
    """A device's requests to its hub; arguments as of :class:`~fedrank.deploy.http.client.HttpClient`.

    All requests raise what :meth:`~fedrank.deploy.http.client.HttpClient.request` does, and :class:`HubRefusedError`.
    """

    #: Whether requests go through an oblivious relay.
    relayed = False
    #: The gateway's key that requests are encrypted to; empty: that which the relay names, if there is one.
    gateway_key = b""
    #: Makes statements of the device's platform; None: nothing does.
    attest: Attest | None = None

    def objection(self, terms: Terms, keys: Sequence[bytes]) -> str:
        """Reason why this way to the hub is not taken under these terms; empty if it is.

        Args:
            terms: Terms of the hub.
            keys: The gateway's key, and the one before it, if it had one.
        """
        return ""

    def tokens(self) -> OnSale:
        """The open round, which tokens are sold in it, and what those of its epoch draw by."""
        given = _accept("tokens", self.request("GET", "/v1/tokens", "")).json()
        with _reading("tokens"):
            round_, beacon = int(given["round"]), given.get("beacon")
            if not 0 <= round_ < 2**32:
                raise ValueError("no number of a round")
            over, beacon = given["state"] in ("done", "halted"), None if beacon is None else Beacon.from_json(beacon)
            epoch, offer = int(given.get("epoch", -1)), base64.urlsafe_b64decode(given.get("offer", ""))
            return OnSale(round_, over, str(given["etag"]), epoch, offer, beacon)

    def buy(self, token: str, epoch: int, request: bytes) -> bytes:
        """The answer to a token request."""
        return _accept("token", self.request("POST", f"/v1/token/{epoch}", token, body=request)).body

    def enrol(self, enrolment: str) -> tuple[str, Terms]:
        """Enrol with the hub; returns the device's token and the hub's terms."""
        response = self.request("POST", "/v1/enrol", enrolment, body=b"", limit=_ENROLMENT)
        if response.reason == "attestation-needed" and self.attest is not None:
            statement = self._statement(self.attest, enrolment)
            response = self.request("POST", "/v1/enrol", enrolment, body=statement, limit=_ENROLMENT)
        with _reading("enrolment"):
            given = json.loads(_accept("enrolment", response, 201).body)
            token, terms = given["token"], given["terms"]
            if not usable_token(token) or int(terms.get("reward_values") or 0) > _VALUES:
                raise WireError("no device token, or a reward that no device can compute")
            return token, Terms.from_json(json.dumps(terms))

    def _statement(self, attest: Attest, enrolment: str) -> bytes:
        """The body of an enrolment with a statement about a challenge of the hub."""
        given = _accept("challenge", self.request("POST", "/v1/challenge", enrolment, body=b""), 201).json()
        with _reading("challenge"):
            challenge = base64.urlsafe_b64decode(given["challenge"])
            kinds = tuple(str(kind) for kind in given["kinds"])
        try:
            kind, statement = attest(challenge, kinds)
            return json.dumps({"kind": kind, "challenge": given["challenge"], "statement": statement}).encode()
        except Exception as error:  # of the app's function
            raise HubRefusedError(f"challenge: attest failed ({type(error).__name__})") from error

    def model(self, token: str, terms: Terms, etag: str) -> tuple[bytes | None, bool]:
        """Fetch the newest model.

        Args:
            token: Token of the device.
            terms: Terms of the hub.
            etag: Entity tag of the model that the device has, see :func:`tag_of`; empty if it has none.

        Returns:
            The model's bytes, checked, or None if the device has it; and whether training is over.
        """
        response = self.request("GET", "/v1/model", token, etag=etag, limit=terms.request.nbytes)
        if response.status == 304 and etag:
            return None, response.over
        return _model_in("model", response, terms), response.over

    def best(self, token: str, terms: Terms) -> bytes | None:
        """Fetch the best model so far, to compare the newest with; None: there is none."""
        response = self.request("GET", "/v1/best", token, limit=terms.request.nbytes)
        return None if response.status == 404 else _model_in("best model", response, terms)

    def log(self, size: int | None) -> bytes:
        """The hub's answer about its log, asked without a token.

        Args:
            size: With a proof since this size; None: what all devices get.
        """
        path = "/v1/log" if size is None else f"/v1/log/{size}"
        return _accept("log", self.request("GET", path, "", limit=LARGEST)).body

    def report(self, token: str, round_: int, body: bytes) -> str:
        """Send a message; returns its outcome as in the ledger."""
        response = self.request("POST", f"/v1/report/{round_}", token, body=body)
        outcome = _OUTCOMES.get(response.status)
        if response.status == 409:  # without a reason, it is not the hub's word
            outcome = _CONFLICTS.get(response.reason, REFUSED) if response.reason else None
        if outcome is None:
            raise _refusal("report", response)
        return outcome

    def leave(self, token: str) -> None:
        """Have the hub forget the token, which it does not know any more when this returns."""
        _accept("leaving", self.request("DELETE", "/v1/device", token), 204, 401)


def _model_in(what: str, response: ClientResponse, terms: Terms) -> bytes:
    """The model's bytes in a response, checked."""
    body = _accept(what, response).body
    try:
        terms.request.decode(body)
    except WireError as error:
        raise HubRefusedError(f"{what}: {error}") from error
    return body


@contextlib.contextmanager
def _reading(what: str) -> Iterator[None]:
    """Refuse an answer of the hub that the block cannot read: it may be anything."""
    try:
        yield
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise HubRefusedError(f"{what}: the hub's answer cannot be read ({type(error).__name__})") from error


def _accept(what: str, response: ClientResponse, *statuses: int) -> ClientResponse:
    """The response, if it has one of these statuses, by default 200; else the refusal is raised."""
    if response.status not in (statuses or (200,)):
        raise _refusal(what, response)
    return response


def _refusal(what: str, response: ClientResponse) -> HubRefusedError:
    said = f"status {response.status}" + (f", {response.reason}" if response.reason else "")
    if response.reason == "not-attested" and isinstance(why := response.json().get("why"), str):
        said += f", {why[:40]}"
    return HubRefusedError(
        f"{what}: {said}", response.retry_after, response.status == 401, response.reason in _NOT_NOW, response.reason
    )


class Backoff:
    """Waiting time after failures: uniform between 0 and a bound that doubles (full jitter), at most an hour.

    A process that is started again continues to wait, unless the clock was set back in between: the remaining wait can
    never be longer than the whole one.

    Args:
        kept: The result of an earlier :meth:`as_json`; None at the beginning.
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
            retry_after: Seconds that the hub asked for; jitter is added, up to an hour in all.
            uniform: Draws a number between two; by default from the operating system.

        Returns:
            Seconds to wait.
        """
        self.failures = min(self.failures + 1, 64)
        bound = min(LONGEST_WAIT, _FIRST_WAIT * 2.0**self.failures)
        self._wait = min(LONGEST_WAIT, (retry_after or 0.0) + (uniform or CHANCE.uniform)(0.0, bound))
        self._until = monotonic() + self._wait
        return self._wait

    def left(self) -> float:
        """Remaining seconds to wait, at least 0."""
        return max(0.0, self._until - monotonic())

    def reset(self) -> None:
        """Set the waiting time back to the shortest after a successful request."""
        self.failures, self._until, self._wait = 0, -math.inf, 0.0

    def as_json(self) -> str:
        """The state as JSON text, from which another process can continue."""
        left = self.left()
        return json.dumps([self.failures, time.time() + left, left])


#: Reason why a relay is not used, unless the hub's log says that the gateway has another key than the terms say.
OTHER_GATEWAY = "the relay passes requests on to another gateway than that of the hub's terms"


class RelayedHubClient(HubClient):
    """A device's requests to its hub, each encapsulated and sent to a relay.

    Args:
        hub: URL of the hub, which is not connected to.
        relay: URL of the relay.
        timeout: Longest silence of the relay beside the time that it keeps requests, in seconds.
        options: As of :class:`~fedrank.deploy.http.client.HttpClient`.
    """

    relayed = True

    def __init__(self, hub: str, relay: str, *, timeout: float = 10.0, **options: Any):
        super().__init__(hub, timeout=timeout, **options)
        self._relay = HttpClient(relay, timeout=timeout + LONGEST_BATCH, **options)
        self._about: tuple[bytes, int] | None = None  # the gateway's key and the batch that the relay names

    def objection(self, terms: Terms, keys: Sequence[bytes]) -> str:
        """Reason why this relay is not used under these terms; empty if it is, and the first key is used from now on.

        Where the relay names another key than these, :data:`OTHER_GATEWAY`: the hub's log says whether it took their
        place. Arguments as of the class above.

        Raises:
            OSError: The relay does not answer.
        """
        if not terms.batch:
            return "the hub's terms know of no relay; leave relay out, or ask the hub's operator"
        key, batch = self._relays()
        why, self.gateway_key = "", keys[0]
        if key not in keys:
            why = OTHER_GATEWAY
        elif batch < terms.batch:
            why = f"the relay passes on {batch} reports together, the hub's terms promise {terms.batch}"
        if why:
            self._about = None  # its operator may set it right: it is asked again
        return why

    def request(
        self, method: str, path: str, token: str, *, body: bytes | None = None, etag: str = "", limit: int = 4096
    ) -> ClientResponse:
        """Send a request through the relay; arguments and errors as of the class above."""
        given = [(name.lower().encode(), value.encode()) for name, value in self._headers(token, etag).items()]
        inner = BinaryRequest(method.encode(), path.encode(), tuple(given), body or b"")
        try:
            lane, length = REPORTS if path.startswith("/v1/report/") else OTHERS, REQUEST_LENGTH
            if path == "/v1/enrol" and body:
                lane, length = STATEMENTS, STATEMENT_LENGTH
            sent = encapsulate(self.gateway_key or self._relays()[0], encode_request(inner, length))
            most = response_length(limit + 1024, limit) + RESPONSE_OVERHEAD
            answer = self._relay.request("POST", lane, "", body=sent.request, limit=most)
            if answer.status != 200:  # the relay's own word, or its neighbour's: says nothing about the request
                few = answer.reason == TOO_FEW
                if not few:
                    self._about = None  # it may pass requests on to another gateway by now
                return ClientResponse(503, b"", retry_after=answer.retry_after, reason=TOO_FEW if few else "")
            opened = decode_response(sent.open(answer.body))
        except WireError as error:
            self._about = None
            raise ConnectionError(f"no answer of the hub through the relay ({error})") from error
        fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in opened.fields}
        return response_of(opened.status, opened.content[: limit + 1], lambda name: fields.get(name.lower()))

    def _relays(self) -> tuple[bytes, int]:
        """The gateway's key and the least batch, as the relay tells all clients."""
        if self._about is None:
            answer: dict[str, Any] = self._relay.request("GET", "/", "").json()
            try:
                self._about = (public_key_in(bytes.fromhex(answer["keys"])), int(answer["batch"]))
            except (KeyError, TypeError, ValueError) as error:
                raise WireError("the relay does not say what it passes on to whom.") from error
        return self._about
