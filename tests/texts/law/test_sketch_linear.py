"""Sketching is linear, exactly: sums, differences and permutations of counts are those of sketches."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from fedrank.texts.sketch import SketchShape, counts_of, encode, encode_totals, hash_terms

TERMS = [f"t{i}" for i in range(20)]
SHAPES = {kind: SketchShape(4, 6, kind) for kind in ("count", "count-min")}
HASHES = {kind: hash_terms(TERMS, shape, bytes(16)) for kind, shape in SHAPES.items()}


def counts_from(seed):
    return csr_array(np.random.default_rng(seed).integers(0, 50, (5, 20), dtype=np.int32))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2**32), st.sampled_from(["count", "count-min"]))
def test_the_sketch_of_a_sum_is_the_sum_of_the_sketches(first, second, kind):
    shape, hashes = SHAPES[kind], HASHES[kind]
    a, b = counts_from(first), counts_from(second)
    assert np.array_equal(encode(a + b, hashes, shape), encode(a, hashes, shape) + encode(b, hashes, shape))
    assert np.array_equal(encode(a - b, hashes, shape), encode(a, hashes, shape) - encode(b, hashes, shape))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_a_collections_sketch_is_the_sum_of_its_documents_and_of_its_silos(seed):
    shape, hashes, counts = SHAPES["count"], HASHES["count"], counts_from(seed)
    whole = encode_totals(np.asarray(counts.sum(axis=0)), hashes, shape)
    assert np.array_equal(whole, encode(counts, hashes, shape).sum(axis=0))
    silos = [np.asarray(part.sum(axis=0)) for part in (counts[:2], counts[2:])]
    assert np.array_equal(whole, sum(encode_totals(silo, hashes, shape) for silo in silos))


def test_one_occurrence_changes_one_cell_of_every_row_by_one():
    shape, hashes, counts = SHAPES["count"], HASHES["count"], counts_from(0)
    more = counts.toarray()
    more[2, 7] += 1
    change = encode(csr_array(more), hashes, shape) - encode(counts, hashes, shape)
    assert not change[[0, 1, 3, 4]].any()
    assert np.array_equal(np.abs(change[2]).sum(axis=1), np.ones(4))
    assert np.array_equal(change[2, np.arange(4), hashes.rows[7]], hashes.signs[7])


def test_the_order_of_documents_and_terms_changes_nothing():
    shape, hashes, counts = SHAPES["count"], HASHES["count"], counts_from(1)
    documents, terms = np.random.default_rng(2).permutation(5), np.random.default_rng(3).permutation(20)
    sketches = encode(counts, hashes, shape)
    assert np.array_equal(encode(counts[documents], hashes, shape), sketches[documents])
    assert np.array_equal(encode(counts[:, terms], hashes.select(terms), shape), sketches)
    found = counts_of(sketches, hashes, shape)
    assert np.array_equal(counts_of(sketches[documents], hashes.select(terms), shape), found[terms][:, documents])


def test_a_sketch_wide_enough_gives_every_count_exactly():
    shape, counts = SketchShape(7, 4096), counts_from(4)
    hashes = hash_terms(TERMS, shape, bytes(16))
    assert np.array_equal(counts_of(encode(counts, hashes, shape), hashes, shape), counts.toarray().T)
