"""Owners join a federation: each gets the cards of all, compares words, and may then ask the others."""

import base64
import dataclasses
import functools
import http.server
import json
import threading
import time

import pytest
from search_worlds import TEXTS, write_documents

from fedrank.cli.search import allow, compare_words
from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.search import broker, joining
from fedrank.deploy.search.broker import BrokerApp
from fedrank.deploy.search.federation import (
    Federation,
    FederationFile,
    OwnerCard,
    RankingTerms,
    federation_of,
    federation_text,
    read_federation,
)
from fedrank.deploy.search.folder import OwnerFolder
from fedrank.deploy.search.joining import BrokerFolder, address_for, join, proquint, verification_words
from fedrank.deploy.search.service import owner_app
from fedrank.texts.served import statistics as served_statistics
from fedrank.texts.served.documents import Document
from fedrank.texts.served.envelopes import key_of, key_text
from fedrank.texts.served.rights import OPEN, identify, may_read, readers_text
from fedrank.texts.served.statistics import StatisticsTerms
from fedrank_zoo.threaded_server import ThreadedServer

pytest.importorskip("tantivy")

TERMS = {
    "name": "test",
    "ranking": {},
    "statistics": {"epsilon": 2.0},
    "analyser": {"languages": ["english", "german"]},
}


@pytest.mark.parametrize(
    ("address", "words"),  # the examples of the specification (Wilkerson 2009)
    [
        ("127.0.0.1", "lusab-babad"),
        ("63.84.220.193", "gutih-tugad"),
        ("63.118.7.35", "gutuk-bisog"),
        ("140.98.193.141", "mudof-sakat"),
        ("64.255.6.200", "haguz-biram"),
        ("147.67.119.2", "natag-lisaf"),
        ("212.58.253.68", "tibup-zujah"),
        ("198.81.129.136", "sinid-makam"),
    ],
)
def test_numbers_are_the_proquints_of_the_specification(address, words):
    data = bytes(map(int, address.split(".")))
    assert "-".join(proquint(int.from_bytes(data[at : at + 2], "big")) for at in (0, 2)) == words


@pytest.fixture
def file(tmp_path):
    cards = []
    for name in ("north", "south"):
        OwnerFolder(tmp_path / name).prepare()
        cards.append(OwnerCard(name, OwnerFolder(tmp_path / name).public_key(), f"https://{name}.example.org"))
    return FederationFile("test", tuple(cards), "https://broker.example.org", 2.0, ranking=RankingTerms(1.5))


def test_words_change_with_names_keys_and_terms_and_not_with_addresses(tmp_path, file):
    OwnerFolder(tmp_path / "evil").prepare()
    other = OwnerFolder(tmp_path / "evil").public_key()
    north, south = file.owners
    changed = [
        {"owners": (north, dataclasses.replace(south, key=other))},
        {"owners": (dataclasses.replace(north, key=south.key), dataclasses.replace(south, key=north.key))},
        {"owners": (north, dataclasses.replace(south, name="east"))},
        {"owners": (north, south, OwnerCard("evil", other))},
        {"epsilon": 20.0},
        {"delta": 1e-3},
        {"releases": 2},
        {"ranking": None},
        {"languages": ("german",)},
        {"name": "toast"},
    ]
    seen = {verification_words(dataclasses.replace(file, **one)) for one in changed}
    assert len(seen | {verification_words(file)}) == len(changed) + 1
    moved = dataclasses.replace(file, broker="", owners=(dataclasses.replace(south, url="http://elsewhere"), north))
    assert verification_words(moved) == verification_words(file)


def test_a_federation_is_read_as_it_was_written(tmp_path, file):
    (tmp_path / "federation.toml").write_text(federation_text(file))
    assert read_federation(tmp_path / "federation.toml") == file


def start_broker(folder, owners, **options):
    home = BrokerFolder(folder)
    folder.mkdir(exist_ok=True)
    home.begin(owners, TERMS)
    return home, ThreadedServer(BrokerApp(None, home, **options))


def join_all(tmp_path, place, urls, confirm=lambda file, words, again: True):
    """All owners join at once; what each was shown, or the error that it got."""
    shown = {}

    def one(name):
        home = OwnerFolder(tmp_path / name)
        home.prepare()
        try:
            join(home, name, urls[name], place, lambda *given: shown.update({name: given[1]}) or confirm(*given))
        except (ConfigError, RunError) as error:
            shown[name] = error

    threads = [threading.Thread(target=one, args=(name,)) for name in urls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return shown


@pytest.fixture
def small(monkeypatch):
    """Statistics of few cells, so that a sum is quick."""
    terms = lambda self: StatisticsTerms(len(self.owners), self.epsilon, self.delta, self.releases, 256)  # noqa: E731
    monkeypatch.setattr(FederationFile, "statistics", terms)
    monkeypatch.setattr(served_statistics, "_FEW", 0.0)


def test_owners_join_compare_words_make_statistics_and_ask_each_other(tmp_path, small):
    names = [*TEXTS]
    home, server = start_broker(tmp_path / "broker", len(names), patience=20.0)
    with server:
        place = f"{server.url}#{home.token('join')}"
        apps, urls = {}, {}
        # Owners are served before they join, so that their addresses are known; a process joins first.
        for name, rows in TEXTS.items():
            folder = OwnerFolder(tmp_path / name)
            folder.prepare()
            write_documents(tmp_path / f"{name}.jsonl", rows)
            apps[name] = folder
            urls[name] = "http://127.0.0.1:9"
        shown = join_all(tmp_path, place, urls)
        assert len(set(shown.values())) == 1 and len(next(iter(shown.values())).split()) == 6
        files = [read_federation(one.federation) for one in apps.values()]
        assert files[0] == files[1] == files[2] and files[0].broker == server.url
        assert files[0].epsilon == 2.0 and files[0].languages == ("english", "german") and files[0].ranking is not None
        servers = {
            name: ThreadedServer(owner_app(one, one.federation, tmp_path / f"{name}.jsonl"))
            for name, one in apps.items()
        }
        for one in servers.values():
            one.__enter__()
        try:
            again = join_all(tmp_path, place, {name: one.url for name, one in servers.items()})
            assert not again  # the same federation is not asked about again, and the broker knows the new addresses
            asked = Federation(*apps["east"].asker())
            found = asked.search("a slender wing")
            assert not found.missing
            assert {hit.owner for hit in found.hits} == {"north", "south"} and not found.missing
            assert "wing" in asked.fetch(found.hits[0]).body
            until = time.monotonic() + 60
            while asked.search("wing").own_statistics:
                assert time.monotonic() < until
                time.sleep(0.2)
            assert [row["epsilon"] for row in apps["north"].releases()] == [2.0]
            while home.needs_release():
                assert time.monotonic() < until
                time.sleep(0.1)
            askers = apps["north"].askers()
            askers.forbid("owner/east")
            askers.close()
            assert not join_all(tmp_path, place, {"north": servers["north"].url})
            assert "north" in asked.search("wing").missing  # joining again gives no token back
        finally:
            for one in servers.values():
                one.__exit__(None, None, None)


def test_a_card_that_is_swapped_on_its_way_shows_in_the_words(tmp_path, monkeypatch):
    """A broker gives north another key for south, and south another for north, each its own key: no word is alike."""
    OwnerFolder(tmp_path / "evil").prepare()
    evil = OwnerFolder(tmp_path / "evil").public_key()
    home, server = start_broker(tmp_path / "broker", 2)
    add = BrokerFolder.add

    def swap(self, card, token, sender=""):
        file = add(self, card, token)
        if file is None:
            return None
        return dataclasses.replace(
            file,
            owners=tuple(one if one.name == card.name else dataclasses.replace(one, key=evil) for one in file.owners),
        )

    monkeypatch.setattr(BrokerFolder, "add", swap)
    urls = dict.fromkeys(("north", "south"), "http://127.0.0.1:9")
    with server:
        shown = join_all(tmp_path, f"{server.url}#{home.token('join')}", urls)
        assert not set(shown["north"].split()) & set(shown["south"].split())
        # Where the words are refused nothing is kept, and none of the others may ask.
        for name in urls:
            (tmp_path / name / "federation.toml").unlink()
        refused = join_all(tmp_path, f"{server.url}#{home.token('join')}", urls, lambda file, words, again: False)
        assert all(isinstance(one, ConfigError) for one in refused.values())
        assert not any((tmp_path / name / "federation.toml").exists() for name in urls)
        # A file with another key for the owner itself is refused before anyone is asked.
        monkeypatch.setattr(
            BrokerFolder,
            "add",
            lambda self, card, token: dataclasses.replace(
                add(self, card, token), owners=(dataclasses.replace(card, key=evil),)
            ),
        )
        refused = join_all(tmp_path, f"{server.url}#{home.token('join')}", {"north": urls["north"]})
        assert isinstance(refused["north"], RunError)


def test_a_broker_takes_the_cards_of_those_it_invited(tmp_path):
    home, server = start_broker(tmp_path / "broker", 2)
    keys = []
    for name in ("a", "b", "c"):
        OwnerFolder(tmp_path / name).prepare()
        keys.append(OwnerFolder(tmp_path / name).public_key())
    good = {"name": "north", "key": keys[0], "url": "http://127.0.0.1:9", "token": "t" * 43}
    with server:
        client, code = HttpClient(server.url), home.token("join")

        def post(body, token=code):
            return client.request("POST", "/v1/join", token, body=json.dumps(body).encode())

        assert post(good, "x" * 43).status == 401
        assert home.state()["cards"] == []
        for wrong in ({"token": "short"}, {"token": "t t" * 20}, {"key": "x"}, {"name": "a b"}, {"name": "x" * 65},
                      {"url": "ftp://x"}, {"url": "http://user:word@host"}):  # fmt: skip
            assert post(good | wrong).status in (400, 409), wrong
        assert post({"name": "north"}).status == 400 and post(["x"]).status == 400
        assert post(good).json() == {"joined": 1, "owners": 2} == post(good).json()
        assert post(good | {"key": keys[1]}).status == 409  # another owner of this name
        assert post(good | {"name": "evil"}).status == 409  # the same key under another name
        assert post(good | {"name": "south", "key": keys[1]}).json()["joined"] == 2
        assert post(good | {"name": "east", "key": keys[2]}).status == 409  # all places are taken
        assert {card.name for card in read_federation(home.federation).owners} == {"north", "south"}
    # One more owner: its card completes the federation of three.
    home, server = start_broker(tmp_path / "broker", 3)
    with server:
        client = HttpClient(server.url)
        assert "federation" not in post(good).json()
        assert post(good | {"name": "east", "key": keys[2]}).json()["joined"] == 3
    with pytest.raises(ConfigError, match="owners"):
        home.begin(2, TERMS)
    with pytest.raises(ConfigError, match="epsilon"):
        BrokerFolder(tmp_path / "other").begin(2, TERMS | {"statistics": {"epsilon": -1.0}})
    assert federation_of({**TERMS, "owners": [good | {"url": ""} | {}]} | {"owners": [{"name": "a", "key": keys[0]}]})


# ------------------------------------------------------------------------------------------- names, rights, tokens


def members(tmp_path, names):
    """Folders of owners, and the file of their federation."""
    homes = {name: OwnerFolder(tmp_path / name) for name in names}
    for home in homes.values():
        home.prepare()
    cards = tuple(OwnerCard(name, home.public_key(), "http://127.0.0.1:9") for name, home in homes.items())
    return homes, FederationFile("test", cards, "http://127.0.0.1:9")


def known_at(home, other):
    """What an owner knows of another that asks it as the folder of that one says; None: it may not ask."""
    name, tokens = other.asker()[1]
    askers = home.askers()
    try:
        return askers.know(name, tokens[home.path.name])
    finally:
        askers.close()


def test_the_name_that_an_owner_chose_gives_it_no_rights(tmp_path):
    homes, file = members(tmp_path, ("north", "lawyers", "anna"))
    north, key = homes["north"], bytes(range(32))
    token = north.allow("anna", ["council"], key)
    for home in homes.values():
        home.keep_federation(file)
    askers = north.askers()
    assert askers.know("anna", token) == (("council",), key)  # allowed by hand: as before
    for name in ("lawyers", "anna"):
        known = known_at(north, homes[name])
        assert known == ((), b"")
        who = identify(homes[name].asker()[1][0], *known, None, 20_000).readers
        readers = {text: readers_text(text) for text in (name, f"x/{name}", f"owner/{name}")}
        found = [text for text, said in readers.items() if may_read(Document("d", "", "", {"readers": said}), who)]
        assert found == [f"owner/{name}"] and OPEN in who
    with pytest.raises(ConfigError):
        askers.allow("owner")  # whose people would have the names of owners
    askers.close()
    assert readers_text("owner/acme/eve owner/acme:board") == "owner/acme/eve owner/acme:board"


def test_groups_and_keys_change_without_the_token(tmp_path, capsys):
    homes, file = members(tmp_path, ("north", "south", "west"))
    for home in homes.values():
        home.keep_federation(file)
    north, signs = homes["north"], base64.urlsafe_b64encode(bytes([2, *bytes(31)])).decode().rstrip("=")
    allow(north.path, "owner/south", groups=("surgeons",), signs=signs)
    assert capsys.readouterr().out == ""
    assert known_at(north, homes["south"]) == (("surgeons",), bytes([2, *bytes(31)]))
    allow(north.path, "anna")
    first = capsys.readouterr().out.strip()
    allow(north.path, "anna", groups=("surgeons",))
    assert capsys.readouterr().out == ""
    askers = north.askers()
    assert askers.know("anna", first) == (("surgeons",), b"")
    allow(north.path, "anna", new_token=True)
    assert askers.know("anna", first) is None
    assert askers.know("anna", capsys.readouterr().out.strip()) == ((), b"")
    for name, again in (("owner/east", False), ("owner/south", True), ("a b", False), ("a/b", False)):
        with pytest.raises(ConfigError):
            allow(north.path, name, new_token=again)
    # One owner is forbidden; another joins, then one leaves.
    askers.forbid("owner/west")
    more = members(tmp_path, ("north", "south", "west", "east"))
    for home in more[0].values():
        home.keep_federation(more[1])
    assert known_at(north, homes["south"]) == (("surgeons",), bytes([2, *bytes(31)]))
    assert known_at(north, homes["west"]) is None
    assert known_at(north, more[0]["east"]) == ((), b"")
    north.keep_federation(members(tmp_path, ("north", "west", "east"))[1])
    assert known_at(north, homes["south"]) is None and known_at(north, homes["west"]) is None
    allow(north.path, "owner/west")
    assert known_at(north, homes["west"]) == ((), b"")
    # An owner of the same name with another key is another owner.
    allow(north.path, "owner/east", groups=("surgeons",))
    (tmp_path / "east" / "owner.key").unlink()
    north.keep_federation(members(tmp_path, ("north", "west", "east"))[1])
    askers.close()
    assert ("owner/east", 0, 0) in north.askers().rows()
    more[0]["east"].keep_federation(read_federation(north.federation))
    assert known_at(north, more[0]["east"]) == ((), b"")


# ---------------------------------------------------------------------------------------- a federation that was kept


def test_a_confirmed_federation_is_kept_whatever_the_broker_says(tmp_path, monkeypatch, caplog):
    home, server = start_broker(tmp_path / "broker", 2)
    urls = dict.fromkeys(("north", "south"), "http://127.0.0.1:9")
    with server:
        place = f"{server.url}#{home.token('join')}"
        join_all(tmp_path, place, urls, functools.partial(compare_words, trust=True))
        north = OwnerFolder(tmp_path / "north")
        kept, askers = read_federation(north.federation), (tmp_path / "north" / "askers.db").read_bytes()
        trusting = functools.partial(compare_words, trust=True)
        evil = members(tmp_path, ("evil",))[1].owners[0].key
        add = BrokerFolder.add
        swapped = lambda self, card, token, sender="": dataclasses.replace(  # noqa: E731
            file := add(self, card, token, sender=""),
            owners=tuple(one if one.name == card.name else dataclasses.replace(one, key=evil) for one in file.owners),
        )
        monkeypatch.setattr(BrokerFolder, "add", swapped)
        join(north, "north", urls["north"], place, trusting)  # no terminal: neither --trust-broker nor an error
        assert "another key" in caplog.text and "fedrank search owner serve" in caplog.text
        monkeypatch.setattr(
            BrokerFolder, "add", lambda *given: dataclasses.replace(kept, owners=kept.owners[1:])
        )  # without this owner
        join(north, "north", urls["north"], place, trusting)
        monkeypatch.setattr(BrokerFolder, "add", add)
        join(north, "north", urls["north"], f"{server.url}#wrong", trusting)
        home.begin(3, TERMS)
        began = time.monotonic()
        join(north, "north", urls["north"], place, trusting)  # the broker waits for a third: not this owner
        assert time.monotonic() - began < 20
        assert read_federation(north.federation) == kept
        assert (tmp_path / "north" / "askers.db").read_bytes() == askers
        # Its people compare the words of the federation of three, and it goes over to that.
        join_all(tmp_path, place, {"east": "http://127.0.0.1:9"})
        seen = []
        join(north, "north", urls["north"], place, lambda *given: not seen.append(given))
        assert [given[2] for given in seen] == [True]
        assert {card.name for card in read_federation(north.federation).owners} == {"north", "south", "east"}


# ----------------------------------------------------------------------------------------------- cards at the broker


@pytest.mark.parametrize(
    "point",  # of low order, as in the tables of "May the Fourth Be With You" (Genkin, Valenta, Yarom 2017)
    [
        bytes(32).hex(),
        "01" + bytes(31).hex(),
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    ],
)
def test_a_point_of_low_order_is_no_key(point):
    with pytest.raises(ConfigError, match="key"):
        key_of(key_text(bytes.fromhex(point)))
    assert key_of("CQ" + "A" * 41).public_bytes_raw() == bytes([9, *bytes(31)])  # the base point of RFC 7748


def test_a_card_that_cannot_be_used_or_is_anothers_changes_nothing(tmp_path, monkeypatch):
    home, server = start_broker(tmp_path / "broker", 2)
    keys = [card.key for card in members(tmp_path, ("a", "b"))[1].owners]
    good = {"name": "north", "key": keys[0], "url": "http://127.0.0.1:9", "token": "t" * 43}
    with server:
        client, code = HttpClient(server.url), home.token("join")

        def post(body):
            return client.request("POST", "/v1/join", code, body=json.dumps(body).encode())

        for wrong in ({"key": "A" * 43}, {"url": "http://owner.example.org"}, {"url": "http://0.0.0.0:8761"},
                      {"url": "http://[::]:8761"}, {"url": "http://127.0.0.1:99999"},
                      {"url": "http://169.254.169.254"}, {"url": "http://[::ffff:169.254.0.9]"},
                      {"url": "http://2852039166"}, {"url": "http://169.254.169.254."}, {"url": "http://0x7f000001"},
                      {"url": "http://127.1"}, {"url": "http://[fe80::1]:80"},
                      {"url": "http://224.0.0.1:80"}):  # fmt: skip
            assert post(good | wrong).status == 409, wrong
        assert home.state()["cards"] == []
        assert post(good).status == 200
        moved = {"url": "http://127.0.0.1:10"}
        # Name and key of an owner are known to all; its token is not.
        assert post(good | moved | {"token": "u" * 43}).status == 409
        assert home.state()["cards"] == [good]
        assert post(good | moved).status == 200 and home.state()["cards"] == [good | moved]
        # A write that fails halfway is done again by the same card.
        last, write = {"name": "south", "key": keys[1], "url": "http://127.0.0.1:11", "token": "s" * 43}, []
        whole = joining.write_atomically

        def fail_once(path, *given):
            if path == home.federation and not write:
                write.append(path)
                raise RunError("the disk is full")
            whole(path, *given)

        monkeypatch.setattr(joining, "write_atomically", fail_once)
        assert post(last).status >= 500 and "federation" in post(last).json()
    BrokerApp(read_federation(home.federation), home)  # starts again


@pytest.mark.parametrize(
    ("place", "host", "port", "url"),
    [
        ("http://127.0.0.1:8760#c", "127.0.0.1", 8761, "http://127.0.0.1:8761"),
        ("http://localhost:8760#c", "::1", 8761, "http://[::1]:8761"),
        ("https://broker.example.org#c", "10.0.0.7", 8761, "http://10.0.0.7:8761"),
        ("https://broker.example.org#c", "127.0.0.1", 8761, ""),
        ("https://broker.example.org#c", "localhost", 8761, ""),
        ("https://broker.example.org#c", "0.0.0.0", 8761, ""),
        ("http://127.0.0.1:8760#c", "::", 8761, ""),
        ("http://127.0.0.1:8760#c", "127.0.0.1", 0, ""),
    ],
)
def test_the_address_of_a_card_is_one_that_the_broker_reaches(place, host, port, url):
    if url:
        assert address_for(place, "http", host, port) == url
    else:
        with pytest.raises(ConfigError):
            address_for(place, "http", host, port)


def test_a_broker_passes_on_what_owners_say_and_names_those_that_are_not_there(tmp_path, monkeypatch, caplog):
    class Inner(http.server.BaseHTTPRequestHandler):
        """A service within the broker's network, which answers any POST with a page."""

        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"secret page")

    monkeypatch.setattr(broker, "_SETTLED", 0.0)
    with http.server.HTTPServer(("127.0.0.1", 0), Inner) as inner:
        threading.Thread(target=inner.serve_forever, daemon=True).start()
        file = members(tmp_path, ("north",))[1]
        url = f"http://127.0.0.1:{inner.server_port}"
        there = dataclasses.replace(file, owners=(dataclasses.replace(file.owners[0], url=url),))
        with ThreadedServer(BrokerApp(there)) as server:
            body = json.dumps({"north": base64.b64encode(b"x" * 100).decode()}).encode()
            answer = HttpClient(server.url).request("POST", "/v1/ask", "", body=body).json()
            assert [*answer["north"]] == ["missing"]
            until = time.monotonic() + 20
            while url not in caplog.text:  # it answers no look as owners do
                assert time.monotonic() < until
                time.sleep(0.05)
        inner.shutdown()


def test_an_owner_elsewhere_may_not_name_the_brokers_machine(tmp_path):
    home, server = start_broker(tmp_path / "broker", 2)
    with server:  # it writes the terms that cards are added to
        pass
    cards = members(tmp_path, ("a", "b"))[1].owners
    here = "127.0.0.1 localhost [::1] [::ffff:127.0.0.1] a.localhost localhost. 127.0.0.1. ip6-localhost"
    for url in (f"http://{host}:9" for host in here.split()):
        with pytest.raises(ConfigError, match="own machine"):
            home.add(OwnerCard("a", cards[0].key, url), "t" * 43, "203.0.113.9")
    assert home.add(OwnerCard("a", cards[0].key, "http://10.0.0.9:9"), "t" * 43, "203.0.113.9") is None
