"""A real server on loopback, and clients that do what no client should: everything ends, nothing else is disturbed."""

import contextlib
import http.client
import math
import re
import time

import pytest
from hub_fakes import DEVICE, FakeHub, app_of

from fedrank.deploy.http.guard import Guard
from fedrank_zoo.threaded_server import ThreadedServer

BODY, IDLE = 0.4, 0.5


def guard(**options) -> Guard:
    return Guard(**{"device_per_minute": math.inf, "failures_per_minute": math.inf, "body_seconds": BODY, **options})


class World:
    """A hub, its application and a running server."""

    def __init__(self, hub, app, server):
        self.hub, self.app, self.server = hub, app, server

    @property
    def port(self) -> int:
        return self.server.port

    def ask(self, method: str, path: str, body: bytes | None = None, token: str = DEVICE, headers=()):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        with contextlib.closing(connection):
            connection.request(method, path, body, {"Authorization": f"Bearer {token}"} | dict(headers))
            response = connection.getresponse()
            return response.status, response.read()

    def refused(self, reason: str) -> int:
        return self.app.counters.refusals_by_reason().get(reason, 0)


@contextlib.contextmanager
def world(given=None, **options):
    hub = FakeHub((DEVICE,))
    app = app_of(hub, guard() if given is None else given)
    options = {"grace_seconds": 1, **options}
    with ThreadedServer(app, **options) as server:
        yield World(hub, app, server)


@pytest.fixture(scope="module", autouse=True)
def short_lingering():
    """What is still sent after an early answer is dropped, and an idle connection closed, sooner than outside tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedrank.deploy.http.guard._LINGER_SECONDS", 0.2)
        patch.setattr("fedrank.deploy.http.server.IDLE_SECONDS", IDLE)
        yield


@pytest.fixture(scope="module", params=[(), ("127.0.0.1",)], ids=["alone", "behind a proxy"])
def shared(request, short_lingering):
    with world(proxies=request.param) as here:
        yield here


@contextlib.contextmanager
def unharmed(shared, caplog):
    """A server that several tests use: after each it is as well as before, and has logged nothing."""
    shared.hub.calls.clear()
    shared.hub.counted.clear()
    shared.hub.delay = 0.0
    yield shared
    assert shared.ask("GET", "/healthz")[0] == 200
    assert caplog.records == []


@pytest.fixture
def here(shared, caplog):
    with unharmed(shared, caplog) as world_:
        yield world_


@pytest.fixture
def alone(short_lingering, caplog):
    with world() as made, unharmed(made, caplog) as world_:
        yield world_


@pytest.fixture(scope="module")
def shared_behind(short_lingering):
    with world(proxies=("127.0.0.1",)) as made:
        yield made


@pytest.fixture
def behind(shared_behind, caplog):
    with unharmed(shared_behind, caplog) as world_:
        yield world_


def post(
    body: bytes = b"", *headers: str, path: str = "/v1/report/0", token: str = DEVICE, length: bool = True
) -> bytes:
    """A request as bytes."""
    lines = [f"POST {path} HTTP/1.1", "Host: hub", f"Authorization: Bearer {token}", *headers]
    lines += [f"Content-Length: {len(body)}"] if length else []
    return "\r\n".join([*lines, "", ""]).encode() + body


def codes(out: bytes) -> list[int]:
    """Status codes of the answers in what a server sent."""
    return [int(code) for code in re.findall(rb"(?:^|\r\n\r\n|\})?HTTP/1\.1 (\d{3}) ", out)]


def eventually(true, seconds: float = 3.0) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
