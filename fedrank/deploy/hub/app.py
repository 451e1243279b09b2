"""The HTTP face of a hub: an ASGI application written by hand.

=====================================  ==============================================================
``POST /v1/enrol``                     a new device: its token and the hub's terms
``GET /v1/model``                      the open round's question, with an ETag
``POST /v1/report/<round>``            a device's reply; counts once
``DELETE /v1/device``                  the device leaves
``POST /v1/admin/close``               close the open round now
``POST /v1/admin/skip``                the same, if it holds no report too
``DELETE /v1/admin/device/<number>``   the operator removes a device
``GET /healthz``                       is the hub able to write?
``GET /metrics /status /status.json``  what the hub says about itself
=====================================  ==============================================================

Which addresses exist is public: it stands here. Everything else is for valid tokens. Who has none gets the same answer
whatever the hub is doing, before anything that depends on the hub is looked at.

A body is read before its request is judged, up to a limit below what headers may take. So the answer to a refused
request reaches its sender, and the connection can be used again.

A path is taken as it was sent. One with a percent sign is nobody's: a proxy in front that looks at raw paths, to keep
the operator's addresses to itself, must not be talked past it.
"""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from time import monotonic
from typing import Any, Literal, Protocol, runtime_checkable

from fedrank.core.errors import RunError
from fedrank.deploy.hub.counters import Counters
from fedrank.deploy.hub.guard import (
    BodyError,
    Guard,
    Rate,
    Receive,
    Secret,
    basic_password,
    bearer,
    drop_body,
    names_tag,
    network_of,
    number_of,
    read_body,
    report_check,
)
from fedrank.deploy.hub.outcome import Outcome, View
from fedrank.deploy.hub.routes import (
    NO_SNIFF,
    NO_STORE,
    REFUSED,
    Answer,
    Asked,
    Route,
    as_json,
    closing,
    refusal,
    too_many,
)
from fedrank.deploy.terms import Terms

_log = logging.getLogger("fedrank.hub")

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Hook = Callable[[], Awaitable[None]]

#: Seconds that a device which asks between two rounds is made to wait for the next one.
_PATIENCE = 2.0
#: Seconds that a page about the hub is shown as it is: to make one takes as long as many reports.
_KEPT = 1.0
_BAD_LENGTH = refusal("malformed", close=True)
_ASK_BROWSER = refusal("unauthorised", (b"www-authenticate", b'Basic realm="fedrank"'))
_INTERNAL = as_json(500, {"error": "internal"}, reason="internal")
_NOTHING = {"type": "http.response.body", "body": b""}
_ACCEPTED, _ALREADY, _GONE = (Answer(code, b"", NO_STORE, kind=None) for code in (201, 200, 204))


@runtime_checkable
class _Hub(Protocol):
    """What this needs of :class:`fedrank.deploy.hub.hub.Hub`."""

    terms: Terms
    view: View
    healthy: bool

    def device_of(self, token: str) -> int | None: ...
    async def enrol(self) -> str: ...
    async def report(self, round_: int, device: int, reply: bytes) -> Outcome: ...
    async def leave(self, device: int) -> bool: ...
    async def close_round(self, empty: bool = False) -> int | None: ...
    async def settled(self, seconds: float) -> View: ...
    def status(self) -> dict[str, Any]: ...


class App:
    """The HTTP face of a hub as an ASGI application, for one event loop.

    Args:
        hub: The hub.
        guard: Its limits.
        counters: What it counts.
        enrolment: Token of devices that want to enrol; None: nobody may.
        admin: Token of the operator; None: there is none.
        status: Who sees ``/status`` and ``/metrics``.
        on_start: Awaited in the loop before the first request, such as ``hub.start``.
        on_stop: Awaited in the loop after the last answer, such as ``hub.stop``.
        more: Makes more routes by path, those that end with ``/`` for all paths below; is given what refuses everybody
            but the operator.

    Attributes:
        counters: As given.
        failure: What ``on_start`` raised; None if nothing.

    Raises:
        ConfigError: A token is too short or cannot be sent in a header.
    """

    def __init__(
        self,
        hub: _Hub,
        guard: Guard,
        counters: Counters,
        *,
        enrolment: str | None,
        admin: str | None,
        status: Literal["public", "admin"] = "public",
        on_start: Hook | None = None,
        on_stop: Hook | None = None,
        more: Callable[[Callable[[Asked], Answer | None]], dict[str, Route]] | None = None,
    ):
        self.counters = counters
        self.failure: Exception | None = None
        self._hub, self._guard, self._on_start, self._on_stop = hub, guard, on_start, on_stop
        self._enrolment, self._admin = Secret(enrolment, "enrolment token"), Secret(admin, "admin token")
        self._check, self._terms = report_check(hub.terms.reply), hub.terms.as_json()
        self._up, self._down = ("up", hub.terms.reply.name), ("down", hub.terms.request.name)
        self._shown: tuple[View | None, Answer, Answer] = (None, _GONE, _GONE)  # a view and its two answers
        get, shown = ("GET", "HEAD"), None if status == "public" else self._viewer
        self._report_route = Route("report", ("POST",), self._device, self._report)
        self._remove_route = Route("remove", ("DELETE",), self._operator, self._remove)
        self._nothing = Route("other", (), None, self._not_found)
        self._routes = {
            "/v1/enrol": Route("enrol", ("POST",), self._enrolling, self._enrol),
            "/v1/model": Route("model", get, self._device, self._model),
            "/v1/device": Route("leave", ("DELETE",), self._device, self._leave),
            "/v1/admin/close": Route("close", ("POST",), self._operator, self._close),
            "/v1/admin/skip": Route("skip", ("POST",), self._operator, self._skip),
            "/healthz": Route("healthz", get, None, self._healthz),
            "/metrics": Route("metrics", get, shown, _kept(self._metrics)),
            "/status": Route("status", get, shown, _kept(self._page)),
            "/status.json": Route("status", get, shown, _kept(self._status_json)),
            **({} if more is None else more(self._operator)),
        }

    # ------------------------------------------------------------------------------------------------------ ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's start and stop."""
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        counters = self.counters
        route, tail = (self._nothing, "") if b"%" in (scope.get("raw_path") or b"") else self._route(scope["path"])
        try:
            answer = await self._answer(route, tail, scope, receive)
        except BodyError as error:
            answer = REFUSED.get(error.args[0])
        except RunError:  # the log cannot be written, as the hub has said once
            answer = REFUSED["unavailable"]
        except Exception as error:
            answer = _INTERNAL
            _log.error("%s failed: %s", route.name, _place(error))
        if answer is None:
            counters.refuse(route.name, "disconnected")
            return
        if answer.reason is not None:
            counters.refuse(route.name, answer.reason)
            if route is self._report_route:
                counters.reports[answer.reason] += 1
        counters.requests[route.name, answer.code] += 1
        try:
            await send(answer.start)
            whole = _NOTHING if scope["method"] == "HEAD" else answer.payload
            if answer.close:
                await send({**whole, "more_body": True})
                await drop_body(receive)
                whole = _NOTHING
            await send(whole)
        except OSError:
            counters.refuse(route.name, "disconnected")

    def _route(self, path: str) -> tuple[Route, str]:
        """What is asked for, and the last part of its path where it says which one."""
        if path.startswith("/v1/report/"):
            return self._report_route, path[11:]
        if path.startswith("/v1/admin/device/"):
            return self._remove_route, path[17:]
        route = self._routes.get(path)
        if route is None:
            above, slash, tail = path.rpartition("/")
            return self._routes.get(above + slash, self._nothing), tail
        return route, ""

    async def _answer(self, route: Route, tail: str, scope: Scope, receive: Receive) -> Answer:
        begun = time.perf_counter()
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
        asked = Asked(method, tail, authorization, none_match, b"", client[0] if client else "", begun)
        refused, most = None, self._guard.body_bytes
        if route.most and route.may is not None and method in route.methods:
            refused, most = route.may(asked), route.most
            if refused is not None:
                most = self._guard.body_bytes
        if length is not None and length > most:
            return REFUSED["too-large"] if refused is None else closing(refused)
        if length or chunked or method in ("POST", "PUT"):
            asked.body = await read_body(receive, most, self._guard.body_seconds)
        if method not in route.methods and route.methods:
            return refusal("method", (b"allow", ", ".join(route.methods).encode()))
        if not route.most and route.may is not None:
            refused = route.may(asked)
        return await route.answer(asked) if refused is None else refused

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

    # ------------------------------------------------------------------------------------------------- who may ask

    def _device(self, asked: Asked) -> Answer | None:
        token = bearer(asked.authorization)
        device = None if token is None else self._hub.device_of(token)
        if device is None:
            return self._unauthorised(self._guard.failure, asked)
        asked.device = device
        seconds = self._guard.device.wait(device)
        return too_many(seconds) if seconds else None

    def _enrolling(self, asked: Asked) -> Answer | None:
        if not self._enrolment.matches(bearer(asked.authorization)):
            return self._unauthorised(self._guard.failure, asked)
        if asked.body:
            return REFUSED["malformed"]
        seconds = self._guard.enrolment.wait(None)
        return too_many(seconds) if seconds else None

    def _operator(self, asked: Asked) -> Answer | None:
        return self._admin_token(asked, bearer(asked.authorization), REFUSED["unauthorised"])

    def _viewer(self, asked: Asked) -> Answer | None:
        """The operator, with a browser perhaps."""
        # Browsers send a password along with requests that other sites make: it shows pages and changes nothing.
        token = bearer(asked.authorization) or basic_password(asked.authorization)
        if asked.authorization is None:
            return _ASK_BROWSER  # a browser's first request never has one: not a failure
        return self._admin_token(asked, token, _ASK_BROWSER)

    def _admin_token(self, asked: Asked, token: str | None, refused: Answer) -> Answer | None:
        rate = self._guard.admin_failure
        seconds = rate.wait(network_of(asked.address), take=False)
        if seconds:
            return too_many(seconds)
        return None if self._admin.matches(token) else self._unauthorised(rate, asked, refused)

    def _unauthorised(self, rate: Rate, asked: Asked, refused: Answer = REFUSED["unauthorised"]) -> Answer:
        seconds = rate.wait(network_of(asked.address))
        return too_many(seconds) if seconds else refused

    # ------------------------------------------------------------------------------------------------ what they get

    async def _enrol(self, asked: Asked) -> Answer:
        return as_json(201, {"token": await self._hub.enrol(), "terms": self._terms})

    async def _model(self, asked: Asked) -> Answer:
        view = self._hub.view
        if view.state == "between":  # seldom for long
            view = await self._hub.settled(_PATIENCE)
            if view.state == "between":
                return REFUSED["between-rounds"]
        tag = view.etag.encode()
        if view is not self._shown[0]:
            headers = ((b"etag", tag), (b"fedrank-state", view.state.encode()), (b"cache-control", b"no-cache"))
            whole = Answer(200, view.model, *headers, kind=b"application/octet-stream")
            self._shown = (view, whole, Answer(304, b"", *headers, kind=None))
        if asked.none_match is not None and names_tag(asked.none_match, tag):
            return self._shown[2]
        if asked.method == "GET":
            self.counters.payload[self._down] += len(view.model)
        return self._shown[1]

    async def _report(self, asked: Asked) -> Answer:
        round_, wrong = number_of(asked.tail), self._check(asked.body)
        if round_ is None or wrong is not None:
            return REFUSED["malformed" if round_ is None or wrong is None else wrong]
        result = (await self._hub.report(round_, asked.device, asked.body)).value
        if result == "accepted":
            self.counters.payload[self._up] += len(asked.body)
        elif result != "already":
            return refusal(result, round=self._hub.view.round) if result == "stale-round" else REFUSED[result]
        self.counters.reports[result] += 1
        self.counters.acknowledged(time.perf_counter() - asked.begun)
        return _ACCEPTED if result == "accepted" else _ALREADY

    async def _leave(self, asked: Asked) -> Answer:
        await self._hub.leave(asked.device)  # False: it left in this very moment, which is what was wanted
        return _GONE

    async def _close(self, asked: Asked) -> Answer:
        return self._closed(await self._hub.close_round())

    async def _skip(self, asked: Asked) -> Answer:
        return self._closed(await self._hub.close_round(empty=True))

    def _closed(self, number: int | None) -> Answer:
        if number is not None:
            return as_json(200, {"round": number})
        return REFUSED[{"done": "done", "between": "between-rounds"}.get(self._hub.view.state, "no-reports")]

    async def _remove(self, asked: Asked) -> Answer:
        number = number_of(asked.tail)
        if number is None:
            return REFUSED["malformed"]
        return _GONE if await self._hub.leave(number) else REFUSED["not-found"]

    async def _not_found(self, asked: Asked) -> Answer:
        return REFUSED["not-found"]

    async def _healthz(self, asked: Asked) -> Answer:
        if self._hub.healthy:
            return as_json(200, {"status": "ok"})
        return as_json(503, {"status": "unavailable"}, (b"retry-after", b"5"), reason="unavailable")

    def _metrics(self) -> Answer:
        text, kind = self.counters.text()
        return Answer(200, text, NO_STORE, NO_SNIFF, kind=kind.encode())

    def _page(self) -> Answer:
        from fedrank.deploy.hub import status

        safe = ((b"referrer-policy", b"no-referrer"), (b"x-frame-options", b"DENY"))
        rules = (b"content-security-policy", status.CSP.encode())
        page = status.page(self._numbers(), self.counters.refused()).encode()
        return Answer(200, page, NO_STORE, NO_SNIFF, rules, *safe, kind=b"text/html; charset=utf-8")

    def _status_json(self) -> Answer:
        return as_json(200, {**self._numbers(), "refused": self.counters.refused()})

    def _numbers(self) -> dict[str, Any]:
        """The hub's status, with what only this side knows."""
        status = self._hub.status()
        models = {**status["bytes"], "models": self.counters.payload[self._down]}
        return {**status, "bytes": models, "healthy": self._hub.healthy}


def _kept(make: Callable[[], Answer]) -> Callable[[Asked], Awaitable[Answer]]:
    """An answer that is made at most once in a while, however often it is asked for."""
    until, shown = -math.inf, _GONE

    async def answer(_: Asked) -> Answer:
        nonlocal until, shown
        if monotonic() >= until:
            shown = make()
            until = monotonic() + _KEPT
        return shown

    return answer


def _place(error: Exception) -> str:
    """What failed and where, without its message: it may quote what somebody sent."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {last.filename}:{last.lineno}"
