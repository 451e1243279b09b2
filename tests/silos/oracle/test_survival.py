"""Cox's model, Kaplan-Meier curves and the log-rank test from sums of silos against lifelines on all rows."""

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter
from lifelines.datasets import load_lung
from lifelines.statistics import multivariate_logrank_test

from fedrank.core.errors import DataError
from fedrank.silos.survival import Followed, curves, fit_cox, logrank


@pytest.fixture(scope="module")
def lung():
    """228 patients of the NCCTG, cut in four silos by row, with gaps in a column."""
    frame = load_lung()[["time", "status", "age", "sex", "ph.ecog", "inst"]].astype(float)
    return frame.assign(silo=np.arange(len(frame)) % 4)


def silos_of(frame, columns, time="time", event="status"):
    parts = [frame[frame.silo == k] for k in sorted(frame.silo.unique())]
    return [Followed(p[columns].to_numpy(float), p[time].to_numpy(float), p[event].to_numpy(float)) for p in parts]


@pytest.mark.parametrize("secure", [False, True])
def test_coxs_model_with_ties_is_that_of_all_rows_at_one_place(lung, secure):
    columns = ["age", "sex", "ph.ecog"]
    frame = lung.dropna(subset=columns)
    if secure:  # every number of a secure sum is cut into digits: fewer times
        frame = frame.assign(time=np.ceil(frame.time / 60))
    theirs = CoxPHFitter().fit(frame[["time", "status", *columns]], "time", "status", fit_options={"precision": 1e-12})
    ours = fit_cox(silos_of(lung.assign(time=frame.time) if secure else lung, columns), columns, secure=secure)
    np.testing.assert_allclose(ours.estimate, theirs.params_, rtol=1e-6)
    np.testing.assert_allclose(ours.error, theirs.standard_errors_, rtol=1e-6)
    np.testing.assert_allclose(ours.p, theirs.summary["p"], rtol=1e-5)
    assert ours.log_likelihood == pytest.approx(theirs.log_likelihood_, abs=1e-8)
    assert sum(ours.left_out) == 1 and ours.converged and not ours.separated


def test_coxs_model_with_a_hazard_for_each_silo(lung):
    frame = lung.dropna(subset=["ph.ecog"])
    fitter = CoxPHFitter(strata=["silo"])
    theirs = fitter.fit(
        frame[["time", "status", "age", "sex", "silo"]], "time", "status", fit_options={"precision": 1e-12}
    )
    ours = fit_cox(silos_of(frame, ["age", "sex"]), strata=True)
    np.testing.assert_allclose(ours.estimate, theirs.params_, rtol=1e-6)
    np.testing.assert_allclose(ours.error, theirs.standard_errors_, rtol=1e-6)
    assert np.isnan(ours.proportional).all()


def test_curves_and_the_log_rank_test_are_those_of_all_rows(lung):
    silos = silos_of(lung, ["age"])
    groups = [lung[lung.silo == k].sex.astype(str).tolist() for k in range(4)]
    made = curves(silos, groups, secure=True)
    assert [curve.group for curve in made] == ["1.0", "2.0"]
    for curve, sex in zip(made, (1, 2), strict=True):
        own = lung[lung.sex == sex]
        theirs = KaplanMeierFitter().fit(own.time, own.status)
        np.testing.assert_allclose(curve.survival, theirs.predict(curve.time), rtol=1e-10)
        assert curve.median == theirs.median_survival_time_
        ends = theirs.confidence_interval_.reindex(curve.time, method="ffill").dropna()
        places = np.isin(curve.time, ends.index) & (curve.survival < 1)
        for mine, other in zip(curve.interval(), ends.to_numpy().T, strict=True):
            np.testing.assert_allclose(mine[places], other[np.isin(ends.index, curve.time[places])], rtol=1e-6)
    theirs = multivariate_logrank_test(lung.time, lung.sex, lung.status)
    statistic, degrees, p = logrank(silos, groups)
    assert (statistic, p) == pytest.approx((theirs.test_statistic, theirs.p_value), rel=1e-8) and degrees == 1
    thirds = [["abc"[k % 3] for k in range(silo.rows)] for silo in silos]
    flat = pd.concat([lung[lung.silo == k] for k in range(4)])
    theirs = multivariate_logrank_test(flat.time, [one for of in thirds for one in of], flat.status)
    assert logrank(silos, thirds)[2] == pytest.approx(theirs.p_value, rel=1e-8)


def test_separated_and_senseless_rows_are_said(lung):
    silos = silos_of(lung, ["age"])
    early = [Followed((s.event * (s.time < 100))[:, None], s.time, s.event) for s in silos]
    assert fit_cox(early, ["early"]).separated == ("early",)
    for bad, words in (
        ([s._replace(event=0 * s.event) for s in silos], "nobody had an event"),
        ([s._replace(time=s.time - 5) for s in silos], "above 0"),
        ([s._replace(event=s.event + 1) for s in silos], "must be 0"),
        ([s._replace(x=np.ones_like(s.x)) for s in silos], "never varies"),
        ([s._replace(x=np.hstack([s.x, 2 * s.x])) for s in silos], "explained by the others"),
    ):
        with pytest.raises(DataError, match=words):
            fit_cox(bad)
