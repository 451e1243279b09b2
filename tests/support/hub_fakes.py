"""A hub in memory, with the interface of ``fedrank.deploy.hub.hub.Hub`` and neither disk nor threads nor JAX.

And what tests need around it: its application, requests to it without a network, requests as bytes on a socket.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import socket
import struct
import time
import urllib.parse
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

from fedrank.deploy.http.guard import Guard
from fedrank.deploy.hub.admission import NotAdmittedError
from fedrank.deploy.hub.app import HubApp
from fedrank.deploy.hub.stages import Outcome, View
from fedrank.deploy.hub.tally import Counters
from fedrank.deploy.terms import Terms

ENROLMENT, ADMIN, DEVICE = "enrolment-token-of-a-test", "admin-token-of-a-test", "token-of-device-1"


def a_reply(seed: int = 1, plus: int = 0, minus: int = 0) -> bytes:
    """A report as ``struct`` writes it: version 1, kind 2, then u4, u2, u2, little-endian; 9 bytes."""
    return struct.pack("<BIHH", 1 << 5 | 2, seed, plus, minus)


class FakeHub:
    """Counts reports as a hub does; rounds close when they are told to.

    Args:
        devices: Tokens of devices that are enrolled already; they are numbered from 1.
        n_features: Of the terms.
        **terms: More of them.

    Attributes:
        calls: Every call that could change something, as (name, arguments).
        trouble: Raised by every method that is awaited, if set.
        delay: Seconds that a report takes.
        outcome: What every report is answered, if set.
    """

    def __init__(self, devices: tuple[str, ...] = (), n_features: int = 3, **terms: Any):
        self.terms = Terms(hub="0123456789abcdef" * 2, n_features=n_features, **terms)
        self.settings = None
        self.healthy = self.alive = True
        self.full = False
        self.calls: list[tuple[Any, ...]] = []
        self.trouble: Exception | None = None
        self.delay = 0.0
        self.looked = 0
        self.tickets: dict[str, int] = {}  # credential or code → devices that it may still enrol
        self.outcome: Outcome | None = None
        self.tokens = {token: number for number, token in enumerate(devices, 1)}
        self.counted: dict[tuple[int, int], bytes] = {}
        self.view = self._view(0, "open")

    def _view(self, round_: int, state: str) -> View:
        weights = [0.5 + round_] * self.terms.size
        model = struct.pack(f"<BI{len(weights)}f", 1 << 5 | 1, round_, *weights)
        content = hashlib.sha256(model[5:]).hexdigest()[:8]
        return View(round_, state, model, f'"{self.terms.hub[:8]}-{round_}-{content}"')

    def show(self, round_: int, state: str = "open") -> None:
        """Be in another round or state."""
        self.view = self._view(round_, state)

    async def _called(self, name: str, *arguments: Any) -> None:
        self.calls.append((name, *arguments))
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.trouble is not None:
            raise self.trouble

    def device_of(self, token: str) -> int | None:
        return self.tokens.get(token)

    async def enrol(self, ticket: str | None = None, identity: bytes = b"") -> str:
        await self._called("enrol", *(() if ticket is None else (ticket,)))
        if ticket is not None:
            left = self.tickets.get(ticket)
            if not left:
                raise NotAdmittedError("unauthorised" if left is None else "enrolment-full")
            self.tickets[ticket] -= 1
        number = max(self.tokens.values(), default=0) + 1
        token = f"device-{number}"
        self.tokens[token] = number
        return token

    def knows(self, ticket: str) -> bool:
        return ticket in self.tickets

    async def code(self, secret: str) -> tuple[str, float] | None:
        await self._called("code", secret)
        return ("code.for-one-device", 1e9) if secret in self.tickets else None

    def look(self) -> None:
        self.looked += 1

    async def report(self, round_: int, device: int, reply: bytes) -> Outcome:
        await self._called("report", round_, device, reply)
        if self.outcome is not None:
            return self.outcome
        if self.view.state == "done":
            return Outcome.DONE
        if round_ != self.view.round:
            return Outcome.STALE if round_ < self.view.round else Outcome.EARLY
        if self.view.state == "between":
            return Outcome.BETWEEN
        before = self.counted.get((round_, device))
        if before is None:
            self.counted[round_, device] = reply
            return Outcome.ACCEPTED
        return Outcome.ALREADY if before == reply else Outcome.CONFLICT

    async def leave(self, device: int) -> bool:
        await self._called("leave", device)
        known = [token for token, number in self.tokens.items() if number == device]
        for token in known:
            del self.tokens[token]
        return bool(known)

    async def renew(self) -> None:
        await self._called("renew")

    async def resume(self) -> int | None:
        await self._called("resume")
        if self.view.state != "halted":
            return None
        self.show(self.view.round)
        return self.view.round

    async def close_round(self, empty: bool = False) -> int | None:
        await self._called("close_round", empty)
        number = self.view.round
        if self.view.state != "open" or not (empty or any(round_ == number for round_, _ in self.counted)):
            return None
        self.show(number + 1)
        return number

    async def wait_for_round(self, seconds: float) -> View:
        self.waited = seconds
        return self.view

    def status(self) -> dict[str, Any]:
        reports = sum(round_ == self.view.round for round_, _ in self.counted)
        past = [
            {"round": n, "reports": 2, "reward": 0.25 + n / 100, "low": None, "high": None, "seconds": 1.5}
            for n in range(self.view.round)
        ]
        return {
            "hub": self.terms.hub,
            "version": "0",
            "protocol": "foltr-es",
            "now": time.time(),
            "started": time.time() - 60,
            "round": self.view.round,
            "state": self.view.state,
            "seconds_open": 3.25,
            "deadline_s": None,
            "cohort": 50,
            "least": 2,
            "reports": reports,
            "rounds": 0,
            "devices": len(self.tokens),
            "most_devices": 1_000_000,
            "copy_waits": False,
            "copy_seconds": 0.25,
            "copy_bytes": 4096,
            "ranker": self.terms.ranker,
            "n_features": self.terms.n_features,
            "weights": self.terms.size,
            "reward": self.terms.reward,
            "interactions": self.terms.interactions,
            "sigma": self.terms.sigma,
            "epsilon": {
                "interaction": 4.5,
                "message": 18.0,
                "messages_most": 17,
                "user_basic": 306.0,
                "user": None,
                "delta": 1e-6,
            },
            "bytes": {"report": 9, "model": len(self.view.model), "reports": 9 * len(self.counted), "models": 0},
            "history": past,
        }

    def grow(self, model: bytes) -> None:
        """Show a model of any size."""
        self.view = replace(self.view, model=model)


def app_of(hub: FakeHub, guard: Guard | None = None, **options: Any) -> HubApp:
    """Its application, without limits on how often a device asks unless a guard says so."""
    guard = Guard(device_per_minute=math.inf, failures_per_minute=math.inf) if guard is None else guard
    return HubApp(hub, guard, Counters(hub.status), **{"enrolment": ENROLMENT, "admin": ADMIN, **options})


@dataclass(frozen=True)
class Got:
    """An answer."""

    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return self.json["error"]


class Exchange:
    """One request to an application, without a network; what it is sent, and what it answers.

    Args:
        method: Of the request.
        path: As it is sent.
        token: Of the Authorization header; None: no such header.
        body: In these pieces; an exception among them is raised instead.
        length: Say how long the body is.
        headers: More of them.
        client: Its address.
    """

    def __init__(
        self,
        method: str,
        path: str,
        token: str | None = None,
        body: bytes | Iterable[bytes | Exception] = b"",
        *,
        length: bool = True,
        headers: Iterable[tuple[bytes, bytes]] = (),
        client: str | None = "192.0.2.1",
    ):
        pieces = [body] if isinstance(body, bytes) else list(body)
        given = [(b"host", b"hub"), *headers]
        if token is not None:
            given.append((b"authorization", b"Bearer " + token.encode("utf-8")))
        if length and any(pieces):
            given.append((b"content-length", str(sum(len(p) for p in pieces if isinstance(p, bytes))).encode()))
        elif pieces != [b""] and not length:
            given.append((b"transfer-encoding", b"chunked"))
        self.scope = {
            "type": "http",
            "method": method,
            "path": urllib.parse.unquote(path),
            "raw_path": path.encode("utf-8"),
            "headers": given,
            "client": None if client is None else (client, 50000),
        }
        self.pieces, self.sent, self.stalls = pieces, [], False

    async def receive(self) -> dict[str, Any]:
        if not self.pieces:
            if self.stalls:
                await asyncio.sleep(3600)
            return {"type": "http.disconnect"}
        piece = self.pieces.pop(0)
        if isinstance(piece, Exception):
            raise piece
        return {"type": "http.request", "body": piece, "more_body": bool(self.pieces) or self.stalls}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.sent.append(message)

    async def to(self, app: HubApp) -> Got | None:
        """The answer; None: there is none. An answer that breaks the rules of ASGI or HTTP fails."""
        await app(self.scope, self.receive, self.send)
        if not self.sent:
            return None
        start, *rest = self.sent
        assert start["type"] == "http.response.start"
        assert rest and all(message["type"] == "http.response.body" for message in rest)
        assert [message.get("more_body", False) for message in rest] == [True] * (len(rest) - 1) + [False]
        assert all(type(part) is bytes for pair in start["headers"] for part in pair)
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        assert len(headers) == len(start["headers"]) or start["status"] == 401
        body = b"".join(message["body"] for message in rest)
        if self.scope["method"] == "HEAD" or start["status"] in (204, 304):
            assert body == b""
        else:
            assert headers["content-length"] == str(len(body))
        return Got(start["status"], headers, body)


def ask(app: HubApp, method: str, path: str, token: str | None = None, body: Any = b"", **options: Any) -> Got:
    """The answer to one request; arguments as :class:`Exchange`."""
    got = asyncio.run(Exchange(method, path, token, body, **options).to(app))
    assert got is not None
    return got


def on_socket(port: int, *pieces: bytes, pause: float = 0.0, seconds: float = 30.0, half: bool = False) -> bytes:
    """Send bytes to a server and read until it closes the connection.

    Args:
        port: On this machine.
        pieces: What to send; the server may close before the end.
        pause: Seconds between pieces.
        seconds: That the server has for closing.
        half: Say that no more will be sent.
    """
    out: list[bytes] = []
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        try:
            for n, piece in enumerate(pieces):
                if n:
                    time.sleep(pause)
                connection.sendall(piece)
            if half:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # closed already: what it said before is what counts
        try:
            while part := connection.recv(65536):
                out.append(part)
        except ConnectionError:
            pass
    return b"".join(out)
