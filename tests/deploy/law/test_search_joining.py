"""Owners join a federation: each gets the cards of all, compares words, and may then ask the others."""

import dataclasses
import json
import threading
import time

import pytest
from search_worlds import TEXTS, write_documents

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.http.server import ThreadedServer
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
from fedrank.deploy.search.joining import BrokerFolder, join, proquint, verification_words
from fedrank.deploy.search.service import owner_app
from fedrank.texts.served import statistics as served_statistics
from fedrank.texts.served.statistics import StatisticsTerms

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


def join_all(tmp_path, place, urls, confirm=lambda file, words: True):
    """All owners join at once; what each was shown, or the error that it got."""
    shown = {}

    def one(name):
        home = OwnerFolder(tmp_path / name)
        home.prepare()
        try:
            join(home, name, urls[name], place, lambda file, words: shown.update({name: words}) or confirm(file, words))
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
            askers.forbid("east")
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

    def swap(self, card, token):
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
        refused = join_all(tmp_path, f"{server.url}#{home.token('join')}", urls, lambda file, words: False)
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
