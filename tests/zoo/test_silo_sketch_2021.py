"""CS-F-LTR as printed: the noise of answers, what its account says, and what silos ask each other."""

import functools
import json
import math

import numpy as np
import pytest
from scipy import stats
from text_worlds import SILOS, run, small_federation, small_texts

from fedrank.core.errors import ConfigError, SecureSumError
from fedrank.core.privacy_report import Unit
from fedrank.core.protocol import Party
from fedrank.engine.settings import from_dict
from fedrank.texts.build import build_texts
from fedrank.texts.config import Texts
from fedrank.texts.data.generate import generate_texts
from fedrank.texts.rows import count_errors
from fedrank.texts.silo_sketch.setup.exchange_sketches import open_sealed, rows_of_party
from fedrank.texts.silo_sketch.setup.rows import SiloTexts
from fedrank.texts.silo_sketch.setup.settings import Totals
from fedrank.texts.sketch import hash_terms
from fedrank.texts.sketch.key import ALL_SILOS
from fedrank_zoo.decoys import Obfuscator
from fedrank_zoo.silo_sketch_2021 import (
    Ask,
    AskingSetup,
    OwnCells,
    OwnQuestions,
    PrintedNoise,
    PrintedSketch,
    continuous_laplace,
    printed_account,
)

CHANCE = 1e-9


def setup_of(texts=None, z1=3, epsilon=0.5, **sketch):
    texts = small_texts() if texts is None else texts
    return AskingSetup(
        silos=len(texts),
        texts=Texts(scale="federation", depth=6, negatives=3, foreign=5),
        sketch=PrintedSketch(z1=z1, epsilon=epsilon, z=6, w=64, statistics_z=1, statistics_w=256, **sketch),
        documents=max(one.corpus.n_documents for one in texts) + 2,
        words=max(len(one.words) for one in texts) + 1,
        seed=1,
    )


@functools.cache
def asked():
    return setup_of(), *run(setup_of())


@pytest.mark.parametrize("rng", [None, np.random.default_rng(3)], ids=["system", "simulated"])
def test_one_continuous_variable_is_in_all_cells_of_an_answer(rng):
    cells = np.arange(5 * 600 * 4).reshape(5, 600, 4)
    left = PrintedNoise("paper", 0.5, 4).answer(cells, rng) - cells
    assert np.ptp(left, axis=2).max() < 1e-9
    assert stats.kstest(left[:, :, 0].ravel() / 2.0, "laplace").pvalue > CHANCE
    assert np.unique(np.round(left[:, :, 0], 9)).size == 3000


def test_continuous_noise_of_the_operating_system_is_laplace():
    assert stats.kstest(continuous_laplace(3.0, (100, 200)).ravel() / 3.0, "laplace").pvalue > CHANCE


def test_sizes_and_statistics_have_no_noise():
    noise = PrintedNoise("paper", 0.5, 30)
    assert noise.scale() == 2.0 and noise.scale("sizes") is None and noise.scale("statistics") is None
    assert np.array_equal(noise.sizes(np.array([[3, 2]])), [[3, 2]])
    with pytest.raises(ConfigError):
        noise.answer(np.zeros((1, 2, 3), np.int32))


def test_the_account_promises_nothing_beside_the_published_number():
    report = printed_account(PrintedNoise("paper", 0.5, 30), 4200, 300)
    assert report.epsilon(Unit.OCCURRENCE) == math.inf and report.epsilon_round == math.inf and report.covers == ()
    assert report.details["epsilon_published"] == 0.5 and report.details["epsilon_published_total"] == 2100.0
    content = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert {promise["epsilon"] for promise in content["promises"]} == {None}


def test_questions_depend_on_queries_only():
    """A decoy from the documents would show, with certainty, a word that one of them holds."""
    setup, texts = setup_of(z1=1), small_texts()[0]
    corpus = texts.corpus
    kept = corpus.select(np.arange(2, corpus.n_documents), np.arange(corpus.n_queries), corpus.name)
    other = SiloTexts(kept, texts.part)
    assert len(other.corpus.vocabulary) < len(texts.corpus.vocabulary) and other.words == texts.words
    request = Totals(np.zeros(setup.terms.length, np.int32))
    own = {"number": np.array(0), "secret": np.arange(32, dtype=np.uint8), "decoys": np.arange(32, dtype=np.uint8)}
    said = [Ask(setup).respond(request, Party(one, dict(own)), np.random.default_rng(0)) for one in (texts, other)]
    rows = [open_sealed(setup, party, OwnQuestions, 0, ALL_SILOS, reply.sealed) for party, reply in said]
    np.testing.assert_array_equal(rows[0].rows, rows[1].rows)
    assert rows[0].words == rows[1].words == len(texts.words)
    assert len(np.unique(rows[0].rows[: len(texts.words)], axis=0)) == len(texts.words)


def test_a_word_is_asked_about_in_one_way_only():
    setup, state, parties, _ = asked()
    sealed = state.replies["ask"][0].sealed
    said = [open_sealed(setup, parties[0], OwnQuestions, n, ALL_SILOS, one).rows for n, one in enumerate(sealed)]
    for number, party in enumerate(parties):
        texts, own = party.shared, party.own
        hashes = hash_terms(texts.words, setup.shape, own["secret"].tobytes())
        again = Obfuscator(setup.shape, 3, texts.words, hashes, own["decoys"].tobytes())
        for row, word in enumerate(texts.words):
            question = again.ask(word)
            np.testing.assert_array_equal(said[number][row], question.rows)
            same = said[number][row] == hashes.rows[row]
            assert same[question.own].all() and same.sum() == 3  # the others are a decoy's


def test_answers_are_sealed_for_who_asked():
    setup, state, parties, _ = asked()
    answers = state.replies["answer"][0].sealed
    for owner, silo in ((0, 2), (1, 0)):
        said = open_sealed(setup, parties[silo], OwnCells, owner, silo, answers[owner][silo])
        assert said.answered == len(parties[silo].shared.words)
    with pytest.raises(SecureSumError):
        open_sealed(setup, parties[1], OwnCells, 0, 1, answers[0][2])


def test_with_little_noise_counts_are_those_of_the_documents():
    setup = setup_of(epsilon=1e6)
    state, parties, _ = run(setup, through_bytes=True)
    assert count_errors(setup, state, parties, small_federation()).held < 0.2
    for number in range(SILOS):
        rows = rows_of_party(parties[number])
        assert rows["cross_where"].any() and np.isfinite(rows["cross_x"]).all()


def test_messages_through_bytes_give_the_same_rows():
    for made, again in zip(asked()[2], run(asked()[0], through_bytes=True)[1], strict=True):
        for name, array in rows_of_party(made).items():
            np.testing.assert_array_equal(array, rows_of_party(again)[name], err_msg=name)


def test_the_protocol_has_the_settings_of_the_paper_and_refuses_what_cannot_be():
    texts = generate_texts(queries=30, documents=120, seed=5)
    made = {"protocol": "silo-sketch-2021", "seeds": 1, "texts": {"silos": 2}}
    config = from_dict(made).resolved()
    sketch = config.method.sketch
    assert (sketch.epsilon, sketch.z, sketch.w) == (0.5, 10, 120)
    assert isinstance(build_texts(config, data=texts).setup, AskingSetup)
    for wrong in ({"z": 4, "z1": 5}, {"words": 2}):
        with pytest.raises(ConfigError, match=next(reversed(wrong))):
            experiment = build_texts(from_dict({**made, "sketch": wrong}).resolved(), data=texts)
            experiment.setup.parties(list(experiment.texts[0]))
