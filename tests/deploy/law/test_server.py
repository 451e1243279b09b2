"""A real server on loopback, and clients that do what no client should: everything ends, nothing else is disturbed."""

import contextlib
import http.client
import re
import socket
import time
import types

import pytest
from hub_fakes import DEVICE, a_reply, on_socket
from server_worlds import (  # noqa: F401
    BODY,
    HEADER,
    IDLE,
    World,
    codes,
    eventually,
    guard,
    here,
    post,
    shared,
    short_lingering,
    world,
)

from fedrank.deploy.http.server import LARGEST_HEAD, GuardedProtocol


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


def test_headers_that_are_too_large_are_refused_and_the_client_hears_it():
    for request_ in [
        b"GET /healthz HTTP/1.1\r\nA: " + b"x" * 1_000_000,
        b"GET /" + b"x" * 1_000_000,
        b"GET /healthz HTTP/1.1\r\n" + b"A: b\r\n" * 200_000,
        b"GET /healthz HTTP/1.1\r\n" + b"x" * 1_000_000,
    ]:
        with world(header_seconds=60.0) as here:  # 200,000 headers take a busy machine a while
            assert codes(on_socket(here.port, request_)) == [431]
            assert here.refused("large-headers") == 1


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
    monkeypatch.setattr("fedrank.deploy.http.guard._LINGER_SECONDS", 2.0)
    monkeypatch.setattr("fedrank.deploy.http.server._LINGER_SECONDS", 2.0)
    with socket.create_connection(("127.0.0.1", here.port), timeout=5) as connection:
        connection.sendall(begins)
        assert codes(connection.recv(1000)) == [code]
        for _ in range(3):
            connection.sendall(b"x" * 100_000)
            time.sleep(0.03)
