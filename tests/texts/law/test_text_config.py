"""Configurations of silos with texts: what is refused, in one clear sentence, and what defaults come to."""

import json

import numpy as np
import pytest

from fedrank.core.errors import ConfigError, DataError, FedrankError, UnknownNameError
from fedrank.core.privacy_report import Unit
from fedrank.engine.settings import as_dict, from_dict
from fedrank.texts.build import build_texts
from fedrank.texts.silo_sketch.state import TEST, TRAIN, VALI

WORDS = ("wing", "heat", "flow", "shock", "plate", "layer", "speed", "panel")


def _write(folder, documents, queries, seed=0):
    """A collection of texts by lot; every query has four relevant documents."""
    rng = np.random.default_rng(seed)
    folder.mkdir()
    rows = [
        {"id": f"d{n}", "title": rng.choice(WORDS), "text": " ".join(rng.choice(WORDS, 9))} for n in range(documents)
    ]
    asked = [{"id": f"q{n}", "text": " ".join(rng.choice(WORDS, 2))} for n in range(queries)]
    for name, lines in (("documents.jsonl", rows), ("queries.jsonl", asked)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    # Spread, so that every query has relevant documents wherever documents go.
    judged = [(q, d, 1 + d % 2) for q in range(queries) for d in range(q % 5, documents, 5)]
    (folder / "qrels").write_text("".join(f"q{q} 0 d{d} {grade}\n" for q, d, grade in judged))
    return str(folder)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return _write(tmp_path_factory.mktemp("texts") / "small", 40, 20)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return _write(tmp_path_factory.mktemp("texts") / "other", 25, 9, seed=1)


def _config(**settings):
    return from_dict({"protocol": "silo-sketch", "seeds": 1} | settings).resolved()


def test_settings_that_mean_nothing_or_are_no_settings_are_refused():
    for settings, said in [
        ({"sketch": {"mode": "plain", "epsilon": 1.0}}, "has no noise, so that sketch.epsilon means nothing"),
        ({"sketch": {"z1": 4}}, "sketch.z1 means nothing to this protocol"),
        ({"sketch": {"mode": "per-query"}}, "no value of sketch.mode named 'per-query'"),
        ({"clicks": "perfect"}, "clicks means nothing to this protocol"),
        ({"clients": 7}, "clients means nothing"),
        ({"ranker": "mlp"}, "ranker means nothing"),
        ({"sigma": 0.5}, "sigma means nothing"),
        ({"privacy": {"epsilon": 1.0}}, "privacy.epsilon means nothing"),
        ({"silos": {"target": "x"}}, "silos means nothing"),
        ({"bandit": {"c": 0.5}}, "bandit means nothing"),
        ({"aggregate": "median"}, "aggregate means nothing"),
        ({"texts": {"train": 0.7, "vali": 0.3}}, "together below 1"),
        ({"texts": {"silos": 1}}, "texts.silos must be in 2..255"),
        ({"sketch": {"z": -1}}, "sketch.z must be at least 0"),
        ({"sketch": {"mode": "secret"}}, "sketch.mode"),
        ({"training": {"loss": "hinge"}}, "training.loss"),
        ({"training": {"labels": "loud"}}, "training.labels"),
        ({"texts": {"docs": 3}}, "docs"),
    ]:
        with pytest.raises(FedrankError, match=said) as failed:
            _config(**settings)
        assert "\n" not in str(failed.value)


def test_a_resolved_configuration_is_read_again_as_it_was():
    for settings in ({}, {"sketch": {"mode": "plain"}}):
        config = _config(**settings)
        assert from_dict(as_dict(config)) == config == config.resolved()
        assert "clients" not in as_dict(config) and "silos" not in as_dict(config)


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"texts": {"silos": 12}}, DataError, "too few for (vali|test|train).*Make fewer silos"),
        ({"texts": {"silos": 200}}, FedrankError, "200"),
        ({"evaluation": {"baselines": ["local", "MSE"]}}, UnknownNameError, "no baseline of silos with texts.*'MSE'"),
        ({"evaluation": {"measures": ["nDCH@10"]}}, FedrankError, "nDCH"),
        ({"training": {"local_steps": 0}}, ConfigError, "local_steps must be at least 1"),
        ({"training": {"beta": -1.0}}, ConfigError, "beta"),
        ({"sketch": {"w": 1}}, ConfigError, "w >= 2"),
        ({"data": "nowhere"}, UnknownNameError, "nowhere"),
    ],
)
def test_what_does_not_fit_the_data_is_said_before_anything_runs(small, settings, error, said):
    with pytest.raises(error, match=said) as failed:
        build_texts(_config(**{"data": small} | settings))
    assert "\n" not in str(failed.value)


def test_a_silo_with_more_than_was_agreed_on_is_named(small):
    experiment = build_texts(_config(data=small, texts={"silos": 2, "documents": 5}))
    with pytest.raises(ConfigError, match="documents, agreed were at most 5"):
        experiment.setup.parties(list(experiment.texts[0]))


def test_several_collections_are_a_silo_each(small, other):
    experiment = build_texts(_config(data=f"{small}+{other}"))
    first, second = experiment.federations[0].silos
    assert experiment.n_parties == 2 and (first.n_documents, second.n_documents) == (40, 25)
    assert len(set(experiment.federations[0].whole.document_ids)) == 65
    for wrong in ({"silos": 3}, {"cut": "topic"}):
        with pytest.raises(ConfigError, match=r"names 2 silos; leave texts\.silos and texts\.cut out"):
            build_texts(_config(data=f"{small}+{other}", texts=wrong))
    assert build_texts(_config(data=f"{small}+{other}", texts={"silos": 2})).n_parties == 2


def test_every_silo_learns_chooses_and_is_tested_and_a_seed_cuts_anew(small):
    experiment = build_texts(_config(data=small, seeds=2, texts={"silos": 3}))
    cuts = []
    for federation, texts in zip(experiment.federations, experiment.texts, strict=True):
        cuts.append([documents.tolist() for documents in federation.documents])
        assert sorted(number for part in cuts[-1] for number in part) == list(range(40))
        for one in texts:
            assert all((one.part == part).any() for part in (TRAIN, VALI, TEST))
            judged = np.unique(one.corpus.judged_queries[one.corpus.grades > 0])
            assert set(np.flatnonzero(one.part >= 0)) == set(judged)
    assert cuts[0] != cuts[1]
    again = build_texts(_config(data=small, seed=1, texts={"silos": 3}))
    assert [documents.tolist() for documents in again.federations[0].documents] == cuts[1]
    assert experiment.protocol.learner.grades == 3


def test_epsilon_by_mode_is_what_the_account_says(small):
    once = build_texts(_config(data=small, sketch={"z": 3})).setup.promise
    assert once.epsilon(Unit.OCCURRENCE) == 0.2 and once.details["scale"] == pytest.approx(3 / (0.8 * 0.2))
    plain = build_texts(_config(data=small, sketch={"mode": "plain"})).setup.promise
    assert plain.details["scale"] is None and np.isinf(plain.epsilon(Unit.OCCURRENCE))
    assert plain.as_json()["epsilon_round"] is None


def test_sketches_that_no_message_holds_are_refused_before_anything_is_made():
    config = from_dict({"protocol": "silo-sketch", "data": "generated", "seeds": 1, "sketch": {"z": 200, "w": 70_000}})
    with pytest.raises(ConfigError, match=r"would send .* GiB about its .* documents.*sketch\.z"):
        build_texts(config.resolved())
