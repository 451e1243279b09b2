"""Designs of formulas equal R's ``model.matrix``; ``kept/formulas.R`` made ``kept/formulas.json``."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.silos.studies.codebook import Codebook, Column
from fedrank.silos.studies.formula import design_of, natural_spline

R = json.loads(Path(__file__).with_name("kept").joinpath("formulas.json").read_text())
COLUMNS = {
    "age": {"range": (0.0, 110.0)},
    "crp": {"range": (0.1, 100.0), "knots": (5.0, 20.0)},
    "bmi": {"range": (10.0, 50.0)},
    "sex": {"levels": ("f", "m")},
    "stage": {"levels": ("1", "2", "3")},
    "days": {"range": (0.0, 1000.0)},
    "visit": {"role": "cluster"},
    "name": {"role": "identifier"},
}
BOOK = Codebook(
    study="s", silos=("a", "b", "c"), columns={name: Column(name=name, **about) for name, about in COLUMNS.items()}
)
ROWS = {
    "age": np.array([20, 31.5, 47, 58, 66, 80]),
    "crp": np.array([0.5, 3, 7.25, 12, 40, 90]),
    "bmi": np.array([18.0, 22, 27, 31, 24, 35]),
    "sex": np.array([0.0, 1, 1, 0, 0, 1]),
    "stage": np.array([0.0, 1, 2, 2, 0, 1]),
    "site": np.array([0.0, 1, 2, 0, 1, 2]),
}


def matrix(design):
    """The design of all rows, in the columns' own units: X = X_scaled T⁻¹."""
    blocks = [{name: values[ROWS["site"] == k] for name, values in ROWS.items()} for k in range(3)]
    out = np.empty((6, len(design.names)))
    for k, (silo, block) in enumerate(zip("abc", blocks, strict=True)):
        out[ROWS["site"] == k] = design.rows(block, silo)[0].x @ np.linalg.inv(design.units)
    return out


def test_designs_are_those_of_r():
    for text, theirs in R.items():
        ours = matrix(design_of(f"~ {text}", BOOK))
        # Columns of R come by the order of their terms, as ours do.
        np.testing.assert_allclose(ours, np.array(theirs), rtol=1e-11, atol=1e-11, err_msg=text)


def test_splines_are_straight_beyond_and_cubic_within():
    basis = natural_spline(np.array([2.0, 5.0]), 0.0, 10.0)
    x = np.linspace(0, 10, 2001)
    second = np.gradient(np.gradient(basis(x), x, axis=0), x, axis=0)
    assert np.abs(second[3]).max() < 0.02 and np.abs(second[-4]).max() < 0.02 and np.abs(second[1000]).max() > 0.02
    assert basis(np.array([0.0])).shape == (1, 3) and np.isnan(basis(np.array([np.nan]))).all()


def test_parts_that_are_no_columns_of_the_design():
    design = design_of("Surv(days, sex) ~ age + strata(site) + strata(stage) + offset(log(crp)) + cluster(visit)", BOOK)
    assert (design.time, design.outcome, design.cluster, design.n_strata()) == ("days", "sex", "visit", 9)
    block = {**ROWS, "days": np.arange(6.0), "visit": np.array([0.0, 0, 1, 1, 2, np.nan])}
    rows, complete = design.rows(block, "b")
    assert complete.tolist() == [True] * 5 + [False]
    np.testing.assert_allclose(rows.offset, np.log(ROWS["crp"][:5]))
    assert rows.stratum.tolist() == [3, 4, 5, 5, 3] and rows.cluster.tolist() == [0, 0, 1, 1, 2]
    assert rows.event.tolist() == ROWS["sex"][:5].tolist() and rows.y.tolist() == [0, 1, 2, 3, 4]
    assert design_of("sex ~ age + strata(site)", BOOK, strata_as_fields=True).names[2:] == ("site=b", "site=c")
    assert design_of("~ age | sex", BOOK).by == "sex"


def test_wrong_formulas_are_refused():
    wrong = (
        "age", "sex ~", "sex ~ age +* bmi", "sex ~ sex:stage", "sex ~ foo(age)", "sex ~ ns(crp, 5)", "sex ~ ns(sex, 3)",
        "Surv(days ~ age", "Surv(sex, days) ~ age", "sex ~ log(days)", "sex ~ name", "sex ~ cluster(age)",
        "sex ~ weights(sex)", "sex ~ strata(age)", "sex ~ age | bmi", "sex ~ age ) bmi", "sex ~ offset(age) : bmi",
        "sex ~ 0 + stage", "sex ~ exp(days)", "sex ~ age bmi",
    )  # fmt: skip
    for text in wrong:
        with pytest.raises(ConfigError):
            design_of(text, BOOK)
            pytest.fail(text)
    with pytest.raises(UnknownNameError):
        design_of("sex ~ agee", BOOK)
