"""The processes of a platform and of the coordinator, each with a folder, and a platform's two HTTP applications.

For the coordinator:

==========================================  ======================================================================
``GET /v1/platform``                        which platform this is, and whether it plans
``POST /v1/exchange/<round>/<place>``       request of an exchange, in the bytes of its layout; the reply likewise
``POST /v1/sum/<round>/<place>/<step>``     request of a step of a secure sum of the replies, likewise
==========================================  ======================================================================

For the application, on a port of this machine only, in JSON:

==========================================  ======================================================================
``GET /v1/state``                           sizes that were agreed, and how many sessions there were and are
``POST /v1/register``                       ``{"items": {"id": feature or [features], …}}``: to name candidates by
``POST /v1/begin``                          ``{"session": "s-17"}``: a user comes
``POST /v1/slate``                          ``{"session": "s-17", "items": ["id", …], "observed": 0.5}``, or candidates,
                                            features of each; gives ``{"slate": [2, 0, 7]}``: places among them
``POST /v1/outcome``                        ``{"session": "s-17", "slot": 1, "engagement": 23.4}``; without a click or
                                            feedback only the session
``POST /v1/end``                            ``{"session": "s-17"}``: the user has left
``POST /v1/batch``                          ``[{"call": "begin", "session": "s-17"}, …]``: these in order, as a log has
                                            them, at most 1,000; gives ``{"answers": […]}``
==========================================  ======================================================================

Each needs another token. Every request but a batch may be repeated until the next one of its session. A batch that got
no answer may have been done, in part: ``/v1/state`` says how many sessions began. What is refused is said with what was
agreed (``expected``).
A coordinator that asks for sums waits up to :data:`PATIENCE` seconds for the stays that they are of to end; then the
response is 409 ``early-round`` and it asks again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from typing_extensions import override

from fedrank.core.errors import ConfigError, RunError
from fedrank.core.trees import Json
from fedrank.deploy.folder import read_token
from fedrank.deploy.http.app import HttpApp, RequestCounts
from fedrank.deploy.http.client import PersistentClient
from fedrank.deploy.http.guard import Guard, RefusedError, Secret
from fedrank.deploy.http.routes import NO_STORE, HttpRequest, HttpResponse, Route, json_response
from fedrank.deploy.http.server import Servers
from fedrank.deploy.platforms.folder import (
    CLIENTS,
    EXCHANGE_PATH,
    LARGEST_REQUEST,
    SUM_PATH,
    NotYetError,
    PlatformFolder,
    Terms,
)
from fedrank.deploy.platforms.planning_coordinator import PLATFORM_PATIENCE, PlanningCoordinator, StepDone
from fedrank.deploy.platforms.planning_platform import CALLS, SILENCE, PlanningPlatform
from fedrank.deploy.platforms.rounds import Peer
from fedrank.engine.checkpoint import write_atomically

T = TypeVar("T")
_log = logging.getLogger("fedrank.platform")

#: Seconds that a response waits for what has still to happen.
PATIENCE = 2.0
#: Most seconds between looks for users who are silent.
_SWEEP = 30.0
#: Reasons of refusals that only platforms have: status code and sentence.
_REASONS = {
    "conflict": (409, "Another request for the same was accepted before."),
    "out-of-order": (409, "It is not its turn."),
    "not-due": (409, "This exchange does not take place in this round."),
    "sum-stopped": (409, "This secure sum does not go on; begin another."),
    "unlike-agreed": (409, "Features of items are not as agreed."),
    "ended": (409, "A session of this name has ended; a user who comes again is another session."),
    "not-finite": (500, "With this model numbers are not finite."),
}


class Changes:
    """Wakes coroutines of one event loop that wait for a change of the platform."""

    def __init__(self):
        self._waiting: list[asyncio.Future[None]] = []

    def notify(self) -> None:
        """Wake all requests that wait for something to happen."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def until(self, attempt: Callable[[], T], seconds: float) -> T:
        """Value of ``attempt``, tried again after every change for up to ``seconds``.

        Raises:
            NotYetError: It was still too early after the last try.
        """
        end = time.monotonic() + seconds
        while True:
            try:
                return attempt()
            except NotYetError:
                left = end - time.monotonic()
                if left <= 0:
                    raise
            change = asyncio.get_running_loop().create_future()
            self._waiting.append(change)
            await asyncio.wait([change], timeout=left)


class PlatformApp(HttpApp):
    """One of a platform's two HTTP applications, for those who have one token.

    Args:
        token: The token.
        name: Name of the token in errors.
    """

    def __init__(self, token: str, name: str):
        super().__init__(Guard(), RequestCounts())
        self._authorise = self.requires(Secret(token, name))

    @override
    def _refusal(self, error: RefusedError) -> HttpResponse | None:
        if error.reason not in _REASONS:
            return super()._refusal(error)
        code, detail = _REASONS[error.reason]
        return json_response(code, {"error": error.reason, "detail": detail, **error.more}, reason=error.reason)


class CoordinatorApp(PlatformApp):
    """The HTTP application for the coordinator.

    Args:
        platform: The platform.
        changes: Signals changes of the platform.
        token: Token of the coordinator.
    """

    def __init__(self, platform: PlanningPlatform, changes: Changes, token: str):
        super().__init__(token, "coordinator token")
        self._platform, self._changes = platform, changes
        most = max(exchange.request.nbytes for exchange in platform.terms.exchanges)
        largest = platform.largest_of_sums
        self.add_routes(
            {
                "/v1/platform": Route("platform", ("GET",), self._authorise, self._about),
                SUM_PATH: Route("sum", ("POST",), self._authorise, self._sum, max_body=largest),
                EXCHANGE_PATH: Route("exchange", ("POST",), self._authorise, self._exchange, max_body=most),
            }
        )

    async def _about(self, request: HttpRequest) -> HttpResponse:
        return json_response(200, self._platform.about())

    async def _exchange(self, request: HttpRequest) -> HttpResponse:
        number, place = request.numbers(2)
        return await self._answer(lambda: self._platform.answer(number, place, request.body))

    async def _sum(self, request: HttpRequest) -> HttpResponse:
        number, place, step = request.numbers(3)
        return await self._answer(lambda: self._platform.sum_step(number, place, step, request.body))

    async def _answer(self, attempt: Callable[[], bytes]) -> HttpResponse:
        data = await self._changes.until(attempt, PATIENCE)
        self._changes.notify()
        return HttpResponse(200, data, NO_STORE, content_type=b"application/octet-stream")


class OwnApp(PlatformApp):
    """The HTTP application for the platform's own application.

    Args:
        platform: The platform.
        changes: Signals changes of the platform.
        token: Token of the application.
    """

    def __init__(self, platform: PlanningPlatform, changes: Changes, token: str):
        super().__init__(token, "application token")
        self._platform, self._changes = platform, changes
        for call in CALLS:
            act = functools.partial(self._call, call)
            self.add_routes({f"/v1/{call}": Route(call, ("POST",), self._authorise, act, max_body=LARGEST_REQUEST)})
        self.add_routes(
            {
                "/v1/state": Route("state", ("GET",), self._authorise, self._state),
                "/v1/batch": Route("batch", ("POST",), self._authorise, self._batch, max_body=LARGEST_REQUEST),
            }
        )

    async def _state(self, request: HttpRequest) -> HttpResponse:
        return json_response(200, self._platform.state())

    async def _batch(self, request: HttpRequest) -> HttpResponse:
        return self._done({"answers": self._platform.batch(request.json(list))})

    async def _call(self, call: str, request: HttpRequest) -> HttpResponse:
        return self._done(self._platform.call({**request.json(), "call": call}))

    def _done(self, said: dict[str, Json]) -> HttpResponse:
        self._changes.notify()
        return json_response(200, said)


async def _sweep(platform: PlanningPlatform, changes: Changes) -> None:
    """End the stays of those who are silent, also while nothing is asked."""
    while True:
        await asyncio.sleep(min(_SWEEP, platform.silence / 4))
        try:
            platform.sweep(time.time())
        except RunError as error:  # a full disk, which may have room again later
            _log.warning("%s", error)
        changes.notify()


@dataclass(frozen=True)
class ListenAt:
    """Addresses and TLS of a platform's two servers.

    Attributes:
        host: Address for the coordinator; this machine only by default. The application's is always this machine's.
        port: TCP port for the coordinator; 0: any that is free.
        application_port: TCP port for the platform's own application; 0: any that is free.
        certificate: PEM file of the certificate chain, for TLS to the coordinator.
        key: PEM file of its private key.
        token_file: File with the coordinator's token; None: ``coordinator.token`` in the folder, made if needed.
        silence: Seconds without a word after which a stay has ended.
    """

    host: str = "127.0.0.1"
    port: int = 0
    application_port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    token_file: Path | None = None
    silence: float = SILENCE


@contextlib.contextmanager
def platform_servers(home: PlatformFolder, terms: Terms, index: int, at: ListenAt) -> Iterator[Servers]:
    """A platform's servers, ready to run; its folder is locked meanwhile.

    Args:
        home: Folder of the platform.
        terms: Terms of the federation.
        index: Number of the platform, from 0.
        at: Where it listens.

    Raises:
        RunError: Something in the folder cannot be used.
        ConfigError: A port is taken, a token is too short, or a certificate cannot be used.
    """
    with home.lock():
        coordinator = read_token(at.token_file) if at.token_file else home.token_or_new("coordinator")
        application = home.token_or_new("application")
        if coordinator == application:
            raise ConfigError(f"{home.path}: coordinator and application must not have the same token.")
        with contextlib.closing(home.open_store(f"platform {index}", terms)) as store:
            platform, changes = PlanningPlatform(terms, index, store, silence=at.silence), Changes()
            platform.warm()
            outside = {"host": at.host, "port": at.port, "certfile": at.certificate, "keyfile": at.key}
            apps = (
                (CoordinatorApp(platform, changes, coordinator), outside),
                (OwnApp(platform, changes, application), {"port": at.application_port}),
            )
            yield Servers(apps, connections=64, beside=[lambda: _sweep(platform, changes)])


def run_platform(
    home: PlatformFolder,
    terms: Terms,
    index: int,
    at: ListenAt,
    on_ready: Callable[[str, str], object],
) -> None:
    """Serve a platform until SIGTERM or Ctrl-C; arguments and errors as :func:`platform_servers`.

    ``on_ready`` is called with the URLs for the coordinator and for the application once both accept connections.
    """
    with platform_servers(home, terms, index, at) as servers:

        def ready(urls: list[str]) -> None:
            home.write_urls(dict(zip(CLIENTS, urls, strict=True)), at.certificate)
            on_ready(urls[0], urls[1])

        try:
            servers.run(ready)
        finally:
            home.remove_urls(*CLIENTS)


@dataclass(frozen=True)
class Asking:
    """Platforms that a coordinator asks, and how.

    Attributes:
        platforms: Of each platform, in order, its URL, or its folder on this machine.
        token_files: Files with their tokens, one each or one for all; empty: those in the folders.
        patience: Seconds that a platform may take to answer; may be infinite.
        ca: File with the certificates to trust in place of the system's.
        allow_http: Let tokens and messages cross a network without TLS.
    """

    platforms: Sequence[str]
    token_files: Sequence[Path] = ()
    patience: float = PLATFORM_PATIENCE
    ca: Path | None = None
    allow_http: bool = False

    def clients(self) -> list[PersistentClient]:
        """An HTTP client of each platform.

        Raises:
            ConfigError: A token is missing, or an address cannot be used.
            RunError: A platform is not being served from its folder, or a token cannot be read.
        """
        files = list(self.token_files) * (len(self.platforms) if len(self.token_files) == 1 else 1)
        if files and len(files) != len(self.platforms):
            raise ConfigError(f"there are {len(self.platforms)} platforms and {len(files)} token files; give one each.")
        made = []
        for place, where in enumerate(self.platforms):
            home = None if "://" in where else PlatformFolder(where)
            if home is None and not files:
                raise ConfigError(f"give --token-file for {where}: the token that its platform gave you.")
            url = where if home is None else home.url("coordinator")
            token = read_token(files[place]) if files else home.token("coordinator")  # type: ignore[union-attr]
            pinned = home.certificate("coordinator") if home is not None and self.ca is None else None
            made.append(PersistentClient(url, token, ca=self.ca, allow_http=self.allow_http, pinned=pinned))
        return made


def coordinate(
    home: PlatformFolder,
    terms: Terms,
    asking: Asking,
    on_step: Callable[[StepDone], object] = lambda step: None,
) -> PlanningCoordinator:
    """Coordinate platforms until all have been told the last model.

    Writes ``ledger.jsonl``, ``privacy.json`` and ``federated.safetensors`` in the end.

    Args:
        home: Folder of the coordinator; it is locked meanwhile, and goes on from what is in it.
        terms: Terms of the federation.
        asking: Platforms to ask, and how.
        on_step: Called with every step.

    Returns:
        The coordinator in its final state.

    Raises:
        RunError: A platform is another than it should be, or something in the folder cannot be used.
        ConfigError: An address or a token cannot be used.
    """
    with home.lock(), contextlib.closing(home.open_store("coordinator", terms)) as store:
        stop = threading.Event()
        peers = [Peer(terms, index, link, stop=stop) for index, link in enumerate(asking.clients())]
        coordinator = PlanningCoordinator(terms, peers, store, patience=asking.patience, stop=stop)
        with coordinator:
            try:
                coordinator.run(on_step)
            finally:
                write_files(home, coordinator)
    return coordinator


def write_files(home: PlatformFolder, coordinator: PlanningCoordinator) -> None:
    """Write ``ledger.jsonl``, ``privacy.json`` and ``federated.safetensors``, which has the model of engagement."""
    from safetensors.numpy import save

    terms = coordinator.terms
    promise = terms.protocol.account(max(1, int(coordinator.done)), terms.config.delta)
    weights = {"model": np.asarray(coordinator.state.model)}
    write_atomically(home.path / "ledger.jsonl", coordinator.ledger().text().encode())
    write_atomically(home.path / "privacy.json", json.dumps(promise.as_json(), indent=2).encode())
    write_atomically(home.path / "federated.safetensors", save(weights))
