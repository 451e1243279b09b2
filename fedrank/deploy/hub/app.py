"""The HTTP application of a hub.

=====================================  ==============================================================
``POST /v1/enrol``                     a new device: its token and the hub's terms
``POST /v1/challenge``                 what a statement of a device's platform must be about
``POST /v1/code``                      a code for one device, for an app's back end
``GET /v1/model``                      the open round's question, with an ETag
``GET /v1/best``                       the best model so far, for devices that compare
``POST /v1/report/<round>``            a device's reply; counts once
``DELETE /v1/device``                  the device leaves
``POST /v1/admin/close``               close the open round now
``POST /v1/admin/skip``                the same, if it holds no report too
``POST /v1/admin/resume``              go on after a halt
``POST /v1/admin/renew``               make the changes of keys that were asked for
``DELETE /v1/admin/device/<number>``   the operator removes a device
``GET /healthz /readyz``               is the hub able to write?
``GET /livez``                         does it go on? If not, restart it
``GET /metrics /status /status.json``  what the hub says about itself
=====================================  ==============================================================

Which addresses exist is public: it stands here. Everything else is for valid tokens. Who has none gets the same answer
whatever the hub is doing, before anything that depends on the hub is looked at. How a request is read and refused is in
:mod:`fedrank.deploy.http.app`.
"""

from __future__ import annotations

import asyncio
import functools
import math
import struct
import time
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from fedrank.core.messages import WIRE_VERSION, Layout
from fedrank.core.trees import Json
from fedrank.deploy.http.app import Hook, HttpApp, limit
from fedrank.deploy.http.guard import Guard, Secret, basic_password, bearer, names_tag, network_of
from fedrank.deploy.http.routes import (
    NO_SNIFF,
    NO_STORE,
    REFUSALS,
    HttpRequest,
    HttpResponse,
    Route,
    json_response,
    refusal,
    too_many,
)
from fedrank.deploy.hub.admission import CODE, SECRET, NotAdmittedError
from fedrank.deploy.hub.attestation import MOST_STATEMENT, Door, NotAttestedError
from fedrank.deploy.hub.stages import View
from fedrank.deploy.hub.tally import Counters
from fedrank.deploy.terms import Terms

#: Seconds that a device which asks between two rounds is made to wait for the next one.
_WAIT_SECONDS = 2.0
#: Seconds that a page about the hub is cached: to make one takes as long as to handle many reports.
_PAGE_SECONDS = 1.0
_ASK_BROWSER = refusal("unauthorised", (b"www-authenticate", b'Basic realm="fedrank"'))
_ACCEPTED, _ALREADY, _GONE = (HttpResponse(code, b"", NO_STORE, content_type=None) for code in (201, 200, 204))


class HubApp(HttpApp):
    """The HTTP application of a hub.

    Args:
        hub: The hub.
        guard: Limits of requests.
        counters: What is counted about requests.
        enrolment: Token of devices that want to enrol; None: no device may.
        admin: Token of the operator; None: there is none.
        public: Anyone may see ``/status`` and ``/metrics``; else the operator alone.
        on_start: Awaited in the loop before the first request, such as ``hub.start``.
        on_stop: Awaited in the loop after the last response, such as ``hub.stop``.
        door: Checks statements of platforms, of which a device then needs one to enrol; None: none is needed.

    Raises:
        ConfigError: A token is too short or cannot be sent in a header.
    """

    counters: Counters

    def __init__(
        self,
        hub: Any,  # a fedrank.deploy.hub.hub.Hub, with which the libraries that learn would be loaded
        guard: Guard,
        counters: Counters,
        *,
        enrolment: str | None,
        admin: str | None,
        public: bool = True,
        on_start: Hook | None = None,
        on_stop: Hook | None = None,
        door: Door | None = None,
    ):
        super().__init__(guard, counters, on_start=on_start, on_stop=on_stop)
        self._hub, self._door = hub, door
        self._enrolment, self._admin = Secret(enrolment, "enrolment token"), Secret(admin, "admin token")
        self._check, self._terms = terms_check(hub.terms), hub.terms.as_json()
        self._up, self._down = ("up", hub.terms.reply.name), ("down", hub.terms.request.name)
        self._shown: tuple[View | None, HttpResponse, HttpResponse] = (None, _GONE, _GONE)  # a view, its two responses
        get, shown = ("GET", "HEAD"), None if public else self._viewer
        enrolling = self._enrolling if door else self._enrolling_bare
        self._report_route = Route("report", ("POST",), self._reporter, self._report)
        self.add_routes(
            {
                "/v1/report/": self._report_route,
                "/v1/enrol": Route("enrol", ("POST",), enrolling, self._enrol, max_body=MOST_STATEMENT if door else 0),
                "/v1/model": Route("model", get, self._reader, self._model),
                "/v1/code": Route("code", ("POST",), self._with_secret, self._code),
                "/v1/best": Route("best", get, self._reader, self._best),
                "/v1/device": Route("leave", ("DELETE",), self._device, self._leave),
                "/v1/admin/close": Route("close", ("POST",), self.operator, self._close),
                "/v1/admin/skip": Route("skip", ("POST",), self.operator, functools.partial(self._close, empty=True)),
                "/v1/admin/resume": Route("resume", ("POST",), self.operator, self._resume),
                "/v1/admin/renew": Route("renew", ("POST",), self.operator, self._renew),
                "/v1/admin/device/": Route("remove", ("DELETE",), self.operator, self._remove),
                "/healthz": Route("healthz", get, None, self._healthz),
                "/readyz": Route("healthz", get, None, self._healthz),
                "/livez": Route("healthz", get, None, self._livez),
                "/metrics": Route("metrics", get, shown, _cache(self._metrics)),
                "/status": Route("status", get, shown, _cache(self._page)),
                "/status.json": Route("status", get, shown, _cache(self._status_json)),
            }
        )
        if door:
            self.add_routes({"/v1/challenge": Route("challenge", ("POST",), self._enrolling_bare, self._challenge)})

    def _count_refusal(self, route: Route, reason: str) -> None:
        super()._count_refusal(route, reason)
        if route is self._report_route:
            self.counters.reports[reason] += 1

    # ------------------------------------------------------------------------------------------------- who may ask

    def _device(self, request: HttpRequest) -> HttpResponse | None:
        token = bearer(request.authorization)
        device = None if token is None else self._hub.device_of(token)
        if device is None:
            return self._deny(self._guard.failure, request)
        request.device = device
        return limit(self._guard.device, device)

    #: Admit who fetches models, and who reports.
    _reader = _reporter = _device

    def _enrolling_bare(self, request: HttpRequest) -> HttpResponse | None:
        return self._enrolling(request, bare=True)

    def _enrolling(self, request: HttpRequest, bare: bool = False) -> HttpResponse | None:
        token = bearer(request.authorization)
        if not self._known(token, (SECRET, CODE)) and not self._enrolment.matches(token):
            return self._deny(self._guard.failure, request)
        if bare and request.body:
            return REFUSALS["malformed"]
        # A code is for one device, and the back end that asked for it decides how many there are.
        counted = token is None or not token.startswith(CODE)
        seconds = self._guard.enrolment_wait(request.address if counted else None)
        return too_many(seconds) if seconds else None

    def _with_secret(self, request: HttpRequest) -> HttpResponse | None:
        if not self._known(bearer(request.authorization), (SECRET,)):
            return self._deny(self._guard.failure, request)
        return limit(self._guard.codes, None)  # a back end asks from one address for all of its devices

    def _known(self, token: str | None, kinds: tuple[str, ...]) -> bool:
        """True if a token is a good credential or code: what strangers show takes nothing from what all share."""
        return token is not None and token.startswith(kinds) and self._hub.knows(token)

    def operator(self, request: HttpRequest) -> HttpResponse | None:
        """Admit the operator alone."""
        return self._admin_token(request, bearer(request.authorization), REFUSALS["unauthorised"])

    def _viewer(self, request: HttpRequest) -> HttpResponse | None:
        """Admit the operator alone, whose browser may send the token as a password."""
        # Browsers send a password along with requests that other sites make: it shows pages and changes nothing.
        token = bearer(request.authorization) or basic_password(request.authorization)
        if request.authorization is None:
            return _ASK_BROWSER  # a browser's first request never has one: not a failure
        return self._admin_token(request, token, _ASK_BROWSER)

    def _admin_token(self, request: HttpRequest, token: str | None, refused: HttpResponse) -> HttpResponse | None:
        rate = self._guard.admin_failure
        seconds = rate.wait(network_of(request.address), take=False)
        if seconds:
            return too_many(seconds)
        return None if self._admin.matches(token) else self._deny(rate, request, refused)

    # ------------------------------------------------------------------------------------------------ what they get

    async def _enrol(self, request: HttpRequest) -> HttpResponse:
        token = bearer(request.authorization) or ""
        identity = b""
        if self._door is not None:
            if not request.body:
                return REFUSALS["attestation-needed"]
            try:
                identity = await asyncio.to_thread(self._door.identity, token, request.body)
            except NotAttestedError as error:
                return refusal("not-attested", why=error.reason)
        try:
            given = await self._hub.enrol(token if token.startswith((SECRET, CODE)) else None, identity)
        except NotAdmittedError as error:
            if error.reason == "unauthorised":
                return self._deny(self._guard.failure, request)
            return REFUSALS[error.reason]
        return json_response(201, {"token": given, "terms": self._terms})

    async def _challenge(self, request: HttpRequest) -> HttpResponse:
        assert self._door is not None
        return json_response(201, self._door.challenge(bearer(request.authorization) or ""))

    async def _code(self, request: HttpRequest) -> HttpResponse:
        made = await self._hub.code(bearer(request.authorization) or "")
        if made is None:
            return self._deny(self._guard.failure, request)
        return json_response(201, {"code": made[0], "good_until": made[1]})

    async def _model(self, request: HttpRequest) -> HttpResponse:
        view = self._hub.view
        if view.state == "between":  # seldom for long
            view = await self._hub.wait_for_round(_WAIT_SECONDS)
            if view.state == "between":
                return REFUSALS["between-rounds"]
        tag = view.etag.encode()
        if view is not self._shown[0]:
            state = b"done" if view.over else b"open"  # devices of a hub that is halted are to send nothing
            headers = ((b"etag", tag), (b"fedrank-state", state), (b"cache-control", b"no-cache"))
            whole = HttpResponse(200, view.model, *headers, content_type=b"application/octet-stream")
            self._shown = (view, whole, HttpResponse(304, b"", *headers, content_type=None))
        if request.none_match is not None and names_tag(request.none_match, tag):
            return self._shown[2]
        if request.method == "GET":
            self.counters.payload[self._down] += len(view.model)
        return self._shown[1]

    async def _best(self, request: HttpRequest) -> HttpResponse:
        best = self._hub.view.best
        if best is None:
            return REFUSALS["not-found"]
        if request.method == "GET":
            self.counters.payload[self._down] += len(best)
        return HttpResponse(200, best, (b"cache-control", b"no-cache"), content_type=b"application/octet-stream")

    async def _report(self, request: HttpRequest) -> HttpResponse:
        (round_,), wrong = request.numbers(), self._check(request.body)
        if wrong is not None:
            return REFUSALS[wrong]
        result = (await self._hub.report(round_, request.device, request.body)).value
        if result == "accepted":
            self.counters.payload[self._up] += len(request.body)
        elif result != "already":
            return refusal(result, round=self._hub.view.round) if result == "stale-round" else REFUSALS[result]
        self.counters.reports[result] += 1
        self.counters.count_acknowledged(time.perf_counter() - request.started)
        return _ACCEPTED if result == "accepted" else _ALREADY

    async def _leave(self, request: HttpRequest) -> HttpResponse:
        await self._hub.leave(request.device)  # False: it left in this very moment, which is what was wanted
        return _GONE

    async def _close(self, request: HttpRequest, empty: bool = False) -> HttpResponse:
        if (number := await self._hub.close_round(empty)) is not None:
            return json_response(200, {"round": number})
        reasons = {"done": "done", "halted": "done", "between": "between-rounds"}
        return REFUSALS[reasons.get(self._hub.view.state, "no-reports")]

    async def _resume(self, request: HttpRequest) -> HttpResponse:
        number = await self._hub.resume()
        return REFUSALS["not-halted"] if number is None else json_response(200, {"round": number})

    async def _renew(self, request: HttpRequest) -> HttpResponse:
        await self._hub.renew()
        return _GONE

    async def _remove(self, request: HttpRequest) -> HttpResponse:
        return _GONE if await self._hub.leave(*request.numbers()) else REFUSALS["not-found"]

    async def _healthz(self, request: HttpRequest) -> HttpResponse:
        if self._hub.healthy:  # a full hub goes on serving the devices that it has
            refuses = (
                {"enrolment": "full"} if self._hub.full else {"enrolment": "flooded"} if self._guard.is_flooded else {}
            )
            return json_response(200, {"status": "ok", **refuses})
        return json_response(503, {"status": "unavailable"}, (b"retry-after", b"5"), reason="unavailable")

    async def _livez(self, request: HttpRequest) -> HttpResponse:
        if self._hub.alive:
            return json_response(200, {"status": "ok"})
        return json_response(503, {"status": "failed"}, reason="internal")

    def _metrics(self) -> HttpResponse:
        text, kind = self.counters.text()
        return HttpResponse(200, text, NO_STORE, NO_SNIFF, content_type=kind.encode())

    def _page(self) -> HttpResponse:
        from fedrank.deploy.hub import status

        safe = ((b"referrer-policy", b"no-referrer"), (b"x-frame-options", b"DENY"))
        rules = (b"content-security-policy", status.CSP.encode())
        page = status.page(self._numbers(), self.counters.refusals_by_reason()).encode()
        return HttpResponse(200, page, NO_STORE, NO_SNIFF, rules, *safe, content_type=b"text/html; charset=utf-8")

    def _status_json(self) -> HttpResponse:
        return json_response(200, {**self._numbers(), "refused": self.counters.refusals_by_reason()})

    def _numbers(self) -> dict[str, Json]:
        """The hub's status, with the bytes of models handed out, which only the application counts."""
        self._hub.look()  # for the next time
        status = self._hub.status()
        models = {**status["bytes"], "models": self.counters.payload[self._down]}
        return {**status, "bytes": models, "healthy": self._hub.healthy, "flooded": self._guard.is_flooded}


def _cache(make: Callable[[], HttpResponse]) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
    """A response that is made at most once in :data:`_PAGE_SECONDS`, however often it is asked for."""
    until, shown = -math.inf, _GONE

    async def respond(_: HttpRequest) -> HttpResponse:
        nonlocal until, shown
        if monotonic() >= until:
            shown = make()
            until = monotonic() + _PAGE_SECONDS
        return shown

    return respond


def terms_check(terms: Terms) -> Callable[[bytes], str | None]:
    """The check of the messages that devices may send under some terms, as of :func:`report_check`."""
    reply = report_check(terms.reply)
    if terms.check is None:
        return reply
    check = report_check(terms.check)
    return lambda message: check(message) if terms.is_check(message) else reply(message)


def report_check(layout: Layout[Any]) -> Callable[[bytes], str | None]:
    """A check of messages as by :meth:`fedrank.core.messages.Layout.decode`, in a microsecond and without arrays.

    Args:
        layout: Layout of the message.

    Returns:
        A function of bytes: None for a message that an honest device could send, ``"malformed"`` for another length,
        version or kind, ``"out-of-range"`` for a number beyond its field's largest or not finite.
    """
    head, size = WIRE_VERSION << 5 | layout.kind, layout.nbytes
    whole: list[tuple[int, int, int]] = []  # start, stop, largest
    single: list[int] = []  # starts of floats
    at = 1
    for field in layout.fields:
        width = field.nbytes // math.prod(field.shape) if field.nbytes else 1
        for start in range(at, at + field.nbytes, width):
            if field.dtype == "f4":
                single.append(start)
            elif field.largest is not None:
                whole.append((start, start + width, field.largest))
        at += field.nbytes

    def check(message: bytes) -> str | None:
        if len(message) != size or message[0] != head:
            return "malformed"
        for start, stop, largest in whole:
            if int.from_bytes(message[start:stop], "little") > largest:
                return "out-of-range"
        for start in single:
            if not math.isfinite(struct.unpack_from("<f", message, start)[0]):
                return "out-of-range"
        return None

    return check
