"""Hits after the first ones of a federated search: all of them once, best first, within what each owner allows."""

import json
import random
import urllib.request
from dataclasses import replace
from urllib.error import HTTPError

import pytest
from search_worlds import search_world

from fedrank.core.errors import RunError
from fedrank.deploy.search.federation import Federation, RankingTerms
from fedrank.deploy.search.portal import PortalApp
from fedrank.texts.served.owner import OwnerSettings
from fedrank_zoo.threaded_server import ThreadedServer

pytest.importorskip("tantivy")

DRAW = random.Random(7)
#: Documents with the word wing among others: what is found of each owner, in any order.
TEXTS = {
    name: [
        (f"{name}{i}", f"{name} {i}", " ".join(["wing"] * DRAW.randint(1, 9) + ["rose"] * DRAW.randint(0, 60)))
        for i in range(count)
    ]
    for name, count in {"north": 70, "south": 33, "east": 5}.items()
}


def titles(answer):
    return [hit.title for hit in answer.hits]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    with search_world(folder, TEXTS, OwnerSettings(step=0.0)) as (asked, homes, file):
        yield asked, homes, file


def test_pages_give_every_hit_once_and_the_best_first(world):
    asked, _, _ = world
    answer, seen = asked.search("wing", 20), [20]
    while answer.more:
        before, answer = answer, asked.extend(answer, 20)
        assert [(hit.owner, hit.ticket) for hit in answer.hits[: seen[-1]]] == [
            (hit.owner, hit.ticket) for hit in before.hits
        ]
        scores = [hit.score for hit in answer.hits[seen[-1] :]]
        assert scores == sorted(scores, reverse=True)
        seen.append(len(answer.hits))
    assert seen == [20, 40, 60, 80, 100, 108]
    everything = sorted(row[1] for rows in TEXTS.values() for row in rows)
    assert sorted(titles(answer)) == everything == sorted(titles(asked.search("wing", 200)))
    assert asked.extend(answer, 20) == answer
    assert asked.fetch(answer.hits[107]).body.count("wing") >= 1


def test_the_first_pages_are_in_the_order_of_all_scores(world):
    asked, _, _ = world
    answer = asked.extend(asked.search("wing", 20), 20)
    scores = [hit.score for hit in answer.hits]
    rest = asked.search("wing", 200).hits
    assert scores == sorted((hit.score for hit in rest), reverse=True)[:40]


def test_only_owners_that_may_have_more_are_asked_again(world):
    asked, homes, _ = world

    def counts():
        out = {}
        for name, home in homes.items():
            askers = home.askers()
            out[name] = askers.rows()[0][1]
            askers.close()
        return out

    before = counts()
    answer = asked.search("wing", 20)
    first = counts()
    assert {name: first[name] - before[name] for name in homes} == {"north": 1, "south": 1, "east": 1}
    asked.extend(answer, 30)  # 50 of the 45 that they gave
    second = counts()
    assert second["east"] == first["east"]  # it gave all five
    assert second["south"] - first["south"] == 1  # it has 33
    assert 1 <= second["north"] - first["north"] <= 2


def test_an_answer_that_was_extended_stays_as_it_is(world):
    asked, _, _ = world
    answer = asked.search("wing", 10)
    one, other = asked.extend(answer, 15), asked.extend(answer, 5)
    assert len(answer.hits) == 10 and titles(one)[:15] == titles(other)
    assert titles(one)[:10] == titles(answer)


def test_an_owner_says_how_many_answers_a_query_pages_through(tmp_path):
    shy = OwnerSettings(most_hits=4, pages=3)
    with search_world(tmp_path, {"south": TEXTS["south"]}, shy) as (asked, _, _):
        answer = asked.search("wing", 10)
        assert len(answer.hits) == 4 and answer.more  # one question, as a search is
        for expected in (8, 12):
            answer = asked.extend(answer, 10)
            assert len(answer.hits) == expected
        assert not answer.more and len(asked.search("wing", 1000).hits) == 12


def test_an_owner_that_repeats_itself_or_falls_silent_ends_the_list(world, monkeypatch):
    asked, _, _ = world
    answer = asked.search("wing", 20)
    ask = Federation._ask

    def of_an_earlier_version(self, bodies, person):  # it does not know the key "skip", nor says whether there is more
        bodies = {owner: {k: v for k, v in body.items() if k != "skip"} for owner, body in bodies.items()}
        answers, missing = ask(self, bodies, person)
        return {owner: {k: v for k, v in one.items() if k != "more"} for owner, one in answers.items()}, missing

    monkeypatch.setattr(Federation, "_ask", of_an_earlier_version)
    old = asked.search("wing", 200)
    assert len(old.hits) == 45 and not old.more  # 20, 20 and 5, each once
    monkeypatch.setattr(Federation, "_ask", lambda self, bodies, person: ({}, dict.fromkeys(bodies, "it hung")))
    rest = asked.extend(answer, 100)
    assert len(rest.hits) == 45 and not rest.more and set(rest.missing) <= {"north", "south"} != set()


def test_pages_by_score_and_cosine_give_every_hit_once_with_its_snippet(world):
    asked, _, _ = world
    ranked = Federation(replace(asked.file, ranking=RankingTerms()), (asked.asker, asked._tokens))
    answer = ranked.search("wing rose", 10)
    while answer.more:
        before, answer = len(answer.hits), ranked.extend(answer, 10)
        assert before < len(answer.hits) <= before + 10
    assert sorted(titles(answer)) == sorted(row[1] for rows in TEXTS.values() for row in rows)
    assert all(hit.snippet.text and hit.features for hit in answer.hits) and not answer.left_out_cosines


def test_further_pages_keep_to_conditions_and_rights(world):
    asked, homes, file = world
    kept = asked.search("wing -rose", 200)
    plain = {row[1] for rows in TEXTS.values() for row in rows if "rose" not in row[2]}
    assert plain and {*titles(kept)} == plain and not kept.more
    askers = homes["north"].askers()
    stranger = Federation(file, ("bert", {"north": askers.allow("bert")}))
    askers.close()
    only = stranger.extend(stranger.search("wing", 20), 200)
    assert {hit.owner for hit in only.hits} == {"north"} and len(only.hits) == 70


def test_what_came_stays_where_the_broker_or_a_budget_ends_a_list(world, monkeypatch):
    asked, _, _ = world
    answer, ask = asked.search("wing", 20), Federation._ask

    def refuse(self, bodies, person):
        raise RunError("the broker refused: 429.")

    monkeypatch.setattr(Federation, "_ask", refuse)
    rest = asked.extend(answer, 100)
    assert len(rest.hits) == 45 and {why[:15] for why in rest.missing.values()} == {"no further hits"}
    monkeypatch.setattr(Federation, "_ask", ask)
    assert len(asked.extend(answer, 100).hits) == 108


def test_an_owner_that_always_has_more_gives_no_more_than_is_asked_for(world, monkeypatch):
    asked, _, _ = world
    ask, count = Federation._ask, [0]

    def more(self, bodies, person):
        answers, missing = ask(self, {owner: body | {"skip": 0} for owner, body in bodies.items()}, person)
        for body in answers.values():
            body["more"] = True
            body["hits"].append(body["hits"].pop() | {"score": 9.0})  # its last seems the best
        count[0] += len(bodies)
        return answers, missing

    monkeypatch.setattr(Federation, "_ask", more)
    answer = asked.search("wing", 60)
    assert answer.search is not None and all(len(own) <= 60 for own in answer.search.hits.values())
    assert count[0] <= 9


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.loads(response.read())


def test_the_portal_gives_the_next_hits_and_opens_them(world):
    asked, _, _ = world
    with ThreadedServer(PortalApp(asked)) as server:
        found = post(server.url + "/v1/search", {"query": "wing", "k": 20})
        rows = list(found["hits"])
        while found["more"]:
            found = post(server.url + "/v1/more", {"answer": found["answer"], "k": 20})
            rows += found["hits"]
        assert sorted(row["title"] for row in rows) == sorted(titles(asked.search("wing", 200)))
        opened = post(server.url + "/v1/fetch", {"answer": found["answer"], "hit": 107})
        assert opened["title"] == rows[107]["title"]
        for body in (
            {"answer": "x", "k": 20},
            {"answer": found["answer"], "k": 0},
            {"answer": found["answer"], "k": True},
        ):
            with pytest.raises(HTTPError) as refused:
                post(server.url + "/v1/more", body)
            assert refused.value.code in (400, 404)
