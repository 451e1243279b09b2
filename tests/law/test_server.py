"""A real server on loopback, and clients that do what no client should: everything ends, nothing else is disturbed."""

import contextlib
import datetime
import http.client
import importlib.util
import ipaddress
import logging
import math
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest
from hub_fakes import DEVICE, FakeHub, a_reply, app_of, on_socket

from fedrank.core.errors import ConfigError, MissingExtraError, RunError
from fedrank.deploy.guard import Guard
from fedrank.deploy.server import LARGEST_HEAD, GuardedProtocol, ThreadedServer, serve

ROOT = Path(__file__).resolve().parents[2]
HEADER, BODY, IDLE = 0.4, 0.4, 0.5


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
        return self.app.counters.refused().get(reason, 0)


@contextlib.contextmanager
def world(given=None, **options):
    hub = FakeHub((DEVICE,))
    app = app_of(hub, guard() if given is None else given)
    options = {"header_seconds": HEADER, "idle_seconds": IDLE, "grace_seconds": 1, **options}
    with ThreadedServer(app, **options) as server:
        yield World(hub, app, server)


@pytest.fixture(scope="module", autouse=True)
def short_lingering():
    """What is still being sent after an early answer is dropped for a shorter time than outside of tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedrank.deploy.guard._LINGER_SECONDS", 0.2)
        patch.setattr("fedrank.deploy.server._LINGER_SECONDS", 0.2)
        yield


@pytest.fixture(scope="module")
def shared(short_lingering):
    with world() as here:
        yield here


@pytest.fixture
def here(shared, caplog):
    """A server that all tests use: after each it is as well as before, and has logged nothing."""
    shared.hub.calls.clear()
    shared.hub.counted.clear()
    shared.hub.delay = 0.0
    yield shared
    assert shared.ask("GET", "/healthz")[0] == 200
    assert caplog.records == []


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


# ------------------------------------------------------------------------------------------------- what must work


def test_requests_share_a_connection(here):
    connection = http.client.HTTPConnection("127.0.0.1", here.port, timeout=5)
    with contextlib.closing(connection):
        locals_ = set()
        for expected in (201, 200, 200):
            connection.request("POST", "/v1/report/0", a_reply(), {"Authorization": f"Bearer {DEVICE}"})
            response = connection.getresponse()
            assert (response.status, response.read()) == (expected, b"")
            locals_.add((connection.sock or socket.socket()).getsockname())
        connection.request("GET", "/v1/model", headers={"Authorization": "Bearer wrong"})
        refused = connection.getresponse()
        assert refused.status == 401 and refused.read()
        connection.request("GET", "/v1/model", headers={"Authorization": f"Bearer {DEVICE}"})
        response = connection.getresponse()
        assert response.read() == here.hub.view.model
        assert {*map(str.lower, response.headers)} == {
            "content-length", "content-type", "etag", "fedrank-state", "cache-control",
        }, "neither Server nor Date"  # fmt: skip
        locals_.add((connection.sock or socket.socket()).getsockname())
        assert len(locals_) == 1
    assert here.server.url == f"http://127.0.0.1:{here.port}"


def test_a_connection_may_be_used_for_long(here):
    """The limit of a request's size is not one of a connection's."""
    connection = http.client.HTTPConnection("127.0.0.1", here.port, timeout=5)
    with contextlib.closing(connection):
        for _ in range(LARGEST_HEAD // 100):
            connection.request("GET", "/healthz", headers={"A": "x" * 100})
            assert connection.getresponse().read() == b'{"status": "ok"}'


def test_requests_may_be_sent_ahead(here):
    paths = ["/healthz", "/nowhere"] * 5
    requests = [f"GET {path} HTTP/1.1\r\nHost: hub\r\n\r\n".encode() for path in paths]
    last = b"GET /healthz HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n"
    assert codes(on_socket(here.port, b"".join(requests) + post(a_reply()) + last)) == [200, 404] * 5 + [201, 200]


def test_a_head_request_has_no_body(here):
    out = on_socket(here.port, b"HEAD /status.json HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
    head, _, body = out.partition(b"\r\n\r\n")
    assert codes(out) == [200] and body == b"" and re.search(rb"content-length: \d{3,}\r\n", head)


def test_a_body_may_come_in_chunks_and_after_the_headers(here):
    chunked = post(b"", "Transfer-Encoding: chunked", "Connection: close", length=False)
    parts = [b"4\r\n" + a_reply()[:4] + b"\r\n", b"5;x=y\r\n" + a_reply()[4:] + b"\r\n", b"0\r\n\r\n"]
    assert codes(on_socket(here.port, chunked, *parts, pause=0.02)) == [201]
    whole = post(a_reply(), "Connection: close")
    assert codes(on_socket(here.port, whole[:-9], whole[-9:], pause=0.02)) == [200]
    single = [whole[n : n + 1] for n in range(len(whole))]
    assert codes(on_socket(here.port, *single)) == [200]


def test_a_client_may_ask_before_it_sends(here):
    with socket.create_connection(("127.0.0.1", here.port), timeout=5) as connection:
        whole = post(a_reply(), "Expect: 100-continue", "Connection: close")
        connection.sendall(whole[:-9])
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(whole[-9:])
        assert codes(connection.recv(1000)) == [201]
    large = post(b"", "Expect: 100-continue", "Content-Length: 9999", length=False)
    assert codes(on_socket(here.port, large)) == [413], "and is not told to go on with what would be refused"


# ------------------------------------------------------------------------------------------------- what never ends


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET /healthz HT"],
        [b"GET /healthz HTTP/1.1\r\nHost: hub\r\n"],
        [b"G", b"E", b"T", b" ", *[b"/"] * 100],
        [b"GET /healthz HTTP/1.1\r\n", *[b"A: b\r\n"] * 100],
        [b"\r\n"] * 100,
    ],
    ids=["line", "headers", "drops", "more headers", "nothing"],
)
def test_headers_that_do_not_end_are_not_waited_for(here, pieces):
    before, began = here.refused("slow-headers"), time.monotonic()
    out = on_socket(here.port, *pieces, pause=0.05)
    assert codes(out) == [408] and time.monotonic() - began < 3 * HEADER + 1
    assert here.refused("slow-headers") == before + 1


def test_a_connection_that_says_nothing_is_closed(here):
    before, began = here.refused("slow-headers"), time.monotonic()
    assert on_socket(here.port) == b""
    assert HEADER / 2 < time.monotonic() - began < HEADER + 1 and here.refused("slow-headers") == before + 1


def test_a_connection_that_has_said_something_is_closed_when_idle(here):
    before, began = here.refused("slow-headers"), time.monotonic()
    assert codes(on_socket(here.port, post(a_reply()))) == [201]
    assert IDLE / 2 < time.monotonic() - began < IDLE + 1
    assert codes(on_socket(here.port, post(a_reply()), *[b"\r\n"] * 100, pause=0.05)) == [200, 408]
    assert here.refused("slow-headers") == before + 1, "the empty lines, not the silence"


def test_a_body_that_does_not_come_is_not_waited_for(here):
    for missing in (post(a_reply())[:-1], post(b"", "Transfer-Encoding: chunked", length=False) + b"9\r\nabc"):
        assert codes(on_socket(here.port, missing)) == [408]
    assert here.hub.calls == []


def test_chunks_that_hold_nothing_come_to_an_end(here):
    head = post(b"", "Transfer-Encoding: chunked", length=False)
    for endless in (b"1;" + b"x" * 50_000, b"0\r\n" + b"Trailer: x\r\n" * 5_000, b"0\r\nTrailer: " + b"x" * 50_000):
        assert codes(on_socket(here.port, head, endless, b"x" * 50_000, b"x" * 50_000)) == [408]
    assert here.hub.calls == []


def test_what_is_dropped_is_not_parsed(here):
    """A parser keeps a header until it has ended."""
    connections = here.server._server.server_state.connections
    with socket.create_connection(("127.0.0.1", here.port), timeout=5) as connection:
        connection.sendall(post(b"", "Transfer-Encoding: chunked", length=False) + b"0\r\nTrailer: ")
        for _ in range(40):
            connection.sendall(b"x" * 100_000)
        assert 0 < max(one._unread for one in list(connections)) < 1_000_000


def test_what_follows_a_body_is_no_header(here):
    """Otherwise a proxy that checks headers could be talked past."""
    head = b"POST /v1/report/0 HTTP/1.1\r\nHost: hub\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"9\r\n" + a_reply() + b"\r\n0\r\nAuthorization: Bearer " + DEVICE.encode() + b"\r\n\r\n"
    assert codes(on_socket(here.port, head + body)) == [401]
    assert here.hub.calls == []


def test_a_client_that_does_not_read_is_left(caplog):
    with world(guard(), idle_seconds=0.2) as here:
        here.hub.grow(bytes(32_000_000))
        request = f"GET /v1/model HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {DEVICE}\r\n\r\n".encode()
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", here.port))
            connection.sendall(request * 3)
            assert eventually(lambda: here.refused("slow-reader") == 1)
        assert codes(on_socket(here.port, request)[:100]) == [200], "who reads gets it all"
        assert len(on_socket(here.port, request)) > 32_000_000
        assert here.refused("slow-reader") == 1
    assert caplog.records == [], "its other requests are not answered into the void"


@pytest.mark.parametrize("left", [0, 10])
def test_a_connection_with_an_answer_that_nobody_reads_is_cut_off_when_idle(left):
    """To close it would be to wait for the client: sockets do that, however little is left."""
    done = []
    protocol = GuardedProtocol.__new__(GuardedProtocol)
    protocol._stall = None
    protocol.transport = types.SimpleNamespace(  # type: ignore
        get_write_buffer_size=lambda: left,
        is_closing=lambda: False,
        abort=lambda: done.append("abort"),
        close=lambda: done.append("close"),
    )
    protocol.timeout_keep_alive_handler()
    assert done == (["abort"] if left else ["close"])


# ------------------------------------------------------------------------------------------------- what is too much


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /healthz HTTP/1.1\r\nA: " + b"x" * 1_000_000,
        b"GET /" + b"x" * 1_000_000,
        b"GET /healthz HTTP/1.1\r\n" + b"A: b\r\n" * 200_000,
        b"GET /healthz HTTP/1.1\r\n" + b"x" * 1_000_000,
    ],
    ids=["value", "path", "many", "name"],
)
def test_headers_that_are_too_large_are_refused_and_the_client_hears_it(here, request_):
    before = here.refused("large-headers")
    assert codes(on_socket(here.port, request_)) == [431]
    assert here.refused("large-headers") == before + 1


def test_a_body_that_is_too_large_is_refused_and_the_client_hears_it(here):
    assert codes(on_socket(here.port, post(b"", "Content-Length: 1000000000", length=False))) == [413]
    assert codes(on_socket(here.port, post(b"x" * 1_000_000))) == [413]
    chunks = b"400\r\n" + b"x" * 1024 + b"\r\n"
    assert codes(on_socket(here.port, post(b"", "Transfer-Encoding: chunked", length=False), *[chunks] * 500)) == [413]
    assert here.hub.calls == []


@pytest.mark.parametrize(
    ("begins", "code"),
    [(b"GET /healthz HTTP/1.1\r\nA: " + b"x" * 100_000, 431), (post(b"", "Content-Length: 300000", length=False), 413)],
    ids=["headers", "body"],
)
def test_who_still_sends_when_refused_is_not_cut_off(here, monkeypatch, begins, code):
    """A reset would take the answer away from clients that are not on Linux, and from proxies."""
    monkeypatch.setattr("fedrank.deploy.guard._LINGER_SECONDS", 2.0)
    monkeypatch.setattr("fedrank.deploy.server._LINGER_SECONDS", 2.0)
    with socket.create_connection(("127.0.0.1", here.port), timeout=5) as connection:
        connection.sendall(begins)
        assert codes(connection.recv(1000)) == [code]
        for _ in range(3):
            connection.sendall(b"x" * 100_000)
            time.sleep(0.03)


def test_how_large_a_body_may_be_is_not_the_connections_to_say():
    with world(guard(body_bytes=1_000_000)) as here:
        whole = here.ask("POST", "/v1/report/0", b"x" * 1_000_000)
        assert whole[0] == 400, "it has been read, and is no report"
        assert here.ask("POST", "/v1/report/0", b"x" * 1_000_001)[0] == 413


def test_requests_that_are_sent_ahead_are_not_too_many(here):
    before = here.refused("malformed")
    out = on_socket(here.port, b"GET /healthz HTTP/1.1\r\nHost: hub\r\n\r\n" * 2000)
    assert 1 <= len(codes(out)) <= 70 and set(codes(out)) == {200} and here.refused("malformed") == before + 1


def test_connections_are_not_too_many():
    with world(connections=3) as here, contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(socket.create_connection(("127.0.0.1", here.port)))
        assert eventually(lambda: len(here.server._server.server_state.connections) == 3)
        assert codes(on_socket(here.port)) == [503]
        assert here.refused("connections") == 1
        stack.close()
        assert eventually(lambda: len(here.server._server.server_state.connections) == 0)
        assert here.ask("GET", "/healthz")[0] == 200


# ---------------------------------------------------------------------------------------------------- what is no HTTP


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nA: b\x00c\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nA : b\r\n\r\n",
        b"GET /healthz HTTP/1.1\nHost: hub\n\n",
        b"GET /\xc3\xbc HTTP/1.1\r\n\r\n",
        b"GET http:// HTTP/1.1\r\n\r\n",
        b"CONNECT hub:80 HTTP/1.1\r\nHost: hub\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        post(a_reply(), "Content-Length: 9"),
        post(a_reply(), "Content-Length: 0"),
        post(a_reply(), "Content-Length: -9", length=False),
        post(a_reply(), "Content-Length: +9", length=False),
        post(a_reply(), "Content-Length: 0x9", length=False),
        post(a_reply(), "Content-Length: 9, 9", length=False),
        post(a_reply(), f"Content-Length: {2**64 + 9}", length=False),
        post(b"0\r\n\r\n", "Transfer-Encoding: chunked"),
        post(b"0\r\n\r\n", "Transfer-Encoding: xchunked", length=False),
        post(b"0\r\n\r\n", "Transfer-Encoding: chunked, identity", length=False),
        post(b"0\r\n\r\n", "Transfer-Encoding:\x0bchunked", length=False),
        post(b"xyz\r\n\r\n", "Transfer-Encoding: chunked", length=False),
        post(b"-1\r\n\r\n", "Transfer-Encoding: chunked", length=False),
        post(b"fffffffffffffffff\r\n\r\n", "Transfer-Encoding: chunked", length=False),
    ],
)
def test_what_is_no_http_gets_one_answer_and_a_closed_connection(here, request_):
    """With a second request hidden behind: it is never carried out."""
    hidden = post(a_reply(), path="/v1/report/0")
    began = time.monotonic()
    out = on_socket(here.port, request_ + hidden)
    assert codes(out) == [400] and b"connection: close" in out and time.monotonic() - began < 2
    assert here.hub.calls == []


def test_what_comes_before_garbage_is_answered_and_nothing_after_it():
    with world(idle_seconds=60) as here:  # only the garbage closes this connection in time
        here.hub.delay = 0.1
        two = post(a_reply()) + b"GET /healthz HTTP/1.1\r\nHost: hub\r\n\r\n"
        out = on_socket(here.port, two + b"\x00garbage\r\n\r\n" + post(a_reply(9)), b"more", pause=0.02)
        assert codes(out) == [201, 200]
        assert here.hub.counted == {(0, 1): a_reply()}


def test_garbage_in_a_body_that_waits_for_its_turn_closes_the_connection(here):
    here.hub.delay = 0.1
    second = post(b"zz\r\n", "Transfer-Encoding: chunked", length=False)
    out = on_socket(here.port, post(a_reply()) + second)
    assert codes(out) in ([], [201]) and len(here.hub.calls) == 1


@pytest.mark.parametrize("path", ["/v1/model", "/healthz"])
def test_web_sockets_are_not_opened(here, path):
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA"
    out = on_socket(here.port, f"GET {path} HTTP/1.1\r\nHost: hub\r\n{upgrade}\r\n\r\n".encode() + b"\x81\x05hello")
    assert codes(out) == [200 if path == "/healthz" else 401]
    assert codes(on_socket(here.port, post(a_reply(), *upgrade.split("\r\n")) + post(a_reply()))) == [400]
    assert here.hub.calls == []


# ------------------------------------------------------------------------------------------------- proxies and TLS


@pytest.mark.parametrize(("proxies", "second"), [(("127.0.0.1",), 401), ((), 429), (("192.0.2.0/24",), 429)])
def test_only_a_proxy_may_say_who_asks(proxies, second):
    with world(guard(failures_per_minute=1), proxies=proxies) as here:
        wrong = [
            here.ask("GET", "/v1/model", token="wrong", headers={"X-Forwarded-For": f"198.51.100.{n}"})[0]
            for n in (1, 2)
        ]
        assert wrong == [401, second]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of our own for 127.0.0.1, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "hub")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "hub.crt").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    (folder / "hub.key").write_bytes(secret)
    return folder / "hub.crt", folder / "hub.key"


def test_tls_by_certificate_files(certificate, caplog):
    crt, key = certificate
    trust = ssl.create_default_context(cafile=crt)
    with world(certfile=crt, keyfile=key) as here:
        assert here.server.url == f"https://127.0.0.1:{here.port}"
        connection = http.client.HTTPSConnection("127.0.0.1", here.port, context=trust, timeout=5)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/report/0", a_reply(), {"Authorization": f"Bearer {DEVICE}"})
            assert connection.getresponse().status == 201
        began = time.monotonic()
        assert on_socket(here.port) == b"", "a handshake that never begins"
        assert time.monotonic() - began < HEADER + 1
        assert b"HTTP" not in on_socket(here.port, b"GET /healthz HTTP/1.1\r\nHost: hub\r\n\r\n"), "no TLS, no answer"
        with trust.wrap_socket(socket.create_connection(("127.0.0.1", here.port)), server_hostname="127.0.0.1") as tls:
            tls.settimeout(5)
            tls.sendall(b"GET /healthz HTTP/1.1\r\n")
            assert codes(tls.recv(1000)) == [408]
    assert caplog.records == []


def test_a_certificate_that_cannot_be_used_is_said_clearly(certificate, tmp_path):
    app = app_of(FakeHub())
    (tmp_path / "empty").write_text("")
    for files in (
        (tmp_path / "none", None),
        (tmp_path / "empty", certificate[1]),
        (certificate[0], tmp_path / "empty"),
    ):
        with pytest.raises(ConfigError, match=r"certificate .* cannot be used"):
            ThreadedServer(app, certfile=files[0], keyfile=files[1])
    with pytest.raises(ConfigError, match="needs a certificate"):
        ThreadedServer(app, keyfile=certificate[1])


# ------------------------------------------------------------------------------------------------- begin and end


def test_a_port_that_is_taken_is_said_clearly(here):
    for port in (here.port, 70_000):
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}"):
            serve(here.app, port=port)


def test_a_hub_that_cannot_start_ends_the_server(caplog):
    async def start():
        raise RunError("the log is of another hub")

    app = app_of(FakeHub(), on_start=start)
    with pytest.raises(RunError, match="of another hub"), ThreadedServer(app):
        pass
    with caplog.at_level(logging.CRITICAL), pytest.raises(RunError, match="of another hub"):
        serve(app, port=0)


def test_what_is_being_answered_when_the_server_stops_is_answered():
    answers = []
    with world() as here:
        here.hub.delay = 0.3
        asking = threading.Thread(target=lambda: answers.append(here.ask("POST", "/v1/report/0", a_reply())[0]))
        asking.start()
        assert eventually(lambda: here.hub.calls)
    asking.join()
    assert answers == [201]


SCRIPT = """
import os, sys
from hub_fakes import DEVICE, FakeHub, app_of
from fedrank.deploy.server import serve
hub = FakeHub((DEVICE,))
hub.delay = 0.3
async def stop():
    print("stopped", flush=True)
serve(app_of(hub, on_stop=stop), port=0, on_ready=lambda url: print(url, flush=True))
print("after", len(hub.counted), flush=True)
for module in ("jax", "numba"):
    assert module not in sys.modules
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_after_its_last_answer(number):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=-1, stderr=-1, text=True, env=environment)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(post(a_reply()))
            time.sleep(0.1)
            process.send_signal(number)
            assert codes(connection.recv(1000)) == [201]
        out, err = process.communicate(timeout=10)
    finally:
        process.kill()
        process.wait()
    assert (out.split(), err, process.returncode) == (["stopped", "after", "1"], "", 0)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    spec = importlib.util.find_spec("fedrank.deploy.server")
    assert spec is not None and spec.loader is not None
    for name in ("uvicorn", "httptools"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            module = importlib.util.module_from_spec(spec)
            with pytest.raises(MissingExtraError, match=r"pip install 'fedrank\[serve\]'"):
                spec.loader.exec_module(module)


def test_the_application_itself_needs_no_server():
    code = "import sys, fedrank.deploy.app; print(sorted({'uvicorn', 'prometheus_client', 'jax'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
