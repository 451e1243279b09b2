"""Sketches against SciPy's sparse product, NumPy's median, another library, and textbook guarantees."""

import hashlib

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

from fedrank.core.errors import ConfigError, DataError, UnknownNameError
from fedrank.texts.sketch import (
    Hashes,
    SketchShape,
    by_cell,
    cells_at,
    counts_of,
    encode,
    encode_totals,
    estimate,
    flat_cells,
    hash_matrix,
    hash_terms,
    network,
)

SECRET = bytes(range(32))
TERMS = [f"word{i}" for i in range(60)]


def some_counts(documents=40, terms=60, seed=0):
    rng = np.random.default_rng(seed)
    return csr_array((rng.poisson(0.4, (documents, terms)) * rng.integers(1, 6, (documents, terms))).astype(np.int32))


def test_a_hash_is_that_of_keyed_blake2b():
    shape = SketchShape(11, 37)
    hashes = hash_terms(["naïve", "a"], shape, SECRET)
    for term, rows, signs in zip(["naïve", "a"], hashes.rows, hashes.signs, strict=True):
        text = b"".join(
            hashlib.blake2b(
                term.encode(), key=SECRET, salt=i.to_bytes(16, "little"), person=b"fedrank sketch 1"
            ).digest()
            for i in range(2)
        )
        for a in range(11):
            word = int.from_bytes(text[8 * a : 8 * a + 8], "little")
            assert rows[a] == (word >> 1) % 37
            assert signs[a] == (-1 if word % 2 else 1)


def test_hashes_depend_on_term_and_secret_and_not_on_the_vocabulary():
    shape = SketchShape(5, 1000)
    alone, among = hash_terms(["x"], shape, SECRET), hash_terms([*TERMS, "x"], shape, SECRET)
    assert np.array_equal(alone.rows[0], among.rows[-1]) and np.array_equal(alone.signs[0], among.signs[-1])
    assert not np.array_equal(alone.rows, hash_terms(["x"], shape, bytes(32)).rows)
    assert np.array_equal(hash_terms(["x"], SketchShape(20, 1000), SECRET).rows[:, :5], alone.rows)


def test_cells_and_signs_are_uniform_and_independent():
    # 20,000 words, 3 rows: every test at a level that uniform hashes miss once in a million secrets; this one is fixed.
    shape = SketchShape(3, 25)
    rows, signs = hash_terms([f"w{i}" for i in range(20_000)], shape, SECRET)
    for a in range(3):
        assert stats.chisquare(np.bincount(rows[:, a], minlength=25)).pvalue > 1e-6
        assert stats.chisquare(np.bincount((signs[:, a] + 1) // 2, minlength=2)).pvalue > 1e-6
        assert stats.chisquare(np.bincount(2 * rows[:, a] + (signs[:, a] + 1) // 2, minlength=50)).pvalue > 1e-6
        together = 25 * rows[:, a] + rows[:, (a + 1) % 3]
        assert stats.chisquare(np.bincount(together, minlength=625)).pvalue > 1e-6


@pytest.mark.parametrize("kind", ["count", "count-min"])
def test_encoding_is_the_sparse_product(kind):
    shape, counts = SketchShape(4, 9, kind), some_counts()
    hashes = hash_terms(TERMS, shape, SECRET)
    if kind == "count-min":
        assert (hashes.signs == 1).all()
    by_hand = np.zeros((40, 4, 9), np.int64)
    for d, t in zip(*counts.nonzero(), strict=True):
        for a in range(4):
            by_hand[d, a, hashes.rows[t, a]] += hashes.signs[t, a] * counts[d, t]
    sketches = encode(counts, hashes, shape)
    assert sketches.dtype == np.int32 and np.array_equal(sketches, by_hand)
    assert np.array_equal((counts @ hash_matrix(hashes, shape)).toarray().reshape(-1, 4, 9), by_hand)
    totals = np.asarray(counts.sum(axis=0))
    assert np.array_equal(encode_totals(totals, hashes, shape), by_hand.sum(axis=0))


def test_counts_are_numpys_median_of_signed_cells():
    for z, w in [(1, 7), (2, 7), (5, 7), (10, 7)]:
        for dtype in [np.int32, np.int64, np.float32, np.float64]:
            shape = SketchShape(z, w)
            hashes = hash_terms(TERMS, shape, SECRET)
            sketches = (np.random.default_rng(1).normal(0, 30, (700, z, w))).astype(dtype)
            wanted = np.median(
                sketches.astype(np.float32)[:, np.arange(z), hashes.rows].transpose(1, 0, 2) * hashes.signs[:, None],
                axis=-1,
            ).astype(np.float32)
            assert np.array_equal(counts_of(sketches, hashes, shape, at_least=-np.inf), wanted)
            assert np.array_equal(counts_of(sketches, hashes, shape), np.maximum(wanted, 0))
            answers = cells_at(sketches, hashes.rows)
            assert np.array_equal(answers[3, 650], sketches[650, np.arange(z), hashes.rows[3]])
            assert np.array_equal(estimate(answers, hashes.signs[:, None]), wanted)


def test_count_min_takes_the_smallest_cell():
    shape = SketchShape(6, 7, "count-min")
    hashes = hash_terms(TERMS, shape, SECRET)
    sketches = encode(some_counts(), hashes, shape)
    wanted = sketches[:, np.arange(6), hashes.rows].min(axis=-1).T
    assert np.array_equal(counts_of(sketches, hashes, shape), wanted)
    assert np.array_equal(estimate(cells_at(sketches, hashes.rows), hashes.signs[:, None], "count-min"), wanted)


def test_the_network_finds_the_middle_of_every_arrangement_of_zeros_and_ones():
    for size in [1, 2, 3, 4, 7, 8, 10, 15, 30]:
        # The 0-1 principle (Knuth volume 3, 5.3.4, theorem Z): right for zeros and ones is right for all numbers.
        few = size <= 10
        cases = np.arange(2**size) if few else np.random.default_rng(3).integers(0, 2**size, 3000)
        values = (cases[:, None] >> np.arange(size)) & 1
        low, high = (size - 1) // 2, size // 2
        work = values.copy()
        for i, j in network(size):
            work[:, i], work[:, j] = np.minimum(work[:, i], work[:, j]), np.maximum(work[:, i], work[:, j])
        assert np.array_equal((work[:, low] + work[:, high]) / 2, np.median(values, axis=1))


def test_the_sign_matters_as_both_papers_omit_it():
    shape = SketchShape(10, 120)
    hashes, counts = hash_terms(TERMS, shape, SECRET), some_counts(seed=4)
    sketches = encode(counts, hashes, shape)
    true = counts.toarray().T
    unsigned = np.median(cells_at(sketches, hashes.rows), axis=-1)
    assert np.abs(counts_of(sketches, hashes, shape) - true).mean() < 0.2
    assert np.abs(unsigned - true).mean() > 1.0


def random_hashes(rng, draws, terms, z, w):
    """Hashes of many secrets at once, drawn directly."""
    return rng.integers(0, w, (draws, terms, z)), 1 - 2 * rng.integers(0, 2, (draws, terms, z))


def test_count_sketch_is_unbiased_and_its_variance_is_within_theory_over_100_000_draws():
    rng, w, z, draws = np.random.default_rng(5), 12, 5, 100_000
    counts = np.array([4, 9, 6, 3, 2, 2, 1, 1, 1, 1, 1, 1])
    others = counts.copy()
    others[0] = 0
    rows, signs = random_hashes(rng, draws, len(counts), z, w)
    hit = rows == rows[:, :1]
    values = np.einsum("t,dtz->dz", counts, hit * signs) * signs[:, 0]  # g · C at the cell of term 0, each row
    theory = (others @ others) / w  # exact for one row
    single = values[:, 0]
    assert abs(single.mean() - 4) < 5 * np.sqrt(theory / draws)
    spread = np.sqrt(((single - 4.0) ** 4).mean() / draws)
    assert abs(single.var() - theory) < 5 * spread
    median = np.median(values, axis=1)
    assert abs(median.mean() - 4) < 5 * np.sqrt(median.var() / draws)
    # A median of an odd number of draws varies no more than one draw (Yang 1982).
    assert median.var() < theory
    # Theorem 2: √(64 · F₂^Res / w) is missed with at most the chance that half of the rows are bad.
    largest_not_collided = np.sort(others)[::-1][w // 8 :]
    bound = np.sqrt(64 * (largest_not_collided @ largest_not_collided) / w)
    missed = stats.binom.sf(2, z, 3 / 8)
    assert (np.abs(median - 4) > bound).mean() <= missed


def test_keyed_hashes_estimate_without_bias_over_secrets():
    shape, counts = SketchShape(3, 8), np.array([3, 5, 2, 1, 1, 4])
    terms, estimates = list("abcdef"), []
    for number in range(4000):
        hashes = hash_terms(terms, shape, number.to_bytes(16, "little"))
        sketch = encode_totals(counts, hashes, shape)
        estimates.append(np.median(sketch[np.arange(3), hashes.rows[0]] * hashes.signs[0]))
    assert abs(np.mean(estimates) - 3) < 5 * np.std(estimates) / np.sqrt(4000)


def test_count_min_keeps_the_guarantee_of_datasketches_and_never_underestimates():
    datasketches = pytest.importorskip("datasketches", reason="the oracle needs Apache datasketches")
    z, w = 5, 64
    shape, counts = SketchShape(z, w, "count-min"), some_counts(1, seed=6).toarray()
    counts = np.concatenate([counts.ravel(), np.random.default_rng(7).poisson(2, 940)]).astype(np.int32)
    terms = [f"w{i}" for i in range(1000)]
    hashes = hash_terms(terms, shape, SECRET)
    ours = counts_of(encode(csr_array(counts[None]), hashes, shape), hashes, shape)[:, 0]
    theirs = datasketches.count_min_sketch(z, w)
    for term, count in zip(terms, counts.tolist(), strict=True):
        theirs.update(term, count)
    bound = np.e / w * counts.sum()
    assert theirs.get_relative_error() == pytest.approx(np.e / w)
    for found in (ours, np.array([theirs.get_estimate(term) for term in terms])):
        assert (found >= counts).all()
        assert (found - counts > bound).mean() <= np.exp(-z) + 5 * np.sqrt(np.exp(-z) / 1000)
    # Same size, same guarantee: the two sketches' mean errors are alike, whichever hash they use.
    other = np.mean([theirs.get_estimate(term) for term in terms] - counts)
    assert (ours - counts).mean() == pytest.approx(other, rel=0.15)


def test_what_does_not_fit_is_refused_with_a_sentence():
    shape = SketchShape(3, 8)
    hashes = hash_terms(TERMS, shape, SECRET)
    with pytest.raises(ConfigError, match="z >= 1"):
        SketchShape(0, 8)
    with pytest.raises(UnknownNameError, match="count-min"):
        SketchShape(1, 8, "count-mni")
    with pytest.raises(ConfigError, match="16 to 64 bytes"):
        hash_terms(TERMS, shape, b"short")
    with pytest.raises(DataError, match="hashes of 59 terms"):
        encode(some_counts(terms=59), hashes, shape)
    with pytest.raises(DataError, match="whole numbers"):
        encode(csr_array(np.ones((1, 60))), hashes, shape)
    with pytest.raises(DataError, match="another shape"):
        encode(some_counts(), Hashes(hashes.rows + 8, hashes.signs), shape)
    sketches = encode(some_counts(), hashes, shape)
    with pytest.raises(DataError, match="each from 0 to 7"):
        cells_at(sketches, hashes.rows + 1)
    with pytest.raises(DataError, match="3 x 8"):
        counts_of(sketches, hash_terms(TERMS, SketchShape(3, 9), SECRET), SketchShape(3, 9))
    with pytest.raises(DataError, match="32 bits"):
        by_cell(np.full((1, 1, 2), 2**40))
    with pytest.raises(DataError, match="one position"):
        estimate(np.zeros((2, 0)), np.ones((1, 0)))


def test_nothing_in_gives_nothing_out():
    shape = SketchShape(3, 8)
    nothing = hash_terms([], shape, SECRET)
    assert nothing.rows.shape == (0, 3)
    sketches = encode(csr_array((0, 60), dtype=np.int32), hash_terms(TERMS, shape, SECRET), shape)
    assert counts_of(sketches, hash_terms(TERMS, shape, SECRET), shape).shape == (60, 0)
    assert counts_of(sketches, nothing, shape).shape == (0, 0)
    assert flat_cells(nothing.rows, shape).shape == (0, 3)
