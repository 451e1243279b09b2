"""A hub, a relay and many devices in one process, on loopback; everything that reaches the hub is recorded.

Devices are those of :mod:`fedrank.deploy.device`, hub and relay those of ``fedrank serve``. Each device has a loopback
address of its own. Only time is shorter: what a device does once a minute, it does once in ``minute`` seconds.
"""

from __future__ import annotations

import contextlib
import http.client
import math
import tempfile
import threading
import time
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.errors import RunError
from fedrank.deploy.device import Device, conversation
from fedrank.deploy.http.guard import Guard
from fedrank.deploy.hub.app import HubApp
from fedrank.deploy.hub.counters import Counters
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.gateway import TokenApp
from fedrank.deploy.hub.hub import Hub
from fedrank.deploy.hub.settings import HubSettings
from fedrank.deploy.linking.settings import LinkAttack
from fedrank.deploy.oblivious.relay import GatewayClient, RelayApp, RelaySettings

_FEATURES = 5
#: Longest time of one mode, in seconds a round.
_PATIENCE = 60.0


@dataclass(frozen=True)
class Seen:
    """One request as the hub sees it.

    Attributes:
        at: When it came, in seconds.
        address: Where it came from; empty inside an encapsulated one.
        method: HTTP method.
        path: Path.
        headers: All header fields.
        body: Body.
    """

    at: float
    address: str
    method: str
    path: str
    headers: dict[bytes, bytes]
    body: bytes


@dataclass
class Record:
    """What a hub saw, and what only a simulation knows.

    Attributes:
        requests: All requests, in order; those inside encapsulated ones too.
        truth: (round, body of the report) → device.
        stored: (round, body of the report) → number under which the hub keeps it.
    """

    requests: list[Seen] = field(default_factory=list)
    truth: dict[tuple[int, bytes], int] = field(default_factory=dict)
    stored: dict[tuple[int, bytes], int] = field(default_factory=dict)


class _Watching:
    """Makes an application record its requests."""

    record: Record

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)  # type: ignore[misc] - of the application
            return
        at, body = time.monotonic(), bytearray()

        async def hear() -> MutableMapping[str, Any]:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        await super().__call__(scope, hear, send)  # type: ignore[misc] - of the application
        client = scope.get("client") or ("", 0)
        seen = Seen(at, client[0], scope["method"], scope["path"], dict(scope["headers"]), bytes(body))
        self.record.requests.append(seen)


class _WatchedHub(_Watching, HubApp):
    pass


class _WatchedTokens(_Watching, TokenApp):
    pass


def observe(settings: LinkAttack, mode: str) -> Record:
    """Let devices report, and return what the hub saw.

    Args:
        settings: Of the attack.
        mode: One of :data:`~fedrank.deploy.linking.settings.MODES`.

    Raises:
        RunError: The rounds did not end in time.
    """
    record = Record()
    minute, conversation.POLL = conversation.POLL, settings.minute
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            hub, url, relay = stack.enter_context(_served(Path(folder), settings, mode, record))
            lives = [_Life(Path(folder), settings, n, url, relay, record) for n in range(settings.devices)]
            for life in lives:
                life.start()
            end = time.monotonic() + _PATIENCE * settings.rounds
            while hub.view.state != "done" and time.monotonic() < end:
                time.sleep(0.05)
            for life in lives:
                life.ended.set()
            for life in lives:
                life.join()
            for round_ in range(settings.rounds):
                record.stored.update({(round_, body): number for number, body in hub.store.reports(round_)})
            if hub.view.state != "done":
                raise RunError(f"after {_PATIENCE * settings.rounds:.0f} s the hub is in round {hub.view.round} only.")
    finally:
        conversation.POLL = minute
    record.requests.sort(key=lambda one: one.at)
    return record


@contextlib.contextmanager
def _served(folder: Path, settings: LinkAttack, mode: str, record: Record) -> Iterator[tuple[Hub, str, str | None]]:
    from fedrank.deploy.http.server import ThreadedServer

    home = HubFolder(folder / "hub")
    piecewise = settings.mechanism == "piecewise"
    home.prepare(
        HubSettings(
            n_features=_FEATURES,
            mechanism=settings.mechanism,  # type: ignore[arg-type] - checked there
            p=None if piecewise else settings.p,
            epsilon=settings.epsilon if piecewise else None,
            cohort=settings.devices,
            deadline=0.0,
            rounds=settings.rounds,
            tokens=0 if mode == "simple" else settings.tokens,
            batch=settings.batch if mode == "relay" else 0,
        )
    )
    told, store = home.open()
    hub = Hub(home.path, store, told)
    guard = Guard(device_per_minute=math.inf, failures_per_minute=math.inf, enrolments_per_minute=math.inf)
    options: dict[str, Any] = {"enrolment": home.token("enrolment"), "admin": None}
    options |= {"on_start": hub.start, "on_stop": hub.stop}
    if hub.row.issuer is None:
        app: Any = _WatchedHub(hub, guard, Counters(hub.status), **options)
    else:
        extra = {"issuer": hub.row.issuer, "gateway": home.gateway()}
        app = _WatchedTokens(hub, guard, Counters(hub.status), **extra, **options)
    app.record = record
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(ThreadedServer(app)).url
        relay = None
        if mode == "relay":
            gateway = GatewayClient(url)
            company = max(0.02, settings.minute / 60)
            asked = RelaySettings(settings.batch, company=company, per_minute=1e9, trial=True)
            relay = stack.enter_context(ThreadedServer(RelayApp(gateway, gateway.configuration(), asked))).url
        yield hub, url, relay


class _Life(threading.Thread):
    """One device and the person in front of it."""

    def __init__(self, folder: Path, settings: LinkAttack, number: int, url: str, relay: str | None, record: Record):
        super().__init__(daemon=True)
        self.ended, self._number, self._record = threading.Event(), number, record
        self._random = np.random.default_rng([settings.seed, number])
        middle = 0.5
        self._clicks = middle + settings.spread * (number / (settings.devices - 1) - middle)
        token = (folder / "hub" / "enrolment.token").read_text().strip()
        limits = dict.fromkeys(("most_epsilon", "most_search_epsilon", "lifetime_epsilon"), math.inf)
        options: dict[str, Any] = {**limits, "relay": relay, "timeout": 30.0}
        self._device = Device(url, token, folder / f"device-{number}", **options)
        # Every address of 127.0.0.0/8 is this machine's: the device has one of its own.
        connection: Any = self._device._connection
        client = connection if relay is None else connection._relay
        address = f"127.0.{1 + number // 250}.{1 + number % 250}"
        client._connection = lambda: _connection(client, address)
        self._report, connection.report = connection.report, self._noted

    def _noted(self, token: str, round_: int, body: bytes) -> Any:
        self._record.truth[round_, body] = self._number
        return self._report(token, round_, body)

    def run(self) -> None:
        with self._device as device:
            while not self.ended.is_set():
                told = device.sync()
                if told.state == "DONE":
                    return
                while device.wants_clicks and not self.ended.is_set():
                    ranking = device.rank(self._random.random((10, _FEATURES)))
                    for position in range(10):
                        if self._random.random() < self._clicks:
                            device.log_click(ranking, position)
                            break
                    device.finish(ranking)
                self.ended.wait(told.next_in)


def _connection(client: Any, address: str) -> http.client.HTTPConnection:
    made = http.client.HTTPConnection(client._host, client._port, timeout=client._timeout, source_address=(address, 0))
    made.response_class = client._response_within_deadline  # type: ignore[assignment] - called like the class
    return made
