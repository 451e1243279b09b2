"""Requests to a hub and answers of a hub, as the routes of its HTTP face see them."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

#: Headers of what nobody may keep, and of what is never anything but what it says it is.
NO_STORE, NO_SNIFF = (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")
#: Reason → status code, one sentence, more headers.
_REASONS: dict[str, tuple[int, str, tuple[tuple[bytes, bytes], ...]]] = {
    "malformed": (400, "This is not a message of this protocol.", ()),
    "unauthorised": (
        401,
        "A valid token is needed: Authorization: Bearer <token>.",
        ((b"www-authenticate", b"Bearer"),),
    ),
    "not-found": (404, "There is nothing here.", ()),
    "method": (405, "This address is asked in another way; see Allow.", ()),
    "too-slow": (408, "The body did not arrive in time.", ()),
    "stale-round": (409, "This round is over.", ()),
    "early-round": (409, "This round has not begun.", ()),
    "conflict": (409, "Another report of this device counts already in this round.", ()),
    "round-open": (409, "Another round is open; close it, or wait for it.", ()),
    "not-closed": (409, "This round has not closed yet.", ((b"retry-after", b"1"),)),
    "no-reports": (409, "The open round has no reports.", ()),
    "done": (410, "Training is over; the model is still served.", ()),
    "too-large": (413, "The body is larger than any message.", ()),
    "out-of-range": (422, "A number is one that no honest device sends.", ()),
    "too-many": (429, "Too many requests; come back later.", ()),
    "between-rounds": (503, "A round is being applied; come back soon.", ((b"retry-after", b"1"),)),
    "unavailable": (503, "Nothing can be written at the moment; come back later.", ((b"retry-after", b"5"),)),
}


class Answer:
    """A whole answer, ready to be sent as often as needed.

    Args:
        code: HTTP status.
        body: Its body.
        *headers: More headers.
        kind: Content type; None: no such header.
        reason: Why the request was refused; None if it was not.
        close: The request was not read to its end: close the connection.
    """

    __slots__ = ("close", "code", "payload", "reason", "start")

    def __init__(
        self,
        code: int,
        body: bytes,
        *headers: tuple[bytes, bytes],
        kind: bytes | None = b"application/json",
        reason: str | None = None,
        close: bool = False,
    ):
        self.code, self.reason, self.close = code, reason, close
        fixed = [] if code in (204, 304) else [(b"content-length", b"%d" % len(body))]
        fixed += [(b"content-type", kind)] if kind else []
        fixed += [(b"connection", b"close")] if close else []
        self.start = {"type": "http.response.start", "status": code, "headers": [*fixed, *headers]}
        self.payload = {"type": "http.response.body", "body": body}


def as_json(code: int, value: dict[str, Any], *headers: tuple[bytes, bytes], **options: Any) -> Answer:
    """An answer in JSON that nobody keeps; options of :class:`Answer`."""
    return Answer(code, json.dumps(value).encode(), NO_STORE, NO_SNIFF, *headers, **options)


def refusal(reason: str, *headers: tuple[bytes, bytes], close: bool = False, **more: Any) -> Answer:
    """The answer to a refused request; ``more`` goes into its JSON."""
    code, detail, fixed = _REASONS[reason]
    return as_json(code, {"error": reason, "detail": detail, **more}, *fixed, *headers, reason=reason, close=close)


def too_many(seconds: float) -> Answer:
    """429, and when to come back."""
    return refusal("too-many", (b"retry-after", b"%d" % max(1, math.ceil(seconds))))


def closing(answer: Answer) -> Answer:
    """The same answer to a request that was not read to its end."""
    headers = [h for h in answer.start["headers"] if h[0] not in (b"content-length", b"content-type")]
    return Answer(answer.code, answer.payload["body"], *headers, reason=answer.reason, close=True)


#: The answers of refusals that are always the same.
REFUSED = {reason: refusal(reason, close=reason in ("too-slow", "too-large")) for reason in _REASONS}


@dataclass(slots=True)
class Asked:
    """What a route needs of a request.

    Attributes:
        method: ``"GET"``, …
        tail: The last part of the path, where it says which one.
        authorization: The header; empty if there were several.
        none_match: The ``If-None-Match`` header.
        body: All of it.
        address: Of the client.
        begun: When reading began, by :func:`time.perf_counter`.
        device: Number of the device that asks; 0 until it is known.
    """

    method: str
    tail: str
    authorization: bytes | None
    none_match: bytes | None
    body: bytes
    address: str
    begun: float
    device: int = 0


@dataclass(frozen=True, slots=True)
class Route:
    """One address.

    Attributes:
        name: As the counters call it.
        methods: That it takes; none: whatever comes is answered.
        may: The refusal of a request that may not be answered, or None; itself None where everything may.
        answer: What it does then.
        most: Largest body, where larger ones than usual are taken; then ``may`` is asked before the body is read.
    """

    name: str
    methods: tuple[str, ...]
    may: Callable[[Asked], Answer | None] | None
    answer: Callable[[Asked], Awaitable[Answer]]
    most: int = 0
