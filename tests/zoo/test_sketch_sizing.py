"""Sizing formulas against simulation, enumeration, and the numbers of the papers' own settings."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from fedrank.core.errors import ConfigError
from fedrank_zoo.sketch_size.sizing import (
    advise,
    cell_noise,
    expected_error,
    mean_median,
    residual,
    row_error,
    theorem_2,
    zipf_document,
)

DOCUMENT = np.array([9, 6, 4, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1])


def simulated_error(rng, counts, rows, w, noise, draws=20_000):
    """Mean |median of rows| with its standard error: collisions drawn one by one, noise by the given function."""
    values = noise((draws, rows)).astype(float)
    for count in counts:
        values += count * (rng.random((draws, rows)) < 1 / w) * rng.choice([-1, 1], (draws, rows))
    errors = np.abs(np.median(values, axis=1))
    return errors.mean(), errors.std() / math.sqrt(draws)


@pytest.mark.parametrize(
    ("rows", "w", "mechanism", "noise"),
    [(1, 10, "laplace", 0), (3, 10, "laplace", 0), (4, 10, "laplace", 0), (10, 20, "laplace", 10.0),
     (5, 20, "laplace", 1.5), (2, 20, "gaussian", 4.0), (7, 20, "gaussian", 4.0), (10, 30, "laplace", 150.0)],
)  # fmt: skip
def test_the_expected_error_is_that_of_a_simulation(rows, w, mechanism, noise):
    rng = np.random.default_rng(rows)

    def draw(size):
        if not noise:
            return np.zeros(size)
        if mechanism == "gaussian":
            return np.round(rng.normal(0, noise, size))
        chance = 1 - math.exp(-1 / noise)
        return rng.geometric(chance, size) - rng.geometric(chance, size)

    mean, error = simulated_error(rng, DOCUMENT, rows, w, draw)
    # Rounding a normal draw adds 1/12 to its variance, 0.3 % of this one.
    assert expected_error(DOCUMENT, rows, w, mechanism, noise) == pytest.approx(mean, abs=4 * error + 0.01 * mean)


def test_a_rows_distribution_is_that_of_all_hashes_enumerated():
    counts, w = [3, 1, 1], 3
    wanted: dict[int, float] = {}
    for places in itertools.product(range(w), repeat=3):
        for signs in itertools.product((-1, 1), repeat=3):
            total = sum(c * s for c, s, p in zip(counts, signs, places, strict=True) if p == 0)
            wanted[total] = wanted.get(total, 0) + w**-3 / 8
    found = row_error(np.array(counts), w)
    half = len(found) // 2
    for value in range(-half, half + 1):
        assert found[value + half] == pytest.approx(wanted.get(value, 0), abs=1e-12)
    variance = (found * np.arange(-half, half + 1) ** 2).sum()
    assert variance == pytest.approx(residual(np.array(counts), 0) / w) == pytest.approx(11 / 3)


def test_the_mean_of_a_median_is_that_of_all_draws_enumerated():
    for rows in [1, 2, 3, 4]:
        chances = np.array([0.1, 0.2, 0.4, 0.2, 0.1])
        wanted = sum(
            np.prod(chances[list(draw)]) * abs(np.median(np.array(draw) - 2))
            for draw in itertools.product(range(5), repeat=rows)
        )
        assert mean_median(chances, rows) == pytest.approx(wanted)


def test_noise_on_a_cell_covers_the_z_cells_that_an_occurrence_changes():
    assert cell_noise(10, "laplace", 2.0) == 5.0
    assert cell_noise(9, "gaussian", 3.7) == pytest.approx(11.1)
    with pytest.raises(ConfigError, match="laplace, gaussian"):
        cell_noise(10, "uniform", 1.0)
    with pytest.raises(ConfigError, match="positive"):
        cell_noise(10, "laplace", 0.0)


@pytest.mark.parametrize(("mechanism", "ratio"), [("laplace", math.sqrt(6)), ("gaussian", 1.0)])
def test_what_noise_leaves_grows_with_the_root_of_z_or_not_at_all(mechanism, ratio):
    rng, found = np.random.default_rng(1), {}
    for z in (5, 30):
        scale = cell_noise(z, mechanism, 1.0)
        draws = rng.laplace(0, scale, (20_000, z)) if mechanism == "laplace" else rng.normal(0, scale, (20_000, z))
        found[z] = np.median(draws, axis=1).std()
    assert found[30] / found[5] == pytest.approx(ratio, rel=0.2)


def test_under_laplace_noise_few_wide_rows_are_best_and_under_gaussian_noise_rows_hardly_matter():
    laplace = advise(1200, zipf_document(300), "laplace", 1.0)
    assert [a.z for a in laplace] == sorted(a.z for a in laplace) and laplace[0].w == 1200
    assert laplace[-1].error > 4 * laplace[0].error
    gaussian = advise(1200, zipf_document(300), "gaussian", 3.7)
    assert max(a.error for a in gaussian) < 1.3 * min(a.error for a in gaussian)
    plain = advise(1200, zipf_document(300))
    assert plain[0].z == 3 and plain[0].noise == 0 and plain[0].error == plain[0].collisions
    assert all(a.z * a.w <= 1200 for a in laplace)
    with pytest.raises(ConfigError, match="too few"):
        advise(1, DOCUMENT)


def test_the_advised_order_holds_in_a_simulation():
    rng, document, errors = np.random.default_rng(2), zipf_document(100), []
    for z in (1, 5, 20):
        advice = advise(600, document, "laplace", 2.0, rows=[z])[0]
        chance = 1 - math.exp(-2.0 / z)
        noise = lambda size, c=chance: rng.geometric(c, size) - rng.geometric(c, size)  # noqa: E731
        mean, error = simulated_error(rng, document, z, 600 // z, noise, 8000)
        assert advice.error == pytest.approx(mean, abs=4 * error)
        errors.append(mean)
    assert errors == sorted(errors)


def test_theorem_2_bounds_the_error_as_often_as_it_says():
    rng, z1, w, epsilon = np.random.default_rng(3), 9, 24, 2.0
    bound = theorem_2(residual(DOCUMENT, w // 8), w, epsilon)
    assert bound == pytest.approx(math.sqrt(16 / 4 + 64 / 24 * np.sum(DOCUMENT[3:] ** 2)))
    values = rng.laplace(0, 1 / epsilon, (20_000, z1))
    for count in DOCUMENT:
        values += count * (rng.random(values.shape) < 1 / w) * rng.choice([-1, 1], values.shape)
    assert (np.abs(np.median(values, axis=1)) > bound).mean() < stats.binom.sf(
        math.ceil(z1 / 2) - 1, z1, 3 / 8
    )  # rows are good with probability 5/8


def test_a_typical_document_has_the_words_it_should():
    document = zipf_document(300)
    assert abs(int(document.sum()) - 300) <= 10 and document.min() >= 1 and len(document) == 183
