"""``fedrank silos``: the same numbers as the library, and errors in one line."""

import json

import numpy as np
import pytest
import statsmodels.api as sm

from fedrank.cli.main import call


@pytest.fixture
def patients(tmp_path):
    """A table of three hospitals with a number, a name of two levels and one of three, and a length of stay."""
    rng = np.random.default_rng(0)
    lines = ["hospital,id,age,sex,ward,ill,days"]
    for row in range(240):
        age, sex, ward = rng.integers(20, 80), rng.integers(2), rng.integers(3)
        ill = rng.random() < 1 / (1 + np.exp(-(0.04 * (age - 50) + 0.8 * sex)))
        days = 3 + 0.1 * age + 2 * ill + rng.standard_normal()
        lines.append(
            f"{'abc'[row % 3]},{row},{age},{('f', 'm')[sex]},{'xyz'[ward]},{('no', 'yes')[int(ill)]},{days:.6f}"
        )
    path = tmp_path / "patients.csv"
    path.write_text("\n".join(lines))
    return path


def columns_of(path):
    rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
    return list(zip(*rows, strict=True))


FLAGS = ("--silo", "hospital", "--drop", "id")
STUDY = ("--site", "hospital", "--identifier", "id")


def test_a_logistic_model_of_a_file(patients, capsys):
    words = ("silos", "analyse", str(patients), *STUDY, "--formula", "ill ~ age + sex + ward")
    assert call([*words, "--json"]) == 0
    (made,) = json.loads(capsys.readouterr().out)["questions"]
    _, _, age, sex, ward, ill, _ = columns_of(patients)
    x = np.column_stack([
        np.ones(240), np.array(age, float), np.array(sex) == "m", np.array(ward) == "y", np.array(ward) == "z"
    ])  # fmt: skip
    theirs = sm.GLM(np.array(ill) == "yes", x, family=sm.families.Binomial()).fit(tol=1e-14, maxiter=100)
    assert [one["name"] for one in made["coefficients"]] == ["(Intercept)", "age", "sex=m", "ward=y", "ward=z"]
    np.testing.assert_allclose([one["estimate"] for one in made["coefficients"]], theirs.params, rtol=1e-8)
    np.testing.assert_allclose([one["p"] for one in made["coefficients"]], theirs.pvalues, rtol=1e-7)
    assert made["rows"] == {"a": 80, "b": 80, "c": 80}
    assert call(list(words)) == 0
    out = " ".join(capsys.readouterr().out.split())  # wherever lines end
    assert "95% interval" in out and "read in one place" in out


def test_a_linear_model_and_a_penalty_of_a_file(patients, capsys):
    words = ("silos", "analyse", str(patients), *STUDY, "--formula", "days ~ age + ill", "--model", "linear", "--json")
    assert call(list(words)) == 0
    (made,) = json.loads(capsys.readouterr().out)["questions"]
    *_, ill, days = columns_of(patients)
    x = np.column_stack([np.ones(240), np.array(columns_of(patients)[2], float), np.array(ill) == "yes"])
    theirs = sm.OLS(np.array(days, float), x).fit()
    np.testing.assert_allclose([one["estimate"] for one in made["coefficients"]], theirs.params, rtol=1e-8)
    np.testing.assert_allclose([one["p"] for one in made["coefficients"]], theirs.pvalues, rtol=1e-6)
    assert call([*words, "--penalty", "50"]) == 0
    (pulled,) = json.loads(capsys.readouterr().out)["questions"]
    assert abs(pulled["coefficients"][1]["estimate"]) < abs(made["coefficients"][1]["estimate"])
    assert pulled["coefficients"][1]["p"] is None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--formula", "sick ~ age"), "sick"),
        (("--formula", "ill ~ agee"), "Did you mean 'age'"),
        (("--formula", "sex ~ age", "--model", "linear"), "must be a number"),
        ((), "--formula"),
        (("--formula", "ill ~ age", "--identifier", "nr"), "nr"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(patients, capsys, flags, said):
    assert call(["silos", "analyse", str(patients), "--site", "hospital", *flags]) == 1
    assert said in capsys.readouterr().err


BOOK = """format = "fedrank-codebook"
version = 1
study = "s"
silos = ["a", "b", "c"]
[[plan.questions]]
name = "ill"
formula = "ill ~ age + ward"
[columns]
age = { range = [0, 120] }
ward = { levels = ["v", "x", "y", "z"] }
ill = { levels = ["no", "yes"] }
"""


@pytest.fixture
def rare_ward(patients):
    """Three rows of hospital a are of ward v, fewer than a codebook's smallest cell, and none of other hospitals."""
    lines = patients.read_text().splitlines()
    for k in (1, 4, 7):
        cells = lines[k].split(",")
        lines[k] = ",".join([*cells[:4], "v", *cells[5:]])
    patients.write_text("\n".join(lines))
    return patients


def test_a_rehearsal_names_the_silos_that_would_refuse_and_says_that_it_was_one(rare_ward, capsys, tmp_path):
    out = tmp_path / "out"
    words = ("silos", "analyse", str(rare_ward), *STUDY, "--formula", "ill ~ age + ward", "--out", str(out), "--json")
    assert call(list(words)) == 0
    (made,) = json.loads(capsys.readouterr().out)["questions"]
    assert sum(made["rows"].values()) == 240 and len(made["notes"]) == 1
    assert "a (smallest cell" in made["notes"][0] and "160 rows of 2 silos" in made["notes"][0]
    page, about = (out / "report.html").read_text(), json.loads((out / "results.json").read_text())
    assert "ward=x (against v)" in page and "ill: odds ratio" in page
    assert about["simulated"] and "Rows stayed" not in about["methods"] and "simulated" in about["methods"]


def test_a_round_says_which_silos_refused(rare_ward, capsys, tmp_path):
    book, study, place = tmp_path / "book.toml", tmp_path / "study", tmp_path / "study" / "rounds" / "001"
    book.write_text(BOOK)
    rare_ward.write_text(rare_ward.read_text().replace("hospital", "site", 1))
    assert call(["silos", "combine", str(study), "--codebook", str(book)]) == 0
    for silo in "abc":
        words = ("--data", str(rare_ward), "--silo", silo, "--agreed", str(book), "--folder", str(tmp_path / silo))
        assert call(["silos", "answer", str(place / "round.json"), *words, "--yes"]) == 0
    capsys.readouterr()
    assert call(["silos", "combine", str(study), *(str(place / f"round-1.{silo}.json") for silo in "abc")]) == 0
    assert "without a (smallest cell" in " ".join(capsys.readouterr().out.split())
    assert call(["silos", "combine", str(study), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["waiting"] == ["b", "c"] and list(told["left"]["ill"]) == ["a"]


def test_a_codebook_is_rehearsed_on_a_file_whose_column_of_silos_has_another_name(rare_ward, capsys, tmp_path):
    book = tmp_path / "book.toml"
    book.write_text(BOOK)
    words = ("silos", "analyse", str(rare_ward), "--codebook", str(book))
    assert call([*words, "--site", "hospital", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["questions"][0]["rows"] == {"b": 80, "c": 80}
    assert call(list(words)) == 1 and "--site" in capsys.readouterr().err


def test_a_column_of_silos_that_was_named_and_is_not_there_is_refused(patients, capsys):
    assert call(["data", "check", str(patients), "--silo", "ward_of", "--label", "ill"]) == 1
    assert "'ward_of'" in capsys.readouterr().err


@pytest.mark.slow
def test_comparing_prints_the_answer_and_writes_it(patients, capsys, tmp_path):
    flags = (*FLAGS, "days", "--label", "ill", "--target", "a")
    assert call(["silos", "compare", str(patients), *flags, "--out", str(tmp_path / "made" / "answer.json")]) == 0
    out = capsys.readouterr().out
    assert "a (80 rows): use" in " ".join(out.split()) and "boosted trees" in out and "with its rows" in out
    made = json.loads((tmp_path / "made" / "answer.json").read_text())
    assert made["answers"][0]["target"] == "a" and set(made["answers"][0]["verdicts"]) == {"b", "c"}
    assert [row["kind"] for row in made["answers"][0]["ways"]].count("baseline") == 5


@pytest.fixture
def lung(tmp_path):
    from lifelines.datasets import load_lung

    frame = load_lung()[["time", "status", "age", "sex"]]
    path = tmp_path / "lung.csv"
    frame.assign(site=[f"s{k % 3}" for k in range(len(frame))]).to_csv(path, index=False)
    return path, frame


def test_survival_of_a_file(lung, capsys):
    from lifelines import CoxPHFitter
    from lifelines.statistics import logrank_test

    path, frame = lung
    words = ("silos", "analyse", str(path), "--formula")
    assert call([*words, "Surv(time, status) ~ age + sex", "--model", "cox", "--categorical", "sex", "--json"]) == 0
    (made,) = json.loads(capsys.readouterr().out)["questions"]
    theirs = CoxPHFitter().fit(frame, "time", "status", fit_options={"precision": 1e-12})
    np.testing.assert_allclose([one["estimate"] for one in made["coefficients"]], theirs.params_, rtol=1e-6)
    assert made["rows"] == {"s0": 76, "s1": 76, "s2": 76}
    assert call([*words, "Surv(time, status) ~ sex", "--model", "curves", "--json"]) == 0
    men = frame.sex == 1
    expected = logrank_test(frame.time[men], frame.time[~men], frame.status[men], frame.status[~men])
    assert json.loads(capsys.readouterr().out)["questions"][0]["p"] == pytest.approx(expected.p_value, rel=1e-8)
    assert call([*words, "Surv(tme, status) ~ sex", "--model", "curves"]) == 1
    assert "Did you mean 'time'" in capsys.readouterr().err
