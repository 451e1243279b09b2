"""Serve the hub of a folder over HTTP until the process is told to stop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedrank.core.errors import RunError, WireError
from fedrank.deploy.http.guard import Guard, number_of
from fedrank.deploy.http.origins import Hosts, Origins
from fedrank.deploy.http.routes import NO_STORE, REFUSALS, Authorise, HttpRequest, HttpResponse, Route, json_response
from fedrank.deploy.hub.app import HubApp
from fedrank.deploy.hub.attestation import Challenges, Door, door_of
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.hub import Hub
from fedrank.deploy.hub.settings import HubSettings
from fedrank.deploy.hub.stages import Outcome
from fedrank.deploy.hub.tally import Counters


@dataclass(frozen=True)
class Listen:
    """Address and TLS of a hub's server.

    Attributes:
        host: Address to listen at; this machine only by default.
        port: TCP port; 0: any that is free.
        certificate: PEM file of the certificate chain, for TLS.
        key: PEM file of its private key.
        proxies: Addresses of reverse proxies whose ``X-Forwarded-For`` is trusted.
        public: Anyone may see ``/status`` and ``/metrics``.
    """

    host: str = "127.0.0.1"
    port: int = 8750
    certificate: Path | None = None
    key: Path | None = None
    proxies: tuple[str, ...] = ()
    public: bool = True


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
            from fedrank.deploy.hub.gateway import TokenApp

            kind = functools.partial(TokenApp, issuer=hub.row.issuer, gateway=hub.row.keys.gateway)
        app = kind(
            hub,
            guard,
            Counters(lambda: {**hub.status(), "flooded": guard.is_flooded}),
            enrolment=enrolment if settings.open_enrolment else None,
            admin=admin,
            status="public" if public else "admin",
            on_start=hub.start,
            on_stop=hub.stop,
            extra_routes=functools.partial(coordinator_routes, hub) if settings.collect else None,
            door=_door(home, settings, hub) if settings.attestation else None,
        )
        app.add_routes(hub.row.publishing.routes())
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


def run_hub(home: HubFolder, listen: Listen, on_ready: Callable[[str], object]) -> None:
    """Serve a hub until SIGTERM or Ctrl-C. The folder must be locked by the caller.

    Args:
        home: Folder of the hub.
        listen: Where to listen.
        on_ready: Called with the URL once connections are accepted.

    Raises:
        MissingExtraError: The extra ``serve`` is not installed.
        ConfigError: The port is taken, or the certificate cannot be used.
        RunError: Something in the folder cannot be used.
    """
    from fedrank.deploy.http.server import serve

    _, app = hub_app(home, public=listen.public, host=listen.host)

    def ready(url: str) -> None:
        home.write_urls({"hub": url}, listen.certificate)
        on_ready(url)

    try:
        serve(
            app,
            host=listen.host,
            port=listen.port,
            certfile=listen.certificate,
            keyfile=listen.key,
            proxies=listen.proxies,
            on_ready=ready,
        )
    finally:
        home.remove_urls("hub")


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
        number = number_of(request.tail)
        if number is None:
            return REFUSALS["malformed"]
        messages = await hub.collect(number)
        if messages is None:
            return REFUSALS["not-closed"]
        return HttpResponse(200, messages, NO_STORE, content_type=b"application/octet-stream")

    return {
        "/v1/admin/terms": Route("terms", ("GET",), operator, terms),
        "/v1/admin/round": Route("ask", ("PUT",), operator, ask, max_body=hub.terms.request.nbytes),
        "/v1/admin/reports/": Route("collect", ("GET",), operator, collect),
    }
