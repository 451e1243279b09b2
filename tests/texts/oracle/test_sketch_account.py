"""The account of sketches against sums written down here."""

import json
import math

import pytest

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import BASIC, Unit
from fedrank.privacy.calibration import concentrated_epsilon
from fedrank.texts.sketch.account import ANSWER, QUERIER, sketch_account
from fedrank.texts.sketch.noise import SketchNoise


def _parts(report):
    """ε of sketches, sizes and statistics."""
    return [report.epsilon(Unit.OCCURRENCE, scope=scope) for scope in ("sketches", "sizes", "statistics")]


def test_published_once_costs_the_same_however_much_is_asked():
    reports = [sketch_account(SketchNoise("publish-once", 2.0, 30), answers=n, occurrences=300) for n in (0, 10**6)]
    for report in reports:
        assert (
            report.epsilon(Unit.OCCURRENCE)
            == report.epsilon(Unit.OCCURRENCE, scope=QUERIER)
            == report.epsilon(Unit.OCCURRENCE, basis=BASIC)
            == pytest.approx(2.0)
        )
        assert sum(_parts(report)) == pytest.approx(2.0)
        assert report.epsilon(Unit.REPLACED_WORD) == pytest.approx(4.0) and report.epsilon(
            Unit.DOCUMENT
        ) == pytest.approx(600.0)
        assert report.epsilon(Unit.OCCURRENCE, scope=ANSWER) == math.inf and report.details["epsilon_published"] is None
        assert report.details["scale"] == pytest.approx(30 / 1.6) and report.details["sensitivity"] == 30.0
    assert "once and for all" in reports[0].words[-1] and "ε = 2" in reports[0].words[-1]


def test_published_once_with_gaussian_noise_has_its_epsilon_at_delta():
    report = sketch_account(SketchNoise("publish-once", 2.0, 30, "gaussian", 1e-5))
    assert report.epsilon(Unit.OCCURRENCE) == report.epsilon(Unit.OCCURRENCE, basis=BASIC) == pytest.approx(2.0)
    assert max(_parts(report)) < 2.0 < sum(_parts(report))
    rho = 30 / (2 * report.details["scale"] ** 2) / 0.8
    assert report.epsilon(Unit.REPLACED_WORD) == pytest.approx(concentrated_epsilon(4 * rho, 1e-5))
    assert report.details["sensitivity"] == pytest.approx(math.sqrt(30)) and "at δ = 1e-05" in report.words[-1]


def test_answers_add_up_over_all_queriers_and_for_one():
    noise = SketchNoise("per-query", 0.5, 30, delta=1e-6)
    report = sketch_account(noise, answers=4200, answers_of_querier=1400)
    assert report.epsilon(Unit.OCCURRENCE, basis=BASIC) == 0.5 * 4201  # sizes and statistics count as one answer more
    rho = 4201 * 0.125
    assert 0.99 < report.epsilon(Unit.OCCURRENCE) / (rho + 2 * math.sqrt(rho * math.log(1e6))) < 1
    assert report.epsilon(Unit.OCCURRENCE, scope=QUERIER) < 0.5 * report.epsilon(Unit.OCCURRENCE)
    few = sketch_account(noise, answers=3)
    assert (
        few.epsilon(Unit.OCCURRENCE)
        == few.epsilon(Unit.OCCURRENCE, scope=QUERIER)
        == few.epsilon(Unit.OCCURRENCE, basis=BASIC)
        == 2.0
    )
    assert few.epsilon(Unit.REPLACED_WORD) == 4.0 and few.epsilon(Unit.OCCURRENCE, scope=ANSWER) == 0.5
    assert "4,200 different answers" in report.words[-1] and "little meaning" in report.words[-1]


def test_the_papers_noise_promises_nothing_beside_the_published_number():
    report = sketch_account(SketchNoise("paper", 0.5, 30), answers=4200)
    assert report.details["epsilon_published"] == 0.5 and report.covers == ()
    assert (
        math.inf
        == report.epsilon(Unit.OCCURRENCE)
        == report.epsilon(Unit.OCCURRENCE, scope=QUERIER)
        == report.epsilon(Unit.OCCURRENCE, scope=ANSWER)
    )
    assert "does not protect the document owner from the querier" in report.words[-1]
    assert report.details["epsilon_published_total"] == 2100.0 and "would add up to 2,100" in report.words[-1]
    assert "100 % of 4,000 trials, where ε = 0.5 would allow 62.2 %" in report.words[-1]
    assert sketch_account(SketchNoise("per-query", 0.5, 30), answers=9).details["epsilon_published_total"] is None
    content = report.as_json()
    assert content["details"]["epsilon_published"] == 0.5
    assert {promise["epsilon"] for promise in content["promises"] if promise["unit"] != "document"} == {None}
    plain = sketch_account(SketchNoise("plain", None, 30))
    assert plain.epsilon_round == math.inf and plain.details["scale"] is None and "no noise" in plain.words[-1]


def test_every_report_is_json_and_says_what_it_does_not_cover():
    for mode in ["publish-once", "per-query", "paper", "plain"]:
        report = sketch_account(SketchNoise(mode, None if mode == "plain" else 1.0, 10), answers=2)
        content = json.loads(json.dumps(report.as_json(), allow_nan=False))
        assert content["promises"][0]["unit"] == "occurrence of a word" and len(content["words"]) == 1
        assert any("Whole documents" in line for line in content["not_covered"])
        assert any("simulat" in line for line in content["not_covered"])


def test_models_trained_on_own_documents_leave_a_round_without_a_bound():
    noise = SketchNoise("publish-once", 2.0, 30)
    with_models, without = sketch_account(noise), sketch_account(noise, training=False)
    assert with_models.epsilon_round == math.inf and with_models.as_json()["epsilon_round"] is None
    assert without.epsilon_round == pytest.approx(2.0)
    assert any("models and steps" in line for line in with_models.not_covered)
    assert not any("models and steps" in line for line in without.not_covered)


def test_counts_that_contradict_are_refused():
    noise = SketchNoise("per-query", 0.5, 30)
    for arguments in (dict(answers=2, answers_of_querier=3), dict(answers=-1), dict(occurrences=-1)):
        with pytest.raises(ConfigError, match="at least 0"):
            sketch_account(noise, **arguments)
