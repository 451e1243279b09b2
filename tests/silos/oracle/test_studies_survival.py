"""Survival analyses of studies equal R's survival package over all rows; ``kept/studies.R`` made the numbers."""

import numpy as np
import pytest
from study_silos import CLUSTER, COUNT, DATA, DESIGN, NAMES, OWN, R, close, cut, cut_by_cluster, run_over

from fedrank.core.errors import DataError
from fedrank.silos.studies.protocol import Ask, Rows
from fedrank.silos.studies.survival import answer, compare_groups, fit_cox

X, SITE, ARM = DESIGN[:, 1:], DATA["site"].astype(int), DATA["arm"].astype(int)
TIMES = {"time": None, "binned": R["bins"]}


def rows_of(x=X, **columns):
    """The study's rows."""
    return Rows.of(x, DATA["time"], DATA["event"], **columns)


def run_cox(times=None, silos=cut, names=NAMES[1:], own=OWN, x=X, rows=None, **settings):
    """Cox's model over silos, and the numbers of the answers."""
    return run_over(fit_cox(names, times, own=own, **settings), answer, silos(rows_of(x, **(rows or {}))))


def test_cox_equals_coxph():
    strata, weight = {"stratum": SITE}, {"weight": DATA["weight"]}
    ways = {
        "plain": ({}, {}, cut),
        "strata": ({**strata, "offset": DATA["offset"]}, {"strata": 3}, cut),
        "weighted": (weight, {}, cut),
        "robust": ({**strata, **weight}, {"strata": 3, "robust": "HC0"}, cut),
        "cluster": ({**weight, "cluster": CLUSTER}, {"robust": "CR0"}, cut_by_cluster),
    }
    for kind, some in (("time efron", "plain strata"), ("time breslow", "cluster"), ("binned efron", " ".join(ways)),
                       ("binned breslow", "plain robust")):  # fmt: skip
        theirs, (time, ties) = R["cox"][kind], kind.split()
        for way in some.split():
            rows, settings, silos = ways[way]
            made, sizes = run_cox(TIMES[time], silos, rows=rows, ties=ties, **settings)
            close(made.estimate, theirs[way]["estimate"])
            close(made.covariance, theirs[way]["covariance"], 2e-8)
            values = made.log_likelihood, made.null_log_likelihood
            close(values, (theirs[way]["loglik"], theirs[way]["null"]), 1e-12)
            assert made.rounds == len(sizes) <= 7 and sum(made.events.values()) == DATA["event"].sum()
            cells = len(R["bins"]) * settings.get("strata", 1) * (1 + 3 + 6) * (2 if ties == "efron" else 1)
            if time == "binned":  # sums of 1, x and xx', then of x, η, weights, events and rows
                assert sizes[0] == 3 + cells + len(R["bins"]) * settings.get("strata", 1) * (3 + 4)


def test_proportional_hazards_equal_cox_zph():
    compared = 0
    for kind, theirs in R["zph"].items():
        time, transform = kind.split()
        for way, rows, strata in (("strata", {"stratum": SITE}, 3), ("plain", {}, 1)):
            if transform == "km" and way in theirs:
                made, _ = run_cox(TIMES[time], rows=rows, strata=strata)
                np.testing.assert_allclose(made.proportional, theirs[way], rtol=1e-8)
                compared += 1
    assert compared == 4


@pytest.mark.parametrize("step", ["sums", "meat"])
def test_answers_of_another_size_are_no_answers(step):
    """The last step's numbers of a program with one column more are refused, and not cut to fit."""

    def longer(ask, blocks):
        told = answer(ask, blocks)
        return np.append(np.zeros(4), told) if ask.step == step else told

    with pytest.raises((ValueError, IndexError)):
        run_over(fit_cox(NAMES[1:], own=OWN, robust="HC0"), longer, cut(rows_of()))


def test_silos_as_strata_keep_their_times():
    limits = np.searchsorted([1, 40, 90], np.arange(COUNT), side="right")
    for times, robust in ((None, "HC0"), (R["bins"], "")):
        made, sizes = run_cox(times, by_silo=True, robust=robust)
        theirs, _ = run_cox(times, rows={"stratum": limits}, strata=4, robust=robust)
        close(made.estimate, theirs.estimate)
        close(made.covariance, theirs.covariance)
        close(made.log_likelihood, theirs.log_likelihood, 1e-12)
        assert sizes[0] == 2 + 1 + 3 + 6 + 1 and np.isnan(made.proportional).all()


def test_curves_and_log_rank_equal_survfit_and_survdiff():
    for time, times in TIMES.items():
        theirs = R["km"][time]
        rows = rows_of(DATA["site"][:, None], weight=DATA["weight"])
        made, sizes = run_over(compare_groups("abc", times), answer, cut(rows))
        assert sizes[-1] == 2 + 2 * 3 * len(made.curves[0].time) and made.rounds == len(sizes) == 1 + (times is None)
        columns = {name: np.array([np.nan if v == "NA" else v for v in theirs[name]], float) for name in theirs}
        for k, curve in enumerate(made.curves):
            own = np.flatnonzero((columns["group"] == k + 1) & (columns["d"] > 0))
            at = np.searchsorted(curve.time, columns["time"][own])
            low, high = curve.interval()
            for ours, name in ((curve.at_risk, "n"), (curve.events, "d"), (curve.survival, "surv"),
                               (curve.error, "err"), (low, "low"), (high, "high")):  # fmt: skip
                np.testing.assert_allclose(ours[at], columns[name][own], rtol=1e-10)
            np.testing.assert_allclose(
                curve.median(), [columns[name][k] for name in ("median", "median_low", "median_high")]
            )
        for way, stratum, strata in (("plain", None, 1), ("strata", ARM, 2)):
            rows = rows_of(DATA["site"][:, None], stratum=stratum)
            made, _ = run_over(compare_groups("abc", times, strata=strata), answer, cut(rows))
            assert made.statistic == pytest.approx(R["logrank"][time][way], rel=1e-10) and made.degrees == 2
    even = Rows.of(np.zeros((6, 0)), [1, 2, 3, 4, 5, 6], [1, 1, 1, 1, 0, 1])
    made, _ = run_over(compare_groups(["all"]), answer, cut(even, (1, 3)))
    assert made.curves[0].median()[0] == R["even"]["median"] and np.isnan(made.statistic)


def test_answers_depend_on_rows_as_sums_do():
    grid = {"times": np.array(R["bins"], float), "exact": np.array(0.0), "strata": np.array(3.0)}
    flags = {"efron": np.array(1.0), "by_silo": np.array(0.0), "theta": np.array([0.3, -0.2, 0.5])}
    hazards = np.random.default_rng(0).random((3, len(R["bins"]), 2 + 3 * 3))
    rows = rows_of(stratum=SITE, weight=DATA["weight"], offset=DATA["offset"], cluster=CLUSTER)
    first = Rows(*(column[:25] for column in rows))
    for ask in (
        Ask("times", {"most": np.array(500.0)}),
        Ask("sums", {**grid, **flags}),
        Ask("meat", {**grid, **flags, "hazards": hazards, "clusters": np.array(1.0)}),
        Ask("meat", {**grid, **flags, "hazards": hazards, "clusters": np.array(0.0)}),
        Ask("counts", {**grid, "groups": np.array(1.0)}),
    ):
        first_, rows_ = (one._replace(x=one.x[:, :0]) if ask.step == "counts" else one for one in (first, rows))
        whole = answer(ask, [first_])
        single = answer(ask, [Rows(*(c[k : k + 1] for c in first_)) for k in range(25)])
        np.testing.assert_allclose(single, whole, rtol=1e-10, atol=1e-12)
        empty = answer(ask, [Rows(*(column[:0] for column in first_))])
        assert len(empty) == len(whole) == len(answer(ask, [rows_])) and not np.nansum(np.abs(empty))


def test_a_time_counts_as_the_end_of_its_bin():
    """Rows put to the ends beforehand give the same, and what is later than the last end is no event."""
    bins = np.array(R["bins"][:-2], float)
    ends = np.append(bins, np.inf)[np.searchsorted(bins, DATA["time"])]
    made, _ = run_cox(bins.tolist())
    put = Rows.of(X, np.minimum(ends, bins[-1] + 1), DATA["event"] * (DATA["time"] <= bins[-1]))
    theirs, _ = run_over(fit_cox(NAMES[1:], own=OWN), answer, cut(put))
    close(made.estimate, theirs.estimate)
    close(made.covariance, theirs.covariance)
    assert sum(made.events.values()) == ((DATA["time"] <= bins[-1]) * DATA["event"]).sum()


def test_aliased_and_separated_columns_are_named_and_bad_questions_refused():
    some = (DATA["event"] == 0) * (np.arange(COUNT) % 3 == 0)  # none of these has an event
    x = np.column_stack([X, X[:, 0] * 2 + 1, some])
    made, _ = run_cox(R["bins"], x=x, names=(*NAMES[1:], "twice", "some"), own=None)
    assert made.aliased == ("twice",) and made.separated == ("some",) and made.rounds < 25
    kept, _ = run_over(
        fit_cox(NAMES[1:], R["bins"]), answer, cut(Rows(*(column[~some] for column in rows_of())))
    )  # fmt: skip
    np.testing.assert_allclose(made.estimate[:3], kept.estimate, rtol=1e-4)
    for analysis in (fit_cox(NAMES[1:], [0.01]), compare_groups(["all"], [0.01])):
        with pytest.raises(DataError):
            run_over(analysis, answer, cut(rows_of()._replace(x=X * 0 if analysis.__name__ == "fit_cox" else X[:, :0])))
    with pytest.raises(DataError):
        run_cox(most_times=3)
