"""Order of hits by score and cosine, with every owner's encoder, some, or none."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from device_worlds import TERMS
from search_worlds import TEXTS, owner, search_world, write_federation

from fedrank.core.errors import ConfigError
from fedrank.deploy.search import federation
from fedrank.deploy.search.broker import BrokerApp
from fedrank.deploy.search.federation import (
    Federation,
    FederationFile,
    OwnerCard,
    RankingTerms,
    base_and_features,
    read_asker,
    read_federation,
)
from fedrank.texts.served.owner import NAMES, OwnerSettings
from fedrank_zoo.threaded_server import ThreadedServer

pytest.importorskip("tantivy")

NUMBERS = len(NAMES)
OF_SEARCH = replace(TERMS, n_features=NUMBERS)


def test_without_an_encoder_the_order_is_that_of_the_scores(tmp_path):
    with search_world(tmp_path, settings=OwnerSettings(encoder="none")) as (asked, _, _):
        plain = asked.search("boundary layer of a wing")
        same = Federation(replace(asked.file, ranking=RankingTerms()), (asked.asker, asked._tokens))
        found = same.search("boundary layer of a wing")
        assert [hit.title for hit in found.hits] == [hit.title for hit in plain.hits] and not found.left_out_cosines
        assert all(hit.features is None for hit in plain.hits) and all(hit.features for hit in found.hits)


def test_with_an_encoder_the_order_is_that_of_score_and_cosine(tmp_path):
    pytest.importorskip("tokenizers")
    encoder = str(Path(__file__).parents[2] / "texts" / "oracle" / "kept" / "bert")
    with search_world(tmp_path, settings=OwnerSettings(encoder=encoder)) as (asked, _, _):
        for weight in (0.0, 2.0, 50.0):
            federation = Federation(replace(asked.file, ranking=RankingTerms(weight)), (asked.asker, asked._tokens))
            hits = federation.search("boundary layer of a wing").hits
            assert len(hits) == 4 and len({hit.features[0] for hit in hits}) > 2
            most = max(hit.score for hit in hits)
            base = [hit.score / most + weight * hit.features[0] for hit in hits]
            assert base == sorted(base, reverse=True)


def test_owners_that_give_no_numbers_leave_the_scores(tmp_path):
    with search_world(tmp_path, settings=OwnerSettings(features=False)) as (asked, _, _):
        ranked = Federation(replace(asked.file, ranking=RankingTerms()), (asked.asker, asked._tokens))
        scores = [hit.score for hit in ranked.search("boundary layer of a wing").hits]
        assert scores == sorted(scores, reverse=True)


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


def test_the_federations_file_says_how_hits_are_ordered(tmp_path):
    with search_world(tmp_path, {"north": TEXTS["north"]}) as (_, _, file):
        path = write_federation(tmp_path / "f.toml", file)
        with path.open("a") as more:
            more.write("\n[ranking]\ncosine = 3\n")
        assert read_federation(path).ranking == RankingTerms(3.0) and file.ranking is None
    for wrong in ("cosine = true", "cosine = -1", "other = true", 'hub = "https://hub.example.org"'):
        path.write_text(f'name = "x"\n[ranking]\n{wrong}\n', encoding="utf-8")
        with pytest.raises(ConfigError, match=r"f\.toml.*delete" if "hub" in wrong else r"f\.toml"):
            read_federation(path)
    path.write_text('name = "anna"\n[decoys]\nnumber = 7\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"decoys.*delete"):
        read_asker(path)
