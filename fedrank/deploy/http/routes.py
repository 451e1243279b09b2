"""Requests, responses and routes of the HTTP applications of hubs and platforms."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fedrank.deploy.http.guard import RefusedError, number_of

T = TypeVar("T")

#: Headers of what must not be cached, and of what a browser must not take for another content type.
NO_STORE, NO_SNIFF = (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")
#: Reason → status code, one sentence, more headers.
REASONS: dict[str, tuple[int, str, tuple[tuple[bytes, bytes], ...]]] = {
    "malformed": (400, "This is not a message of this protocol.", ()),
    "unauthorised": (
        401,
        "A valid token is needed (Authorization: Bearer …).",
        ((b"www-authenticate", b"Bearer"),),
    ),
    "attestation-needed": (403, "To enrol here a statement of the device's platform is needed.", ()),
    "not-attested": (403, "The statement of the device's platform is not accepted; see why.", ()),
    "enrolment-full": (403, "As many devices have enrolled with this as may.", ()),
    "wrong-origin": (403, "A page of another site may not call this server.", ()),
    "hub-full": (
        503,
        "This hub is full: it has as many devices as its operator allows. Come back later.",
        ((b"retry-after", b"3600"),),
    ),
    "not-found": (404, "There is nothing here.", ()),
    "method": (405, "This address is asked in another way; see Allow.", ()),
    "too-slow": (408, "The body did not arrive in time.", ()),
    "stale-round": (409, "This round is over.", ()),
    "early-round": (409, "This round has not begun.", ()),
    "conflict": (409, "Another report of this device counts already in this round.", ()),
    "not-due": (409, "This device was not asked for such a report in this round.", ()),
    "not-halted": (409, "This hub is not halted.", ()),
    "round-open": (409, "Another round is open; close it, or wait for it.", ()),
    "not-closed": (409, "This round has not closed yet.", ((b"retry-after", b"1"),)),
    "replayed": (409, "This encapsulated request was answered before; make another.", ()),
    "wrong-epoch": (409, "This token, or the one that is asked for, is of another epoch.", ()),
    "other-purchase": (409, "This device has bought another token of this epoch.", ()),
    "no-reports": (409, "The open round has no reports.", ()),
    "done": (410, "Training is over; the model is still served.", ()),
    "too-large": (413, "The body is larger than any message.", ()),
    "wrong-host": (
        421,
        "Host names another server. Open this one by its address, or start it with that name.",
        (),
    ),
    "out-of-range": (422, "A number is one that no honest device sends.", ()),
    "too-many": (429, "Too many requests; come back later.", ()),
    "between-rounds": (503, "A round is being applied; come back soon.", ((b"retry-after", b"1"),)),
    "too-few": (503, "Too few others came to pass this on among them; come back later.", ((b"retry-after", b"5"),)),
    "unavailable": (503, "Nothing can be written at the moment; come back later.", ((b"retry-after", b"5"),)),
}


class HttpResponse:
    """A complete response, prepared once and sent as often as needed.

    Args:
        code: HTTP status code.
        body: Body of the response.
        *headers: Further headers.
        content_type: Value of the header ``Content-Type``; None: no such header.
        reason: Why the request was refused; None if it was not.
        close: Close the connection after it, because the request was not read to its end.
    """

    __slots__ = ("close", "code", "payload", "reason", "start")

    def __init__(
        self,
        code: int,
        body: bytes,
        *headers: tuple[bytes, bytes],
        content_type: bytes | None = b"application/json",
        reason: str | None = None,
        close: bool = False,
    ):
        self.code, self.reason, self.close = code, reason, close
        fixed = [] if code in (204, 304) else [(b"content-length", b"%d" % len(body))]
        fixed += [(b"content-type", content_type)] if content_type else []
        fixed += [(b"connection", b"close")] if close else []
        self.start = {"type": "http.response.start", "status": code, "headers": [*fixed, *headers]}
        self.payload = {"type": "http.response.body", "body": body}


def json_response(code: int, value: dict[str, Any], *headers: tuple[bytes, bytes], **options: Any) -> HttpResponse:
    """A response in JSON that must not be cached; options as of :class:`HttpResponse`."""
    return HttpResponse(code, json.dumps(value).encode(), NO_STORE, NO_SNIFF, *headers, **options)


def refusal(reason: str, *headers: tuple[bytes, bytes], close: bool = False, **more: Any) -> HttpResponse:
    """The response to a refused request; ``more`` is added to its JSON."""
    code, detail, fixed = REASONS[reason]
    return json_response(
        code, {"error": reason, "detail": detail, **more}, *fixed, *headers, reason=reason, close=close
    )


def refuse(code: int, detail: str, reason: str = "refused") -> HttpResponse:
    """The response to a refused request whose reason is said in a sentence."""
    return json_response(code, {"error": reason, "detail": detail}, reason=reason)


def too_many(seconds: float) -> HttpResponse:
    """Status 429, with the seconds to wait in ``Retry-After``."""
    return refusal("too-many", (b"retry-after", b"%d" % max(1, math.ceil(seconds))))


def closing(response: HttpResponse) -> HttpResponse:
    """The same response to a request that was not read to its end: it closes the connection."""
    headers = [h for h in response.start["headers"] if h[0] not in (b"content-length", b"content-type")]
    return HttpResponse(response.code, response.payload["body"], *headers, reason=response.reason, close=True)


def page_route(name: str, data: bytes, content_type: bytes, policy: bytes) -> Route:
    """The route of a file of a page, which browsers hold to a content security policy."""
    headers = ((b"content-security-policy", policy), (b"referrer-policy", b"no-referrer"))
    shown = HttpResponse(200, data, NO_STORE, NO_SNIFF, *headers, content_type=content_type)

    async def respond(_: HttpRequest) -> HttpResponse:
        return shown

    return Route(name, ("GET", "HEAD"), None, respond)


#: Reasons for which the rest of a request is not read.
_UNREAD = ("too-slow", "too-large", "wrong-host", "wrong-origin")
#: The responses to refusals that are always the same, by reason.
REFUSALS = {reason: refusal(reason, close=reason in _UNREAD) for reason in REASONS}


@dataclass(slots=True)
class HttpRequest:
    """A request as a route needs it.

    Attributes:
        method: HTTP method, such as ``"GET"``.
        tail: The rest of the path below the route's own, such as a round's number; empty where the route has none.
        authorization: The header ``Authorization``; empty if there were several.
        none_match: The header ``If-None-Match``.
        body: The whole body.
        address: Network address of the client.
        started: When reading of the request started, by :func:`time.perf_counter`.
        device: Number of the device that asks; 0 until it is authorised.
        headers: Header fields, names in lower case.
    """

    method: str
    tail: str
    authorization: bytes | None
    none_match: bytes | None
    body: bytes
    address: str
    started: float
    device: int = 0
    headers: Sequence[tuple[bytes, bytes]] = ()

    def numbers(self, count: int = 1, reason: str = "malformed") -> list[int]:
        """The whole numbers that :attr:`tail` consists of, with slashes in between.

        Raises:
            RefusedError: It has another number of parts, or one that is no number; with this reason.
        """
        found = [number for part in self.tail.split("/") if (number := number_of(part)) is not None]
        if not len(found) == count == self.tail.count("/") + 1:
            raise RefusedError(reason)
        return found

    def json(self, kind: type[T] = dict) -> T:
        """The JSON of the body, whose outermost is of a kind.

        Raises:
            RefusedError: It is not.
        """
        try:
            said = json.loads(self.body)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, kind):
            raise RefusedError("malformed", expected="a JSON object" if kind is dict else "a JSON array")
        return said


#: Makes the response to a request.
Respond = Callable[[HttpRequest], Awaitable[HttpResponse]]
#: Returns the refusal of a request that is not authorised, None for one that is.
Authorise = Callable[[HttpRequest], HttpResponse | None]


@dataclass(frozen=True, slots=True)
class Route:
    """One address of an application.

    Attributes:
        name: Name of the route in counters and logs.
        methods: Allowed HTTP methods; empty: all.
        authorise: Refuses requests that are not authorised; None: every request is.
        respond: Makes the response to an authorised request.
        max_body: Largest body in bytes, where it may exceed the application's usual limit. ``authorise`` is then called
            before the body is read.
    """

    name: str
    methods: tuple[str, ...]
    authorise: Authorise | None
    respond: Respond
    max_body: int = 0
