"""Generalised linear models from sums of silos against statsmodels on all rows, and by brute force."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.optimize import minimize

from fedrank.core.errors import ConfigError, DataError
from fedrank.silos.data.coding import Coding
from fedrank.silos.data.files import read_silos
from fedrank.silos.data.tables import Silo, SiloTable
from fedrank.silos.glm import fit_silos
from fedrank.silos.glm.newton import Sums, firth_gradient, sums
from fedrank.silos.glm.sums import Adder, from_words, to_words
from fedrank.silos.glm.tables import numbers_of


def silos(seed=0, rows=(60, 45, 80, 30), columns=4, slope=0.8):
    """Rows of silos with columns of very different units."""
    rng = np.random.default_rng(seed)
    out = []
    for n in rows:
        x = rng.standard_normal((n, columns)) * [1, 100, 0.01, 1][:columns] + [0, 5000, 3, -1][:columns]
        eta = slope * (x[:, 0] + (x[:, 1] - 5000) / 100 - (x[:, 2] - 3) / 0.01) - 0.3
        out.append((x, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)))
    return out


def pooled(parts):
    return sm.add_constant(np.concatenate([x for x, _ in parts])), np.concatenate([y for _, y in parts])


@pytest.mark.parametrize("secure", [False, True])
def test_a_logistic_model_is_that_of_all_rows_at_one_place(secure):
    parts = silos()
    x, y = pooled(parts)
    theirs = sm.GLM(y, x, family=sm.families.Binomial()).fit(tol=1e-14, maxiter=100)
    ours = fit_silos(parts, secure=secure)
    for mine, other in ((ours.estimate, theirs.params), (ours.error, theirs.bse), (ours.p, theirs.pvalues)):
        np.testing.assert_allclose(mine, other, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(np.transpose(ours.interval()), theirs.conf_int(), rtol=1e-8)
    assert ours.log_likelihood == pytest.approx(theirs.llf, abs=1e-8)
    assert ours.converged and not ours.notes()
    assert ours.rounds < 14 and ours.rows == (60, 45, 80, 30)


def test_a_linear_model_is_that_of_all_rows_at_one_place_after_one_step():
    rng = np.random.default_rng(1)
    parts = [(x, 2 * y + 0.01 * x[:, 1] + rng.standard_normal(len(y))) for x, y in silos(1)]
    x, y = pooled(parts)
    theirs = sm.OLS(y, x).fit()
    ours = fit_silos(parts, "linear")
    for mine, other in ((ours.estimate, theirs.params), (ours.error, theirs.bse), (ours.p, theirs.pvalues)):
        np.testing.assert_allclose(mine, other, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(np.transpose(ours.interval()), theirs.conf_int(), rtol=1e-8)
    assert ours.log_likelihood == pytest.approx(theirs.llf, abs=1e-8)


def table_of(parts, names, levels):
    made = tuple(Silo(f"s{k}", x.astype(np.float32), y.astype(np.int8)) for k, (x, y) in enumerate(parts))
    return SiloTable("made", made, names, "y = 1", coding=Coding(levels))


def test_levels_that_a_silo_lacks_are_fitted_by_the_others_and_a_column_that_says_nothing_new_has_no_coefficient():
    rng = np.random.default_rng(2)
    parts = []
    for number, (x, y) in enumerate(silos(2)):
        level = rng.integers(0, 2 if number == 0 else 3, len(y))  # the first silo has nobody of the third level
        more = np.stack([level == 0, level == 1, level == 2, 2 * x[:, 0] + 1], axis=1)
        parts.append((np.column_stack([x[:, :1], more]), y))
    names = ("a", "g=u", "g=v", "g=w", "twice")
    ours = fit_silos(table_of(parts, names, {"g": ("u", "v", "w")}))
    x, y = pooled([(np.float32(x[:, [0, 2, 3]]).astype(float), y) for x, y in parts])
    theirs = sm.GLM(y, x, family=sm.families.Binomial()).fit(tol=1e-14, maxiter=100)
    assert ours.names == ("(intercept)", "a", "g=v", "g=w", "twice")
    np.testing.assert_allclose(ours.estimate[:4], theirs.params, rtol=1e-8)
    np.testing.assert_allclose(ours.error[:4], theirs.bse, rtol=1e-8)
    assert np.isnan(ours.estimate[4]) and ours.aliased == ("twice",) and "twice" in ours.notes()[0]
    assert ours.as_json()["coefficients"][4]["p"] is None


def test_rows_with_gaps_are_left_out_and_counted():
    parts = silos(3)
    parts[1][0][:5, 2] = np.nan
    ours = fit_silos(parts)
    kept = [(x[~np.isnan(x).any(axis=1)], y[~np.isnan(x).any(axis=1)]) for x, y in parts]
    x, y = pooled(kept)
    theirs = sm.GLM(y, x, family=sm.families.Binomial()).fit(tol=1e-14, maxiter=100)
    np.testing.assert_allclose(ours.estimate, theirs.params, rtol=1e-8)
    assert ours.left_out == (0, 5, 0, 0) and "5 rows of silo 1" in ours.notes()[0]


def separated():
    rng = np.random.default_rng(4)
    return [(x := rng.standard_normal((25, 2)), (x[:, 0] > 0).astype(float)) for _ in range(3)]


def test_separated_labels_are_named_and_firths_penalty_gives_the_largest_penalised_likelihood():
    parts = separated()
    ours = fit_silos(parts)
    assert "x0" in ours.separated and "Firth" in " ".join(ours.notes())
    made = fit_silos(parts, firth=True)
    x, y = pooled(parts)

    def loss(beta):
        mean = 1 / (1 + np.exp(-x @ beta))
        information = (x * (mean * (1 - mean))[:, None]).T @ x
        return -(y @ (x @ beta) - np.logaddexp(0, x @ beta).sum() + 0.5 * np.linalg.slogdet(information)[1])

    found = minimize(loss, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-13, "maxiter": 9999})
    np.testing.assert_allclose(made.estimate, found.x, rtol=1e-5)
    assert loss(made.estimate) <= found.fun + 1e-10 and "x0" in made.separated and made.converged


def test_firths_gradient_is_the_difference_quotient_of_half_the_log_determinant():
    parts = silos(5)
    x, beta = np.column_stack([np.ones(60), parts[0][0][:, 0]]), np.array([0.3, -0.4])

    def half(b):
        return 0.5 * np.linalg.slogdet(sums("logistic", b, x, parts[0][1]).information)[1]

    steps = [(half(beta + step) - half(beta - step)) / 2e-6 for step in np.eye(2) * 1e-6]
    covariance = np.linalg.inv(sums("logistic", beta, x, parts[0][1]).information)
    np.testing.assert_allclose(firth_gradient(beta, covariance, x), steps, rtol=1e-6)


def test_a_penalised_model_has_no_p_values():
    ours = fit_silos(silos(), penalty=3.0)
    assert ours.as_json()["coefficients"][1]["p"] is None and "p-values do not hold" in ours.notes()[0]


def test_numbers_of_a_secure_sum_come_back_as_they_were():
    values = np.array([0.0, 1.0, -1.0, 1e-20, -3.5e12, 1.23456789e30, -7e-9])
    np.testing.assert_allclose(from_words(to_words(values)), values, rtol=1e-15, atol=2.0**-81)
    many = np.random.default_rng(0).standard_normal((5, 40)) * 1e6
    np.testing.assert_allclose(Adder(secure=True)(list(many)), many.sum(axis=0), rtol=1e-12)
    for bad in (np.nan, np.inf, 1e40):
        with pytest.raises(ConfigError, match="must be finite"):
            to_words(np.array([bad]))


def test_sums_survive_being_flattened():
    made = sums("logistic", np.array([0.1, 0.2]), np.array([[1.0, 2.0], [1.0, -1.0]]), np.array([0.0, 1.0]))
    back = Sums.of(made.flat(), 2)
    assert all(np.array_equal(mine, other) for mine, other in zip(made, back, strict=True))


def test_what_cannot_be_fitted_is_refused_in_words():
    parts = silos()
    with pytest.raises(ConfigError, match="hides nothing"):
        fit_silos(parts[:2], secure=True)
    with pytest.raises(DataError, match="alike"):
        fit_silos([(x, np.zeros(len(y))) for x, y in parts])
    with pytest.raises(DataError, match="no row has all values"):
        fit_silos([(np.full_like(x, np.nan), y) for x, y in parts])
    with pytest.raises(DataError, match="0 or 1"):
        fit_silos([(x, 3 * y) for x, y in parts])
    with pytest.raises(ConfigError, match="Firth"):
        fit_silos(parts, "linear", firth=True)


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
    plain, made = fit_silos(parts), fit_silos(parts, firth=True)
    assert made.converged and "do not use" not in " ".join(made.notes())
    separates = ("x0",) if kind == "all" else tuple(f"x{k}" for k in range(1, parts[0][0].shape[1]))
    for one in (plain, made):
        if kind == "all":  # then no coefficient has a largest likelihood
            assert "(intercept)" in one.separated and "x0" in one.separated
        else:
            assert one.separated == separates
    places = [made.names.index(name) for name in separates]
    assert np.isnan(made.p[places]).all() and np.isnan(made.interval()[0][places]).all()
    assert np.isfinite(made.error).all() and "Wald" in made.notes()[0]
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
        ours = fit_silos([(x[::2], y[::2]), (x[1::2], y[1::2])])
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


def test_an_intercept_has_no_value_where_the_column_that_separates_has_its_border_elsewhere():
    for zero in [-0.7, 50.0, 2000.0]:
        rng = np.random.default_rng(6)
        x = np.column_stack([rng.uniform(-1, 1, 200) + zero, rng.standard_normal(200)])
        y = (x[:, 0] > zero).astype(float)
        assert fit_silos([(x[::2], y[::2]), (x[1::2], y[1::2])]).separated[:2] == ("(intercept)", "x0")


def test_an_exposure_among_a_few_rows_is_estimated_in_closed_form():
    """Saturated two-by-two table: Firth's estimate is that with half a row in each cell (Firth 1993)."""
    x = np.repeat([0.0, 0.0, 1.0], [30, 10, 5])[:, None]
    y = np.repeat([0.0, 1.0, 1.0], [30, 10, 5])
    made = fit_silos([(x[::2], y[::2]), (x[1::2], y[1::2])], firth=True)
    np.testing.assert_allclose(made.estimate[0], np.log(10.5 / 30.5), rtol=1e-6)
    np.testing.assert_allclose(made.estimate[1], np.log(5.5 / 0.5) - np.log(10.5 / 30.5), rtol=1e-6)
    assert made.separated == ("x0",) and made.converged


def test_seconds_since_1970_keep_their_digits(tmp_path):
    """Times of admission within ten minutes: single precision has steps of 128 seconds there."""
    rng = np.random.default_rng(0)
    at = 1.7e9 + rng.uniform(0, 600, 300)
    x = np.column_stack([at, rng.normal(60, 10, 300)])
    mean = 1 / (1 + np.exp(-0.004 * (at - 1.7e9 - 300) - 0.03 * (x[:, 1] - 60)))
    y = (rng.random(300) < mean).astype(float)
    centred = np.column_stack([np.ones(300), at - 1.7e9, x[:, 1]])
    theirs = sm.GLM(y, centred, family=sm.families.Binomial()).fit(tol=1e-14, maxiter=100)
    length = 20 + 0.02 * (at - 1.7e9) + rng.normal(0, 3, 300)
    line = sm.OLS(length, centred).fit()
    path = tmp_path / "seconds.csv"
    cells = np.column_stack([at, x[:, 1], y, length]).tolist()
    rows = [f"{'ab'[k % 2]},{row[0]!r},{row[1]!r},{row[2]:.0f},{row[3]!r}" for k, row in enumerate(cells)]
    path.write_text("\n".join(["silo,at,age,label,length", *rows]))
    ours = fit_silos(read_silos(path, drop=("length",)))
    np.testing.assert_allclose(ours.estimate[1:], theirs.params[1:], rtol=1e-6)
    np.testing.assert_allclose(ours.error[1:], theirs.bse[1:], rtol=1e-6)
    table, labels = numbers_of(path, "silo", "length", ("label",))
    mine = fit_silos(table, "linear", labels=labels)
    np.testing.assert_allclose(mine.estimate[1:], line.params[1:], rtol=1e-6)
    np.testing.assert_allclose(mine.error[1:], line.bse[1:], rtol=1e-6)
