"""DeLong's errors against the paper's formula pair by pair, the bootstrap, and folds that add up."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fedrank.silos.sceptic.auc import Auc, Estimate, auc, difference


def rows(seed=0, n=60, ties=False):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.4).astype(float)
    a, b = y + rng.standard_normal(n), y + 2 * rng.standard_normal(n)
    return (np.round(a), np.round(b), y) if ties else (a, b, y)


def structural(scores, y):
    """V10 and V01 of DeLong et al. (1988), by comparing all pairs."""
    up, down = scores[y > 0], scores[y <= 0]
    wins = (up[:, None] > down[None]) + 0.5 * (up[:, None] == down[None])
    return wins.mean(axis=1), wins.mean(axis=0)


@pytest.mark.parametrize("ties", [False, True])
def test_delong_of_one_model_and_of_a_difference(ties):
    a, b, y = rows(ties=ties)
    v10, v01 = zip(*(structural(s, y) for s in (a, b)), strict=True)
    s10, s01 = np.cov(v10), np.cov(v01)
    n1, n0 = y.sum(), (1 - y).sum()
    covariance = s10 / n1 + s01 / n0
    one, both = auc(a, y), difference(a, b, y)
    assert one.value == pytest.approx(roc_auc_score(y, a)) and one.error == pytest.approx(covariance[0, 0] ** 0.5)
    assert both.value == pytest.approx(roc_auc_score(y, a) - roc_auc_score(y, b))
    assert both.error == pytest.approx((covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]) ** 0.5)


def test_the_error_is_that_of_resampling_rows():
    a, b, y = rows(1, 300)
    rng = np.random.default_rng(0)
    drawn = [rng.integers(0, 300, 300) for _ in range(600)]
    spread = np.std([roc_auc_score(y[d], a[d]) - roc_auc_score(y[d], b[d]) for d in drawn])
    assert difference(a, b, y).error == pytest.approx(spread, rel=0.12)


def test_folds_are_compared_each_by_itself_and_weighted_by_rows():
    a, _, y = rows(2)
    fold = np.arange(60) % 3
    shifted = a + 100 * fold  # another scale in each fold changes nothing
    expected = np.average([roc_auc_score(y[fold == k], a[fold == k]) for k in range(3)], weights=[20, 20, 20])
    assert auc(shifted, y, fold).value == pytest.approx(expected)
    assert auc(shifted, y, fold).error == pytest.approx(auc(a, y, fold).error)


def test_one_label_and_one_row_of_a_label_give_no_error_and_equal_models_no_difference():
    a, _, y = rows(3)
    assert np.isnan(auc(a, np.ones(60)).value) and np.isnan(auc(a, np.ones(60)).error)
    single = np.zeros(60)
    single[5] = 1.0
    assert np.isnan(auc(a, single).error) and auc(a, single).p == 1.0
    assert difference(a, a, y).value == 0.0 and difference(a, a, y).p == 1.0


def test_the_interval_of_an_auc_is_that_of_its_logit():
    """By hand: logit .9 = 2.1972, and 1.96 x .05 / (.9 x .1) = 1.0889 on either side."""
    assert Auc(0.9, 0.05).interval() == pytest.approx((0.7518, 0.9640), abs=1e-4)
    assert Auc(1.0, 0.0).interval() == (1.0, 1.0) and np.isnan(Auc(0.9, np.nan).interval()).all()


def test_of_six_events_the_interval_holds_more_often_than_the_symmetric_one():
    rng, y, held = np.random.default_rng(0), np.arange(38) < 6, np.zeros(2)
    for _ in range(400):
        found = auc(rng.normal(size=38) + 1.4657 * y, y.astype(float))  # of two normals 1.4657 apart it is .85
        ends = found.interval(), Estimate(*found).interval()
        held += [low <= 0.85 <= high for low, high in ends]
    assert held[0] / 400 == pytest.approx(0.93, abs=0.03) and held[1] / 400 < 0.88
