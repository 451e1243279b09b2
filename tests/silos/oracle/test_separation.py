"""Outcomes that columns separate: who is named, what stays finite, and Firth's estimates by brute force."""

import numpy as np
import pytest
import statsmodels.api as sm

from fedrank.silos.glm import Sums, sums
from fedrank.silos.studies.families import family_of
from fedrank.silos.studies.protocol import Rows, run
from fedrank.silos.studies.regression import answer, fit


def fitted(parts, firth=False):
    """A logistic model of the rows of silos, (x, y) each."""
    family, x = family_of("logistic"), np.concatenate([x for x, _ in parts])
    # Columns from −1 to 1, as a codebook's ranges make them.
    middle, half = (x.max(axis=0) + x.min(axis=0)) / 2, (x.max(axis=0) - x.min(axis=0)) / 2
    own = np.diag(np.append(1.0, 1 / half))
    own[0, 1:] = -middle / half
    rows = [Rows.of(np.column_stack([np.ones(len(y)), (x - middle) / half]), y) for x, y in parts]
    names = ("(Intercept)", *(f"x{k}" for k in range(parts[0][0].shape[1])))
    made = fit(family, names, own=own, use_firth=firth)
    return run(made, lambda ask: {str(k): answer(family, ask, [one]) for k, one in enumerate(rows)})


def pooled(parts):
    return sm.add_constant(np.concatenate([x for x, _ in parts])), np.concatenate([y for _, y in parts])


def test_sums_survive_being_flattened():
    made = sums(np.array([0.1, 0.2]), np.array([[1.0, 2.0], [1.0, -1.0]]), np.array([0.0, 1.0]))
    back = Sums.of(made.flat(), 2)
    assert all(np.array_equal(mine, other) for mine, other in zip(made, back, strict=True))


def quasi(seed, kind):
    """Two silos of 100 rows: an exposure after which all have the label, or several; or age tells all."""
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 10, 200)
    y = (rng.random(200) < 0.15).astype(float)
    drug = (rng.random((200, 6 if kind == "six" else 1)) < (0.03 if kind == "six" else 0.1)).astype(float)
    if kind == "rare":
        drug[:, 0] = np.arange(200) < 2
    y = (age > 60).astype(float) if kind == "all" else np.where(drug.any(axis=1), 1.0, y)
    x = np.column_stack([age, drug])
    return [(x[:100], y[:100]), (x[100:], y[100:])]


@pytest.mark.parametrize("kind", ["one", "rare", "six", "all"])
@pytest.mark.parametrize("seed", range(3))
def test_firths_method_converges_where_labels_are_separated_and_leaves_walds_numbers_out(kind, seed):
    parts = quasi(seed, kind)
    plain, made = fitted(parts), fitted(parts, firth=True)
    separates = ("x0",) if kind == "all" else tuple(f"x{k}" for k in range(1, parts[0][0].shape[1]))
    assert set(separates) <= set(plain.separated) and made.converged and not made.separated
    if kind != "all":  # then no coefficient has a largest likelihood
        assert plain.separated == separates
    places = [plain.names.index(name) for name in separates]
    assert np.isnan(plain.p[places]).all() and np.isnan(plain.interval()[0][places]).all()
    assert np.isfinite(made.error).all() and np.isfinite(made.p).all()
    # The derivative of the penalised likelihood is 0 there, by brute force.
    x, y = pooled(parts)
    mean = 1 / (1 + np.exp(-x @ made.estimate))
    scale = ((mean * (1 - mean)) @ x**2) ** -0.5

    def value(beta):
        mean = 1 / (1 + np.exp(-x @ beta))
        information = (x * (mean * (1 - mean))[:, None]).T @ x
        return y @ (x @ beta) - np.logaddexp(0, x @ beta).sum() + 0.5 * np.linalg.slogdet(information)[1]

    for k in range(len(scale)):
        step = np.eye(len(scale))[k] * 1e-4 * scale
        assert abs(value(made.estimate + step) - value(made.estimate - step)) / 2e-4 < 1e-4


def test_an_intercept_is_finite_beside_a_separated_column_however_far_from_zero_another_one_is():
    """Rows with the separating exposure say nothing of the other coefficients: those of the rows without it."""
    for zero in [0.0, 2000.0, 1.7e9]:
        rng = np.random.default_rng(5)
        day = rng.uniform(-10, 10, 300)
        exposed = (np.arange(300) % 10 == 0).astype(float)
        y = np.where(exposed > 0, 1.0, rng.random(300) < 1 / (1 + np.exp(-0.3 - 0.1 * day)))
        x = np.column_stack([zero + day, exposed])
        ours = fitted([(x[::2], y[::2]), (x[1::2], y[1::2])])
        assert ours.separated == ("x1",)
        without = exposed == 0
        theirs = sm.GLM(y[without], sm.add_constant(day[without]), family=sm.families.Binomial()).fit(tol=1e-14)
        far = np.array([1.0, -zero])
        np.testing.assert_allclose(ours.estimate[[0, 1]], [far @ theirs.params, theirs.params[1]], rtol=1e-5)
        error = np.sqrt(far @ theirs.cov_params() @ far)
        # The intercept's is what is left of the exposure's, which grows without end: a few digits.
        np.testing.assert_allclose(ours.error[0], error, rtol=5e-3)
        np.testing.assert_allclose(ours.error[1], theirs.bse[1], rtol=1e-5)
        assert np.isfinite(ours.p[0]) and np.isnan(ours.p[2])


def test_a_column_that_separates_is_named_wherever_its_border_lies():
    for zero in [-0.7, 50.0, 2000.0]:
        rng = np.random.default_rng(6)
        x = np.column_stack([rng.uniform(-1, 1, 200) + zero, rng.standard_normal(200)])
        y = (x[:, 0] > zero).astype(float)
        assert "x0" in fitted([(x[::2], y[::2]), (x[1::2], y[1::2])]).separated


def test_an_exposure_among_a_few_rows_is_estimated_in_closed_form():
    """Saturated two-by-two table: Firth's estimate is that with half a row in each cell (Firth 1993)."""
    x = np.repeat([0.0, 0.0, 1.0], [30, 10, 5])[:, None]
    y = np.repeat([0.0, 1.0, 1.0], [30, 10, 5])
    made = fitted([(x[::2], y[::2]), (x[1::2], y[1::2])], firth=True)
    np.testing.assert_allclose(made.estimate[0], np.log(10.5 / 30.5), rtol=1e-6)
    np.testing.assert_allclose(made.estimate[1], np.log(5.5 / 0.5) - np.log(10.5 / 30.5), rtol=1e-6)
    assert not made.separated and made.converged
