"""nginx by the file that compose starts, in front of a real server: it bounds what the server leaves to it."""

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest
from hub_fakes import DEVICE, FakeHub, a_reply, app_of
from releases import ROOT
from server_worlds import codes, eventually, post

from fedrank_zoo.threaded_server import ThreadedServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed"),
]
#: Connections of one address, and seconds for headers and for a client that does not read, in these tests.
MOST, SECONDS = 6, 1


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    """A hub and the port of nginx before it, whose file differs in places, times and one number only."""
    folder = tmp_path_factory.mktemp("nginx")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
         "privkey.pem", "-out", "fullchain.pem", "-subj", "/CN=hub"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    hub, port = FakeHub((DEVICE,)), free_port()
    with ThreadedServer(app_of(hub), grace_seconds=1, proxies=("127.0.0.1",)) as server:
        text = (ROOT / "docker" / "compose" / "nginx.conf").read_text()
        for ours, here in {
            "/tmp/": f"{folder}/",
            "/run/secrets": str(folder),
            "/run/nginx.pid": str(folder / "pid"),
            "/dev/stderr": str(folder / "log"),
            "server hub:8750": f"server 127.0.0.1:{server.port}",
            "listen 8443": f"listen 127.0.0.1:{port}",
            "client_header_timeout 10s": f"client_header_timeout {SECONDS}s",
            "client_body_timeout 10s": f"client_body_timeout {SECONDS}s",
            "send_timeout 60s": f"send_timeout {SECONDS}s",
            "limit_conn address 1000": f"limit_conn address {MOST}",
        }.items():
            assert ours in text, ours
            text = text.replace(ours, here)
        (folder / "nginx.conf").write_text("daemon off;\n" + text)
        process = subprocess.Popen(["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")], stderr=-1)
        try:
            assert eventually(lambda: connects(port), 10), process.stderr
            yield hub, port
        finally:
            process.terminate()
            process.communicate(timeout=10)


def connects(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def connected(port):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), 20))


def said(port, *pieces, pause=0.0):
    """All that is answered to pieces of bytes."""
    out = b""
    with connected(port) as tls, contextlib.suppress(OSError):
        for piece in pieces:
            tls.sendall(piece)
            time.sleep(pause)
        while part := tls.recv(65536):
            out += part
    return out


def test_a_report_passes_and_what_is_the_operators_does_not(front):
    hub, port = front
    assert codes(said(port, post(a_reply(), "Connection: close"))) == [201]
    for path in ("/v1/admin/close", "/status", "/metrics", "/"):
        request = f"GET {path} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n".encode()
        assert codes(said(port, request)) == [404], path
    assert (0, 1) in hub.counted


@pytest.mark.parametrize(
    "drops",
    [
        [b"GET /v1/model HT"],
        [b"GET /v1/model HTTP/1.1\r\n", *[b"A: b\r\n"] * 40],
        [b"G", b"E", b"T", b" ", *[b"/"] * 40],
    ],
    ids=["silence", "headers", "drops"],
)
def test_headers_that_do_not_end_are_not_waited_for(front, drops):
    began = time.monotonic()
    assert codes(said(front[1], *drops, pause=0.1)) in ([], [408])
    assert time.monotonic() - began < SECONDS + 5


def test_headers_and_bodies_that_are_too_large_are_refused(front):
    hub, port = front
    hub.calls.clear()
    assert codes(said(port, b"GET /v1/model HTTP/1.1\r\nHost: hub\r\nA: " + b"x" * 100_000)) == [400]
    assert codes(said(port, post(b"", "Content-Length: 1000000000", length=False))) == [413]
    assert codes(said(port, post(b"", "Content-Length: 1000", length=False), b"x")) in ([], [408])
    assert hub.calls == []


def test_what_follows_a_body_is_no_header(front):
    """Its trailers do not arrive as headers."""
    hub, port = front
    hub.calls.clear()
    head = b"POST /v1/report/0 HTTP/1.1\r\nHost: hub\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"9\r\n" + a_reply() + b"\r\n0\r\nAuthorization: Bearer " + DEVICE.encode() + b"\r\n\r\n"
    assert codes(said(port, head + body)) == [401] and hub.calls == []


def test_one_address_cannot_take_all_connections(front):
    port = front[1]
    with contextlib.ExitStack() as stack:
        for _ in range(MOST):
            tls = stack.enter_context(connected(port))
            tls.sendall(post(a_reply())[:-1])  # a request that is being read counts
        assert eventually(lambda: codes(said(port, post(a_reply(), "Connection: close"))) == [503])
    assert eventually(lambda: codes(said(port, post(a_reply(), "Connection: close"))) == [200])


def test_a_client_that_does_not_read_is_left(front):
    hub, port = front
    hub.grow(bytes(32_000_000))
    request = f"GET /v1/model HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {DEVICE}\r\n\r\n".encode()
    ended = threading.Event()
    with connected(port) as tls:
        tls.sendall(request)
        time.sleep(SECONDS + 3)
        with contextlib.suppress(OSError):
            size = 0
            while part := tls.recv(1 << 20):
                size += len(part)
            ended.set()
    assert size < 32_000_000
