"""Configurations of silos with texts: what is refused, in one clear sentence, and what defaults come to."""

import json

import numpy as np
import pytest

from fedrank.core.errors import ConfigError, DataError, FedrankError, UnknownNameError
from fedrank.core.privacy_report import Unit
from fedrank.engine.settings import as_dict, from_dict
from fedrank.engine.setup import run_setup
from fedrank.texts.build import build_texts
from fedrank.texts.silo_sketch.state import TEST, TRAIN, VALI
from fedrank.texts.sketch.account import ANSWER, compose

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


def test_paper_mode_is_refused_unless_somebody_knows_what_it_does():
    with pytest.raises(ConfigError, match=r"does not protect the document owner from the querier.*--i-know"):
        _config(sketch={"mode": "paper"})
    known = _config(sketch={"mode": "paper"}, i_know=True)
    assert known.method.sketch.epsilon == 0.5 and known.method.sketch.z > 0 < known.method.sketch.w


def test_settings_that_mean_nothing_or_are_no_settings_are_refused():
    for settings, said in [
        ({"i_know": True}, "i_know means nothing without sketch.mode = 'paper'"),
        ({"sketch": {"mode": "plain", "epsilon": 1.0}}, "has no noise, so that sketch.epsilon means nothing"),
        ({"sketch": {"z1": 4}}, "sketch.z1 means nothing without sketch.mode"),
        ({"sketch": {"decoys": "icde"}}, "sketch.decoys means nothing without"),
        ({"sketch": {"mode": "paper", "answer_epsilon": 0.1}, "i_know": True}, "sketch.answer_epsilon means nothing"),
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
    for settings in ({}, {"sketch": {"mode": "plain"}}, {"sketch": {"mode": "per-query", "z1": 3}}):
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
        ({"sketch": {"mode": "per-query", "z": 4, "z1": 5}}, ConfigError, r"z1\) must be in 1\.\.3"),
        ({"data": "nowhere"}, UnknownNameError, "nowhere"),
    ],
)
def test_what_does_not_fit_the_data_is_said_before_anything_runs(small, settings, error, said):
    with pytest.raises(error, match=said) as failed:
        build_texts(_config(**{"data": small} | settings))
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize(
    ("texts", "said"), [({"documents": 5}, "documents, agreed were at most 5"), ({"words": 2}, "query words, agreed")]
)
def test_a_silo_with_more_than_was_agreed_on_is_named(small, texts, said):
    config = _config(data=small, texts={"silos": 2} | texts, sketch={"mode": "per-query"})
    experiment = build_texts(config)
    with pytest.raises(ConfigError, match=said):
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
    """publish-once: 0.2 of an occurrence for good; per-query: what makes 8 last for all questions, and no more."""
    once = build_texts(_config(data=small, sketch={"z": 3})).setup.promise
    assert once.epsilon(Unit.OCCURRENCE) == 0.2 and once.details["scale"] == pytest.approx(3 / (0.8 * 0.2))
    experiment = build_texts(_config(data=small, sketch={"mode": "per-query", "z": 10}))
    setup, promise = experiment.setup, experiment.setup.promise
    questions = 3 * max(len(one.words) for one in experiment.texts[0])
    assert promise.details["answers"] == questions and promise.details["answers_of_querier"] == questions // 3
    one = promise.epsilon(Unit.OCCURRENCE, scope=ANSWER)
    assert compose(one, questions + 1, "laplace", 1e-6) == pytest.approx(8.0, rel=1e-6)
    assert promise.epsilon(Unit.OCCURRENCE) <= 8.0 + 1e-9
    assert promise.details["scale"] == pytest.approx(10 / one) and setup.allowed >= questions
    half = build_texts(_config(data=small, sketch={"mode": "per-query", "answer_epsilon": 1.0}))
    assert half.setup.allowed == 7 == half.setup.promise.details["answers"]  # eight of 1 are 8; sizes cost one
    plain = build_texts(_config(data=small, sketch={"mode": "plain"})).setup.promise
    assert plain.details["scale"] is None and np.isinf(plain.epsilon(Unit.OCCURRENCE))
    assert plain.as_json()["epsilon_round"] is None


def test_a_budget_that_no_answer_fits_is_refused(small):
    """One answer of 9 does not fit 8; said before or when the setup answers, never ignored."""
    with pytest.raises(FedrankError, match="8"):
        experiment = build_texts(_config(data=small, sketch={"mode": "per-query", "answer_epsilon": 9.0}))
        setup = experiment.setup
        run_setup(setup, setup.parties(list(experiment.texts[0])), np.random.default_rng(0))


def test_sketches_that_no_message_holds_are_refused_before_anything_is_made():
    config = from_dict({"protocol": "silo-sketch", "data": "generated", "seeds": 1, "sketch": {"z": 200, "w": 70_000}})
    with pytest.raises(ConfigError, match=r"would send .* GiB about its .* documents.*sketch\.z"):
        build_texts(config.resolved())
