"""The processes of a platform and of the coordinator, each with a folder, and a platform's two HTTP applications.

For the coordinator:

==========================================  ======================================================================
``GET /v1/platform``                        which platform this is, and the state of its rounds
``GET /v1/missing/<round>``                 rounds up to this one of which it has no transition
``POST /v1/exchange/<round>/<place>``       request of an exchange, in the bytes of its layout; the reply likewise
``POST /v1/sum/<round>/<place>/<step>``     request of a step of a secure sum of the replies, likewise
==========================================  ======================================================================

For the application, on a port of this machine only, in JSON:

==========================================  ======================================================================
``GET /v1/state``                           state of the platform's rounds, N and n
``PUT /v1/visit/<round>``                   ``{"candidates": […], "observed": 0.5, "newcomer": false}``
``GET /v1/slate/<round>``                   ``{"slate": [2, 0, 7]}``, once there is one
``PUT /v1/outcome/<round>``                 ``{"slot": 1, "engagement": 23.4}``, or ``{}`` without feedback
==========================================  ======================================================================

Each needs another token. What depends on another party, such as a slate on the coordinator, is waited for up to
:data:`PATIENCE` seconds; then the response is 409 ``early-round`` and the client asks again. Every request may be
repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedrank.core.errors import ConfigError, RunError
from fedrank.core.ledger import Ledger
from fedrank.core.trees import Json
from fedrank.deploy.folder import read_token
from fedrank.deploy.http.app import HttpApp, RequestCounts
from fedrank.deploy.http.client import PersistentClient
from fedrank.deploy.http.guard import Guard, Secret, bearer, number_of
from fedrank.deploy.http.routes import NO_STORE, REFUSALS, HttpRequest, HttpResponse, Route, json_response, refusal
from fedrank.deploy.http.server import Servers
from fedrank.deploy.platforms.folder import CLIENTS, PlatformFolder
from fedrank.deploy.platforms.planning_coordinator import PlanningCoordinator, StepDone
from fedrank.deploy.platforms.planning_platform import PlanningPlatform
from fedrank.deploy.platforms.platform import Platform
from fedrank.deploy.platforms.rounds import PLATFORM_PATIENCE, AnyCoordinator, Coordinator, Peer, RoundSeen
from fedrank.deploy.platforms.terms import EXCHANGE_PATH, SUM_PATH, NotYetError, RefusedError, Terms
from fedrank.engine.checkpoint import write_atomically

T = TypeVar("T")

#: Seconds that a response waits for what has still to happen.
PATIENCE = 2.0
#: Seconds that a user waits for the coordinator by default.
USER_PATIENCE = 1.0
#: Most bytes of JSON of a candidate's feature, and of everything else in a visit.
_NUMBER, _REST = 32, 1024
#: Reasons of refusals that only platforms have: status code and sentence.
_REASONS = {
    "conflict": (409, "Another request for the same was accepted before."),
    "out-of-order": (409, "It is not this exchange's turn."),
    "not-due": (409, "This exchange does not take place in this round."),
    "missing-transitions": (409, "Transitions of rounds that did not take place here."),
    "sum-stopped": (409, "This secure sum does not go on; begin another."),
    "not-finite": (500, "The platform's network has numbers that are not finite."),
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
        self._token = Secret(token, name)

    def _authorise(self, request: HttpRequest) -> HttpResponse | None:
        matches = self._token.matches(bearer(request.authorization))
        return None if matches else self._deny(self._guard.failure, request)


def refusal_response(error: RefusedError) -> HttpResponse:
    """The response to a request that the platform refuses."""
    if error.reason in _REASONS:
        code, detail = _REASONS[error.reason]
        return json_response(code, {"error": error.reason, "detail": detail, **error.more}, reason=error.reason)
    return refusal(error.reason, **error.more)


class CoordinatorApp(PlatformApp):
    """The HTTP application for the coordinator.

    Args:
        platform: The platform.
        changes: Signals changes of the platform.
        token: Token of the coordinator.
    """

    def __init__(self, platform: Platform | PlanningPlatform, changes: Changes, token: str):
        super().__init__(token, "coordinator token")
        self._platform, self._changes = platform, changes
        most = max(exchange.request.nbytes for exchange in platform.terms.exchanges)
        if isinstance(platform, PlanningPlatform):
            largest = platform.largest_of_sums
            self.add_routes({SUM_PATH: Route("sum", ("POST",), self._authorise, self._sum, max_body=largest)})
        self.add_routes(
            {
                "/v1/platform": Route("platform", ("GET",), self._authorise, self._about),
                "/v1/missing/": Route("missing", ("GET",), self._authorise, self._missing),
                EXCHANGE_PATH: Route("exchange", ("POST",), self._authorise, self._exchange, max_body=most),
            }
        )

    async def _about(self, request: HttpRequest) -> HttpResponse:
        return json_response(200, self._platform.about())

    async def _missing(self, request: HttpRequest) -> HttpResponse:
        number = number_of(request.tail)
        if number is None:
            return REFUSALS["malformed"]
        return json_response(200, {"missing": self._platform.missing(number)})

    async def _exchange(self, request: HttpRequest) -> HttpResponse:
        round_, _, exchange = request.tail.partition("/")
        number, place = number_of(round_), number_of(exchange)
        if number is None or place is None:
            return REFUSALS["malformed"]
        return await self._answer(lambda: self._platform.answer(number, place, request.body))

    async def _sum(self, request: HttpRequest) -> HttpResponse:
        round_, _, rest = request.tail.partition("/")
        exchange, _, last = rest.partition("/")
        number, place, step, platform = number_of(round_), number_of(exchange), number_of(last), self._platform
        if number is None or place is None or step is None or not isinstance(platform, PlanningPlatform):
            return REFUSALS["malformed"]
        return await self._answer(lambda: platform.sum_step(number, place, step, request.body))

    async def _answer(self, attempt: Callable[[], bytes]) -> HttpResponse:
        try:
            data = await self._changes.until(attempt, PATIENCE)
        except RefusedError as error:
            return refusal_response(error)
        self._changes.notify()
        return HttpResponse(200, data, NO_STORE, content_type=b"application/octet-stream")


class OwnApp(PlatformApp):
    """The HTTP application for the platform's own application.

    Args:
        platform: The platform.
        changes: Signals changes of the platform.
        token: Token of the application.
        patience: Seconds that a user waits for the coordinator before the slate is made without it; may be infinite.
    """

    def __init__(
        self, platform: Platform | PlanningPlatform, changes: Changes, token: str, patience: float = USER_PATIENCE
    ):
        super().__init__(token, "application token")
        self._platform, self._changes, self._patience = platform, changes, patience
        world = platform.terms.protocol.world
        self._sizes = {"candidates": world.candidates, "slate": world.slate}
        most = _NUMBER * world.candidates + _REST
        self._since: tuple[int, float] = (-1, 0.0)  # a round, and when its user came
        self.add_routes(
            {
                "/v1/state": Route("state", ("GET",), self._authorise, self._state),
                "/v1/visit/": Route("visit", ("PUT",), self._authorise, self._visit, max_body=most),
                "/v1/slate/": Route("slate", ("GET",), self._authorise, self._slate),
                "/v1/outcome/": Route("outcome", ("PUT",), self._authorise, self._outcome),
            }
        )

    async def _state(self, request: HttpRequest) -> HttpResponse:
        p = self._platform
        feedback = p.terms.protocol.feedback[p.index]
        # What the noise on sums does not cover is for the platform's own application, and not in what others are told.
        stays = {"stays": p.stays, "cut_short": p.cut_short} if isinstance(p, PlanningPlatform) else {}
        return json_response(200, {**p.about(), **self._sizes, **stays, "feedback": feedback})

    async def _visit(self, request: HttpRequest) -> HttpResponse:
        number, said = number_of(request.tail), _json(request.body)
        if number is None or said is None or set(said) != {"candidates", "observed", "newcomer"}:
            return REFUSALS["malformed"]
        candidates, observed, newcomer = said["candidates"], said["observed"], said["newcomer"]
        if not isinstance(candidates, list) or len(candidates) != self._sizes["candidates"]:
            return REFUSALS["malformed"]
        if not all(map(_is_number, (*candidates, observed))) or not isinstance(newcomer, bool):
            return REFUSALS["out-of-range"]
        return self._done(lambda: self._platform.visit(number, candidates, float(observed), newcomer))

    async def _slate(self, request: HttpRequest) -> HttpResponse:
        number = number_of(request.tail)
        if number is None:
            return REFUSALS["malformed"]
        if self._since[0] != number:
            self._since = number, time.monotonic()
        left = self._since[1] + self._patience - time.monotonic()
        try:
            slate = await self._changes.until(lambda: self._platform.slate(number), max(0.0, min(left, PATIENCE)))
        except NotYetError as error:
            if left > PATIENCE or number != self._platform.round:
                return refusal_response(error)
            slate = self._platform.recommend_alone(number)
            self._changes.notify()
        except RefusedError as error:
            return refusal_response(error)
        return json_response(200, {"slate": slate})

    async def _outcome(self, request: HttpRequest) -> HttpResponse:
        number, said = number_of(request.tail), _json(request.body)
        if number is None or said is None or not set(said) <= {"slot", "engagement"}:
            return REFUSALS["malformed"]
        slot, engagement = said.get("slot"), said.get("engagement", 0.0)
        if not (slot is None or type(slot) is int) or not _is_number(engagement) or engagement < 0:
            return REFUSALS["out-of-range"]
        return self._done(lambda: self._platform.outcome(number, slot, float(engagement)))

    def _done(self, act: Callable[[], None]) -> HttpResponse:
        try:
            act()
        except RefusedError as error:
            return refusal_response(error)
        self._changes.notify()
        return HttpResponse(204, b"", NO_STORE, content_type=None)


def _json(body: bytes) -> dict[str, Json] | None:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _is_number(value: Any) -> bool:
    """True if a value is a number that single precision can hold."""
    return type(value) in (int, float) and abs(value) < 3e38 and math.isfinite(value)


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
        patience: Seconds that a user waits for the coordinator; may be infinite.
    """

    host: str = "127.0.0.1"
    port: int = 0
    application_port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    token_file: Path | None = None
    patience: float = USER_PATIENCE


@contextlib.contextmanager
def platform_servers(
    home: PlatformFolder, terms: Terms, index: int, at: ListenAt, *, seeded: bool = False
) -> Iterator[Servers]:
    """A platform's servers, ready to run; its folder is locked meanwhile.

    Args:
        home: Folder of the platform.
        terms: Terms of the federation.
        index: Number of the platform, from 0.
        at: Where it listens.
        seeded: Draw from the run's seed, as a simulator does; nothing is protected then.

    Raises:
        RunError: Something in the folder cannot be used.
        ConfigError: A port is taken, a token is too short, or a certificate cannot be used.
    """
    with home.lock():
        coordinator = home.token_or_new("coordinator", at.token_file)
        application = home.token_or_new("application")
        if coordinator == application:
            raise ConfigError(f"{home.path}: coordinator and application must not have the same token.")
        store = home.open_store(f"platform {index}", terms, seeded)
        try:
            made = PlanningPlatform if terms.plans else Platform
            platform = made(terms, index, store, seeded=seeded)
            platform.warm()
            changes = Changes()
            outside = {"host": at.host, "port": at.port, "certfile": at.certificate, "keyfile": at.key}
            apps = (
                (CoordinatorApp(platform, changes, coordinator), outside),
                (OwnApp(platform, changes, application, at.patience), {"port": at.application_port}),
            )
            yield Servers(apps, connections=64)
        finally:
            store.close()


def run_platform(
    home: PlatformFolder,
    terms: Terms,
    index: int,
    at: ListenAt,
    on_ready: Callable[[str, str], object],
    *,
    seeded: bool = False,
) -> None:
    """Serve a platform until SIGTERM or Ctrl-C; arguments and errors as :func:`platform_servers`.

    ``on_ready`` is called with the URLs for the coordinator and for the application once both accept connections.
    """
    with platform_servers(home, terms, index, at, seeded=seeded) as servers:

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


@contextlib.contextmanager
def _coordinating(
    kind: type[AnyCoordinator], home: PlatformFolder, terms: Terms, asking: Asking, seeded: bool
) -> Iterator[Any]:
    """A coordinator in its locked folder, whose threads run; its results are written in the end."""
    with home.lock():
        store, stop = home.open_store("coordinator", terms, seeded), threading.Event()
        try:
            peers = [Peer(terms, index, link, seeded=seeded, stop=stop) for index, link in enumerate(asking.clients())]
            coordinator: Any = kind(terms, peers, store, patience=asking.patience, seeded=seeded, stop=stop)
            with coordinator:
                try:
                    yield coordinator
                finally:
                    write_files(home, coordinator)
        finally:
            store.close()


def coordinate(
    home: PlatformFolder,
    terms: Terms,
    asking: Asking,
    rounds: int,
    on_round: Callable[[RoundSeen], object],
    *,
    seeded: bool = False,
) -> Coordinator:
    """Coordinate platforms until the given number of rounds is done, and write the results into the folder.

    Args:
        home: Folder of the coordinator; an existing run is continued.
        terms: Terms of the federation.
        asking: The platforms to ask, and how.
        rounds: Total number of rounds.
        on_round: Called with the result of every round.
        seeded: Draw from the run's seed, as a simulator does.

    Returns:
        The coordinator in its final state.

    Raises:
        RunError: A platform is another than it should be, or something in the folder cannot be used.
        ConfigError: An address or a token cannot be used.
    """
    with _coordinating(Coordinator, home, terms, asking, seeded) as coordinator:
        _rounds(home, coordinator, rounds, on_round)
    return coordinator


def coordinate_plans(
    home: PlatformFolder,
    terms: Terms,
    asking: Asking,
    on_step: Callable[[StepDone], object] = lambda step: None,
    *,
    seeded: bool = False,
) -> PlanningCoordinator:
    """Coordinate platforms that plan until all have been told the model; arguments and errors as :func:`coordinate`.

    ``on_step`` is called with every step. Writes ``ledger.jsonl``, ``privacy.json`` and ``federated.safetensors``.
    """
    with _coordinating(PlanningCoordinator, home, terms, asking, seeded) as coordinator:
        coordinator.run(on_step)
    return coordinator


def _rounds(
    home: PlatformFolder, coordinator: Coordinator, rounds: int, on_round: Callable[[RoundSeen], object]
) -> None:
    every, begun = coordinator.terms.config.evaluation.every, time.monotonic()
    seen: list[RoundSeen] = []
    try:
        for one in coordinator.run(rounds):
            seen.append(one)
            on_round(one)
            if (one.number + 1) % every == 0:
                _note(home, coordinator, seen, begun)
                seen, begun = [], time.monotonic()
    finally:
        if seen:
            _note(home, coordinator, seen, begun)


def _note(home: PlatformFolder, coordinator: Coordinator, seen: list[RoundSeen], begun: float) -> None:
    """Add a line about some rounds to ``rounds.jsonl``."""
    state = coordinator.terms.protocol.watch(coordinator.state)
    row = {
        "round": seen[-1].number,
        "rounds": len(seen),
        "heard": np.sum([one.heard for one in seen], axis=0).tolist(),
        "learnt": sum(bool(one.learnt) for one in seen),
        "seconds": round(time.monotonic() - begun, 3),
        "watched": {name: float(value) for name, value in state.items()},
    }
    try:
        with (home.path / "rounds.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    except OSError as error:
        raise RunError(f"{home.path / 'rounds.jsonl'}: cannot be written ({error.strerror}). Make room.") from error


def ledger_of(coordinator: Coordinator | PlanningCoordinator) -> Ledger:
    """The ledger of a run: one line an exchange for every ``evaluation.every`` rounds, as a simulator writes it."""
    ledger = Ledger()
    for first, counts in coordinator.message_counts:
        for exchange, (requests, replies) in zip(coordinator.terms.exchanges, counts.tolist(), strict=True):
            if requests:
                ledger.record(first, exchange.name, exchange.request, sender="server", messages=requests)
            if replies:
                ledger.record(first, exchange.name, exchange.reply, sender="parties", messages=replies)
    if isinstance(coordinator, PlanningCoordinator):
        for first, step, layout, sender, messages in coordinator.crossed_in_secret:
            ledger.record(first, step, layout, sender=sender, messages=messages)
    return ledger


def write_files(home: PlatformFolder, coordinator: Coordinator | PlanningCoordinator) -> None:
    """Write ``ledger.jsonl``, ``privacy.json`` and ``federated.safetensors``.

    The last has Ω and its target network, or the model of engagement.
    """
    from safetensors.numpy import save

    terms = coordinator.terms
    promise = terms.protocol.account(max(1, int(coordinator.done)), terms.config.delta)
    names = ("model",) if terms.plans else ("weights", "target")
    weights = {name: np.asarray(getattr(coordinator.state, name)) for name in names}
    write_atomically(home.path / "ledger.jsonl", ledger_of(coordinator).text().encode())
    write_atomically(home.path / "privacy.json", json.dumps(promise.as_json(), indent=2).encode())
    write_atomically(home.path / "federated.safetensors", save(weights))
