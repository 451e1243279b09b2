"""Serve the hub of a folder over HTTP until the process is told to stop.

A hub with tokens has a gateway, and these routes:

=====================================  ==============================================================
``GET /v1/tokens``                     the open round, what is sold in it, and what its epoch draws by
``POST /v1/token/<epoch>``             a device buys its token of the next epoch
``POST /v1/report/<round>``            a reply, with a token in place of the device's own
``GET /v1/model``                      as ever, and without a token
``POST /v1/oblivious``                 an encapsulated request, with an encapsulated answer
``GET /v1/oblivious/keys``             the gateway's key configuration
=====================================  ==============================================================

Whatever a device may ask can be asked through the gateway. What an operator may ask cannot.

Whoever starts a hub is told what its settings promise, and what speaks against them.
"""

from __future__ import annotations

import base64
import functools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedrank.core.errors import RunError, WireError
from fedrank.core.privacy_report import LIFETIME_EPSILON, MOST_EPSILON, MOST_SEARCH_EPSILON
from fedrank.core.trees import Json
from fedrank.deploy.http.app import limit
from fedrank.deploy.http.guard import Guard, number_of
from fedrank.deploy.http.origins import Hosts, Origins
from fedrank.deploy.http.routes import (
    NO_STORE,
    REFUSALS,
    Authorise,
    HttpRequest,
    HttpResponse,
    Route,
    json_response,
)
from fedrank.deploy.hub.app import HubApp
from fedrank.deploy.hub.attestation import Challenges, Door, door_of
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.hub import Hub
from fedrank.deploy.hub.keys import OPERATOR_FILE
from fedrank.deploy.hub.settings import MECHANISM_EPSILON, NO_LOG, HubSettings
from fedrank.deploy.hub.stages import Outcome
from fedrank.deploy.hub.status import JOINT, clock
from fedrank.deploy.hub.tally import Counters
from fedrank.deploy.hub.tokens import Issuer
from fedrank.deploy.oblivious.encapsulation import (
    KEYS_TYPE,
    REQUEST_OVERHEAD,
    RESPONSE_TYPE,
    STATEMENT_LENGTH,
    BinaryRequest,
    BinaryResponse,
    Gateway,
    ReplayedError,
    decode_request,
    encode_response,
    key_configuration,
    response_length,
)
from fedrank.deploy.oblivious.tokens import spending_number, token_in

#: Addresses that are answered through the gateway: all of devices, none of operators.
_WITHIN, _NOT_WITHIN = "/v1/", ("/v1/admin", "/v1/oblivious")
#: Header fields of an answer that go through the gateway.
_FIELDS = (b"retry-after", b"fedrank-state")
#: In place of an address of a request that came through the gateway, which has none.
_NOWHERE = ""


class TokenApp(HubApp):
    """The application of a hub with tokens; arguments as of :class:`~fedrank.deploy.hub.app.HubApp`.

    Args:
        hub: The hub, which sells tokens.
        *args: Of the class above.
        issuer: Sells and verifies tokens.
        gateway: Opens encapsulated requests; None: there is no gateway.
        **options: Of the class above.
    """

    def __init__(self, hub: Any, *args: Any, issuer: Issuer, gateway: Gateway | None = None, **options: Any):
        self._issuer, self._gateway, self._sell = issuer, gateway, hub.sell
        super().__init__(hub, *args, **options)
        self.add_routes(
            {
                "/v1/token/": Route("token", ("POST",), self._device, self._token),
                "/v1/tokens": Route("tokens", ("GET", "HEAD"), None, self._tokens),
            }
        )
        if gateway is not None:
            most = STATEMENT_LENGTH + REQUEST_OVERHEAD
            self.add_routes(
                {
                    "/v1/oblivious": Route("oblivious", ("POST",), self._reader, self._oblivious, max_body=most),
                    "/v1/oblivious/keys": Route("keys", ("GET", "HEAD"), None, self._configuration),
                }
            )

    # ------------------------------------------------------------------------------------------------- who may ask

    def _reader(self, request: HttpRequest) -> HttpResponse | None:
        """Admit all: to ask for the model with a token would tell who has which."""
        return None

    def _reporter(self, request: HttpRequest) -> HttpResponse | None:
        token = token_in(request.authorization)
        epoch = None if token is None else self._issuer.epoch_in(token)
        if token is None or epoch is None:
            return self._deny(self._guard.failure, request)
        request.device = spending_number(token)
        if (waits := limit(self._guard.device, request.device)) is not None:
            return waits
        round_ = number_of(request.tail)
        if round_ is not None and self._hub.terms.epoch_of(round_) != epoch:
            return REFUSALS["wrong-epoch"]
        return None

    def _deny(self, rate: Any, request: HttpRequest, *refused: HttpResponse) -> HttpResponse:
        if request.address == _NOWHERE:  # all who come through the gateway would share one limit
            return refused[0] if refused else REFUSALS["unauthorised"]
        return super()._deny(rate, request, *refused)

    # ------------------------------------------------------------------------------------------------ what they get

    async def _tokens(self, request: HttpRequest) -> HttpResponse:
        view = self._hub.view
        said: dict[str, Json] = {"round": view.round, "state": view.state, "etag": view.etag}
        if (sold := self._issuer.offer(view.round)) is not None:
            said |= {"epoch": sold[0], "offer": base64.urlsafe_b64encode(sold[1]).decode()}
        if (beacon := self._issuer.beacon(view.round)) is not None:
            said["beacon"] = beacon.as_json()
        return json_response(200, said)

    async def _token(self, request: HttpRequest) -> HttpResponse:
        (epoch,) = request.numbers()
        answer = await self._sell(epoch, request.device, request.body)
        if isinstance(answer, str):
            return REFUSALS[answer]
        return HttpResponse(200, answer, NO_STORE, content_type=b"application/private-token-response")

    async def _configuration(self, request: HttpRequest) -> HttpResponse:
        assert self._gateway is not None  # else there is no such route
        return HttpResponse(200, key_configuration(self._gateway.public), content_type=KEYS_TYPE.encode())

    # -------------------------------------------------------------------------------------------------- the gateway

    async def _oblivious(self, request: HttpRequest) -> HttpResponse:
        assert self._gateway is not None  # else there is no such route
        try:
            opened = self._gateway.open(request.body)
            inner = decode_request(opened.request)
        except ReplayedError:
            return REFUSALS["replayed"]
        except WireError:
            return REFUSALS["malformed"]
        answer = await self._answer(inner)
        plain = encode_response(answer)
        sealed = opened.seal(encode_response(answer, response_length(len(plain), self._hub.terms.request.nbytes)))
        return HttpResponse(200, sealed, NO_STORE, content_type=RESPONSE_TYPE.encode())

    async def _answer(self, inner: BinaryRequest) -> BinaryResponse:
        """The answer to a request that was inside another one."""
        try:
            method, path = inner.method.decode("ascii"), inner.path.decode("ascii")
        except UnicodeDecodeError:
            return BinaryResponse(400)
        if not path.startswith(_WITHIN) or path.startswith(_NOT_WITHIN):
            return BinaryResponse(404)
        route, tail = self._route(path, inner.path)
        given: dict[bytes, bytes] = {}
        for name, value in inner.fields:  # a field that comes twice says nothing
            given[name.lower()] = b"" if name.lower() in given else value
        shown = (given.get(b"authorization"), given.get(b"if-none-match"))
        asked = HttpRequest(method, tail, *shown, inner.content, _NOWHERE, time.perf_counter())
        if len(inner.content) > max(self._guard.body_bytes, route.max_body):
            answer = REFUSALS["too-large"]
        else:
            answer = await self._judge(route, self._respond(route, asked))
        if answer is None:
            return BinaryResponse(503)
        fields = tuple((name, value) for name, value in answer.start["headers"] if name in _FIELDS)
        return BinaryResponse(answer.code, fields, b"" if method == "HEAD" else answer.payload["body"])


def hub_app(home: HubFolder, *, public: bool = True, host: str = "") -> tuple[Hub, HubApp]:
    """The hub of a folder and its ASGI application, which starts and stops it.

    Args:
        home: Folder of the hub.
        public: Anyone may see ``/status`` and ``/metrics``.
        host: Name or address that the server listens at.

    Raises:
        RunError: There is no hub in the folder, or something in it cannot be used.
    """
    enrolment, admin = home.token("enrolment"), home.token("admin")
    if enrolment == admin:
        raise RunError(f"{home.path}: enrolment.token and admin.token are the same; every app would be an operator.")
    settings, store = home.open()
    try:
        hub = Hub(home.path, store, settings)
        guard = Guard(
            device_per_minute=settings.reports_per_minute,
            enrolments_per_minute=settings.enrolments_per_minute,
            network_enrolments_per_minute=settings.enrolments_per_network,
        )
        kind: Callable[..., HubApp] = HubApp
        if hub.row.issuer is not None:
            kind = functools.partial(TokenApp, issuer=hub.row.issuer, gateway=hub.row.keys.gateway)
        app = kind(
            hub,
            guard,
            Counters(lambda: {**hub.status(), "flooded": guard.is_flooded}),
            enrolment=enrolment if settings.open_enrolment else None,
            admin=admin,
            public=public,
            on_start=hub.start,
            on_stop=hub.stop,
            door=_door(home, settings, hub) if settings.attestation else None,
        )
        app.add_routes(hub.row.publishing.routes())
        if settings.collect:
            app.add_routes(coordinator_routes(hub, app.operator))
        if public and settings.status == "auto":  # no token is needed, as only this machine can ask
            app.hosts = Hosts((host,) if host else (), ("/status", "/metrics"))
        if settings.origins:
            app.origins = Origins(settings.origins)
    except BaseException:
        store.close()
        raise
    return hub, app


def _door(home: HubFolder, settings: HubSettings, hub: Hub) -> Door:
    challenges = Challenges(hub.store.secret("challenge"), hub.use_challenge)
    return door_of(home.path, settings.attestation, hub.terms.hub, challenges)


_RESPONSES = {
    Outcome.ACCEPTED: HttpResponse(201, b"", NO_STORE, content_type=None),
    Outcome.ALREADY: HttpResponse(200, b"", NO_STORE, content_type=None),
    Outcome.CONFLICT: REFUSALS["round-open"],
    Outcome.STALE: REFUSALS["stale-round"],
    Outcome.UNAVAILABLE: REFUSALS["unavailable"],
}


def coordinator_routes(hub: Hub, operator: Authorise) -> dict[str, Route]:
    """Further routes of a hub that collects reports for a coordinator, such as a node of Flower.

    =================================  =====================================================================
    ``GET /v1/admin/terms``            the terms that the hub's devices agreed to
    ``PUT /v1/admin/round``            body: the round's request, which devices get from now on
    ``GET /v1/admin/reports/<round>``  the round's messages, concatenated, once it has closed
    =================================  =====================================================================

    All of them need the admin token, which ``operator`` checks. A round closes as any hub's does: by count, by
    deadline, by ``/v1/admin/close``.
    """

    async def terms(request: HttpRequest) -> HttpResponse:
        return json_response(200, hub.terms.as_json())

    async def ask(request: HttpRequest) -> HttpResponse:
        try:
            return _RESPONSES[await hub.ask_round(request.body)]
        except WireError:
            return REFUSALS["malformed"]

    async def collect(request: HttpRequest) -> HttpResponse:
        messages = await hub.collect(*request.numbers())
        if messages is None:
            return REFUSALS["not-closed"]
        return HttpResponse(200, messages, NO_STORE, content_type=b"application/octet-stream")

    return {
        "/v1/admin/terms": Route("terms", ("GET",), operator, terms),
        "/v1/admin/round": Route("ask", ("PUT",), operator, ask, max_body=hub.terms.request.nbytes),
        "/v1/admin/reports/": Route("collect", ("GET",), operator, collect),
    }


def warnings_of(home: Path, settings: HubSettings) -> list[str]:
    """Things that an operator should know of a hub's settings before people report to it."""
    found = (why_silent(settings), why_unfair(settings), why_void(settings), why_reset(home), why_alone(home, settings))
    return [warning for warning in found if warning]


def why_unfair(settings: HubSettings) -> str:
    """A warning if the hub is a trial, or the first reports fill a round; empty if neither is so.

    Wherever the hub listens: a proxy may be in front, on this machine too, and the hub need not be told of it.
    """
    if settings.trial:
        return (
            "a trial, for devices of one machine without people in front of them: for people make a hub in another "
            "folder, without --trial"
        )
    if settings.round_seconds or settings.collect:
        return ""
    return (
        "round_seconds is 0: the first reports fill a round, so that whoever is fastest decides; set it to what a slow "
        "device needs"
    )


def why_reset(home: Path) -> str:
    """A warning while the operator's key lies in a hub's folder; empty if it does not."""
    file = home / OPERATOR_FILE
    if not file.exists():
        return ""
    return f"{file}: a copy of this folder can put the hub back and change its log's key; move the file elsewhere"


def why_alone(home: Path, settings: HubSettings) -> str:
    """A warning if no other disk has the heads of the log before devices see them; empty if one has, or of a trial.

    A database is asked while the hub runs: :class:`~fedrank.deploy.hub.publishing.PublicLog` says so.
    """
    if settings.trial or settings.database or settings.log == NO_LOG:
        return ""
    if settings.copy_to:
        copy = Path(settings.copy_to)
        if not copy.exists() or copy.stat().st_dev != home.stat().st_dev:
            return ""
        return f"copy_to: {copy} is on the file system of {home}: both are lost together; give a folder on another disk"
    return (
        "copy_to is not set: if this disk is lost, devices go on only where the operator signs that the hub was put "
        "back; give a folder on another disk"
    )


def pace(settings: HubSettings) -> str:
    """A sentence on rounds: how many, how long, and of how many reports."""
    number = f"{settings.rounds:,}, each" if settings.rounds else "without end, each"
    shortest, longest = (clock(seconds).replace(JOINT, " ") for seconds in (settings.round_seconds, settings.deadline))
    if settings.round_seconds == settings.deadline:
        open_for = f"open for {shortest}"
    else:
        open_for = f"open until {settings.cohort:,} reports have come"
        open_for += f", at least {shortest}" if settings.round_seconds else ""
        open_for += f", at most {longest}" if settings.deadline else ""
    first = "; in the first tokens are sold, and nothing is learnt" if settings.tokens else ""
    return f"{number} {open_for}, of {settings.interactions:,} searches a report{first}"


def why_silent(settings: HubSettings) -> str:
    """The reason why devices whose app says nothing about ε send nothing to this hub; empty if they report."""
    terms = settings.terms()
    search, message = terms.epsilon_interaction, terms.epsilon_message
    if search <= MOST_SEARCH_EPSILON and message <= MOST_EPSILON:
        return ""
    return (
        f"devices with default settings will not report: a message has ε = {message:.3g} and a search {search:.3g}, "
        f"they allow {MOST_EPSILON:g} and {MOST_SEARCH_EPSILON:g}. For people, make a hub in another folder with the "
        f"default mechanism (ε = {MECHANISM_EPSILON:g}), or with --p or --epsilon that give less; for a trial, have "
        "the app allow more (most_epsilon, most_search_epsilon)"
    )


def why_void(settings: HubSettings) -> str:
    """A warning if the devices that fill a cohort are too few for the tokens of an epoch to count; empty if not."""
    part = settings.due * (1 - settings.checks)
    devices = math.ceil(settings.cohort / part) if part else math.inf
    if not settings.tokens or devices >= settings.least_sales:
        return ""
    return (
        f"a cohort of {settings.cohort:,} is for about {devices:,} devices, and an epoch that sells fewer than "
        f"least_sales = {settings.least_sales:,} tokens is void: no device reports in it"
    )


def linking(settings: HubSettings) -> str:
    """A sentence on who can put the reports of a device together."""
    if not settings.tokens:
        return "this hub keeps a history of each device (no --tokens, no relay)"
    if not settings.batch:
        return "reports show blind tokens; their network addresses are not hidden (no --batch, no relay)"
    return (
        f"reports show blind tokens and come through a relay, {settings.batch} together; start one elsewhere: "
        f"fedrank hub relay URL --batch {settings.batch}"
    )


def promise(settings: HubSettings) -> str:
    """A sentence on what the terms promise, and on who reports under them."""
    terms = settings.terms()
    search, message, life = terms.epsilon_interaction, terms.epsilon_message, terms.epsilon_life
    promised = f"ε = {search:.3g} of a search, {message:.3g} of a message, "
    promised += "no limit to all of a device's messages" if math.isinf(life) else f"{life:.3g} of all of a device's"
    if why_silent(settings) or life <= LIFETIME_EPSILON:
        return promised
    return f"{promised}; devices end at {LIFETIME_EPSILON:g} by default"
