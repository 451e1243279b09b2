"""The account of sketches against sums written down here."""

import json
import math

import pytest

from fedrank.core.errors import ConfigError
from fedrank.privacy.calibration import concentrated_epsilon
from fedrank.texts.sketch.account import sketch_account
from fedrank.texts.sketch.noise import SketchNoise


def test_published_once_costs_the_same_however_much_is_asked():
    reports = [sketch_account(SketchNoise("publish-once", 2.0, 30), answers=n, occurrences=300) for n in (0, 10**6)]
    for report in reports:
        assert report.epsilon_occurrence == report.epsilon_querier == report.epsilon_basic == pytest.approx(2.0)
        assert sum(report.epsilon_parts.values()) == pytest.approx(2.0)
        assert report.epsilon_replaced == pytest.approx(4.0) and report.epsilon_document == pytest.approx(600.0)
        assert report.epsilon_answer is None and report.epsilon_published is None
        assert report.scale == pytest.approx(30 / 1.6) and report.sensitivity == 30.0
    assert "once and for all" in reports[0].in_words() and "ε = 2" in reports[0].in_words()


def test_published_once_with_gaussian_noise_has_its_epsilon_at_delta():
    report = sketch_account(SketchNoise("publish-once", 2.0, 30, "gaussian", 1e-5))
    assert report.epsilon_occurrence == report.epsilon_basic == pytest.approx(2.0)
    assert max(report.epsilon_parts.values()) < 2.0 < sum(report.epsilon_parts.values())
    rho = 30 / (2 * report.scale**2) / 0.8
    assert report.epsilon_replaced == pytest.approx(concentrated_epsilon(4 * rho, 1e-5))
    assert report.sensitivity == pytest.approx(math.sqrt(30)) and "at δ = 1e-05" in report.in_words()


def test_answers_add_up_over_all_queriers_and_for_one():
    noise = SketchNoise("per-query", 0.5, 30, delta=1e-6)
    report = sketch_account(noise, answers=4200, answers_of_querier=1400)
    assert report.epsilon_basic == 0.5 * 4201  # sizes and statistics count as one answer more
    rho = 4201 * 0.125
    assert 0.99 < report.epsilon_occurrence / (rho + 2 * math.sqrt(rho * math.log(1e6))) < 1
    assert report.epsilon_querier < 0.5 * report.epsilon_occurrence
    few = sketch_account(noise, answers=3)
    assert few.epsilon_occurrence == few.epsilon_querier == few.epsilon_basic == 2.0
    assert few.epsilon_replaced == 4.0 and few.epsilon_answer == 0.5
    assert "4,200 different answers" in report.in_words() and "little meaning" in report.in_words()


def test_the_papers_noise_promises_nothing_beside_the_published_number():
    report = sketch_account(SketchNoise("paper", 0.5, 30), answers=4200)
    assert report.epsilon_published == 0.5 and report.covers == ()
    assert math.inf == report.epsilon_occurrence == report.epsilon_querier == report.epsilon_answer
    assert "does not protect the document owner from the querier" in report.in_words()
    assert report.epsilon_published_total == 2100.0 and "would add up to 2,100" in report.in_words()
    assert "100 % of 4,000 trials, where ε = 0.5 would allow 62.2 %" in report.in_words()
    assert sketch_account(SketchNoise("per-query", 0.5, 30), answers=9).epsilon_published_total is None
    content = report.as_json()
    assert content["epsilon_occurrence"] is None and content["epsilon_published"] == 0.5
    plain = sketch_account(SketchNoise("plain", None, 30))
    assert plain.epsilon_round == math.inf and plain.scale is None and "no noise" in plain.in_words()


@pytest.mark.parametrize("mode", ["publish-once", "per-query", "paper", "plain"])
def test_every_report_is_json_and_says_what_it_does_not_cover(mode):
    report = sketch_account(SketchNoise(mode, None if mode == "plain" else 1.0, 10), answers=2)
    content = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert content["unit"] == "one occurrence of a word in a document" and len(content["words"]) == 1
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
