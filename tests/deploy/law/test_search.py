"""A federated search over real HTTP: what is found, who learns what, what fails by itself alone."""

import base64
import inspect
import json
import socket
import threading
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from search_worlds import TEXTS, owner, search_world, write_documents

from fedrank.cli.search import broker as serve_broker
from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.search import federation
from fedrank.deploy.search import statistics as search_statistics
from fedrank.deploy.search.broker import PATIENCE, BrokerApp
from fedrank.deploy.search.federation import Federation, FederationFile, OwnerCard, read_federation
from fedrank.deploy.search.folder import Askers, OwnerFolder
from fedrank.deploy.search.service import Operator
from fedrank.deploy.search.statistics import make_statistics
from fedrank.texts.served import statistics as served_statistics
from fedrank.texts.served.analyser import Analyser
from fedrank.texts.served.documents import Document, passages_of
from fedrank.texts.served.encoder import Encoder
from fedrank.texts.served.engines.tantivy import TantivyEngine
from fedrank.texts.served.envelopes import STEP, Question, Tickets, key_of, key_text, open_question
from fedrank.texts.served.owner import Owner, OwnerSettings
from fedrank.texts.served.statistics import StatisticsTerms
from fedrank_zoo.threaded_server import ThreadedServer

pytest.importorskip("tantivy")

TODAY = int(time.time() // 86400)


def ids(answer):
    return [(hit.owner, hit.title) for hit in answer.hits]


def test_documents_of_all_owners_are_found_and_fetched(tmp_path):
    with search_world(tmp_path) as (asked, _, _):
        answer = asked.search("a wing")
        assert set(ids(answer)) == {("north", "Lift of wings"), ("south", "Wings and flutter")}
        assert not answer.missing
        assert asked.fetch(answer.hits[0])[1] in {text for rows in TEXTS.values() for _, _, text in rows}
        assert asked.search("boundary layer", 1).hits[0].score >= asked.search("boundary layer", 2).hits[1].score
        assert asked.search("the of a").hits == () == asked.search("quaternion").hits
        assert ids(asked.search("cone")) == [("south", "")]  # it has no title, and its text stays with its owner


@pytest.mark.parametrize("reveals", ["title", "beginning", "score"])
def test_what_crosses_with_a_hit_is_what_the_owner_agreed_to(tmp_path, reveals):
    """On the wire: the answer as it is opened has no more of a document than the setting says, and its size follows."""
    words = [f"word{number}" for number in range(300)]
    with owner(tmp_path / "north", settings=OwnerSettings(reveals=reveals)) as (home, server):
        texts = tmp_path / "texts"
        texts.mkdir()
        (texts / "line.txt").write_text(" ".join(words) + "\n")  # one line of 2,289 characters
        (texts / "titled.txt").write_text("The word0 of a title\n" + " ".join(words))
        assert Operator(home.path).add(texts) == (2, 2)
        askers = home.askers()
        body = {"kind": "search", "words": ["word0"], "k": 5, "day": TODAY, "asker": "anna"}
        body["token"] = askers.allow("anna")
        askers.close()
        question = Question(key_of(home.public_key()), body)
        _, sealed = post(server.url + "/v1/ask", question.sealed)
        hits = question.open_answer(sealed)["hits"]
    shown = sorted(hit.get("title", "") for hit in hits)
    beginning = " ".join(words)[:79] + "…"
    titled = "The word0 of a title"
    assert shown == {"title": [titled, "line.txt"], "beginning": [titled, beginning]}.get(reveals, ["", ""])
    assert len(sealed) - 48 == 2 * STEP  # HPKE adds 48 bytes


def test_tickets_are_new_in_every_answer_and_belong_to_one_asker(tmp_path):
    with search_world(tmp_path) as (asked, homes, file):
        first, second = (asked.search("roses").hits[0] for _ in range(2))
        assert first.ticket != second.ticket
        askers = homes["east"].askers()
        other = Federation(file, ("bert", {"east": askers.allow("bert")}))
        askers.close()
        with pytest.raises(RunError, match="no ticket"):
            other.fetch(first)
        assert asked.fetch(first) == asked.fetch(second)


def test_an_owner_gives_what_its_settings_say(tmp_path):
    shy = OwnerSettings(reveals="score", fetch=False, most_hits=1, step=5.0, questions_a_day=3)
    with search_world(tmp_path, {"north": TEXTS["north"]}, shy) as (asked, _, _):
        (hit,) = asked.search("wing heat flow layer", 5).hits
        assert hit.title == "" and hit.score % 5 == 0
        with pytest.raises(RunError, match="no documents out"):
            asked.fetch(hit)
        asked.search("wing")
        asked.search("wing")
        with pytest.raises(RunError, match="used up"):
            asked.search("wing")


def test_who_has_no_token_gets_nothing(tmp_path):
    with search_world(tmp_path) as (asked, homes, file):
        stranger = Federation(file, ("anna", dict.fromkeys(homes, "x" * 43)))
        with pytest.raises(RunError, match="does not know"):
            stranger.search("wing")
        askers = homes["north"].askers()
        assert askers.forbid("anna") and not askers.forbid("anna")
        askers.close()
        answer = asked.search("wing")
        assert set(answer.missing) == {"north"} and ids(answer) == [("south", "Wings and flutter")]


def test_documents_come_and_go_while_the_owner_is_served(tmp_path):
    with search_world(tmp_path) as (asked, homes, _):
        operator = Operator(homes["east"].path)
        rows = [("e2", "Tulips", "tulips in spring"), ("e1", "Wings", "a bee's wing")]
        new = write_documents(tmp_path / "new.jsonl", rows)
        assert operator.add(new) == (2, 2)
        assert ("east", "Tulips") in ids(asked.search("tulips")) and not asked.search("roses").hits
        hit = asked.search("tulips").hits[0]
        assert operator.remove(["e2", "nothing"]) == (1, 1)
        assert not asked.search("tulips").hits
        with pytest.raises(RunError, match="taken the document away"):
            asked.fetch(hit)
        assert operator.status()["documents"] == 1


def test_an_owner_that_is_gone_is_missing_and_nobody_else_is(tmp_path):
    with search_world(tmp_path, patience=2.0) as (asked, _, file):
        gone = FederationFile("test", (*file.owners[:2], OwnerCard("east", file.owners[2].key, "http://127.0.0.1:9")))
        with ThreadedServer(BrokerApp(gone, patience=2.0)) as broker:
            other = FederationFile("test", gone.owners, broker.url)
            answer = Federation(other, ("anna", asked._tokens)).search("wing roses")
        assert list(answer.missing) == ["east"] and "unreachable" in answer.missing["east"] and len(answer.hits) == 2


def test_a_question_shows_its_carrier_nothing_but_its_size():
    """The sealed question has no word of it, and questions of a few words have one size; another key opens nothing."""
    key = X25519PrivateKey.generate()
    sizes = set()
    for words in (["wing"], ["supersonic", "flow", "past", "cones"]):
        body = {"kind": "search", "words": words, "k": 10, "asker": "a", "token": "t" * 43}
        question = Question(key.public_key(), body)
        sizes.add(len(question.sealed))
        assert not any(word.encode() in question.sealed for word in words)
        assert open_question(question.sealed, key)[0]["words"] == words
        with pytest.raises(ValueError):
            open_question(question.sealed, X25519PrivateKey.generate())
    assert len(sizes) == 1 and (sizes.pop() - 48) % STEP == 0
    assert key_of(key_text(key.public_key())).public_bytes_raw() == key.public_key().public_bytes_raw()


def test_an_answer_belongs_to_its_question(tmp_path):
    """A broker that gives the answer to another question, or of another owner, is found out."""
    with owner(tmp_path / "north", TEXTS["north"]) as (home, server):
        askers = home.askers()
        body = {"kind": "search", "words": ["wing"], "k": 1, "day": TODAY, "asker": "anna"}
        body["token"] = askers.allow("anna")
        askers.close()
        questions = [Question(key_of(home.public_key()), body) for _ in range(2)]
        answers = [post(server.url + "/v1/ask", question.sealed)[1] for question in questions]
        assert "hits" in questions[0].open_answer(answers[0])
        for wrong in (answers[1], answers[0][:-1], b"", answers[0][:40] + b"\0" + answers[0][41:]):
            with pytest.raises(ValueError):
                questions[0].open_answer(wrong)


def test_what_is_no_question_is_refused(tmp_path):
    with owner(tmp_path / "north", TEXTS["north"]) as (home, server):
        askers = home.askers()
        token = askers.allow("anna")
        askers.close()
        for raw in (b"", b"x", b"\0" * 600, b"[]"):
            assert post(server.url + "/v1/ask", raw)[0] in (400, 411)
        assert post(server.url + "/v1/ask", b"x" * 20_000)[0] == 413
        bad = [
            {},
            {"kind": "search", "words": "wing", "k": 1},
            {"kind": "search", "words": ["a b"], "k": 1},
            {"kind": "search", "words": [""], "k": 1},
            {"kind": "search", "words": ["w"] * 65, "k": 1},
            {"kind": "search", "words": ["wing"], "k": 0},
            {"kind": "search", "words": ["wing"], "k": True},
            {"kind": "search", "words": ["wing"], "k": 2**70},
            {"kind": "search", "words": [3], "k": 1},
            {"kind": "fetch", "ticket": "?"},
            {"kind": "fetch", "ticket": 5},
            {"kind": "fetch", "ticket": "A" * 226},
            {"kind": "drop"},
            {"kind": "search", "words": ["wing"], "k": 1, "day": None},
            {"kind": "search", "words": ["wing"], "k": 1, "day": True},
            {"kind": "search", "words": ["wing"], "k": 1, "day": 2**70},
        ]
        for body in bad:
            question = Question(key_of(home.public_key()), {"asker": "anna", "token": token, "day": TODAY, **body})
            status, answer = post(server.url + "/v1/ask", question.sealed)
            assert status == 200 and "error" in question.open_answer(answer), body


def test_half_a_surrogate_pair_is_no_text_and_breaks_nothing(tmp_path, monkeypatch):
    """JSON may hold one, by an escape; people's keyboards and files do, too."""
    with search_world(tmp_path, {"north": TEXTS["north"]}) as (asked, homes, _):
        assert len(asked.search("wing \ud800").hits) == 1
        monkeypatch.setattr("fedrank.texts.served.envelopes._pad", lambda body: json.dumps(body).encode())
        key, url = key_of(homes["north"].public_key()), homes["north"].url("owner") + "/v1/ask"
        sound = {"kind": "search", "words": ["wing"], "k": 1, "day": TODAY, "asker": "anna"}
        for wrong in ({"words": ["\ud800"]}, {"asker": "\ud800"}, {"token": "\ud800"}):
            question = Question(key, sound | {"token": asked._tokens["north"]} | wrong)
            status, answer = post(url, question.sealed)
            assert status == 200 and question.open_answer(answer)["error"] in ("malformed", "unauthorised")


def counted(home):
    askers = home.askers()
    ((_, searched, fetched),) = askers.rows()
    askers.close()
    return searched, fetched


def test_a_question_that_is_sent_again_counts_once_also_after_a_restart(tmp_path):
    """Whoever carries a question cannot use its asker's day up with it."""
    settings = OwnerSettings(questions_a_day=10)
    with owner(tmp_path / "north", TEXTS["north"], settings=settings) as (home, server):
        askers = home.askers()
        body = {"kind": "search", "k": 1, "day": TODAY, "asker": "anna", "token": askers.allow("anna")}
        askers.close()
        one = Question(key_of(home.public_key()), body | {"words": ["wing"]})
        assert len(one.open_answer(post(server.url + "/v1/ask", one.sealed)[1])["hits"]) == 1
        assert counted(home) == (1, 0)
        for question in [one] * 10:
            assert question.open_answer(post(server.url + "/v1/ask", question.sealed)[1])["error"] == "replayed"
        assert counted(home) == (1, 0)
    with owner(tmp_path / "north", settings=settings) as (home, server):
        assert one.open_answer(post(server.url + "/v1/ask", one.sealed)[1])["error"] == "replayed"
        late = [Question(key_of(home.public_key()), body | {"words": ["wing"], "day": TODAY + n}) for n in (-2, 2, 0)]
        said = [question.open_answer(post(server.url + "/v1/ask", question.sealed)[1]) for question in late]
        assert [one.get("error") for one in said] == ["other-day", "other-day", None]
        assert counted(home) == (2, 0)


def test_what_was_asked_is_forgotten_when_its_day_is_no_longer_taken(tmp_path, monkeypatch):
    askers = Askers(tmp_path / "askers.db", {"search": 2, "fetch": 0})
    now = [100 * 86400.0]
    askers.allow("anna")
    monkeypatch.setattr("fedrank.deploy.search.folder.time.time", lambda: now[0])
    said = []
    for day, identity, asked in ((0, b"a", 0), (0, b"a", 0), (1, b"a", 0), (1, b"b", 0), (1, b"c", 2), (1, b"d", 1),
                                 (2, b"c", 2), (2, b"b", 0), (3, b"c", 2), (4, b"c", 2)):  # fmt: skip
        now[0] = (100 + day) * 86400.0
        said.append(askers.count("anna", "search", identity, 100 + asked, ""))
    assert said == ["", "replayed", "replayed", "", "", "too-many", "replayed", "other-day", "replayed", "other-day"]
    assert askers._db.execute("SELECT count(*) FROM question").fetchone() == (1,)
    assert askers.count("anna", "search", b"e", 104, "") == ""
    assert sorted(row[0] for row in askers._db.execute("SELECT identity FROM question")) == [b"e"]
    askers.close()


def forged(asked, monkeypatch, change, whose="north"):
    """The asker, for whom an owner's answers are changed after they were opened: what an owner could have sealed."""
    real = federation._open
    keys = {card.key: card.name for card in asked.file.owners}
    seen = []

    class Noted(Question):
        def __init__(self, key, body):
            super().__init__(key, body)
            self.owner = keys[key_text(key)]

    def opened(question, found):
        body = real(question, found)
        if question.owner == whose and isinstance(body, dict):
            change(body)
            seen.append(body)
        return body

    monkeypatch.setattr(federation, "Question", Noted)
    monkeypatch.setattr(federation, "_open", opened)
    return seen


HIT = {"ticket": "x", "score": 1.0, "title": "forged"}


FORGED = (
    (lambda body: body.update(hits=[HIT] * 12_000), "12,000 hits where 5"),
    (lambda body: body.update(hits=[HIT] * 6), "6 hits where 5"),
    (lambda body: body["hits"][0].update(score=9.9e8), "9.9e+08"),
    (lambda body: body["hits"][0].update(score=172.0), "172"),
    (lambda body: body["hits"][0].update(score=-0.1), "-0.1"),
    (lambda body: body["hits"][0].update(score=float("nan")), "nan"),
    (lambda body: body["hits"][0].update(score=float("inf")), "inf"),
    (lambda body: body["hits"][0].update(score=10**400), "no sense"),
    (lambda body: body["hits"][0].update(score="?"), "no sense"),
    (lambda body: body["hits"].append([]), "no sense"),
    (lambda body: body.update(hits=3), "no sense"),
    (lambda body: body["hits"][0].update(features=[0.0] * 4), "4 numbers"),
    (lambda body: body["hits"][0].update(features=[0.0, 2.0]), "outside"),
)


def test_an_owner_that_gives_what_no_owner_can_give_is_refused_by_name(tmp_path, monkeypatch):
    """k = 5 hits of one word: BM25 is below 2 fields x (1.2 + 1) x ln(10^12) = 121.6, and rounding adds 50 at most."""
    with search_world(tmp_path) as (asked, _, _):
        honest = [(hit.owner, hit.score, hit.title) for hit in asked.search("wing", 5).hits if hit.owner != "north"]
        for change, why in FORGED:
            with monkeypatch.context() as once:
                forged(asked, once, change)
                answer = asked.search("wing", 5)
            assert [(hit.owner, hit.score, hit.title) for hit in answer.hits] == honest, why
            assert list(answer.missing) == ["north"] and why in answer.missing["north"]


def test_a_broker_that_hands_on_anything_makes_its_owner_missing(tmp_path, monkeypatch):
    with search_world(tmp_path) as (asked, _, _):
        real = asked._broker.request
        for handed in ("é", "AAAA", "", 3, None, ["AAAA"]):

            def request(*given, handed=handed, **named):
                response = real(*given, **named)
                return replace(response, body=json.dumps(response.json() | {"north": {"answer": handed}}).encode())

            monkeypatch.setattr(asked._broker, "request", request)
            found = asked.search("wing")
            assert list(found.missing) == ["north"] and {hit.owner for hit in found.hits} == {"south"}


def test_what_an_owner_shows_is_cut_to_what_an_owner_can_show(tmp_path, monkeypatch):
    with search_world(tmp_path) as (asked, _, _):
        forged(
            asked, monkeypatch, lambda body: body["hits"][0].update(title="x" * 10**6, ticket="y" * 10**6, score=171.5)
        )
        best = asked.search("wing", 5).hits[0]
        assert (best.owner, best.score, len(best.title), len(best.ticket)) == ("north", 171.5, 256, 226)


@pytest.mark.slow
@pytest.mark.parametrize("accepts", [True, False])
def test_an_owner_that_hangs_is_missing_in_time_and_takes_no_hit_of_the_others(tmp_path, accepts):
    """It takes connections and says nothing, or does not even take them; forty searches come at once."""
    patience = 2.0  # longer than the others need on a busy machine
    hung = socket.create_server(("127.0.0.1", 0), backlog=1000 if accepts else 1)
    if not accepts:
        filling = [socket.create_connection(hung.getsockname()[:2]) for _ in range(2)]
    with search_world(tmp_path) as (asked, _, file):
        url = f"http://127.0.0.1:{hung.getsockname()[1]}"
        owners = (*file.owners[:2], OwnerCard("east", file.owners[2].key, url))
        with ThreadedServer(BrokerApp(FederationFile("test", owners), patience=patience)) as broker:
            federation_ = Federation(FederationFile("test", owners, broker.url), ("anna", asked._tokens))
            federation_.search("wing")
            answers, seconds = [], []

            def search():
                started = time.monotonic()
                answers.append(federation_.search("wing"))
                seconds.append(time.monotonic() - started)

            threads = [threading.Thread(target=search) for _ in range(40)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    hung.close()
    if not accepts:
        for one in filling:
            one.close()
    assert [len(answer.hits) for answer in answers] == [2] * 40
    assert all(list(answer.missing) == ["east"] and "hung" in answer.missing["east"] for answer in answers)
    assert np.median(seconds) < 3 * patience


def test_an_owner_is_waited_for_two_seconds_unless_told_otherwise():
    assert PATIENCE == 2.0 == inspect.signature(serve_broker).parameters["patience"].default


@pytest.mark.parametrize("encoded", [False, True])
def test_an_index_of_another_analyser_is_made_anew_from_what_it_holds(tmp_path, monkeypatch, caplog, encoded):
    """Words that were stemmed in another language; vectors are not made again."""
    encoder = None
    if encoded:
        pytest.importorskip("tokenizers")
        encoder = Encoder(str(Path(__file__).parents[2] / "texts" / "oracle" / "kept" / "bert"))
    rows = [Document(f"d{n}", "", f"flying wings number{n}", {"type": "txt"}) for n in range(40 if encoded else 1201)]
    engine = TantivyEngine(tmp_path / "index", encoder, Analyser(("german",)))
    engine.add(rows)
    vectors = {one.id: one.vector for one in engine.candidates({"number1": 1.0, "wing": 1.0, "wings": 1.0}, 2000)}
    assert engine.frequencies(["wing", "fly", "fli"])[2] == (0, 0)
    engine.close()
    monkeypatch.setattr(TantivyEngine, "_vectors", None if encoded else TantivyEngine._vectors)
    for said in (1, 0):  # once
        caplog.clear()
        engine = TantivyEngine(tmp_path / "index", encoder)
        assert len(engine) == len(rows) and len(caplog.records) == said
        assert engine.frequencies(["fli", "number1"]) == [(len(rows), 0), (1, 0)]
        assert engine.get("d7") == rows[7]
        for one in engine.candidates({"number1": 1.0, "wing": 1.0}, 2000):
            np.testing.assert_array_equal(one.vector, vectors[one.id])
        engine.close()
    assert [file.name for file in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize("stop", ["TantivyEngine._commit", "write_atomically", "shutil.rmtree"])
def test_a_stop_while_an_index_is_made_anew_loses_nothing(tmp_path, monkeypatch, stop):
    rows = [Document(f"d{n}", "", f"wing number{n}") for n in range(1201)]
    engine = TantivyEngine(tmp_path / "index", None, Analyser(("german",)))
    engine.add(rows)
    engine.close()

    def end(*_, **__):
        raise KeyboardInterrupt

    for _ in range(2):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(f"fedrank.texts.served.engines.tantivy.{stop}", end)
            TantivyEngine(tmp_path / "index")
    engine = TantivyEngine(tmp_path / "index")
    assert len(engine) == 1201 and engine.get("d7") == rows[7]
    engine.close()
    assert [file.name for file in tmp_path.iterdir()] == ["index"]


def test_a_long_document_hides_no_others(tmp_path):
    engine = TantivyEngine(tmp_path / "index")
    long = "\n\n".join("wing " * 399 for _ in range(300))
    engine.add([Document("long", "", long), *(Document(f"d{n}", "", "a wing of an engine") for n in range(5))])
    owner_ = Owner(engine, X25519PrivateKey.generate(), Tickets(bytes(32)), None, OwnerSettings())
    assert {hit.id for hit in owner_.search(["wing"], 10)} == {"long", *(f"d{n}" for n in range(5))}
    engine.close()


def test_a_long_document_is_found_by_a_passage_and_given_whole(tmp_path):
    """Its words count once in the statistics, and it stands once in a list."""
    long = "\n".join(f"line {number} of a wing with word{number}" for number in range(2000))
    engine = TantivyEngine(tmp_path / "index")
    engine.add([Document("long", "Wings", long), Document("short", "", "a wing")])
    assert len(passages_of(long)) > 20 and "".join(passages_of(long)) == long
    assert len(engine) == 2 and engine.get("long") == Document("long", "Wings", long)
    assert engine.frequencies(["wing", "word7", "word1999"]) == [(2, 1), (1, 0), (1, 0)]
    # line, wing, 2,000 numbers, 2,000 words; the rest are stop words
    assert sorted(len(set(words.body)) for words in engine.words()) == [1, 4002]
    owner_ = Owner(engine, X25519PrivateKey.generate(), Tickets(bytes(32)), None, OwnerSettings())
    assert [hit.id for hit in owner_.search(["word1999"], 10)] == ["long"]
    assert sorted(hit.id for hit in owner_.search(["wing"], 10)) == ["long", "short"]
    assert engine.remove(["long"]) == 1 and len(engine) == 1 and not engine.candidates({"word7": 1.0}, 10)
    engine.close()


def test_a_federation_has_one_analyser(tmp_path):
    """The federation's file says it: its owners take it over, and refuse questions that were cut otherwise."""
    texts = {"north": [("n1", "Häuser", "Die Häuser der Stadt")], "south": [("s1", "", "ein Haus am See")]}
    with search_world(tmp_path, texts, languages=("german",)) as (asked, homes, file):
        assert [home.settings().languages for home in homes.values()] == ["german"] * 2
        assert {hit.owner for hit in asked.search("das haus").hits} == {"north", "south"}
        other = Federation(replace(file, languages=("english",)), ("anna", asked._tokens))
        with pytest.raises(RunError, match="german"):
            other.search("haus")


def test_words_that_an_index_could_take_for_a_query_language_are_words(tmp_path):
    with search_world(tmp_path, {"north": TEXTS["north"]}) as (asked, _, _):
        for query in ('title:"wing"', "body_words:*", "-wing", "wing^1e9", "(((", "ﬁrst \u0000 wing", "wing " * 60):
            asked.search(query)


@pytest.fixture
def small(monkeypatch):
    """Statistics of few cells, so that a sum is quick."""

    def statistics(self):
        return StatisticsTerms(len(self.owners), self.epsilon, self.delta, self.releases, 256)

    monkeypatch.setattr(FederationFile, "statistics", statistics)


@pytest.fixture
def few(monkeypatch):
    """Statistics are made of few documents, too."""
    monkeypatch.setattr(served_statistics, "_FEW", 0.0)


def broker_tokens(homes):
    return {name: home.token("broker") for name, home in homes.items()}


def test_statistics_are_summed_and_used(tmp_path, small, few):
    with search_world(tmp_path) as (asked, homes, file):
        assert asked.search("wing").own_statistics == ("north", "south", "east")
        sent, _ = make_statistics(file, broker_tokens(homes), 0)
        assert sent > 4 * 2 * 256  # base64 of as many numbers of four bytes, at least
        tables = [home.table() for home in homes.values()]
        assert all(np.array_equal(table.frequency, tables[0].frequency) for table in tables)
        assert asked.search("wing").own_statistics == ()
        assert [row["epsilon"] for row in homes["north"].releases()] == [1.0]
        # What was given is not given again, and nothing more than was agreed on.
        for release in (0, 1):
            with pytest.raises(RunError, match="refuses"):
                make_statistics(file, broker_tokens(homes), release)


def test_owners_with_few_documents_keep_their_statistics_and_their_privacy_budget(tmp_path, small, monkeypatch):
    """Five documents beside noise of a standard deviation of about 70: ε would be spent on statistics of no use."""
    with search_world(tmp_path) as (asked, homes, file):
        with pytest.raises(RunError, match="refuses"):
            make_statistics(file, broker_tokens(homes), 0)
        assert [home.releases() for home in homes.values()] == [[], [], []]
        terms = file.statistics()
        needed = 10 * terms.deviation / 3
        assert f"{needed:,.0f} documents" in Operator(homes["north"].path).status()["note"]
        assert asked.search("wing").own_statistics
        # A sum that turns out to be of few documents is kept, and not used.
        with monkeypatch.context() as forced:
            forced.setattr(served_statistics, "_FEW", 0.0)
            _, summed = make_statistics(file, broker_tokens(homes), 0)
            assert asked.search("wing").own_statistics == ()
        assert summed.documents < 10 * summed.deviation
        assert asked.search("wing").own_statistics == ("north", "south", "east")
        status = Operator(homes["north"].path).status()
        assert status["statistics"] == "own" and status["note"] == summed.note() != ""


def begin_release(home, file, release=0):
    """An owner's answer to the first step of a release, as a broker that speaks to it alone asks; it and the party."""
    engine = home.engine()
    try:
        party = search_statistics.StatisticsParty(home, home.private_key(), file, engine)
        terms = search_statistics.sum_terms(file.statistics())
        steps = search_statistics.message_sizes(terms.length, len(file.owners) - 1)
        message = steps[0].request.encode(search_statistics.Server(terms).invitation())
        return party.answer("keys", {"release": release, "message": base64.b64encode(message).decode()})
    finally:
        engine.close()


def test_a_vector_that_has_left_leaves_again_among_the_same_owners_on_the_same_terms_only(tmp_path, small, few):
    """Two sums that differ by an owner would show that owner's vector with less noise than was agreed on."""
    with search_world(tmp_path, {name: TEXTS[name] for name in ("north", "south")}) as (_, homes, file):
        real = search_statistics.StatisticsParty._unmasking
        try:
            search_statistics.StatisticsParty._unmasking = lambda self, body: {}["withheld"]
            with pytest.raises(RunError):
                make_statistics(file, broker_tokens(homes), 0)
        finally:
            search_statistics.StatisticsParty._unmasking = real
    home = homes["north"]
    assert begin_release(home, file)["codes"]
    moved = replace(file, owners=tuple(replace(card, url="http://127.0.0.1:1") for card in file.owners))
    assert begin_release(home, moved)["codes"]  # addresses are no terms
    more = OwnerFolder(tmp_path / "west")
    more.prepare()
    roster = (*file.owners, OwnerCard("west", more.public_key(), "http://127.0.0.1:1"))
    for other in (
        replace(file, owners=roster),
        replace(file, epsilon=0.5),
        replace(file, delta=1e-5),
        replace(file, releases=2),
        replace(file, owners=(file.owners[0], roster[-1])),
    ):
        for release in range(2):
            with pytest.raises(search_statistics.SpentError):
                begin_release(home, other, release)
    assert len(home.releases()) == 1


def test_owners_that_come_later_take_part_in_a_later_release_that_was_agreed_on(tmp_path, small, few):
    texts = {name: TEXTS[name] for name in ("north", "south")}
    with search_world(tmp_path, texts) as (_, homes, file):
        pass
    file = replace(file, releases=2)
    north, west = homes["north"], OwnerFolder(tmp_path / "west")
    west.prepare()
    each = {"epsilon": 0.5, "delta": file.delta, "of": 2}
    north.add_release({"release": 0, "agreed": "among north and south", "owners": ["north", "south"], **each})
    grown = replace(file, owners=(*file.owners, OwnerCard("west", west.public_key(), "http://127.0.0.1:1")))
    with pytest.raises(search_statistics.SpentError):
        begin_release(north, grown, 0)
    assert begin_release(north, grown, 1)["codes"] and begin_release(west, grown, 1)["codes"]


def test_a_release_that_failed_is_repeated_with_the_same_vector(tmp_path, small, few, monkeypatch):
    """The vector that left once leaves again: two draws of noise over one release would protect less."""
    sent = []
    real = search_statistics.StatisticsParty._vector

    def noted(self):
        vector = real(self)
        sent.append((self._number, vector.copy()))
        return vector

    monkeypatch.setattr(search_statistics.StatisticsParty, "_vector", noted)
    with search_world(tmp_path) as (_, homes, file):

        def fail(self, body):
            raise RunError("gone")

        with monkeypatch.context() as broken:
            broken.setattr(search_statistics.StatisticsParty, "_unmasking", fail)
            with pytest.raises(RunError, match="gone"):
                make_statistics(file, broker_tokens(homes), 0)
        assert all(home.table() is None for home in homes.values())
        make_statistics(file, broker_tokens(homes), 0)
        assert len(sent) == 6
        for number in range(3):
            first, second = (vector for owner_, vector in sent if owner_ == number)
            np.testing.assert_array_equal(first, second)
        assert all(len(home.releases()) == 1 and home.table() for home in homes.values())


def test_a_broker_that_invents_an_owner_is_refused(tmp_path, small, few, monkeypatch):
    """Keys that an owner did not make carry no code of its key: whoever poses as it gets no vector."""
    real = search_statistics._Owner.ask

    def posing(self, step, body):
        answer = real(self, step, body)
        if step == "keys" and self._name == "south":  # another advertisement under the code of the true one
            message = bytearray(base64.b64decode(answer["message"]))
            message[-32:] = X25519PrivateKey.generate().public_key().public_bytes_raw()
            answer["message"] = base64.b64encode(bytes(message)).decode()
        return answer

    monkeypatch.setattr(search_statistics._Owner, "ask", posing)
    with search_world(tmp_path) as (_, homes, file):
        with pytest.raises(RunError, match="not its own"):
            make_statistics(file, broker_tokens(homes), 0)
        assert homes["north"].releases() == []


def test_an_owner_whose_part_makes_no_sense_is_no_crash_of_the_broker(tmp_path, small, few, monkeypatch):
    real = search_statistics._Owner.ask
    with search_world(tmp_path) as (_, homes, file):
        for part in ({}, {"message": "é"}, {"message": 3}, {"codes": 3}, {"codes": []}):

            def ask(self, step, body, part=part):
                answer = real(self, step, body)
                return {**answer, **part} if part else {}

            monkeypatch.setattr(search_statistics._Owner, "ask", ask)
            with pytest.raises(RunError):
                make_statistics(file, broker_tokens(homes), 0)


def test_owners_that_cut_words_otherwise_make_no_statistics_together(tmp_path, small, few, monkeypatch):
    real = search_statistics._Owner.ask

    def ask(self, step, body):
        return real(self, step, body) | ({"analyser": "another"} if self._name == "south" else {})

    monkeypatch.setattr(search_statistics._Owner, "ask", ask)
    with search_world(tmp_path) as (_, homes, file):
        with pytest.raises(RunError, match="south: cuts"):
            make_statistics(file, broker_tokens(homes), 0)
        assert [home.releases() for home in homes.values()] == [[], [], []]


def test_statistics_need_the_brokers_token(tmp_path, small, few):
    with search_world(tmp_path) as (_, homes, file):
        wrong = {**broker_tokens(homes), "south": "x" * 43}
        with pytest.raises(RunError, match="south"):
            make_statistics(file, wrong, 0)
        with pytest.raises(ConfigError, match="south"):
            make_statistics(file, {"north": "x"}, 0)


def test_files_that_make_no_federation_are_refused(tmp_path):
    for text in [
        "name = 3",
        'name = "a"',
        'name = "a"\n[[owners]]\nname = "n"\nkey = "short"',
        'name = "a"\nowner = []',
        'name = "a"\nowners = ["n"]',
        'name = "a"\n[statistics]\nepsilon = "x"\n[[owners]]\nname = "n"\nkey = "{key}"',
        'name = "a"\n[statistics]\nepsilon = -1\n[[owners]]\nname = "n"\nkey = "{key}"\n'
        '[[owners]]\nname = "m"\nkey = "{other}"',
        'name = "a"\n[[owners]]\nname = "n"\nkey = "{key}"\n[[owners]]\nname = "n"\nkey = "{other}"',
        'name = "a"\n[[owners]]\nname = "n"\nkey = "{key}"\n[[owners]]\nname = "m"\nkey = "{key}"',
    ]:
        keys = [key_text(X25519PrivateKey.generate().public_key()) for _ in range(2)]
        path = tmp_path / "federation.toml"
        path.write_text(text.replace("{key}", keys[0]).replace("{other}", keys[1]))
        with pytest.raises(ConfigError, match=r"federation\.toml"):
            read_federation(path)


def post(url, body):
    request = urllib.request.Request(url, body, {"Content-Type": "application/octet-stream"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"{}")


def test_phrases_exclusions_and_filters_choose_among_what_is_found(tmp_path):
    texts = {
        "north": [
            ("a", "Heated wings", "The laws of heated wings in a wind tunnel."),
            ("b", "Wings", "Wings that are heated by the sun."),
        ],
        "south": [("c", "", "Tunnel laws, and heated wings.")],
    }
    with search_world(tmp_path, texts) as (asked, _, _):

        def found(query):
            return {(hit.owner, hit.title) for hit in asked.search(query).hits}

        assert found("heated wings") == {("north", "Heated wings"), ("north", "Wings"), ("south", "")}
        assert found('"heated wings"') == {("north", "Heated wings"), ("south", "")}
        assert found('"heated wings" -wind') == {("south", "")}
        assert found("wings type:pdf") == set()
        first = asked.search("tunnel").hits[0].snippet
        assert [first.text[start:end].lower() for start, end in first.marks] == ["tunnel"]
        assert asked.search("the of").note and asked.search("-wing").note and not asked.search("wing").note


def test_an_owner_that_gives_no_documents_out_gives_no_pieces_and_answers_no_conditions(tmp_path):
    with search_world(tmp_path, {"north": TEXTS["north"]}, OwnerSettings(fetch=False)) as (asked, _, _):
        assert all(not hit.snippet.text for hit in asked.search("wing").hits)
        with pytest.raises(RunError, match="no phrases"):
            asked.search('"of wings"')


def test_matches_of_conditions_are_found_below_the_first_candidates(tmp_path):
    rows = [(f"{n}", f"Wing {n}", "wing " * 5) for n in range(300)] + [("last", "The last", "wing far below a cone")]
    with search_world(tmp_path, {"north": rows}, OwnerSettings(candidates=10)) as (asked, _, _):
        assert [hit.title for hit in asked.search('wing "a cone"', 5).hits] == ["The last"]
        assert len(asked.search("wing -cone", 20).hits) == 20
