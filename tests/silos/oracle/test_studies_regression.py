"""Regressions of studies equal R's over all rows, whatever silos hold them; ``kept/studies.R`` made the numbers."""

import dataclasses
import json

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import chi2
from study_silos import CLUSTER, COUNT, DATA, DESIGN, KEPT, NAMES, OWN, R, close, cut, cut_by_cluster, run_over

from fedrank.core.errors import DataError
from fedrank.silos.studies.families import (
    Linear,
    Logistic,
    Multinomial,
    NegativeBinomial,
    Ordinal,
    Poisson,
    family_of,
)
from fedrank.silos.studies.protocol import Ask, Rows
from fedrank.silos.studies.regression import answer, fit, fit_patterns

WEIGHTED = {"weight": DATA["weight"], "offset": DATA["offset"]}
OUTCOMES = {"logistic": "ill", "poisson": "count", "linear": "value"}
#: A map whose columns have no origin of their own: multinom and polr were fitted to age less 60.
CENTRED = np.where(np.arange(4)[:, None] == 0, [1, 0, -1, 0], OWN)


def run_fit(family, y, x=DESIGN, names=NAMES, own=OWN, silos=cut, rows=None, **settings):
    """A fit over silos, and the numbers of its answers."""
    made = silos(Rows.of(x, y, **(rows or {})))
    return run_over(
        fit(family, names, own=own, **settings), lambda ask, blocks: answer(family, ask, blocks), made
    )  # fmt: skip


def test_logistic_poisson_and_linear_equal_glm_and_lm():
    for family, most in ((Logistic(), 6), (Poisson(), 6), (Linear(), 1)):
        made, sizes = run_fit(family, DATA[OUTCOMES[family.name]], rows=WEIGHTED)
        theirs = R[family.name]
        close(made.estimate, theirs["estimate"])
        close(made.covariance, theirs["covariance"])
        close([made.log_likelihood, made.aic], [theirs["loglik"], theirs["aic"]], 1e-12)
        assert made.rounds == len(sizes) <= most and made.converged and not made.notes()
        assert list(made.rows.values()) == [1, 39, 50, 70]
        if family.name != "poisson":
            table = np.transpose([made.estimate, made.error, made.statistic, made.p])
            np.testing.assert_allclose(table, R[f"{family.name}_test"], rtol=2e-8)
            np.testing.assert_allclose(np.transpose(made.interval()), R[f"{family.name}_ci"], rtol=1e-8)
        if family.name == "linear":
            close(made.dispersion, R["linear"]["sigma2"])


def test_robust_covariances_equal_sandwich():
    for name, kinds in R["robust"].items():
        family, rows = family_of(name), dict(WEIGHTED, cluster=CLUSTER)
        if name == "linear":
            del rows["weight"]  # lm takes weights as precisions
        for kind, theirs in kinds.items():
            made, sizes = run_fit(family, DATA[OUTCOMES[name]], silos=cut_by_cluster, rows=rows, robust=kind)
            close(made.covariance, theirs, 2e-8)
            assert made.clusters == (12 if kind.startswith("CR") else COUNT) and len(sizes) == made.rounds
            if (name, kind) == ("linear", "CR1"):
                table = np.transpose([made.estimate, made.error, made.statistic, made.p])
                np.testing.assert_allclose(table, R["robust_test"], rtol=1e-8)

    made, _ = run_fit(NegativeBinomial(), DATA["count"], rows=WEIGHTED, robust="HC0")
    close(made.covariance[:4, :4], R["nb"]["robust"], 2e-8)
    x, names = DESIGN[:, 1:], NAMES[1:]
    made, _ = run_fit(Ordinal(4), DATA["grade"], x, names, CENTRED, intercept=False, robust="HC0")
    order = [3, 4, 5, 0, 1, 2]
    close(made.covariance, np.array(R["polr"]["robust"])[np.ix_(order, order)], 3e-5)


def test_negative_binomial_equals_glm_nb():
    made, _ = run_fit(NegativeBinomial(), DATA["count"], rows=WEIGHTED)
    theirs = R["nb"]
    close(made.estimate[:4], theirs["estimate"])
    close(made.covariance[:4, :4], theirs["covariance"])
    close(made.theta, (theirs["theta"], theirs["theta_error"]))
    close(made.log_likelihood, theirs["loglik"], 1e-12)
    assert made.parameters == 5 and made.rounds <= 7


def test_multinomial_and_ordinal_equal_multinom_polr_and_clm():
    made, _ = run_fit(Multinomial(3), DATA["kind"], own=CENTRED, rows={"weight": DATA["weight"]})
    theirs = R["multinomial"]
    # multinom stops where its likelihood of single steps does not rise, some 1e-6 of an error away.
    close(made.estimate, theirs["estimate"], 3e-6)
    close(made.covariance, theirs["covariance"], 3e-6)
    close(made.log_likelihood, theirs["loglik"], 1e-12)
    assert made.names[:2] == ("1: (intercept)", "1: age") and made.rounds <= 7
    made, _ = run_fit(Ordinal(4), DATA["grade"], DESIGN[:, 1:], NAMES[1:], CENTRED, rows=WEIGHTED, intercept=False)
    close(made.estimate, R["clm"]["estimate"])
    close(made.covariance, R["clm"]["covariance"])
    # polr: optim's maximum, and second derivatives by differences of 1e-3.
    polr = R["polr"]
    close(made.estimate, polr["zeta"] + polr["estimate"], 2e-6)
    order = [3, 4, 5, 0, 1, 2]
    close(made.covariance, np.array(polr["covariance"])[np.ix_(order, order)], 2e-5)
    close(made.log_likelihood, polr["loglik"], 1e-12)
    assert made.names[:3] == ("0|1", "1|2", "2|3") and made.rounds <= 6


def families():
    """Families, outcomes and points to look at."""
    rng = np.random.default_rng(0)
    for family, y, x in (
        (Logistic(), "ill", DESIGN),
        (Linear(), "value", DESIGN),
        (Poisson(), "count", DESIGN),
        (NegativeBinomial(), "count", DESIGN),
        (Multinomial(3), "kind", DESIGN),
        (Ordinal(4), "grade", DESIGN[:, 1:]),
    ):
        theta = rng.normal(size=family.parameters(x.shape[1])) * 0.5
        if family.has_cuts:
            theta[:3] = [-1.3, 0.2, 1.0]
        yield family, theta, Rows.of(x, DATA[y], **WEIGHTED)


def test_derivatives_by_differences_and_scores():
    for family, theta, rows in families():
        at, step = family.sums(theta, rows), 1e-5
        ends = [[family.sums(theta + sign * step * unit, rows) for sign in (1, -1)] for unit in np.eye(len(theta))]
        slope = [(up.value - down.value) / (2 * step) for up, down in ends]
        bend = [(down.gradient - up.gradient) / (2 * step) for up, down in ends]
        np.testing.assert_allclose(at.gradient, slope, rtol=1e-6, atol=1e-4)
        np.testing.assert_allclose(at.information, bend, rtol=1e-6, atol=1e-4)
        np.testing.assert_allclose(family.scores(theta, rows).sum(axis=0), at.gradient, rtol=1e-10, atol=1e-9)


def test_likelihood_stays_finite_far_out_and_exact_where_probabilities_vanish():
    for family, theta, rows in families():
        for far in (1e3, -1e3):
            at = family.sums(np.where(np.arange(len(theta)) == len(theta) - 2, far, theta), rows)
            assert np.isfinite(at.value) and np.isfinite(at.gradient).all() and np.isfinite(at.information).all()
    # log P(y = 1) = log(F(40 + 1e-9) − F(40)), of which the plain difference is 0.
    made = Ordinal(3).sums(np.array([40.0, 40.0 + 1e-9, 0.0]), Rows.of([[1.0]], [1.0])).value
    assert made == pytest.approx(np.log(1e-9) - 40, rel=1e-7)
    # Without overdispersion a negative binomial likelihood is Poisson's.
    rows = Rows.of(DESIGN, DATA["count"])
    beta = np.array([0.5, 0.3, -0.1, 0.2])
    theirs = Poisson().sums(beta, rows).value
    assert NegativeBinomial().sums(np.append(beta, np.log(1e12)), rows).value == pytest.approx(theirs, rel=1e-8)


def test_answers_depend_on_rows_as_sums_do():
    for family, theta, rows in families():
        asks = [
            Ask("moments"),
            Ask("sums", {"theta": np.stack([theta, theta / 2])}),
            Ask("meat", {"theta": theta, "clusters": np.array(0.0)}),
            Ask("meat", {"theta": theta, "clusters": np.array(1.0)}),
        ]
        if family.name == "logistic":
            asks.append(Ask("firth", {"theta": theta[None], "inverse": np.eye(4)[None]}))
        rows = Rows(*(column[:25] for column in rows._replace(cluster=CLUSTER)))
        for ask in asks:
            whole = answer(family, ask, [rows])
            single = answer(family, ask, (Rows(*(c[k : k + 1] for c in rows)) for k in range(25)))
            np.testing.assert_allclose(single, whole, rtol=1e-10, atol=1e-10)
            empty = answer(family, ask, [Rows(*(column[:0] for column in rows))])
            assert len(empty) == len(whole) and not empty.any()


def test_patterns_give_the_fit_in_one_round():
    x = np.column_stack([np.ones(COUNT), DATA["site"] == 1, DATA["site"] == 2, DATA["arm"]])
    x = np.column_stack([x, x[:, 1:3] * x[:, 3:]])
    names = ("(intercept)", "1", "2", "arm", "1:arm", "2:arm")
    patterns = np.unique(x, axis=0)[[3, 0, 5, 1, 4, 2]]
    for family, y in ((Logistic(), "ill"), (Linear(), "value"), (Poisson(), "count"), (Multinomial(3), "kind"),
                      (Ordinal(4), "grade")):  # fmt: skip
        rows = {"weight": DATA["weight"]} | ({"offset": DATA["offset"]} if family.name == "poisson" else {})
        columns = slice(1, None) if family.has_cuts else slice(None)
        settings = {"own": None, "intercept": not family.has_cuts}
        direct, _ = run_fit(family, DATA[y], x[:, columns], names[columns], rows=rows, **settings)
        silos = cut(Rows.of(x[:, columns], DATA[y], **rows))
        made, sizes = run_over(
            fit_patterns(family, patterns[:, columns], fit(family, names[columns], **settings)),
            lambda ask, blocks, family=family: answer(family, ask, blocks),
            silos,
        )
        close(made.estimate, direct.estimate, 1e-7)
        close(made.covariance, direct.covariance, 1e-7)
        close(made.log_likelihood, direct.log_likelihood, 1e-10)
        assert made.rounds == len(sizes) == 1 and made.rows == direct.rows
        if family.name in R["patterns"]:
            theirs = R["patterns"][family.name]
            close(made.estimate, theirs["estimate"], 1e-7)
            close(made.covariance, theirs["covariance"], 1e-7)
            close([made.log_likelihood, made.aic], [theirs["loglik"], theirs["aic"]], 1e-10)
    with pytest.raises(DataError):
        answer(Linear(), Ask("patterns", {"patterns": patterns[:5]}), silos_of(x))


def silos_of(x):
    """Rows of one silo, whatever the outcome."""
    return [Rows.of(x, np.zeros(len(x)))]


def test_aliased_and_separated_columns_are_named():
    some = DATA["ill"] * (np.arange(COUNT) % 3 == 0)  # all of these are ill
    x = np.column_stack([DESIGN, DESIGN[:, 1] * 2 - DESIGN[:, 0], np.zeros(COUNT), some])
    names = (*NAMES, "twice", "never", "some")
    made, _ = run_fit(Logistic(), DATA["ill"], x, names, np.eye(7))
    assert made.aliased == ("twice", "never") and made.separated == ("some",) and made.rounds < 14
    assert np.isnan(made.error[[4, 5, 6]]).all() and np.isfinite(made.error[:4]).all()
    # The other coefficients are those of the rows that the column does not settle.
    theirs, _ = run_fit(Logistic(), DATA["ill"][some == 0], DESIGN[some == 0], own=np.eye(4))
    np.testing.assert_allclose(made.estimate[:4], theirs.estimate, rtol=1e-4)
    made, _ = run_fit(Ordinal(4), DATA["grade"], np.ones((COUNT, 1)), ("one",), np.eye(2), intercept=False)
    assert made.aliased == ("one",) and made.estimate[:3] == pytest.approx(
        np.log(np.cumsum(np.bincount(DATA["grade"].astype(int))) / COUNT)[:3]
        - np.log(1 - np.cumsum(np.bincount(DATA["grade"].astype(int)))[:3] / COUNT)
    )


def test_rare_levels_without_events_and_counts_without_overdispersion():
    rare = (np.arange(COUNT) == 7).astype(float)
    x, names = np.column_stack([DESIGN, rare]), (*NAMES, "rare")
    for family, y in ((Poisson(), DATA["count"]), (Multinomial(3), DATA["kind"]), (Ordinal(4), DATA["grade"])):
        columns = slice(family.has_cuts, None)
        settings = {"intercept": not family.has_cuts, "own": None}
        made, _ = run_fit(family, y * (1 - rare), x[:, columns], names[columns], **settings)
        theirs, _ = run_fit(family, y[rare == 0], DESIGN[rare == 0][:, columns], NAMES[columns], **settings)
        gone = np.array([name.endswith("rare") for name in made.names])
        assert set(made.separated) == set(np.array(made.names)[gone]) and made.rounds < 14
        np.testing.assert_allclose(made.estimate[~gone], theirs.estimate, rtol=1e-4)
        np.testing.assert_allclose(made.error[~gone], theirs.error, rtol=1e-4)
    y = 3.0 + np.arange(COUNT) % 2
    made, _ = run_fit(NegativeBinomial(), y)
    theirs, _ = run_fit(Poisson(), y)
    assert made.separated == ("log(theta)",) and made.rounds < 20
    np.testing.assert_allclose(made.estimate[:4], theirs.estimate, atol=1e-6)
    np.testing.assert_allclose(made.error[:4], theirs.error, rtol=1e-5)


def test_ridge_is_the_optimum_on_columns_of_deviation_1():
    deviation = DESIGN[:, 1:].std(axis=0)
    z = np.column_stack([np.ones(COUNT), (DESIGN[:, 1:] - DESIGN[:, 1:].mean(axis=0)) / deviation])
    ridge = np.diag([0.0, 2.5, 2.5, 2.5])
    y = DATA[OUTCOMES["linear"]]
    made, _ = run_fit(Linear(), y, own=np.eye(4), penalty=2.5)
    np.testing.assert_allclose(made.estimate[1:], np.linalg.solve(z.T @ z + ridge, z.T @ y)[1:] / deviation, rtol=1e-9)
    y = DATA[OUTCOMES["logistic"]]
    made, _ = run_fit(Logistic(), y, own=np.eye(4), penalty=2.5)
    slope = z.T @ (y - expit(DESIGN @ made.estimate)) - ridge @ np.append(0.0, made.estimate[1:] * deviation)
    np.testing.assert_allclose(slope, 0.0, atol=1e-7)
    assert np.isnan(made.p).all()


FIRTH = json.loads((KEPT / "studies_firth.json").read_text())


def penalised(beta, x, y):
    """The penalised log-likelihood, the information, and the gradient."""
    mean = expit(x @ beta)
    information = (x * (mean * (1 - mean))[:, None]).T @ x
    value = float(y @ (x @ beta) - np.logaddexp(0, x @ beta).sum() + 0.5 * np.linalg.slogdet(information)[1])
    leverage = mean * (1 - mean) * np.einsum("ij,jk,ik->i", x, np.linalg.inv(information), x)
    return value, information, x.T @ (y - mean + leverage * (0.5 - mean))


def test_firth_equals_firthmodels_also_where_labels_are_separated():
    for name, most in (("study", 8), ("separated", 20)):
        theirs = FIRTH[name]
        x, y = np.column_stack([np.ones(len(theirs["y"])), theirs["x"]]), np.array(theirs["y"])
        scale = np.append(1.0, np.abs(x[:, 1:]).max(axis=0))
        made, sizes = run_fit(
            Logistic(), y, x / scale, [f"x{k}" for k in range(len(scale))], np.diag(1 / scale),
            silos=lambda rows: cut(rows, (1, 5)), use_firth=True,
        )  # fmt: skip
        # Theirs stop at gradients of 1e-7 and steps of 1e-9.
        np.testing.assert_allclose(made.estimate, theirs["estimate"], atol=1e-6)
        np.testing.assert_allclose(made.interval(), [theirs["low"], theirs["high"]], atol=1e-6)
        np.testing.assert_allclose(made.p, theirs["p"], rtol=1e-6)
        value, information, gradient = penalised(made.estimate, x, y)
        assert np.abs(gradient).max() < 1e-8 and made.converged and made.rounds == len(sizes) <= most
        # The inverse information; theirs adds the rows that the penalty amounts to.
        close(made.covariance, np.linalg.inv(information), 1e-6)
        assert value == pytest.approx(theirs["value"], abs=1e-9)


def test_firth_intervals_end_where_the_profile_has_fallen():
    """At an end the likelihood is at the target, and its gradient is that of the parameter's alone."""
    theirs = FIRTH["nearly"]
    x, y = np.column_stack([np.ones(15), theirs["x"]]), np.array(theirs["y"])
    names = ("(intercept)", "step", "turn")
    made, _ = run_fit(Logistic(), y, x, names, None, silos=lambda rows: cut(rows, (1, 5)), use_firth=True, level=0.9)
    peak = penalised(made.estimate, x, y)[0]
    assert made.profile is not None
    for end in (made.profile.low[1], made.profile.high[1]):
        beta = np.array([made.estimate[0], end, made.estimate[2]])
        for _ in range(300):  # ascent over the other two
            information, gradient = penalised(beta, x, y)[1:]
            inner = np.ix_([0, 2], [0, 2])
            beta[[0, 2]] += 0.5 * np.linalg.solve(information[inner], gradient[[0, 2]])
        assert 2 * (peak - penalised(beta, x, y)[0]) == pytest.approx(chi2.ppf(0.9, 1), abs=1e-6)


def test_outcomes_of_which_nothing_follows_are_refused():
    for family, y in ((Logistic(), np.ones(COUNT)), (Poisson(), np.zeros(COUNT)), (Multinomial(4), DATA["kind"])):
        with pytest.raises(DataError):
            run_fit(family, y)
    with pytest.raises(DataError):
        run_fit(Linear(), DATA["value"][:4], DESIGN[:4], silos=lambda rows: [rows])
    assert dataclasses.replace(family_of("ordinal", 4)) == Ordinal(4)
