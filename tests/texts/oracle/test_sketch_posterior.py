"""Posterior counts and weighed statistics, against sums written out and against draws from the very prior."""

import math

import numpy as np
import pytest
from text_worlds import small_federation

from fedrank.core.errors import ConfigError
from fedrank.texts.data.features import statistics_of
from fedrank.texts.silo_sketch.setup.exchange_sketches import LARGEST, posterior_counts
from fedrank.texts.silo_sketch.setup.settings import FederatedStatistics
from fedrank.texts.sketch import Hashes, SketchShape, cells_at


def by_hand(cells, sign, share, mean, relative, mechanism, scale):
    """Σ c P(c | x) / Σ P(c | x) of one count, term by term."""
    share = min(max(min(max(share, 1e-4), 0.9) * relative, 1e-4), 0.9)
    r = 1 - 1 / mean
    top, bottom = 0.0, 0.0
    for c in range(LARGEST + 1):
        p = 1 - share if c == 0 else share * (1 - r) * r ** (c - 1)
        for x, g in zip(cells, sign, strict=True):
            off = g * x - c
            p *= math.exp(-abs(off) / scale) if mechanism == "laplace" else math.exp(-off * off / (2 * scale**2))
        top, bottom = top + c * p, bottom + p
    return top / bottom


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_a_posterior_mean_is_the_sum_written_out(mechanism):
    rng = np.random.default_rng(0)
    cells = rng.integers(-6, 9, (3, 4, 2)).astype(np.float32)
    signs = np.array([[1, -1], [-1, -1], [1, 1]])
    share, mean = np.array([0.02, 0.3, 0.7]), np.array([1.2, 2.0, 4.0])
    lengths = np.array([50.0, 100.0, 150.0, 100.0])
    got = posterior_counts(cells, signs, share, mean, lengths, mechanism, 1.7)
    for t in range(3):
        for d in range(4):
            want = by_hand(cells[t, d], signs[t], share[t], mean[t], lengths[d] / 100, mechanism, 1.7)
            assert got[t, d] == pytest.approx(want, rel=1e-5)


def test_huge_cells_and_empty_documents_stay_finite():
    cells = np.array([[[1e6], [-1e6], [0.0]]], np.float32)
    got = posterior_counts(cells, np.ones((1, 1), int), np.zeros(1), np.zeros(1), np.zeros(3), "laplace", 0.01)
    assert np.isfinite(got).all() and got[0, 1] == pytest.approx(0, abs=1e-6)
    assert got[0, 0] == 1e6  # beyond what has a prior, the cell itself
    with pytest.raises(ConfigError, match="take the median"):
        posterior_counts(cells, np.ones((1, 1), int), np.zeros(1), np.zeros(1), np.zeros(3), "laplace", 0.0)


def test_on_draws_from_its_own_prior_the_posterior_is_unbiased_and_beats_the_cell():
    rng = np.random.default_rng(1)
    n, share, mean, scale = 40_000, 0.2, 1.6, 1.5
    count = np.where(rng.random(n) < share, rng.geometric(1 / mean, n), 0)
    noise = rng.geometric(1 - math.exp(-1 / scale), (2, n)) - 1
    cells = (count + noise[0] - noise[1]).astype(np.float32)
    got = posterior_counts(
        cells[None, :, None], np.ones((1, 1), int), np.array([share]), np.array([mean]), np.ones(n), "laplace", scale
    )[0]
    assert got.mean() == pytest.approx(count.mean(), abs=5 * count.std() / math.sqrt(n))
    squares = np.mean((got - count) ** 2), np.mean((np.maximum(cells, 0) - count) ** 2)
    assert squares[0] < 0.5 * squares[1]


def test_cells_are_those_that_a_term_hashes_to():
    sketches = np.arange(2 * 3 * 5).reshape(2, 3, 5)
    hashes = Hashes(np.array([[0, 4, 2], [1, 1, 1]], np.int32), np.ones((2, 3), np.int32))
    got = cells_at(sketches, hashes.rows)
    for t in range(2):
        for d in range(2):
            assert got[t, d].tolist() == [sketches[d, a, hashes.rows[t, a]] for a in range(3)]


def test_noisy_statistics_are_weighed_against_what_a_silo_expects():
    """Without noise the sum counts alone; with endless noise, what the silo's own documents let expect."""
    world = small_federation()
    own, words = world.silos[0], tuple(world.silos[0].vocabulary[:6])
    exact = statistics_of((own,), words)
    n, k = own.n_documents, 3

    def weighed(deviation):
        seen = FederatedStatistics(np.array([n * k], np.int32), SketchShape(1, 8), b"", own, deviation)
        return seen._weigh(np.full((2, 2, 6), 40.0), words)

    np.testing.assert_allclose(weighed(1e-9), 40.0)
    expected = exact.document_frequency.T + (exact.document_frequency.T + 0.5) * (k - 1)
    np.testing.assert_allclose(weighed(1e9)[:, 0], expected, rtol=1e-6)
    assert (np.abs(weighed(5.0) - 40.0) <= np.abs(weighed(1e9) - 40.0) + 1e-9).all()
