"""An ASGI application written by hand: the part that hubs and platforms have in common.

A body is read before its request is judged, up to a limit below what headers may take. So the response to a refused
request reaches its sender, and the connection can be used again.

A path is taken as it was sent. One with a percent sign matches no route: a proxy in front that filters raw paths, to
keep the operator's addresses to itself, must not be bypassed by an encoding.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping, MutableMapping
from typing import Any

from fedrank.core.errors import RunError
from fedrank.deploy.http.guard import (
    Guard,
    Rate,
    Receive,
    RefusedError,
    Secret,
    bearer,
    drop_body,
    network_of,
    read_body,
)
from fedrank.deploy.http.origins import Hosts, Origins
from fedrank.deploy.http.routes import (
    REFUSALS,
    Authorise,
    HttpRequest,
    HttpResponse,
    Route,
    closing,
    json_response,
    refusal,
    too_many,
)

_log = logging.getLogger("fedrank.hub")

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Hook = Callable[[], Awaitable[None]]

_BAD_LENGTH = refusal("malformed", close=True)
_INTERNAL = json_response(500, {"error": "internal"}, reason="internal")
_EMPTY_BODY = {"type": "http.response.body", "body": b""}


class RequestCounts:
    """Counts of an application's requests since its start.

    Attributes:
        requests: Responses by (route, status code).
        refusals: Refused requests by (route, reason).
    """

    def __init__(self):
        self.requests: Counter[tuple[str, int]] = Counter()
        self.refusals: Counter[tuple[str, str]] = Counter()

    def refuse(self, route: str, reason: str) -> None:
        """Count a request that was refused."""
        self.refusals[route, reason] += 1


class HttpApp:
    """An ASGI application with routes, for one event loop. Subclasses call :meth:`add_routes`.

    Args:
        guard: Limits of requests.
        counters: What is counted about requests.
        on_start: Awaited in the loop before the first request.
        on_stop: Awaited in the loop after the last response.

    Attributes:
        counters: As given.
        failure: What ``on_start`` raised; None if nothing.
        origins: Which pages of other origins may call it; None: none may.
        hosts: By which names browsers may call it; None: not checked, as everything needs a token or is public.
    """

    origins: Origins | None
    hosts: Hosts | None

    def __init__(
        self, guard: Guard, counters: RequestCounts, *, on_start: Hook | None = None, on_stop: Hook | None = None
    ):
        self.counters, self.failure, self.origins, self.hosts = counters, None, None, None
        self._guard, self._on_start, self._on_stop = guard, on_start, on_stop
        self._unknown = Route("other", (), None, self._not_found)
        self._exact: dict[str, Route] = {}
        self._below: list[tuple[str, Route]] = []

    def add_routes(self, routes: Mapping[str, Route]) -> None:
        """Add routes by path; one that ends with ``/``, but ``/`` itself, stands for all below it, the first counts."""
        for path, route in routes.items():
            if path.endswith("/") and path != "/":
                self._below.append((path, route))
            else:
                self._exact[path] = route

    async def _healthz(self, request: HttpRequest) -> HttpResponse:
        return json_response(200, {"status": "ok"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or the server's start and stop."""
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        route, tail = self._route(scope["path"], scope.get("raw_path") or b"")
        response = await self._judge(route, self._read(route, tail, scope, receive))
        if response is None:
            return
        try:
            start = response.start
            if self.origins is not None and (shared := self.origins.headers(scope["path"], scope["headers"])):
                start = {**start, "headers": [*start["headers"], *shared]}
            await send(start)
            body = _EMPTY_BODY if scope["method"] == "HEAD" else response.payload
            if response.close:
                await send({**body, "more_body": True})
                await drop_body(receive)
                body = _EMPTY_BODY
            await send(body)
        except OSError:
            self.counters.refuse(route.name, "disconnected")

    async def _judge(self, route: Route, made: Awaitable[HttpResponse]) -> HttpResponse | None:
        """The response to a request, counted, with errors turned into refusals; None if the client has gone."""
        try:
            try:
                response = await made
            except RefusedError as error:
                response = self._refusal(error)
        except RunError:  # the log cannot be written, which has been logged once
            response = REFUSALS["unavailable"]
        except Exception as error:
            response = _INTERNAL
            _log.error("%s failed: %s", route.name, _place(error))
        if response is None:
            self.counters.refuse(route.name, "disconnected")
            return None
        if response.reason is not None:
            self._count_refusal(route, response.reason)
        self.counters.requests[route.name, response.code] += 1
        return response

    def _count_refusal(self, route: Route, reason: str) -> None:
        self.counters.refuse(route.name, reason)

    def _route(self, path: str, raw: bytes) -> tuple[Route, str]:
        """The route of a path, and the rest of the path below it; ``raw`` is the path as it was sent."""
        if b"%" in raw:
            return self._unknown, ""
        route = self._exact.get(path)
        if route is not None:
            return route, ""
        for above, route in self._below:
            if path.startswith(above):
                return route, path[len(above) :]
        return self._unknown, ""

    async def _read(self, route: Route, tail: str, scope: Scope, receive: Receive) -> HttpResponse:
        """Read a request, and answer it."""
        refused = self.hosts.refusal(scope) if self.hosts is not None else None
        if refused is None and self.origins is not None:
            refused = self.origins.preflight(scope)
        if refused is not None:
            return refused
        started = time.perf_counter()
        authorization = none_match = length = None
        chunked, method = False, scope["method"]
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization = value if authorization is None else b""
            elif name == b"content-length":
                if length is not None or not value.isdigit() or len(value) > 18:
                    return _BAD_LENGTH
                length = int(value)
            elif name == b"transfer-encoding":
                chunked = True
            elif name == b"if-none-match":
                none_match = value
        client = scope.get("client")
        address = client[0] if client else ""
        request = HttpRequest(method, tail, authorization, none_match, b"", address, started, 0, scope["headers"])
        limit = self._guard.body_bytes
        if route.max_body and route.authorise is not None and method in route.methods:
            refused = route.authorise(request)
            if refused is None:
                limit = route.max_body
        if length is not None and length > limit:
            return REFUSALS["too-large"] if refused is None else closing(refused)
        if length or chunked or method in ("POST", "PUT"):
            request.body = await read_body(receive, limit, self._guard.body_seconds)
        if refused is not None:
            return refused
        return await self._respond(route, request, authorised=bool(route.max_body))

    async def _respond(self, route: Route, request: HttpRequest, *, authorised: bool = False) -> HttpResponse:
        """The response to a request that was read to its end; ``authorised``: it was asked already whether it may."""
        if route.methods and request.method not in route.methods:
            return refusal("method", (b"allow", ", ".join(route.methods).encode()))
        refused = route.authorise(request) if route.authorise is not None and not authorised else None
        return await route.respond(request) if refused is None else refused

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            self.counters.refuse("other", "websocket")
            await send({"type": "websocket.close", "code": 1008})
            return
        await receive()
        try:
            if self._on_start is not None:
                await self._on_start()
        except Exception as error:
            self.failure = error
            await send({"type": "lifespan.startup.failed", "message": ""})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self._on_stop is not None:
            await self._on_stop()
        await send({"type": "lifespan.shutdown.complete"})

    def _deny(self, rate: Rate, request: HttpRequest, refused: HttpResponse = REFUSALS["unauthorised"]) -> HttpResponse:
        """The refusal of a wrong token: ``refused``, or 429 where the client's address has shown too many."""
        return limit(rate, network_of(request.address)) or refused

    def requires(self, secret: Secret) -> Authorise:
        """Refuses requests that do not show a token."""

        def authorise(request: HttpRequest) -> HttpResponse | None:
            matches = secret.matches(bearer(request.authorization))
            return None if matches else self._deny(self._guard.failure, request)

        return authorise

    def _refusal(self, error: RefusedError) -> HttpResponse | None:
        """The response to a request that is refused; None where its client has gone."""
        if error.reason == "disconnected":
            return None
        return refusal(error.reason, **error.more) if error.more else REFUSALS[error.reason]

    async def _not_found(self, request: HttpRequest) -> HttpResponse:
        return REFUSALS["not-found"]


def limit(rate: Rate, key: Hashable) -> HttpResponse | None:
    """Take one request from a key's bucket; the refusal where there is none."""
    seconds = rate.wait(key)
    return too_many(seconds) if seconds else None


def limit_rate(rate: Rate) -> Authorise:
    """Refuses requests of a network from which too many come."""
    return lambda request: limit(rate, network_of(request.address))


def _place(error: Exception) -> str:
    """Type and place of an error, without its message, which may quote what a client sent."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {last.filename}:{last.lineno}"
