"""A broker in front of owners that hang, come back, or cannot be trusted: what is answered, when, and what is said."""

import asyncio
import contextlib
import datetime
import ipaddress
import json
import sqlite3
import time
import tomllib
from dataclasses import replace
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from search_worlds import TEXTS, owner, search_world

from fedrank.cli.listen import Address
from fedrank.cli.search import broker as serve_broker
from fedrank.deploy.http.app import HttpApp, RequestCounts
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.http.guard import Guard
from fedrank.deploy.search import broker as brokers
from fedrank.deploy.search.broker import BrokerApp
from fedrank.deploy.search.federation import (
    Federation,
    FederationFile,
    Hit,
    OwnerCard,
    RankingTerms,
    _lying_encoders,
    federation_of,
    read_federation,
)
from fedrank.deploy.search.folder import OwnerFolder
from fedrank.deploy.search.joining import BrokerFolder
from fedrank.deploy.search.service import OwnerApp
from fedrank.deploy.search.statistics import SpentError
from fedrank.texts.served.envelopes import Question, key_of
from fedrank.texts.served.owner import Owner
from fedrank_zoo.threaded_server import ThreadedServer

pytest.importorskip("tantivy")

PATIENCE = 0.5


def searched(asked):
    """Seconds of a search, the owners of its hits, and why one is missing."""
    began = time.monotonic()
    answer = asked.search("wing roses", 10)
    return time.monotonic() - began, {hit.owner for hit in answer.hits}, dict(answer.missing)


@pytest.mark.slow
def test_an_owner_that_hangs_is_waited_for_twice_and_asked_again_when_it_is_back(tmp_path, monkeypatch):
    hangs = True

    def hang(name):
        real = getattr(OwnerApp, name)

        async def answer(self, request):
            if hangs and self._folder.path.name == "east":
                await asyncio.sleep(5 * PATIENCE)
            return await real(self, request)

        monkeypatch.setattr(OwnerApp, name, answer)

    hang("_ask")
    hang("_healthz")
    monkeypatch.setattr(brokers, "_FIRST_LOOK", 0.2)
    with search_world(tmp_path, patience=PATIENCE) as (asked, _, _):
        found = [searched(asked) for _ in range(6)]
        for seconds, owners, missing in found:
            assert owners == {"north", "south"} and list(missing) == ["east"] and missing["east"].startswith("hung")
            assert seconds < 2 * PATIENCE
        assert [seconds > PATIENCE for seconds, _, _ in found] == [True, True, *[False] * 4]
        hangs = False
        end = time.monotonic() + 20
        while searched(asked)[2] and time.monotonic() < end:
            time.sleep(0.1)
        assert searched(asked)[1:] == ({"north", "south", "east"}, {})


def test_an_owner_whose_certificate_has_expired_is_named_so(tmp_path):
    certificate, key = expired_certificate(tmp_path)
    expired = ThreadedServer(HttpApp(Guard(), RequestCounts()), certfile=certificate, keyfile=key)
    with search_world(tmp_path) as (asked, _, file), expired as server:
        cards = (*file.owners[:2], OwnerCard("east", file.owners[2].key, server.url))
        with ThreadedServer(BrokerApp(FederationFile("test", cards), ca=str(certificate))) as broker:
            other = Federation(FederationFile("test", cards, broker.url), ("anna", asked._tokens))
            missing = other.search("wing").missing
    assert missing == {"east": "certificate: certificate has expired"}


def expired_certificate(folder):
    """A certificate for 127.0.0.1 that ended yesterday, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(9)).not_valid_after(now - datetime.timedelta(1))
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = builder.add_extension(names, False).sign(key, hashes.SHA256())
    pem, plain = serialization.Encoding.PEM, (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "crt.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, *plain))
    return folder / "crt.pem", folder / "key.pem"


def test_an_owner_whose_disk_is_full_says_so_and_answers_nothing(tmp_path):
    """A database that may not grow stands for the disk; what cannot be counted is not answered."""
    home = OwnerFolder(tmp_path)
    home.prepare()
    engine, askers = home.engine(), home.askers()
    body = {"kind": "search", "words": ["wing"], "k": 1, "day": int(time.time() // 86400), "asker": "anna"}
    question = Question(key_of(home.public_key()), body | {"token": askers.allow("anna")})
    askers._db.execute("PRAGMA max_page_count = 1")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        while True:
            askers._db.execute("INSERT INTO question VALUES (randomblob(64), 99999)")
    answer = question.open_answer(home.owner(engine, askers).answer(question.sealed))
    assert answer["error"] == "disk-full" and "hits" not in answer
    engine.close()
    askers.close()


def test_cosines_that_no_encoder_gives_are_told_from_honest_ones():
    """Alike, or half of them far above all others; an owner that is merely the best, or gives none, is not."""

    def hits(owner, *cosines):
        return [Hit(owner, 1.0, "", "", (cosine, 0.0)) for cosine in cosines]

    honest = hits("a", 0.1, 0.2, 0.3, 0.4, 0.5) + hits("b", 0.2, 0.25, 0.3, 0.35, 0.4)
    assert _lying_encoders(honest) == set()
    assert _lying_encoders(honest + hits("c", 0.4, 0.5, 0.6, 0.7, 0.8)) == set()
    assert _lying_encoders(honest + hits("c", *[0.5] * 5)) == {"c"}
    assert _lying_encoders(honest + hits("c", *[0.0] * 5)) == set()  # it has no encoder
    assert _lying_encoders(honest + hits("c", *[0.9] * 4)) == set()  # too few to tell
    # Honest owners of another subject are far above the others: by up to .67 in two collections.
    others = hits("a", 0.0, 0.1, 0.05, 0.02, 0.1) + hits("b", 0.1, 0.02, 0.05, 0.1, 0.0)
    assert _lying_encoders(others + hits("c", 0.6, 0.7, 0.77, 0.78, 0.8)) == set()
    assert _lying_encoders(others + hits("c", 0.7, 0.8, 0.9, 0.95, 0.99)) == {"c"}


def test_an_owner_that_lies_about_cosines_is_named_and_does_not_lead(tmp_path, monkeypatch):
    texts = [("", f"wing {' filler' * n}") for n in range(1, 9)]
    rows = {name: [(f"{name}{n}", *text) for n, text in enumerate(texts)] for name in ("north", "south")}
    cosines = {"north": [0.1 + 0.05 * n for n in range(8)], "south": [0.95 + 0.004 * n for n in range(8)]}
    real = Owner.search

    def search(self, words, most, query="", *more):
        found = real(self, words, most)
        name = found[0].id[:-1]
        return [hit._replace(features=(cosines[name][n], 0.0)) for n, hit in enumerate(found)]

    monkeypatch.setattr(Owner, "search", search)
    encoder = property(lambda self: SimpleNamespace(digest="0" * 16), lambda self, value: None)
    monkeypatch.setattr(Owner, "encoder", encoder, raising=False)
    with search_world(tmp_path, rows) as (asked, _, file):
        ranked = Federation(replace(file, ranking=RankingTerms()), ("anna", asked._tokens))
        answer = ranked.search("wing", 8)
    assert answer.left_out_cosines == ("south",)
    assert [hit.owner for hit in answer.hits].count("north") >= 3  # none, if the cosines counted


def serve_federation(folder, homes, owners):
    """The broker's application as its command starts it, for owners of which these have joined."""
    home, apps = BrokerFolder(folder), []
    if not home.federation.exists():
        folder.mkdir()
        home.begin(len(homes), {"name": "test", "analyser": {"languages": ["english"]}, "ranking": {}})
        for name, (one, url) in homes.items():
            home.add(OwnerCard(name, one.public_key(), url), one.token("broker"))

    class Kept(Address):
        def serve(self, app, port, ready):
            apps.append(app)

    serve_broker(folder, owners=owners, at=Kept())
    return home, apps[0]


def test_a_federation_goes_on_while_another_owner_is_awaited(tmp_path):
    with contextlib.ExitStack() as stack:
        homes = {}
        for name in ("north", "south"):
            home, server = stack.enter_context(owner(tmp_path / name, TEXTS[name]))
            homes[name] = home, server.url
        # North's address of before: it has moved, and says so while the third owner is awaited.
        north = homes["north"][1]
        before = {**homes, "north": (homes["north"][0], "http://127.0.0.1:9")}
        home, app = serve_federation(tmp_path / "broker", before, 3)
        broker = stack.enter_context(ThreadedServer(app))
        tokens = {}
        for name, (one, _) in homes.items():
            askers = one.askers()
            tokens[name] = askers.allow("anna")
            askers.close()
        file = replace(read_federation(home.federation), broker=broker.url)
        asked = Federation(file, ("anna", tokens))
        assert {*asked.search("wing").missing} == {"north"}
        client = HttpClient(broker.url)

        def join(name, key, url, token):
            body = json.dumps({"name": name, "key": key, "url": url, "token": token}).encode()
            return client.request("POST", "/v1/join", home.token("join"), body=body).json()

        one = homes["north"][0]
        answer = join("north", one.public_key(), north, one.token("broker"))
        given = federation_of(tomllib.loads(answer["federation"]))
        assert [(card.name, card.url) for card in given.owners] == [("north", north), ("south", homes["south"][1])]
        assert read_federation(home.federation) == given  # so that the broker knows it when it starts again
        assert not asked.search("wing").missing
        west = OwnerFolder(tmp_path / "west")
        west.prepare()
        answer = join("west", west.public_key(), "http://127.0.0.1:9", west.token("broker"))
        assert len(federation_of(tomllib.loads(answer["federation"])).owners) == 3
        assert not asked.search("wing").missing


def test_statistics_that_owners_have_given_are_asked_for_once(tmp_path, monkeypatch, caplog):
    caplog.set_level("WARNING")
    homes = {}
    for name in ("north", "south"):
        home = OwnerFolder(tmp_path / name)
        home.prepare()
        homes[name] = home, "http://127.0.0.1:9"
    asked = []

    def refuse(file, tokens, release, **options):
        asked.append(release)
        raise SpentError("given among other owners")

    monkeypatch.setattr(brokers, "make_statistics", refuse)
    home, app = serve_federation(tmp_path / "broker", homes, 2)
    with ThreadedServer(app):
        until = time.monotonic() + 20
        while app._summing is not None or not asked:
            assert time.monotonic() < until
            time.sleep(0.05)
    assert asked == [0] and len([one for one in caplog.records if one.name == "fedrank.broker"]) == 1
    file = replace(read_federation(home.federation), releases=2)
    with ThreadedServer(BrokerApp(file, home, statistics=False)):
        time.sleep(0.3)
    assert asked == [0]
