"""Commands of an operator beside a server with TLS, whose certificate is for another name than the one they call."""

import contextlib
import datetime
import json
import ssl
import subprocess
import sys
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hub_fakes import FakeHub, app_of
from search_worlds import write_documents

from fedrank.cli.main import call
from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.folder import ServedFolder
from fedrank.deploy.http.client import HttpClient, PersistentClient
from fedrank.deploy.search.folder import OwnerFolder
from fedrank.deploy.search.service import Operator
from fedrank_zoo.threaded_server import ThreadedServer


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """Makes a chain as an authority gives it, the certificate of north.example.org first; and its key."""

    def made():
        now = datetime.datetime.now(datetime.UTC)
        signer, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        authority, site = (
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("CA", "north.example.org")
        )
        built = []
        for subject, key in ((site, own), (authority, signer)):
            builder = x509.CertificateBuilder(authority, subject, key.public_key(), x509.random_serial_number())
            builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
            names = x509.SubjectAlternativeName([x509.DNSName("north.example.org")])
            built.append(builder.add_extension(names, False).sign(signer, hashes.SHA256()))
        folder = tmp_path_factory.mktemp("tls")
        pem = b"".join(one.public_bytes(serialization.Encoding.PEM) for one in built)
        (folder / "chain.pem").write_bytes(pem)
        form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (folder / "key.pem").write_bytes(own.private_bytes(serialization.Encoding.PEM, form, none))
        return folder / "chain.pem", folder / "key.pem"

    return made


def test_the_certificate_that_lies_here_is_trusted_and_no_other(chain):
    (crt, key), (other, _) = chain(), chain()
    with ThreadedServer(app_of(FakeHub()), certfile=crt, keyfile=key) as server:
        assert HttpClient(server.url, pinned=crt).request("GET", "/healthz", "").status == 200
        assert PersistentClient(server.url, "", pinned=crt).ask("GET", "/healthz").status == 200
        for client in (HttpClient(server.url), HttpClient(server.url, ca=crt), HttpClient(server.url, pinned=other)):
            with pytest.raises(ssl.SSLError):
                client.request("GET", "/healthz", "a-token-that-must-not-leave")
        with pytest.raises(ssl.SSLError):
            PersistentClient(server.url, "", pinned=other).ask("GET", "/healthz")
        with pytest.raises(ConfigError, match="no certificate"):
            HttpClient(server.url, pinned=key)


def test_where_the_certificate_lies_is_told_while_it_is_served(tmp_path):
    home = ServedFolder(tmp_path)
    assert home.certificate("owner") is None
    home.write_urls({"owner": "https://x"}, tmp_path / "a b.pem")
    assert home.certificate("owner") == tmp_path / "a b.pem"
    home.write_urls({"owner": "http://x"})  # after a process with TLS that was killed
    assert home.certificate("owner") is None
    home.write_urls({"owner": "https://x"}, "b.pem")
    home.remove_urls("owner")
    assert list(tmp_path.iterdir()) == []


@contextlib.contextmanager
def served(folder, *more):
    """fedrank search owner serve, as a process."""
    command = [sys.executable, "-m", "fedrank", "search", "owner", "serve", str(folder), "--port", "0", *map(str, more)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60
        while not OwnerFolder(folder).url_path("owner").exists():
            assert process.poll() is None and time.monotonic() < until, process.communicate()
            time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.mark.slow
def test_an_owner_is_administered_while_it_is_served_with_tls(tmp_path, chain, capsys):
    """As the documentation says: --certificate and --key at the start; add, remove and status without a word of TLS."""
    pytest.importorskip("tantivy")
    (crt, key), north = chain(), tmp_path / "north"
    more = write_documents(tmp_path / "more.jsonl", [("a", "Wings", "a wing"), ("b", "Roses", "roses")])
    with served(north, "--certificate", crt, "--key", key):
        assert OwnerFolder(north).url("owner").startswith("https://")
        assert call(["search", "owner", "add", str(north), str(more)]) == 0
        assert call(["search", "owner", "remove", str(north), "b"]) == 0
        capsys.readouterr()
        assert call(["search", "owner", "status", str(north), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["documents"] == 1
        # Another certificate in the file than the process shows: said, and no token is sent.
        own = crt.read_bytes()
        crt.write_bytes(chain()[0].read_bytes())
        with pytest.raises(RunError, match="does not have the certificate"):
            Operator(north).status()
        crt.write_bytes(own)
    assert Operator(north).status()["documents"] == 1  # at home, once it is not served
