"""Models shrunk to other silos': evidence and posterior against normal distributions, sets against what is made so."""

from itertools import product

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import multivariate_normal

from fedrank.silos.sceptic import shrinkage
from fedrank.silos.sceptic.auc import auc
from fedrank.silos.sceptic.learners import fit_glm
from fedrank.silos.sceptic.shrinkage import PENALTIES, SPREADS, Quadratic, shrink


def quadratics(rng, count, p):
    """Likelihoods of normal estimates with known covariances: estimate, covariance, and the message."""
    out = []
    for _ in range(count):
        root = rng.standard_normal((p, p + 2))
        covariance = np.linalg.inv(root @ root.T)
        estimate, precision = rng.standard_normal(p), root @ root.T
        at_zero = -0.5 * float(estimate @ precision @ estimate)
        out.append((estimate, covariance, Quadratic(precision, precision @ estimate, at_zero)))
    return out


@pytest.mark.parametrize("some", [(0, 1, 2), (1,), (0, 2), ()])
def test_evidence_and_posterior_are_those_of_one_large_normal_distribution(some):
    p = 3
    own, *others = quadratics(np.random.default_rng(len(some)), 4, p)
    grid = shrinkage._Grid([[one[2] for one in others]], p)
    prior = grid.priors(np.array([0]), np.isin(np.arange(3), some)[None])
    mine = shrinkage._Own(*(np.asarray(part)[None] for part in own[2]))
    (score,), (beta,) = prior.posterior(mine)
    expected, means = [], []
    for spread, penalty in product(SPREADS, PENALTIES):
        within, across = np.diag([1.0, spread, spread]), np.diag([20.0, 1 / penalty, 1 / penalty])
        members = [own, *(others[j] for j in some)]
        n = len(members)
        # Coefficients of all members: normal around a common mean that is itself normal; estimates add their own error.
        theta = np.kron(np.ones((n, n)), across) + np.kron(np.eye(n), within)
        seen = theta.copy()
        for k, (_, covariance, _) in enumerate(members):
            seen[k * p : (k + 1) * p, k * p : (k + 1) * p] += covariance
        values = np.concatenate([one[0] for one in members])
        means.append(theta[:p] @ np.linalg.solve(seen, values))
        of_others = (
            multivariate_normal(np.zeros((n - 1) * p), seen[p:, p:]).logpdf(values[p:]) - 0.5 * np.log(spread)
            if n > 1
            else 0.0
        )
        whole = multivariate_normal(np.zeros(n * p), seen).logpdf(values)
        own_given_others = whole - (
            multivariate_normal(np.zeros((n - 1) * p), seen[p:, p:]).logpdf(values[p:]) if n > 1 else 0.0
        )
        expected.append((of_others, own_given_others))
    np.testing.assert_allclose(beta, means, atol=1e-10)
    hyper, rows = np.array(expected).T
    hyper = hyper - np.log(np.exp(hyper - hyper.max()).sum()) - hyper.max()
    apart = score - (hyper + rows)  # a likelihood is no density of an estimate: one constant apart
    np.testing.assert_allclose(apart, apart[0], atol=1e-9)


def rows_of(rng, beta, rows):
    x = np.column_stack([np.ones(rows), rng.standard_normal((rows, len(beta)))])
    return x, (rng.random(rows) < expit(x[:, 1:] @ beta)).astype(float)


def test_a_silo_with_inverted_labels_has_the_lowest_weight_and_is_never_named():
    beta = np.array([1.0, -0.7, 0.5, 0.0, 0.8])
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        mine = rows_of(rng, beta, 150)
        others = [rows_of(rng, b, 300) for b in (beta, -beta, beta)]
        found.append(shrink(*mine, [Quadratic.of(fit_glm([one], 1.0)) for one in others]).partners)
    honest, inverted = np.array(found)[:, [0, 2]], np.array(found)[:, 1]
    assert (inverted < honest.min(axis=1)).all() and (inverted < 0.5).all() and (honest.max(axis=1) > 0.9).all()


def test_shrinking_is_above_the_silo_alone_and_near_all_rows_where_silos_are_alike():
    reached = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        beta = rng.standard_normal(8)
        beta *= 1.5 / np.linalg.norm(beta)
        mine, *others = (rows_of(rng, beta, rows) for rows in (40, 100, 100, 100))
        x, y = rows_of(rng, beta, 2000)
        models = (
            shrink(*mine, [Quadratic.of(fit_glm([one], 3.0)) for one in others]).beta,
            fit_glm([mine], 10.0).beta,
            fit_glm([mine, *others], 1.0).beta,
        )
        reached.append([auc(x @ one, y).value for one in models])
    shrunk, alone, pooled = np.mean(reached, axis=0)
    assert shrunk > alone + 0.02 and shrunk > pooled - 0.01


def test_no_other_and_others_without_rows_leave_a_ridge_regression():
    rng = np.random.default_rng(0)
    x, y = rows_of(rng, np.array([1.0, -1.0, 0.5]), 200)
    made = shrink(x, y, [])
    ends = [fit_glm([(x, y)], np.diag([0.0, *[penalty] * 3])).beta for penalty in (0.0, 100.0)]
    assert (np.abs(made.beta[1:]) <= np.abs(ends[0][1:]) + 0.02).all()
    assert (np.abs(made.beta[1:]) >= np.abs(ends[1][1:])).all()
    nothing = Quadratic(np.zeros((4, 4)), np.zeros(4), 0.0)
    np.testing.assert_allclose(shrink(x, y, [nothing]).beta, made.beta, atol=0.03)


def test_models_of_some_rows_are_those_of_the_rows_alone():
    rng = np.random.default_rng(3)
    x, y = rows_of(rng, np.array([1.0, -1.0, 0.5]), 120)
    others = [Quadratic.of(fit_glm([rows_of(rng, np.array(b), 80)], 1.0)) for b in ([1.0, -1.0, 0.5], [-1.0, 1.0, 0.0])]
    trains = rng.random((3, 120)) < 0.5
    many = shrinkage.shrink_many(np.stack([x] * 3), y, trains, [others] * 3)
    for one, rows in zip(many, trains, strict=True):
        alone = shrink(x[rows], y[rows], others)
        np.testing.assert_allclose(one.beta, alone.beta, atol=1e-9)
        np.testing.assert_allclose(one.partners, alone.partners, atol=1e-9)
