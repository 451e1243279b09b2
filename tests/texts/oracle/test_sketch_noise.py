"""Noise for sketches: distances by brute force over neighbouring documents, scales in closed form."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

from fedrank.core.errors import ConfigError
from fedrank.privacy.calibration import concentrated_epsilon
from fedrank.texts.sketch import SketchShape, encode, hash_terms
from fedrank.texts.sketch.noise import (
    SHARES,
    SketchNoise,
    statistics_noise,
)

CHANCE = 1e-9
SHAPE = SketchShape(6, 8)
PARTS = ("sketches", "sizes", "statistics")


def test_what_one_occurrence_changes_is_what_the_noise_is_made_for():
    rng = np.random.default_rng(0)
    terms = tuple(f"t{i}" for i in range(20))
    hashes = hash_terms(terms, SHAPE, b"0123456789abcdef")
    counts = rng.poisson(0.5, (5, 20)).astype(np.int32)
    largest = dict.fromkeys(PARTS, 0)

    def published(counts):
        sketches = encode(csr_array(counts), hashes, SHAPE)
        df = encode(csr_array((counts > 0).sum(0, dtype=np.int32)[None]), hashes, SHAPE)
        collection = encode(csr_array(counts.sum(0, dtype=np.int32)[None]), hashes, SHAPE)
        return {
            "sketches": sketches,
            "sizes": np.stack([counts.sum(1), (counts > 0).sum(1)]),
            "statistics": np.concatenate([df.ravel(), collection.ravel(), [counts.sum()]]),
        }

    before = published(counts)
    for document in range(5):
        for term in range(20):
            more = counts.copy()
            more[document, term] += 1
            after = published(more)
            for what in PARTS:
                changed = np.abs(after[what] - before[what])
                assert changed.max() <= 1  # so that the square root is the distance in L2
                largest[what] = max(largest[what], int(changed.sum()))
    noise = SketchNoise("publish-once", 1.0, SHAPE.z)
    assert largest == {what: noise.change(what) for what in PARTS} == {"sketches": 6, "sizes": 2, "statistics": 13}


def test_published_once_the_parts_add_up_to_the_epsilon_of_an_occurrence():
    noise = SketchNoise("publish-once", 0.7, 30)
    losses = {what: noise.change(what) / noise.scale(what) for what in PARTS}
    assert losses == pytest.approx({what: 0.7 * SHARES[what] for what in PARTS})
    assert sum(losses.values()) <= 0.7 + 1e-12
    noise = SketchNoise("publish-once", 0.7, 30, "gaussian", 1e-5)
    rho = sum(noise.change(what) / (2 * noise.scale(what) ** 2) for what in PARTS)
    assert concentrated_epsilon(rho, 1e-5) == pytest.approx(0.7, rel=1e-6)
    assert noise.scale("sizes") / noise.scale() == pytest.approx(math.sqrt(2 / 0.1 / (30 / 0.8)))


def test_published_cells_have_noise_of_the_scale_each_its_own():
    for mechanism in ["laplace", "gaussian"]:
        for rng in [None, np.random.default_rng(3)]:
            noise = SketchNoise("publish-once", 2.0, 6, mechanism)
            sketches = np.arange(6 * 8 * 400, dtype=np.int32).reshape(400, 6, 8)
            published = noise.publish(sketches, rng)
            assert published.dtype == np.int32 and published.shape == sketches.shape
            _has_scale(published - sketches, noise.scale(), mechanism)
            sizes = np.full((4000, 2), 300)
            _has_scale(noise.sizes(sizes, rng) - 300, noise.scale("sizes"), mechanism)
            _has_scale(statistics_noise(noise, (5000,), rng), noise.scale("statistics"), mechanism)
            flat = (published - sketches).transpose(0, 2, 1).reshape(-1, 6)
            cross = np.corrcoef(flat.T) - np.eye(6)
            assert np.abs(cross).max() < 8 / math.sqrt(len(flat))  # no two cells share their noise


def _has_scale(sample, scale, mechanism):
    """A KS test on noise made continuous; a wrong scale by a twentieth fails it for samples of this size."""
    smooth = sample.ravel() + np.random.default_rng(1).uniform(-0.5, 0.5, sample.size)
    if mechanism == "laplace":
        alpha = math.exp(-1 / scale)

        def below(x):  # P(noise + uniform ≤ x), linear between half-integers
            return np.interp(x, steps + 0.5, cumulative)

        reach = math.ceil(30 * scale)
        steps = np.arange(-reach, reach + 1)
        cumulative = np.cumsum((1 - alpha) / (1 + alpha) * alpha ** np.abs(steps))
    else:
        reach = math.ceil(10 * scale)
        steps = np.arange(-reach, reach + 1)
        weights = np.exp(-0.5 * (steps / scale) ** 2)
        cumulative = np.cumsum(weights / weights.sum())

        def below(x):
            return np.interp(x, steps + 0.5, cumulative)

    assert stats.kstest(smooth, below).pvalue > CHANCE


def test_without_noise_nothing_changes():
    noise = SketchNoise("plain", None, 2)
    sketches = np.arange(24, dtype=np.int32).reshape(3, 2, 4)
    assert np.array_equal(noise.publish(sketches), sketches)
    assert not statistics_noise(noise, 5).any()
    assert np.array_equal(noise.sizes(np.array([[3, 2]])), [[3, 2]])


def test_what_does_not_fit_32_bits_is_cut_and_does_not_wrap():
    noise = SketchNoise("publish-once", 1e-6, 1)
    published = noise.publish(np.full((2000, 1, 1), 2**31 - 1, np.int32), np.random.default_rng(0))
    assert (published == 2**31 - 1).mean() == pytest.approx(0.5, abs=0.05) and published.min() > 0


def test_settings_that_contradict_are_refused():
    for arguments, says in [
        (dict(mode="once", epsilon=1.0, z=2), "mode must be"),
        (dict(mode="publish-once", epsilon=1.0, z=2, mechanism="cauchy"), "mechanism one of"),
        (dict(mode="publish-once", epsilon=None, z=2), "must be given"),
        (dict(mode="plain", epsilon=1.0, z=2), "must be given"),
        (dict(mode="publish-once", epsilon=0.0, z=2), "positive"),
        (dict(mode="publish-once", epsilon=1.0, z=0), "at least 1"),
        (dict(mode="publish-once", epsilon=1.0, z=2, delta=1.0), "delta"),
        (dict(mode="publish-once", epsilon=1.0, z=2, shares={"sketches": 1.0}), "shares"),
        (dict(mode="publish-once", epsilon=1.0, z=2, shares={"sketches": 0.9, "sizes": 0.1, "statistics": 0.1}), "sum"),
        (dict(mode="paper", epsilon=1.0, z=2), "mode must be"),
        (dict(mode="publish-once", epsilon=1.0, z=2, statistics_change=0), "statistics_change"),
    ]:
        with pytest.raises(ConfigError, match=says):
            SketchNoise(**arguments)


def test_sketches_with_another_number_of_rows_are_refused():
    with pytest.raises(ConfigError, match="must be"):
        SketchNoise("publish-once", 1.0, 3).publish(np.zeros((1, 2, 3), np.int32))
