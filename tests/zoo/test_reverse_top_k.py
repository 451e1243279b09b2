"""Reverse top-K against brute force over all documents, and what its published form loses (fault of the signs)."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.texts.sketch import SketchShape, by_cell, encode, hash_terms
from fedrank_zoo.cs_f_ltr_icde_2021 import build_lists

DOCUMENTS, VOCABULARY, K = 400, 1500, 10
SHAPE = SketchShape(12, 60)
ASKED = list(range(500, 540))  # words that ten documents hold often and some others a little


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    chances = 1 / np.arange(1, VOCABULARY + 1) ** 1.07
    counts = np.stack([rng.multinomial(60, chances / chances.sum()) for _ in range(DOCUMENTS)]).astype(np.int32)
    for term in ASKED:
        counts[rng.permutation(DOCUMENTS)[: K + 4], term] += rng.integers(6, 20, K + 4, dtype=np.int32)
    hashes = hash_terms([f"t{i}" for i in range(VOCABULARY)], SHAPE, bytes(range(32)))
    return counts, hashes, encode(csr_array(counts), hashes, SHAPE)


def precision(world, ends, beta, alpha=5):
    """Share of the K places that hold a document with a count as large as the K-th largest; mean over the words."""
    counts, hashes, sketches = world
    lists, found = build_lists(sketches, alpha, K, ends), []
    for term in ASKED:
        documents, estimates = lists.query(hashes.rows[term], hashes.signs[term], beta, K)
        assert (np.diff(estimates) <= 0).all() and len(set(documents.tolist())) == len(documents)
        found.append((counts[documents, term] >= np.sort(counts[:, term])[-K]).sum() / K)
    return np.mean(found)


@pytest.mark.parametrize("beta", [0.1, 0.5, 0.8])
def test_with_both_ends_the_best_documents_are_found(world, beta):
    assert precision(world, "both", beta) > 0.97


def test_as_printed_half_of_the_rows_are_lost(world):
    counts, hashes, sketches = world
    top, both = build_lists(sketches, 5, K, "top"), build_lists(sketches, 5, K, "both")
    assert top.held == both.held
    for lists, positive, negative in ((top, 1.0, 0.0), (both, 1.0, 1.0)):
        there = {1: [], -1: []}
        for term in ASKED:
            best = np.argsort(counts[:, term])[-K:]
            for a in range(SHAPE.z):
                cell = a * SHAPE.w + hashes.rows[term, a]
                there[int(hashes.signs[term, a])].append(np.isin(best, lists.documents[cell]).mean())
        assert np.mean(there[1]) == pytest.approx(positive, abs=0.05)
        assert np.mean(there[-1]) == pytest.approx(negative, abs=0.05)


def test_as_printed_precision_falls_with_beta_and_with_both_ends_it_does_not(world):
    assert precision(world, "top", 0.5) < 0.75 < 0.97 < precision(world, "both", 0.5)
    assert precision(world, "top", 0.8) < 0.2 < 0.97 < precision(world, "both", 0.8)
    assert precision(world, "absolute", 0.5) > 0.9


def test_lists_hold_the_extremes_of_every_cell(world):
    _, _, sketches = world
    both, top, absolute = (build_lists(sketches, 2, K, ends) for ends in ("both", "top", "absolute"))
    for cell in range(0, SHAPE.cells, 97):
        line = by_cell(sketches)[cell]
        ordered = np.sort(line)
        assert np.array_equal(np.sort(both.values[cell, :K]), ordered[-K:])
        assert np.array_equal(np.sort(both.values[cell, K:]), ordered[:K])
        assert np.array_equal(np.sort(top.values[cell]), ordered[-2 * K :])
        assert np.array_equal(np.sort(np.abs(absolute.values[cell])), np.sort(np.abs(line))[-2 * K :])
        for lists in (both, top, absolute):
            assert np.array_equal(line[lists.documents[cell]], lists.values[cell])


def test_lists_as_long_as_the_collection_give_the_estimates_of_all_documents(world):
    _, hashes, sketches = world
    everything = build_lists(sketches, 2 * DOCUMENTS, 1, "absolute")
    for term in ASKED[:5]:
        documents, estimates = everything.query(hashes.rows[term], hashes.signs[term], 0.0, DOCUMENTS)
        values = by_cell(sketches)[np.arange(SHAPE.z) * SHAPE.w + hashes.rows[term]] * hashes.signs[term][:, None]
        wanted = np.median(np.maximum(values, 0), axis=0)  # what is not positive counts as 0
        assert np.array_equal(estimates, wanted[documents])
        assert wanted[np.setdiff1d(np.arange(DOCUMENTS), documents)].max(initial=0) == 0


def test_count_min_needs_the_top_only(world):
    counts = world[0]
    shape = SketchShape(12, 60, "count-min")
    hashes = hash_terms([f"t{i}" for i in range(VOCABULARY)], shape, bytes(range(32)))
    sketches = encode(csr_array(counts), hashes, shape)
    assert precision((counts, hashes, sketches), "top", 0.5) > 0.9


def test_lists_find_the_best_documents_of_a_query(world):
    counts, hashes, sketches = world
    query, idf = [501, 511], np.ones(2)
    true = counts[:, query].sum(axis=1)
    found = build_lists(sketches, 5, K, "both").top_documents(hashes.select(query), idf, 0.5, K)
    assert (true[found] >= np.sort(true)[-K] - 2).mean() >= 0.9


def test_a_word_that_nobody_holds_and_settings_out_of_range(world):
    _, hashes, sketches = world
    empty = build_lists(np.zeros((5, 12, 60), np.int32), 5, 2)
    documents, estimates = empty.query(hashes.rows[0], hashes.signs[0], 0.1, 3)
    assert documents.size == estimates.size == 0
    assert build_lists(sketches, 5, K).top_documents(hashes.select([]), np.zeros(0), 0.5, 3).size == 0
    with pytest.raises(UnknownNameError, match="absolute"):
        build_lists(sketches, 5, K, "absolut")
    with pytest.raises(ConfigError, match="alpha"):
        build_lists(sketches, 0.1, K)
    with pytest.raises(ConfigError, match="beta"):
        empty.query(hashes.rows[0], hashes.signs[0], 1.5, 3)
