"""A server's port opens when its application is ready; a new certificate is taken while it runs."""

import asyncio
import datetime
import os
import socket
import ssl
import threading

import pytest
from hub_fakes import FakeHub, app_of, ask

from fedrank.core.errors import ConfigError
from fedrank.deploy.http import server as certificate_module
from fedrank.deploy.http.server import serve
from fedrank_zoo.threaded_server import ThreadedServer


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def connects(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_port_is_closed_until_the_application_is_ready():
    port, starting, go = free_port(), threading.Event(), threading.Event()

    async def slow():
        starting.set()
        await asyncio.to_thread(go.wait, 10)

    app = app_of(FakeHub(), on_start=slow)
    server = ThreadedServer(app, port=port)
    opener = threading.Thread(target=server.__enter__)
    opener.start()
    try:
        assert starting.wait(10)
        assert not connects(port)  # a load balancer goes elsewhere
    finally:
        go.set()
        opener.join()
    assert connects(port)
    server.__exit__()
    assert not connects(port)


def test_of_two_that_want_a_port_one_gets_it_and_the_other_stops_its_hub():
    port, stopped = free_port(), []

    async def stop():
        stopped.append(True)

    late = ThreadedServer(app_of(FakeHub(), on_stop=stop), port=port)  # both have bound it, neither listens
    with ThreadedServer(app_of(FakeHub()), port=port), pytest.raises(ConfigError, match="cannot listen"):
        late.__enter__()
    assert stopped == [True]
    with ThreadedServer(app_of(FakeHub()), port=port), pytest.raises(ConfigError, match="cannot listen"):
        serve(app_of(FakeHub()), port=port)


def made(folder, name):
    """A certificate for this machine by this name, and its key, as files."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    built = x509.CertificateBuilder(subject, subject, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    signed = built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    for file, data in (("hub.crt", signed), ("hub.key", key.private_bytes(*form))):
        (folder / f"{file}.new").write_bytes(data)
        os.replace(folder / f"{file}.new", folder / file)
    return folder / "hub.crt", folder / "hub.key"


def shown(port):
    """The certificate that a server shows to a new connection, as DER."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port), 5)) as tls:
        return tls.getpeercert(binary_form=True)


def expected(path):
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def test_a_renewed_certificate_is_shown_to_new_connections_and_a_broken_one_never(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(certificate_module, "LOOK_SECONDS", 1e6)  # looked at by hand
    crt, key = made(tmp_path, "first")
    first, old = expected(crt), key.read_bytes()
    with ThreadedServer(app_of(FakeHub()), certfile=crt, keyfile=key) as server:
        look = certificate_module.Certificate(server.servers.running[0].server.config).look
        assert shown(server.port) == first and not look()
        key.write_text("nonsense")
        assert not look() and not look() and shown(server.port) == first
        assert [record.levelname for record in caplog.records] == ["ERROR"]  # once
        crt.unlink()
        assert not look() and shown(server.port) == first
        made(tmp_path, "half")
        key.write_bytes(old)  # the certificate has come, its key not yet
        assert not look() and shown(server.port) == first
        made(tmp_path, "second")
        assert look() and shown(server.port) == expected(crt) != first
        assert not look()


def test_the_files_are_looked_at_by_themselves(tmp_path, monkeypatch):
    monkeypatch.setattr(certificate_module, "LOOK_SECONDS", 0.02)
    crt, key = made(tmp_path, "first")
    with ThreadedServer(app_of(FakeHub()), certfile=crt, keyfile=key) as server:
        made(tmp_path, "second")
        for _ in range(200):
            if shown(server.port) == expected(crt):
                return
    raise AssertionError("the new certificate was never shown")


def test_ready_and_alive_are_two_questions():
    hub = FakeHub()
    app = app_of(hub)
    assert [ask(app, "GET", path).code for path in ("/readyz", "/livez", "/healthz")] == [200] * 3
    hub.healthy = False  # a full disk: a restart would not help
    assert [ask(app, "GET", path).code for path in ("/readyz", "/livez", "/healthz")] == [503, 200, 503]
    hub.alive = False
    assert ask(app, "GET", "/livez").code == 503
