"""What R says, kept: glm, lm, coxph with Efron's ties and strata, survfit, survdiff, and pROC's DeLong tests.

``kept/from_r.R`` made ``kept/from_r.json``; R is not needed here.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from lifelines.datasets import load_lung

from fedrank.silos.glm import fit_silos
from fedrank.silos.sceptic.auc import auc, difference
from fedrank.silos.survival import Followed, curves, fit_cox, logrank

R = json.loads(Path(__file__).with_name("kept").joinpath("from_r.json").read_text())
COLUMNS = ["age", "sex", "ph.ecog"]


@pytest.fixture(scope="module")
def parts():
    """The lung data, cut in four silos by row; one row has a gap."""
    frame = load_lung()[["time", "status", *COLUMNS]].astype(float)
    return [frame[np.arange(len(frame)) % 4 == k] for k in range(4)]


def followed(parts, columns):
    return [Followed(p[columns].to_numpy(), p.time.to_numpy(), p.status.to_numpy()) for p in parts]


def test_glm_and_lm(parts):
    theirs = np.array(R["logistic"])
    ours = fit_silos([(p[COLUMNS].to_numpy(), p.status.to_numpy()) for p in parts])
    np.testing.assert_allclose(np.transpose([ours.estimate, ours.error, ours.statistic, ours.p]), theirs, rtol=1e-8)
    assert ours.log_likelihood == pytest.approx(R["logistic_loglik"], abs=1e-8) and ours.left_out == (0, 1, 0, 0)
    theirs = np.array(R["linear"])
    ours = fit_silos([(p[COLUMNS].to_numpy(), p.time.to_numpy()) for p in parts], "linear")
    np.testing.assert_allclose(np.transpose([ours.estimate, ours.error, ours.statistic, ours.p]), theirs, rtol=1e-8)
    np.testing.assert_allclose(np.transpose(ours.interval()), R["linear_ci"], rtol=1e-8)
    assert ours.log_likelihood == pytest.approx(R["linear_loglik"], rel=1e-10)


def test_coxph_with_efrons_ties_and_with_strata(parts):
    theirs = np.array(R["cox"])  # coefficient, its exponential, error, z, p
    ours = fit_cox(followed(parts, COLUMNS), COLUMNS)
    np.testing.assert_allclose(np.transpose([ours.estimate, ours.error, ours.p]), theirs[:, [0, 2, 4]], rtol=1e-8)
    assert ours.log_likelihood == pytest.approx(R["cox_loglik"], abs=1e-8)
    np.testing.assert_allclose(ours.proportional, np.array(R["zph"])[:3, 2], rtol=1e-8)
    theirs = np.array(R["cox_strata"])
    whole = [p.dropna() for p in parts]
    ours = fit_cox(followed(whole, ["age", "sex"]), ["age", "sex"], strata=True)
    np.testing.assert_allclose(np.transpose([ours.estimate, ours.error]), theirs[:, [0, 2]], rtol=1e-8)
    assert ours.log_likelihood == pytest.approx(R["cox_strata_loglik"], abs=1e-8)


def test_survfit_and_survdiff(parts):
    rows, groups, theirs = followed(parts, ["age"]), [p.sex.astype(str).tolist() for p in parts], R["km"]
    for number, one in enumerate(curves(rows, groups), 1):
        mine = np.array(theirs["group"]) == number
        at = np.searchsorted(one.time, np.array(theirs["time"])[mine])
        np.testing.assert_allclose(one.survival[at], np.array(theirs["surv"])[mine], atol=1e-12)
        np.testing.assert_allclose(one.error[at], np.array(theirs["err"])[mine], atol=1e-12)
    statistic, degrees, p = logrank(rows, groups)
    assert (statistic, degrees) == (pytest.approx(R["logrank"]["chisq"], rel=1e-9), 1)
    assert p == pytest.approx(R["logrank"]["p"], rel=1e-9)


def test_delong_of_proc(parts):
    frame = np.concatenate([p.dropna()[["status", "ph.ecog", "age"]].to_numpy() for p in parts])
    y, first, second = frame.T
    theirs, a, b, apart = R["auc"], auc(first, y), auc(second, y), difference(first, second, y)
    got = [a.value, a.error**2, b.value, b.error**2, apart.value / apart.error, apart.p]
    expected = [theirs[name] for name in ("first", "first_var", "second", "second_var", "z", "p")]
    np.testing.assert_allclose(got, expected, rtol=1e-10)
