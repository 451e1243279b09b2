"""A query among decoys: what comes back, what an owner sees, what it costs, and what must not tell them apart."""

import base64
import json
from collections import Counter

import pytest
from search_worlds import TEXTS, search_world

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.search.federation import Decoys, Federation, decoys_of
from fedrank.texts.served.envelopes import open_question
from fedrank.texts.served.owner import MOST_AT_ONCE, OwnerSettings

pytest.importorskip("tantivy")

QUERIES = ["heat transfer", "roses", "flutter of an engine", "a cone", "supersonic flow", "quaternions"]


def asked_with(file, homes, decoys):
    tokens = {}
    for name, home in homes.items():
        askers = home.askers()
        tokens[name] = askers.allow("bert")
        askers.close()
    return Federation(file, ("bert", tokens), decoys=decoys)


def test_the_answer_is_that_of_the_query_and_each_decoy_costs_a_question(tmp_path):
    settings = OwnerSettings(questions_a_day=8)
    with search_world(tmp_path, settings=settings) as (plain, homes, file):
        hidden = asked_with(file, homes, Decoys(QUERIES, 3, bytes(32)))
        found, alone = hidden.search("a wing"), plain.search("a wing")
        assert [(hit.owner, hit.title, hit.score) for hit in found.hits] == [
            (hit.owner, hit.title, hit.score) for hit in alone.hits
        ]
        assert hidden.fetch(found.hits[0]) == plain.fetch(alone.hits[0])
        hidden.search("a wing")  # two questions of four
        with pytest.raises(RunError, match="used up"):
            hidden.search("a wing")
        askers = homes["north"].askers()
        assert dict((name, searched) for name, searched, _ in askers.rows())["bert"] == 8
        askers.close()


def test_an_owner_sees_one_set_of_queries_however_often_and_in_a_new_order(tmp_path, monkeypatch):
    with search_world(tmp_path, {"north": TEXTS["north"]}) as (_, homes, file):
        hidden = asked_with(file, homes, Decoys(QUERIES, 2, bytes(32)))
        seen, key = [], homes["north"].private_key()
        request = hidden._broker.request

        def watched(method, path, token, *, body, **more):
            sealed = base64.b64decode(json.loads(body)["north"])
            seen.append([tuple(one["words"]) for one in open_question(sealed, key)[0]["several"]])
            return request(method, path, token, body=body, **more)

        monkeypatch.setattr(hidden._broker, "request", watched)
        for _ in range(40):
            hidden.search("wing")
        assert len({frozenset(one) for one in seen}) == 1 and len(seen[0]) == 3
        places = Counter(one.index(("wing",)) for one in seen)
        assert set(places) == {0, 1, 2}  # 40 throws miss one of three in 3 · (2/3)^40


def test_whose_decoys_are_whose_follows_from_the_key_alone():
    queries = [f"query {number}" for number in range(200)]
    one, other = (Decoys(queries, 5, bytes([n]) * 32) for n in range(2))
    chosen = [one.of(query) for query in queries]
    assert chosen == [one.of(f"  {query} ") for query in queries] and chosen != [other.of(query) for query in queries]
    assert all(query not in own and len(set(own)) == 5 for query, own in zip(queries, chosen, strict=True))
    # Every query is a decoy about as often as another: 1,000 choices of 200, a mean of 5.
    counts = Counter(decoy for own in chosen for decoy in own)
    assert max(counts.values()) < 5 + 5 * 5**0.5 + 3


def test_a_file_of_queries_and_its_key(tmp_path):
    path = tmp_path / "queries.txt"
    path.write_text("\n".join([*QUERIES, "", "roses"]))
    first = decoys_of(path, 3)
    key = tmp_path / "decoys.key"
    assert key.stat().st_mode & 0o777 == 0o600 and len(key.read_bytes()) == 32
    assert decoys_of(path, 3).of("x") == first.of("x")
    for number, says in ((6, "more than 6"), (0, "1.."), (MOST_AT_ONCE, "1..")):
        with pytest.raises(ConfigError, match=says):
            decoys_of(path, number)
    key.write_bytes(b"short")
    with pytest.raises(ConfigError, match="32 bytes"):
        decoys_of(path, 3)
    with pytest.raises(ConfigError, match=r"nowhere\.txt"):
        decoys_of(tmp_path / "nowhere.txt", 3)


def test_an_asker_s_file_may_name_decoys(tmp_path):
    with search_world(tmp_path, {"east": TEXTS["east"]}) as (plain, _, file):
        asker = tmp_path / "asker.toml"
        (tmp_path / "queries.txt").write_text("\n".join(QUERIES))
        token = plain._tokens["east"]
        asker.write_text(f'name = "anna"\n[tokens]\neast = "{token}"\n[decoys]\nqueries = "queries.txt"\nnumber = 2\n')
        assert [hit.title for hit in Federation(file, asker).search("gardens of lilies").hits] == ["Gardens"]
        asker.write_text(asker.read_text().replace("number", "numbers"))
        with pytest.raises(ConfigError, match="numbers"):
            Federation(file, asker)


def test_a_question_of_another_form_is_refused(tmp_path):
    for several in [[], [{}] * (MOST_AT_ONCE + 1), {}, "ab", [3]]:
        with search_world(tmp_path, {"east": TEXTS["east"]}) as (asked, _, _):
            _, missing = asked._ask({"east": {"kind": "search", "k": 3, "several": several}})
            assert "several" in missing["east"]
