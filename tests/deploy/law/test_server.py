"""A real server on loopback, and clients that do what no client should: everything ends, nothing else is disturbed."""

import contextlib
import http.client
import re
import socket
import time

import pytest
from hub_fakes import DEVICE, a_reply, on_socket
from server_worlds import (  # noqa: F401
    BODY,
    IDLE,
    World,
    alone,
    behind,
    codes,
    eventually,
    guard,
    here,
    post,
    shared,
    shared_behind,
    short_lingering,
    world,
)

from fedrank.deploy.http.server import LARGEST_HEAD


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


def test_a_body_that_does_not_come_is_not_waited_for(here):
    for missing in (post(a_reply())[:-1], post(b"", "Transfer-Encoding: chunked", length=False) + b"9\r\nabc"):
        assert codes(on_socket(here.port, missing)) == [408]
    assert here.hub.calls == []


def test_chunks_that_hold_nothing_come_to_an_end(here):
    head = post(b"", "Transfer-Encoding: chunked", length=False)
    for endless in (b"1;" + b"x" * 50_000, b"0\r\n" + b"Trailer: x\r\n" * 5_000, b"0\r\nTrailer: " + b"x" * 50_000):
        assert codes(on_socket(here.port, head, endless, b"x" * 50_000, b"x" * 50_000)) in ([408], [400])
    assert here.hub.calls == []


def test_what_follows_a_body_is_no_header(alone):
    """With a proxy in front it never arrives: see the tests of nginx."""
    here = alone
    head = b"POST /v1/report/0 HTTP/1.1\r\nHost: hub\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"9\r\n" + a_reply() + b"\r\n0\r\nAuthorization: Bearer " + DEVICE.encode() + b"\r\n\r\n"
    assert codes(on_socket(here.port, head + body)) == [401]
    assert here.hub.calls == []


def test_headers_are_bounded_where_no_proxy_does_it():
    for request_ in (
        b"GET /healthz HTTP/1.1\r\nA: " + b"x" * 2 * LARGEST_HEAD,
        b"GET /" + b"x" * 2 * LARGEST_HEAD,
        b"GET /healthz HTTP/1.1\r\n" + b"A: b\r\n" * LARGEST_HEAD,
    ):
        with world() as here:
            assert codes(on_socket(here.port, request_)) == [400]
            assert here.ask("GET", "/healthz")[0] == 200


def test_a_body_that_is_too_large_is_refused_and_the_client_hears_it(here):
    assert codes(on_socket(here.port, post(b"", "Content-Length: 1000000000", length=False))) == [413]
    assert codes(on_socket(here.port, post(b"x" * 1_000_000))) == [413]
    chunks = b"400\r\n" + b"x" * 1024 + b"\r\n"
    assert codes(on_socket(here.port, post(b"", "Transfer-Encoding: chunked", length=False), *[chunks] * 500)) == [413]
    assert here.hub.calls == []


@pytest.mark.parametrize(
    ("begins", "code"),
    [(post(b"", "Content-Length: 300000", length=False), 413)],
)
def test_who_still_sends_when_refused_is_not_cut_off(here, monkeypatch, begins, code):
    """A reset would take the answer away from clients that are not on Linux, and from proxies."""
    monkeypatch.setattr("fedrank.deploy.http.guard._LINGER_SECONDS", 2.0)
    with socket.create_connection(("127.0.0.1", here.port), timeout=5) as connection:
        connection.sendall(begins)
        assert codes(connection.recv(1000)) == [code]
        for _ in range(3):
            connection.sendall(b"x" * 100_000)
            time.sleep(0.03)
