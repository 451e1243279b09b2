"""The account of sketches against sums written down here."""

import json
import math

import pytest

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import BASIC, Unit
from fedrank.privacy.calibration import concentrated_epsilon
from fedrank.texts.sketch.noise import SketchNoise, sketch_account


def _parts(report):
    """ε of sketches, sizes and statistics."""
    return [report.epsilon(Unit.OCCURRENCE, scope=scope) for scope in ("sketches", "sizes", "statistics")]


def test_published_once_costs_its_epsilon_for_good():
    report = sketch_account(SketchNoise("publish-once", 2.0, 30), occurrences=300)
    assert report.epsilon(Unit.OCCURRENCE) == report.epsilon(Unit.OCCURRENCE, basis=BASIC) == pytest.approx(2.0)
    assert sum(_parts(report)) == pytest.approx(2.0)
    assert report.epsilon(Unit.REPLACED_WORD) == pytest.approx(4.0)
    assert report.epsilon(Unit.DOCUMENT) == pytest.approx(600.0)
    assert report.details["scale"] == pytest.approx(30 / 1.6) and report.details["sensitivity"] == 30.0
    assert "once and for all" in report.words[-1] and "ε = 2" in report.words[-1]
    plain = sketch_account(SketchNoise("plain", None, 30))
    assert plain.epsilon_round == plain.epsilon(Unit.OCCURRENCE) == math.inf and plain.details["scale"] is None


def test_published_once_with_gaussian_noise_has_its_epsilon_at_delta():
    report = sketch_account(SketchNoise("publish-once", 2.0, 30, "gaussian", 1e-5))
    assert report.epsilon(Unit.OCCURRENCE) == pytest.approx(2.0)
    assert max(_parts(report)) < 2.0 < sum(_parts(report))
    rho = 30 / (2 * report.details["scale"] ** 2) / 0.8
    assert report.epsilon(Unit.REPLACED_WORD) == pytest.approx(concentrated_epsilon(4 * rho, 1e-5))
    assert report.details["sensitivity"] == pytest.approx(math.sqrt(30)) and "at δ = 1e-05" in report.words[-1]


def test_every_report_is_json_and_says_what_it_does_not_cover():
    for mode in ["publish-once", "plain"]:
        report = sketch_account(SketchNoise(mode, None if mode == "plain" else 1.0, 10))
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


def test_a_negative_number_of_words_is_refused():
    with pytest.raises(ConfigError, match="at least 0"):
        sketch_account(SketchNoise("publish-once", 0.5, 30), occurrences=-1)
