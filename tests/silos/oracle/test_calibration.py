"""Calibration against statsmodels, scikit-learn and counting; conformal sets by their promise."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import expit
from sklearn.metrics import brier_score_loss

from fedrank.silos.sceptic.compare import calibration, conformal, threshold


def rows(seed=0, n=400, slope=1.0, shift=0.0):
    rng = np.random.default_rng(seed)
    scores = 1.5 * rng.standard_normal(n) - 0.5
    return scores, (rng.random(n) < expit(slope * scores + shift)).astype(float)


def test_intercept_slope_and_brier_are_those_of_other_libraries():
    scores, y = rows(slope=0.6, shift=0.4)
    made = calibration(scores, y)
    slope = sm.GLM(y, sm.add_constant(scores), family=sm.families.Binomial()).fit(tol=1e-12)
    intercept = sm.GLM(y, np.ones(len(y)), family=sm.families.Binomial(), offset=scores).fit(tol=1e-12)
    assert made.slope.value == pytest.approx(slope.params[1], rel=1e-8)
    assert made.slope.error == pytest.approx(slope.bse[1], rel=1e-6)
    assert made.intercept.value == pytest.approx(intercept.params[0], rel=1e-8)
    assert made.brier == pytest.approx(brier_score_loss(y, expit(scores)))
    assert made.brier_without == pytest.approx(brier_score_loss(y, np.full(len(y), y.mean())))
    assert sum(b.rows for b in made.bins) == 400 and len(made.bins) == 10
    assert np.average([b.observed for b in made.bins], weights=[b.rows for b in made.bins]) == pytest.approx(y.mean())


def test_net_benefit_by_counting():
    scores, y = rows(1)
    made = threshold(scores, y, 0.2)
    acted = expit(scores) >= 0.2
    right, wrong = (acted & (y > 0)).sum(), (acted & (y == 0)).sum()
    assert made.benefit == pytest.approx(right / 400 - wrong / 400 * 0.25)
    assert made.benefit_all == pytest.approx(y.mean() - (1 - y.mean()) * 0.25)
    assert made.sensitivity == pytest.approx(right / y.sum())
    assert made.specificity == pytest.approx(1 - wrong / (400 - y.sum()))


def test_conformal_sets_hold_new_labels_as_often_as_they_promise():
    """Rows and labels of one kind: the promise is of each label, over draws of rows."""
    held = []
    for seed in range(40):
        scores, y = rows(seed, 120)
        made = conformal(scores, y, 0.8)
        held.append(made.coverage_of)
        assert made.coverage == pytest.approx(np.average(made.coverage_of, weights=[(y == 0).sum(), y.sum()]))
    assert np.mean(held, axis=0) == pytest.approx([0.8, 0.8], abs=0.03)


def test_a_set_is_what_comparing_with_every_other_row_gives():
    scores, y = rows(2, 30)
    made = conformal(scores, y, 0.7)
    for row in range(30):
        for label, inside in ((0, made.zero), (1, made.one)):
            strange = scores if label == 0 else -scores
            others = [k for k in range(30) if k != row and y[k] == label]
            count = 1 + sum(strange[k] >= strange[row] for k in others)
            assert inside[row] == (count / (len(others) + 1) > 0.3)
