"""The thesis's residuals, quantiles, findings and definitions, as its reproduction computes them."""

import json
import statistics
from pathlib import Path

import numpy as np
import pytest

from fedrank.engine.settings import read_toml
from fedrank.report.statistics import Estimate, mean_interval
from fedrank_zoo.reproduce.study import load_file, read_paper

FOLDER = Path(__file__).parents[3] / "reproductions" / "mab_fl_2021"
RESIDUALS, DEFINITIONS, FINDINGS, CURVES = (
    load_file(FOLDER / f"{stem}.py") for stem in ("residuals", "definitions", "findings", "curves")
)
VALUES = np.random.default_rng(3).normal(0.8, 0.05, (6, 4))


def test_deviation_is_the_root_of_the_mean_variance_over_experiments():
    by_round = [statistics.variance(column) for column in VALUES.T.tolist()]
    assert RESIDUALS.deviation(VALUES) == pytest.approx(statistics.mean(by_round) ** 0.5)


def test_experiments_that_keep_their_place_persist_and_those_that_swap_do_not():
    kept = np.array([[1.0], [-1.0], [0.5], [-0.5]]) + np.arange(5.0)
    assert RESIDUALS.persistence(kept) == pytest.approx(1.0)
    swapped = np.array([[1.0, -1.0, 1.0, -1.0], [-1.0, 1.0, -1.0, 1.0]])
    assert RESIDUALS.persistence(swapped) == pytest.approx(-1.0)


def test_the_jackknife_of_a_mean_is_students_interval():
    found = RESIDUALS.jackknife(lambda values: float(values.mean()), VALUES)
    expected = mean_interval(VALUES.mean(axis=1).tolist())
    assert (found.mean, found.half) == (pytest.approx(expected.mean), pytest.approx(expected.half))


def test_normality_is_the_correlation_of_a_probability_plot():
    stats = pytest.importorskip("scipy.stats")
    r = stats.probplot(RESIDUALS.residuals(VALUES).ravel())[1][2]  # Filliben's places, ours are Blom's
    assert RESIDUALS.normality(VALUES) == pytest.approx(r, abs=2e-3)


def test_noise_does_not_fall_after_its_peak():
    noise = np.random.default_rng(0).normal(size=(4000, 6))
    halves = [np.mean(RESIDUALS.fall_after_peak(part)) for part in noise.reshape(400, 10, 6)]
    assert abs(np.mean(halves)) < 4 * np.std(halves) / 20
    down = np.array([[0.1, 0.9, 0.4], [0.2, 0.8, 0.5], [0.0, 0.7, 0.1]])
    np.testing.assert_allclose(RESIDUALS.fall_after_peak(down), [-0.5, -0.3, -0.6])


@pytest.mark.parametrize(
    ("mean", "half", "sign", "verdict"),
    [
        (0.2, 0.1, 1, "yes"),
        (0.2, 0.1, -1, "no"),
        (-0.2, 0.1, -1, "yes"),
        (-0.2, 0.3, -1, "not told apart"),
        (0.2, 0.1, 0, "no"),
        (0.1, 0.2, 0, "no difference found"),
        (0.2, None, 1, "too few experiments"),
    ],
)
def test_a_verdict_follows_the_interval(mean, half, sign, verdict):
    assert FINDINGS.Finding("", "", "", Estimate(mean, half, 10), sign).verdict == verdict


def test_weights_of_rewards_are_those_of_the_formula():
    np.testing.assert_allclose(DEFINITIONS.reward_weights(0.5), [1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2], rtol=1e-6)


def test_the_quarter_circle_has_an_area_of_a_quarter_of_pi():
    assert DEFINITIONS.quarter_circle_auc(400) == pytest.approx(np.pi / 4, abs=1e-4)


def test_the_overlap_of_two_sets_of_three_silos():
    # Sets of two others: {}, {a}, {b}, {a, b}: of six pairs two have one silo in common.
    assert DEFINITIONS.mean_overlap(3) == pytest.approx(2 / 6)


def test_a_spline_keeps_a_straight_line_and_few_rounds_are_drawn_as_they_are():
    line = 0.5 + 0.01 * np.arange(1, 9)
    np.testing.assert_allclose([y - 0.5 - 0.01 * x for x, y in CURVES.fitted_spline(line)], 0, atol=1e-6)
    assert CURVES.fitted_spline(np.array([0.1, 0.2])) == [(1.0, 0.1), (2.0, 0.2)]


def test_every_study_of_the_thesis_names_its_network():
    paths = sorted(FOLDER.glob("*.toml"))
    assert {path.stem for path in paths} == {study.name for study in read_paper(str(FOLDER)).studies}
    for path in paths:
        given = read_toml(path)
        epochs = {"epochs"} & set(given["network"]) or {"network.epochs"} & set(given.get("vary", {}))
        assert {"widths", "norm", "batch"} <= set(given["network"]) and epochs and "learning_rate" in given, path


def test_printed_numbers_belong_to_studies_and_are_found():
    about = json.loads((FOLDER / "expected.json").read_text())
    assert {entry["study"] for entry in about["values"]} <= set(about["studies"])
    table2 = [entry for entry in about["values"] if entry["study"] == "table2"]
    assert len(table2) == 10
    study = next(study for study in read_paper(str(FOLDER)).studies if study.name == "table2")
    assert FINDINGS.printed_value(study, {"arm": "1100", "epochs": 4}, "vali", "residuals of AUC") == 0.023
    assert FINDINGS.printed_value(study, {"arm": "1001", "epochs": 4}, "vali", "residuals of AUC") is None
