"""A search that learns: the order of a model, clicks that become messages, and what happens without numbers."""

import json
import urllib.request
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from device_worlds import TERMS
from fake_hub import ANYTHING, ENROLMENT, FakeHub
from search_worlds import TEXTS, owner, search_world, write_federation

from fedrank.core.errors import ConfigError
from fedrank.deploy.http.server import ThreadedServer
from fedrank.deploy.search import federation
from fedrank.deploy.search.broker import BrokerApp
from fedrank.deploy.search.federation import Federation, FederationFile, OwnerCard, RankingTerms, read_federation
from fedrank.deploy.search.learning import FixedRanker, LearningRanker, base_and_features, ranker_of
from fedrank.deploy.search.portal import PortalApp
from fedrank.ranking.model import RankingModel
from fedrank.ranking.rankers.linear import Linear
from fedrank.texts.served.owner import NAMES, OwnerSettings

pytest.importorskip("tantivy")

NUMBERS = len(NAMES)
OF_SEARCH = replace(TERMS, n_features=NUMBERS)


def learned(asked, ranker):
    """The same asker with a ranker."""
    return Federation(replace(asked.file, ranking=RankingTerms()), (asked._name, asked._tokens), ranker=ranker)


def test_without_weights_the_order_is_that_of_the_scores(tmp_path):
    with search_world(tmp_path) as (asked, _, _):
        plain = asked.search("boundary layer of a wing")
        same = learned(asked, FixedRanker([0.0] * NUMBERS)).search("boundary layer of a wing")
        assert [hit.title for hit in same.hits] == [hit.title for hit in plain.hits]
        assert all(hit.features is None for hit in plain.hits)
        turned = learned(asked, FixedRanker([0.0, 100.0])).search("boundary layer of a wing")
        shares = [hit.features[1] for hit in turned.hits]
        assert shares == sorted(shares, reverse=True) and shares[0] > shares[-1]
        assert not asked.report_click(plain, 0) and not asked.report_click(turned, 0)


def test_with_an_encoder_the_order_is_that_of_score_and_cosine(tmp_path):
    pytest.importorskip("tokenizers")
    encoder = str(Path(__file__).parents[2] / "texts" / "oracle" / "kept" / "bert")
    with search_world(tmp_path, settings=OwnerSettings(encoder=encoder)) as (asked, _, _):
        for weight in (0.0, 2.0, 50.0):
            federation = Federation(replace(asked.file, ranking=RankingTerms(weight)), (asked._name, asked._tokens))
            hits = federation.search("boundary layer of a wing").hits
            assert len(hits) == 4 and len({hit.features[0] for hit in hits}) > 2
            most = max(hit.score for hit in hits)
            base = [hit.score / most + weight * hit.features[0] for hit in hits]
            assert base == sorted(base, reverse=True)


def test_clicks_become_messages_of_a_device(tmp_path):
    with search_world(tmp_path) as (asked, _, _), FakeHub(OF_SEARCH, np.zeros(NUMBERS)) as hub:
        ranker = LearningRanker(hub.url, ENROLMENT, tmp_path / "devices", **ANYTHING)
        federation = learned(asked, ranker)
        before = federation.search("boundary layer of a wing")
        assert not federation.report_click(before, 0)  # no model yet
        assert [hit.score for hit in before.hits] == sorted((hit.score for hit in before.hits), reverse=True)
        ranker.sync()
        b = hub.terms.interactions
        for _ in range(b):
            answer = federation.search("boundary layer of a wing")
            assert federation.report_click(answer, 0) and not federation.report_click(answer, 99)
        federation.search("wing")  # ends the last interaction
        ranker.sync()
        (message,) = hub.reports.values()
        assert len(message) == 9
        ranker.close()


def test_a_model_of_the_hub_is_added_to_the_scores(tmp_path):
    weights = np.zeros(NUMBERS)
    weights[1] = 100.0
    with search_world(tmp_path) as (asked, _, _), FakeHub(OF_SEARCH, weights) as hub:
        ranker = LearningRanker(hub.url, ENROLMENT, tmp_path / "devices", devices=2, **ANYTHING)
        ranker.sync()
        shares = [hit.features[1] for hit in learned(asked, ranker).search("boundary layer of a wing").hits]
        assert shares == sorted(shares, reverse=True) and shares[0] > shares[-1]
        ranker.close()


def test_owners_that_give_no_numbers_leave_the_scores(tmp_path):
    with search_world(tmp_path, settings=OwnerSettings(features=False)) as (asked, _, _):
        answer = learned(asked, FixedRanker([0.0, 100.0])).search("boundary layer of a wing")
        scores = [hit.score for hit in answer.hits]
        assert scores == sorted(scores, reverse=True) and answer.order is None


def test_opening_a_document_in_the_portal_is_a_click(tmp_path):
    seen = []

    class Ranker(FixedRanker):
        def order(self, features, base):
            seen.append((features, base))
            return super().order(features, base)

    with search_world(tmp_path) as (asked, _, _):
        federation = learned(asked, Ranker([0.0] * NUMBERS))
        federation.report_click = lambda answer, rank: seen.append(rank)
        with ThreadedServer(PortalApp(federation)) as portal:
            found = post(portal.url + "/v1/search", {"query": "wing"})
            assert post(portal.url + "/v1/fetch", {"answer": found["answer"], "hit": 1})["body"]
    (features, base), rank = seen
    assert features.shape == (2, NUMBERS) and base.max() == 1.0 and rank == 1


def test_cosines_of_other_encoders_are_those_expected_at_their_score():
    """The line through (1, .5) and (.5, .25) is .25 more a half: .125 at a quarter of the best score."""
    rows = [[0.5, 1], [0.25, 1], [0.9, 0]]
    base, features = base_and_features([4.0, 2.0, 1.0], rows, [True, True, False], 2.0)
    np.testing.assert_allclose(features, [[0.5, 1], [0.25, 1], [0.125, 0]])
    np.testing.assert_allclose(base, [1.0 + 1.0, 0.5 + 0.5, 0.25 + 0.25])
    rng = np.random.default_rng(0)
    scores, cosines, known = rng.uniform(1, 9, 30), rng.uniform(-1, 1, 30), np.arange(30) % 3 > 0
    _, features = base_and_features(scores.tolist(), np.stack([cosines, cosines], 1).tolist(), known.tolist())
    line = np.polynomial.Polynomial.fit(scores[known], cosines[known], 1)
    np.testing.assert_allclose(features[:, 0], np.where(known, cosines, line(scores)), rtol=1e-5)
    # One, or all of one score: there is no line, and the mean is taken; never beyond what a cosine can be.
    assert base_and_features([4.0, 2.0], [[0.4, 0], [0, 0]], [True, False])[1][1, 0] == np.float32(0.4)
    steep = base_and_features([4.0, 3.9, 0.1], [[1.0, 0], [0.5, 0], [0, 0]], [True, True, False])[1]
    assert steep[2, 0] == -1.0
    base, features = base_and_features([4.0, 2.0, 1.0], rows, [False] * 3)
    np.testing.assert_array_equal(base, [1.0, 0.5, 0.25])
    np.testing.assert_array_equal(features[:, 0], 0.0)
    assert base_and_features([], [], [])[1].shape == (0, NUMBERS)


def test_the_usual_encoder_is_that_of_most_owners():
    for encoders, usual in [
        ({"a": "x", "b": "x", "c": "y"}, "x"),
        ({"a": "", "b": "", "c": "y"}, "y"),
        ({"a": "y", "b": "x"}, "y"),
        ({"a": "", "b": ""}, ""),
        ({}, ""),
    ]:
        assert federation._usual_encoder(encoders) == usual


def test_one_owner_without_the_encoder_does_not_switch_the_cosine_off(tmp_path):
    pytest.importorskip("tokenizers")
    encoder = str(Path(__file__).parents[2] / "texts" / "oracle" / "kept" / "bert")
    with (
        search_world(tmp_path / "with", {n: TEXTS[n] for n in ("north", "south")}, OwnerSettings(encoder=encoder)) as (
            asked,
            _,
            file,
        ),
        owner(tmp_path / "east", [("e1", "", "a wing of a bee")]) as (home, server),
    ):
        askers = home.askers()
        tokens = asked._tokens | {"east": askers.allow("anna")}
        askers.close()
        owners = (*file.owners, OwnerCard("east", home.public_key(), server.url))
        with ThreadedServer(BrokerApp(FederationFile("test", owners))) as broker:
            whole = FederationFile("test", owners, broker.url, ranking=RankingTerms(2.0))
            hits = Federation(whole, ("anna", tokens)).search("boundary layer of a wing").hits
        assert {hit.owner for hit in hits} == {"north", "south", "east"}
        known = [hit for hit in hits if hit.owner != "east"]
        most, cosines = max(hit.score for hit in hits), [hit.features[0] for hit in known]
        line = np.polynomial.Polynomial.fit([hit.score for hit in known], cosines, 1)
        base = [hit.score / most + 2 * (line(hit.score) if hit.owner == "east" else hit.features[0]) for hit in hits]
        assert base == sorted(base, reverse=True) and len(set(cosines)) > 2


def test_a_kept_model_of_four_numbers_loses_the_two_that_are_gone(tmp_path):
    """Weights of dense, covered, adjacent, title: the first and the last stay, and a warning says so."""
    for weights, kept in (([1.5, 7.0, 7.0, -0.5], [1.5, -0.5]), ([1.5, -0.5], [1.5, -0.5])):
        model = RankingModel(Linear(len(weights)), np.asarray(weights, np.float32))
        path = model.save(tmp_path / f"{len(weights)}.safetensors")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            np.testing.assert_array_equal(ranker_of(path).weights, np.asarray(kept, np.float32))
        assert ["covered" in str(one.message) for one in said] == [True] * (len(weights) == 4)


def test_a_hub_of_four_numbers_teaches_nothing_and_leaves_the_lists(tmp_path, caplog):
    with search_world(tmp_path) as (asked, _, _), FakeHub(replace(TERMS, n_features=4), np.ones(4)) as hub:
        ranker = LearningRanker(hub.url, ENROLMENT, tmp_path / "devices", **ANYTHING)
        federation = learned(asked, ranker)
        ranker.sync()
        answer = federation.search("boundary layer of a wing")
        assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)
        assert not federation.report_click(answer, 0)
        assert any("[documents, 4]" in one.getMessage() for one in caplog.records)
        ranker.close()


def test_the_federations_file_says_where_one_learns(tmp_path):
    with search_world(tmp_path, {"north": TEXTS["north"]}) as (asked, _, file):
        path = write_federation(tmp_path / "f.toml", file)
        with path.open("a") as more:
            more.write('\n[ranking]\nhub = "https://hub.example.org"\n')
        made = read_federation(path)
        assert made.ranking == RankingTerms(2.0, "https://hub.example.org") and file.ranking is None
        with pytest.raises(ConfigError, match=r"table \[ranking\]"):
            Federation(file, ("anna", asked._tokens), ranker=FixedRanker([0.0] * NUMBERS))
        for wrong in ("cosine = true", "cosine = -1", "other = true", "hub = 3"):
            path.write_text(f'name = "x"\n[ranking]\n{wrong}\n', encoding="utf-8")
            with pytest.raises(ConfigError, match=r"f\.toml"):
                read_federation(path)
    with pytest.raises(ConfigError, match="2 weights"):
        FixedRanker([1.0])


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())
