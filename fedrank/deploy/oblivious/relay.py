"""An oblivious relay: it knows addresses and no content, and gives a hub content and no addresses (RFC 9458).

Requests are encrypted to the hub's gateway. The relay collects them, shuffles them, and passes them on. It tells apart
three kinds, by their path and by nothing else. Reports wait until as many are there as the terms promise, of different
networks; if they do not come in time, all that wait are sent back, and come again. Others wait for company too, and go
on without it; so do enrolments with a statement of the device's platform, which are longer than everything else.

No address is written or logged. In memory are those of requests that wait, and for some minutes how many came from each
network.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import secrets
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.http.app import HttpApp, RequestCounts, limit
from fedrank.deploy.http.client import ClientResponse, PersistentClient, is_loopback
from fedrank.deploy.http.guard import Guard, Rate, network_of
from fedrank.deploy.http.origins import Origins, check_origins
from fedrank.deploy.http.routes import NO_STORE, REFUSALS, HttpRequest, HttpResponse, Route, json_response
from fedrank.deploy.oblivious.encapsulation import (
    LONGEST_BATCH,
    OTHERS,
    REPORTS,
    REQUEST_LENGTH,
    REQUEST_OVERHEAD,
    REQUEST_TYPE,
    RESPONSE_TYPE,
    STATEMENT_LENGTH,
    STATEMENTS,
    public_key_in,
)
from fedrank.deploy.terms import LARGEST_MODEL

_log = logging.getLogger("fedrank.hub")

#: Most requests that wait in a batch.
_MOST = 20_000
#: Seconds between two questions to the gateway which key it has.
_ASK_AGAIN = 60.0
#: Connections to the gateway.
_CONNECTIONS = 16
#: Bytes of the longest answer of a gateway.
_LARGEST = 4 * LARGEST_MODEL + 65_536


class GatewayClient:
    """Passes encapsulated requests on to a gateway, several at a time, over connections that stay open.

    Args:
        url: Address of the hub.
        ca: File with the certificates to trust in place of the system's.
        allow_http: Let encapsulated requests cross a network without TLS.
    """

    def __init__(self, url: str, *, ca: str | None = None, allow_http: bool = False):
        self._new = lambda: PersistentClient(url, "", ca=ca, allow_http=allow_http, timeout=30.0)
        self._new()  # refuses an address that cannot work
        self._own, self._due = threading.local(), 0.0
        self._pool = concurrent.futures.ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="fedrank-relay")

    async def newest_configuration(self) -> bytes | None:
        """The gateway's key configuration as it is now; None if there is none, or it was asked for lately."""
        if time.monotonic() < self._due:
            return None
        self._due = time.monotonic() + _ASK_AGAIN
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self.configuration)
        except RunError:
            return None

    def configuration(self) -> bytes:
        """The gateway's key configuration.

        Raises:
            RunError: There is no gateway there.
        """
        try:
            answer = self._new().ask("GET", "/v1/oblivious/keys")
            if answer.status == 200 and public_key_in(answer.body):
                return answer.body
        except (OSError, ValueError) as error:
            raise RunError(f"there is no gateway to relay to ({error}). Start the hub, with batch set.") from error
        raise RunError("the hub there has no gateway to relay to. Make one with batch set.")

    async def pass_on(self, request: bytes) -> ClientResponse:
        """The gateway's answer; 503 if there is none."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._ask, request)

    def _ask(self, request: bytes) -> ClientResponse:
        client = getattr(self._own, "client", None)
        if client is None:
            client = self._own.client = self._new()
        try:
            return client.ask("POST", "/v1/oblivious", request, limit=_LARGEST, kind=REQUEST_TYPE)
        except OSError:
            return ClientResponse(503, b"")

    async def close(self) -> None:
        """End the threads; requests that are under way are finished."""
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)


@dataclass
class _Waiting:
    crowd: str
    request: bytes
    answer: asyncio.Future = field(repr=False)


class Batch:
    """Requests that wait for each other.

    Args:
        gateway: Where they go.
        settings: Settings of the relay. As soon as requests of ``batch`` networks wait, they all go.
        seconds: Longest wait of a request.
        strict: Whether fewer than ``batch`` are sent back after that time; else they go.
    """

    def __init__(self, gateway: GatewayClient, settings: RelaySettings, seconds: float, *, strict: bool):
        self._gateway, self._settings, self._seconds, self._strict = gateway, settings, seconds, strict
        self._waiting: list[_Waiting] = []
        self._end: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task] = set()

    async def join(self, address: str, request: bytes) -> HttpResponse:
        """Wait with others, and be passed on.

        Args:
            address: Of the sender. Its network counts once among the requests of a batch.
            request: Encapsulated request.
        """
        if len(self._waiting) >= _MOST:
            return REFUSALS["unavailable"]
        loop = asyncio.get_running_loop()
        crowd = secrets.token_hex(8) if self._settings.trial and is_loopback(address) else network_of(address)
        here = _Waiting(crowd, request, loop.create_future())
        self._waiting.append(here)
        if self._end is None:
            self._end = loop.call_later(self._seconds, self._over)
        if len({one.crowd for one in self._waiting}) >= self._settings.batch:
            self._go()
        return await here.answer

    def _over(self) -> None:
        if not self._strict:
            self._go()
            return
        for one in self._taken():
            if not one.answer.done():
                one.answer.set_result(REFUSALS["too-few"])

    def _taken(self) -> list[_Waiting]:
        """All that wait, who do not wait any more."""
        taken, self._waiting = self._waiting, []
        if self._end is not None:
            self._end.cancel()
            self._end = None
        return taken

    def _go(self) -> None:
        batch = self._taken()
        secrets.SystemRandom().shuffle(batch)
        for one in batch:
            task = asyncio.get_running_loop().create_task(self._pass_on(one))
            self._tasks.add(task)  # else nothing holds it
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, one: _Waiting) -> None:
        answer = await self._gateway.pass_on(one.request)
        if one.answer.done():  # its sender has gone
            return
        if answer.status == 200:
            one.answer.set_result(HttpResponse(200, answer.body, NO_STORE, content_type=RESPONSE_TYPE.encode()))
        else:
            one.answer.set_result(REFUSALS["malformed" if answer.status == 400 else "unavailable"])


@dataclass(frozen=True)
class RelaySettings:
    """Settings of a relay.

    Attributes:
        batch: Reports that are passed on together, at least.
        seconds: Longest wait of a report, before it is sent back.
        company: Longest wait of other requests, before they are passed on.
        per_minute: Requests of one network a minute.
        origins: Origins whose web pages may send through it.
        trial: Each request of this machine's own addresses counts as one of another network, and none of them waits for
            the rate: all devices of a trial are on one machine. A proxy on this machine looks the same; then one device
            fills a batch alone.

    Raises:
        ConfigError: A setting is out of range.
    """

    batch: int = 50
    seconds: float = LONGEST_BATCH
    company: float = 1.0
    per_minute: float = 120.0
    origins: tuple[str, ...] = ()
    trial: bool = False

    def __post_init__(self):
        check_origins(self.origins)
        if not 1 <= self.batch <= _MOST // 2:
            raise ConfigError(f"batch must be in 1..{_MOST // 2}, got {self.batch}.")
        for name, value in (("seconds", self.seconds), ("company", self.company)):
            if not 0 < value <= LONGEST_BATCH:
                raise ConfigError(f"{name} must be above 0 and at most {LONGEST_BATCH:g}, got {value}.")
        if not 1e-3 <= self.per_minute <= 1e9:
            raise ConfigError(f"per_minute must be in 0.001..1e9, got {self.per_minute}.")


class RelayApp(HttpApp):
    """The HTTP application of a relay.

    Args:
        gateway: Where requests go.
        configuration: The gateway's key configuration, which all clients are told alike.
        settings: Settings of the relay.
    """

    def __init__(self, gateway: GatewayClient, configuration: bytes, settings: RelaySettings):
        guard = Guard()
        super().__init__(guard, RequestCounts(), on_stop=gateway.close)
        self._rate = Rate(settings.per_minute, max(30, int(settings.per_minute / 4)), guard.clock)
        self._gateway, self._settings, self._configuration = gateway, settings, configuration
        self._about = self._about_with(configuration)
        reports = Batch(gateway, settings, settings.seconds, strict=True)
        others = Batch(gateway, settings, settings.company, strict=False)
        for path, batch, length in (
            (REPORTS, reports, REQUEST_LENGTH),
            (OTHERS, others, REQUEST_LENGTH),
            (STATEMENTS, others, STATEMENT_LENGTH),
        ):
            most = length + REQUEST_OVERHEAD
            joining = self._joining(batch, most)
            self.add_routes({path: Route(path[1:], ("POST",), self._welcome, joining, max_body=most)})
        if settings.origins:
            self.origins = Origins(settings.origins, ("/",))  # all that a relay has is for devices
        for path, name in (("/", "about"), ("/healthz", "healthz")):
            self.add_routes({path: Route(name, ("GET", "HEAD"), None, self._tell)})

    def _welcome(self, request: HttpRequest) -> HttpResponse | None:
        """Limits floods: who sends more than a device does waits."""
        if self._settings.trial and is_loopback(request.address):
            return None
        return limit(self._rate, network_of(request.address))

    async def _tell(self, request: HttpRequest) -> HttpResponse:
        return self._about

    def _about_with(self, configuration: bytes) -> HttpResponse:
        batch, seconds = self._settings.batch, self._settings.seconds
        return json_response(200, {"batch": batch, "seconds": seconds, "keys": configuration.hex()})

    def _joining(self, batch: Batch, length: int) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
        async def join(request: HttpRequest) -> HttpResponse:
            if len(request.body) != length:
                return REFUSALS["malformed"]
            answer = await batch.join(request.address, request.body)
            if answer.reason == "malformed":  # the gateway cannot open it: it may have another key by now
                await self._ask_again()
            return answer

        return join

    async def _ask_again(self) -> None:
        """Ask the gateway for its key, and answer all clients with the new one."""
        found = await self._gateway.newest_configuration()
        if found is not None and found != self._configuration:
            _log.warning("the gateway has another key than before; devices are told the new one from now on")
            self._configuration, self._about = found, self._about_with(found)
