"""Cox's model, Kaplan-Meier curves and the log-rank test from sums of silos against lifelines on all rows."""

import json

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter
from lifelines.datasets import load_lung
from lifelines.statistics import multivariate_logrank_test

from fedrank.cli.main import call
from fedrank.core.errors import DataError, UnknownNameError
from fedrank.silos.survival import Followed, curves, fit_cox, logrank
from fedrank.silos.survival.tables import followed_of, grouped_of


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
        ([s._replace(time=s.time - 999) for s in silos], "at least 0"),
        ([s._replace(time=s.time / 0.0) for s in silos], "must be finite"),
        ([s._replace(event=s.event + 1) for s in silos], "must be 0"),
        ([s._replace(x=np.ones_like(s.x)) for s in silos], "never varies"),
        ([s._replace(x=np.hstack([s.x, 2 * s.x])) for s in silos], "explained by the others"),
    ):
        with pytest.raises(DataError, match=words):
            fit_cox(bad)


def written(tmp_path, frame, separator=",", **changed):
    """The frame as a file, with some columns as text."""
    path = tmp_path / "followed.csv"
    frame.assign(**changed).to_csv(path, index=False, sep=separator)
    return path


def test_a_time_of_zero_counts_as_in_lifelines(lung):
    frame = lung.dropna().assign(time=lung.time - lung.time.min())
    frame.loc[frame.index[:3], "time"] = 0.0
    frame.loc[frame.index[1], "status"] = 0.0
    assert (frame.time == 0).sum() >= 3
    theirs = CoxPHFitter().fit(
        frame[["time", "status", "age", "sex"]], "time", "status", fit_options={"precision": 1e-12}
    )
    ours = fit_cox(silos_of(frame, ["age", "sex"]))
    np.testing.assert_allclose(ours.estimate, theirs.params_, rtol=1e-6)
    np.testing.assert_allclose(ours.error, theirs.standard_errors_, rtol=1e-6)
    (made,) = curves(silos_of(frame, ["age"]))
    km = KaplanMeierFitter().fit(frame.time, frame.status)
    np.testing.assert_allclose(made.survival, km.predict(made.time), rtol=1e-10)
    assert made.time[0] == 0 and made.survival[0] < 1


def test_a_file_of_followed_rows_says_what_was_left_out_and_reads_numbers_as_data_check_does(lung, tmp_path, capsys):
    frame = lung.dropna().reset_index(drop=True).assign(silo=lambda one: "s" + (one.index % 3).astype(str))
    frame = frame[["silo", "time", "status", "age", "sex", "ph.ecog"]].rename(columns={"ph.ecog": "ecog"})
    epoch = 1.7e9 + frame.time  # days of a few seconds: single precision would make ties of them
    commas = frame.age.map(lambda age: f"{age / 2:.1f}".replace(".", ","))
    path = written(tmp_path, frame, ";", age=commas, time=epoch, flat=7, number=frame.index + 4000)
    lines = path.read_text().splitlines()
    for k in (3, 5, 8):
        cells = lines[k].split(";")
        cells[{3: 0, 5: 2, 8: 2}[k]] = ""
        lines[k] = ";".join(cells)
    path.write_text("\n".join(lines))
    table = followed_of(path, "silo", "time", "status", ("age", "sex", "flat", "number"))
    assert table.columns == ("age", "sex", "number")
    said = " ".join(table.notes)
    for words in ("decimal commas", "never vary: flat", "'number'", "1 of", "have no silo"):
        assert words in said
    used = frame.drop(index=[2, 4, 7])
    theirs = CoxPHFitter().fit(
        used.assign(age=used.age / 2)[["time", "status", "age", "sex"]],
        "time",
        "status",
        fit_options={"precision": 1e-12},
    )
    table = followed_of(path, "silo", "time", "status", ("age", "sex"))
    ours = fit_cox(table.rows, table.columns, silo_names=table.names)
    np.testing.assert_allclose(ours.estimate, theirs.params_, rtol=1e-6)
    assert sum(ours.left_out) == 2 and sum(ours.rows) == len(used)
    command = ["silos", "survival", str(path), "--event", "status", "--json"]
    assert call([*command, "--columns", "age", "sex"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sum(told["left_out"].values()) == 2 and any("no silo" in note for note in told["notes"])
    assert call([*command, "--by", "sex"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sum(told["left_out"].values()) == 2 and any("no silo" in note for note in told["notes"])
    assert call(command[:-1]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "they lack a value: 2 (" in out and "decimal commas" in out and "never vary: flat" in out


@pytest.mark.parametrize("event", ["1", "True"])
def test_rows_that_all_have_the_event_are_followed_as_others_are(lung, tmp_path, capsys, event):
    frame = lung[["time", "age", "sex"]].assign(dead=1, silo=lambda one: np.arange(len(one)) % 3)
    path = written(tmp_path, frame.assign(dead=event))
    cox = CoxPHFitter().fit(frame.drop(columns="silo"), "time", "dead", fit_options={"precision": 1e-12})
    theirs = multivariate_logrank_test(frame.time, frame.sex, frame.dead)
    table = followed_of(path, "silo", "time", "dead", ("age", "sex"))
    assert sum(silo.event.sum() for silo in table.rows) == len(frame)
    np.testing.assert_allclose(fit_cox(table.rows, table.columns).estimate, cox.params_, rtol=1e-6)
    grouped = grouped_of(path, "silo", "time", "dead", "sex")
    assert logrank(grouped.rows, grouped.groups)[0] == pytest.approx(theirs.test_statistic, rel=1e-9)
    assert call(["silos", "survival", str(path), "--event", "dead", "--by", "sex"]) == 0, capsys.readouterr().err


def test_events_that_cannot_be_told_are_called_events(lung, tmp_path):
    frame = lung[["time", "age", "silo"]]
    for events in (np.arange(len(frame)) % 3, np.full(len(frame), 2), np.full(len(frame), "")):
        with pytest.raises(DataError, match=r"^[^:]*: event 'dead'"):
            followed_of(written(tmp_path, frame.assign(dead=events)), "silo", "time", "dead")


def test_levels_of_a_column_are_chosen_by_name(lung, tmp_path):
    frame = lung.dropna().assign(silo=lambda one: np.arange(len(one)) % 3, stage=lambda one: "abc")
    frame["stage"] = ["abc"[k % 3] for k in range(len(frame))]
    path = written(tmp_path, frame.drop(columns=["inst"]))
    assert followed_of(path, "silo", "time", "status", ("stage",)).columns == ("stage=b", "stage=c")
    assert followed_of(path, "silo", "time", "status", ("stage=c", "age")).columns == ("age", "stage=c")
    with pytest.raises(UnknownNameError):
        followed_of(path, "silo", "time", "status", ("stage=z",))
