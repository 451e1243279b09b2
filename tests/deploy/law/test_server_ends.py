"""A real server on loopback, and clients that do what no client should: everything ends, nothing else is disturbed."""

import contextlib
import datetime
import http.client
import importlib.util
import ipaddress
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hub_fakes import DEVICE, FakeHub, a_reply, app_of, on_socket
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

from fedrank.core.errors import ConfigError, MissingExtraError, RunError
from fedrank.deploy.http.server import serve
from fedrank_zoo.threaded_server import ThreadedServer

ROOT = Path(__file__).resolve().parents[3]


def test_how_large_a_body_may_be_is_not_the_connections_to_say():
    with world(guard(body_bytes=1_000_000)) as here:
        whole = here.ask("POST", "/v1/report/0", b"x" * 1_000_000)
        assert whole[0] == 400, "it has been read, and is no report"
        assert here.ask("POST", "/v1/report/0", b"x" * 1_000_001)[0] == 413


def test_connections_are_not_too_many():
    request_ = b"GET /healthz HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n"
    with world(connections=3) as here, contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(socket.create_connection(("127.0.0.1", here.port)))
        assert eventually(lambda: codes(on_socket(here.port, request_)) == [503])
        stack.close()
        assert eventually(lambda: codes(on_socket(here.port, request_)) == [200])


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
def test_what_is_no_http_gets_one_answer_and_a_closed_connection(behind, request_):
    """With a second request hidden behind: it is never carried out, whatever a proxy took both for."""
    here = behind
    hidden = post(a_reply(), path="/v1/report/0")
    began = time.monotonic()
    out = on_socket(here.port, request_ + hidden)
    assert codes(out) == [400] and b"connection: close" in out.lower() and time.monotonic() - began < 2
    assert here.hub.calls == []


def test_what_comes_before_garbage_is_answered_and_nothing_after_it():
    with world() as here:
        here.hub.delay = 0.1
        two = post(a_reply()) + b"GET /healthz HTTP/1.1\r\nHost: hub\r\n\r\n"
        out = on_socket(here.port, two + b"\x00garbage\r\n\r\n" + post(a_reply(9)), b"more", pause=0.02)
        assert codes(out) in ([201, 200], [201, 200, 400])
        assert here.hub.counted == {(0, 1): a_reply()}


def test_garbage_in_a_body_that_waits_for_its_turn_closes_the_connection(here):
    here.hub.delay = 0.1
    second = post(b"zz\r\n", "Transfer-Encoding: chunked", length=False)
    out = on_socket(here.port, post(a_reply()) + second)
    assert codes(out) in ([400], [201, 400]) and len(here.hub.calls) == 1


@pytest.mark.parametrize("path", ["/v1/model", "/healthz"])
def test_web_sockets_are_not_opened(here, path):
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA"
    out = on_socket(here.port, f"GET {path} HTTP/1.1\r\nHost: hub\r\n{upgrade}\r\n\r\n".encode() + b"\x81\x05hello")
    assert codes(out) == [200 if path == "/healthz" else 401]
    # An upgrade may be ignored (RFC 9110, 7.8), or refused.
    said = codes(on_socket(here.port, post(a_reply(), *upgrade.split("\r\n")) + post(a_reply())))
    assert said in ([400], [201, 200])


def test_only_a_proxy_may_say_who_asks():
    for proxies, second in [(("127.0.0.1",), 401), ((), 429), (("192.0.2.0/24",), 429)]:
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
        assert b"HTTP" not in on_socket(here.port, b"GET /healthz HTTP/1.1\r\nHost: hub\r\n\r\n"), "no TLS, no answer"
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
from fedrank.deploy.http.server import serve
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
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])}
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
    spec = importlib.util.find_spec("fedrank.deploy.http.server")
    assert spec is not None and spec.loader is not None
    for name in ("uvicorn", "httptools"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            module = importlib.util.module_from_spec(spec)
            with pytest.raises(MissingExtraError, match=r"pip install 'fedrank\[serve\]'"):
                spec.loader.exec_module(module)


def test_the_application_itself_needs_no_server():
    code = (
        "import sys, fedrank.deploy.hub.app; print(sorted({'uvicorn', 'prometheus_client', 'jax'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
