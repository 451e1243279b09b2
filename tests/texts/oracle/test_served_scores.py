"""Scores, statistics and sums of a served search against counts by hand and BM25 over all documents together."""

import collections
import math
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrank.privacy.calibration import shared_gaussian_sigma
from fedrank.texts.served import statistics as served
from fedrank.texts.served.documents import Document, Words, words_of
from fedrank.texts.served.engines.tantivy import TantivyEngine
from fedrank.texts.served.envelopes import Tickets
from fedrank.texts.served.owner import Owner, OwnerSettings, score_documents
from fedrank.texts.served.statistics import StatisticsTerms, TermTable, cells_of

pytest.importorskip("tantivy")

WORDS = [f"w{n}" for n in range(40)]


def silent(sigma, n):
    """No noise, so that sums can be compared."""
    return np.zeros(n, np.int64)


def random_words(rng, most):
    return [WORDS[i] for i in np.minimum(rng.geometric(0.15, rng.integers(0, most)) - 1, 39)]


def by_hand(query, documents):
    """BM25 (ATIRE's) of body and title, summed, from counts of all documents."""
    n = len(documents)
    out = []
    for document in documents:
        total = 0.0
        for field in ("body", "title"):
            mean = sum(len(getattr(d, field)) for d in documents) / n
            own = collections.Counter(getattr(document, field))
            for word in query:
                df = max(1, sum(word in getattr(d, field) for d in documents))
                c = own[word]
                length = len(getattr(document, field))
                total += math.log(n / df) * c * 2.2 / (c + 1.2 * (0.25 + 0.75 * length / mean)) if c else 0.0
        out.append(total)
    return np.array(out)


def test_owners_with_shared_statistics_score_as_one_collection_would():
    """Without noise, scores at three owners are those of BM25 over all documents, so that they compare."""
    rng = np.random.default_rng(5)
    owners = [[Words(random_words(rng, 5), random_words(rng, 60)) for _ in range(30)] for _ in range(3)]
    terms = StatisticsTerms(3, cells=1 << 14)
    total = sum(terms.vector(own, silent).astype(np.int64) for own in owners)
    table = terms.table((total % 2**32).astype(np.uint32))
    # The table expects noise and floors what it cannot tell from it; here there is none.
    exact = TermTable(table.frequency, table.documents, table.lengths, 0.0, 1.0, 1e-6)
    every = [document for own in owners for document in own]
    assert exact.documents == 90
    means = [np.mean([len(d.body) for d in every]), np.mean([len(d.title) for d in every])]
    np.testing.assert_allclose(exact.lengths, means, rtol=0.5)  # lengths are rounded at random
    exact = TermTable(table.frequency, 90.0, np.array(means), 0.0, 1.0, 1e-6)
    query = ["w0", "w3", "w3", "w17"]
    got = np.concatenate([score_documents(query, own, exact.at(query)).sum(axis=1) for own in owners])
    np.testing.assert_allclose(got, by_hand(query, every), rtol=1e-9)


def test_one_document_changes_no_vector_by_more_than_the_noise_is_made_for():
    """The largest document there can be, against none, in L2; often, since lengths are rounded at random."""
    terms = StatisticsTerms(2, cells=1 << 16)
    huge = Words([f"t{n}" for n in range(500)], [f"b{n}" for n in range(5000)])
    for _ in range(20):
        change = terms.count_words([huge])
        assert np.sqrt((change.astype(float) ** 2).sum()) <= served.SENSITIVITY + 1e-12
    assert change[-3:].tolist() == [1, served.MOST_LENGTH, served.MOST_LENGTH]
    assert change[: terms.cells].sum() == served.MOST_BODY


def test_lengths_are_right_on_average():
    terms = StatisticsTerms(2, cells=256)
    sums = [int(terms.count_words([Words([], ["w"] * 100)])[-2]) for _ in range(3000)]
    assert set(sums) <= {0, 1}
    assert abs(np.mean(sums) - 100 * 4 / 512) < 0.04  # 5 standard errors


def test_noise_of_a_release_is_that_of_its_share():
    """What all owners but one add together is the σ of several releases together."""
    asked = []

    def noted(sigma, n):
        asked.append((sigma, n))
        return np.zeros(n, np.int64)

    terms = StatisticsTerms(4, epsilon=0.5, releases=3, cells=256)
    terms.vector([], noted)
    sigma = shared_gaussian_sigma(0.5, terms.delta, math.sqrt(128 + 16 + 1 + 32), 3, 515, rounds=3)
    assert asked == [(pytest.approx(sigma / math.sqrt(3)), 515)]


def test_noise_of_the_sum_has_its_deviation():
    terms = StatisticsTerms(4, cells=4096)
    total = sum(terms.vector([]).astype(np.int64) for _ in range(4)) % 2**32
    signed = total.astype(np.uint32).view(np.int32)
    deviation = terms.sigma * math.sqrt(4 / 3)
    assert abs(signed.std() / deviation - 1) < 0.05
    assert abs(signed.mean()) < 5 * deviation / math.sqrt(len(signed))


def test_a_word_is_looked_up_between_the_sum_and_what_home_expects():
    terms = StatisticsTerms(2, cells=1 << 12)
    total = np.zeros(terms.length, np.int64)
    total[cells_of(["flow"], terms.cells)] = 5000
    total[-3:] = 10_000, 1000, 100
    table = terms.table(total.astype(np.uint32))
    alone, at_home = table.at(["flow"]), table.at(["flow"], [(10, 0)], 1000)
    assert alone.document_frequency[0, 0] == 5000
    assert 100 < at_home.document_frequency[0, 0] < 5000
    assert table.at(["no"]).document_frequency[0, 0] == pytest.approx(terms.sigma * math.sqrt(2) / 2)
    back = TermTable.from_bytes(table.to_bytes())
    np.testing.assert_array_equal(back.at(["flow"]).document_frequency, alone.document_frequency)


def test_an_index_finds_what_exhaustive_scoring_finds(tmp_path):
    """The best documents of an owner are those of scoring all its documents by hand."""
    rng = np.random.default_rng(1)
    documents = [Document(f"d{n}", " ".join(random_words(rng, 6)), " ".join(random_words(rng, 50))) for n in range(120)]
    engine = TantivyEngine(tmp_path)
    assert engine.add(documents) == 120 == len(engine)
    cut = words_of(documents)
    settings = OwnerSettings(step=0.0, candidates=120)
    owner = Owner(engine, X25519PrivateKey.generate(), Tickets(bytes(32)), None, settings)
    for _ in range(20):
        query = words_of([Document("", "", " ".join(random_words(rng, 6)))])[0].body
        if not query:
            continue
        scores = by_hand(query, cut)
        got = owner.search(query, 10)
        holds = [any(word in d.body + d.title for word in query) for d in cut]
        best = np.sort(scores[holds])[::-1][:10]
        np.testing.assert_allclose([hit.score for hit in got], best, rtol=1e-5, atol=1e-9)
    engine.close()


def test_noise_is_said_where_there_are_few_documents_beside_it():
    for documents, deviation, few in [
        (82.0, 69.6, True),
        (1400.0, 69.6, False),
        (1400.0, 215.6, True),
        (82.0, 0.0, False),
    ]:
        table = TermTable(np.zeros((2, 256)), documents, np.ones(2), deviation, 1.0, 1e-6)
        assert bool(table.note()) == few


def test_a_table_knows_how_its_words_were_cut():
    table = TermTable(np.zeros((2, 256)), 10_000.0, np.ones(2), 1.0, 1.0, 1e-6, "one")
    kept = TermTable.from_bytes(table.to_bytes())
    assert kept.made_by == "one" and kept.note() == kept.note("one") == "" == replace(table, made_by="").note("two")
    assert kept.note("two")
