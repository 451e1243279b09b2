"""Audits: bounds against other libraries, tight where a mechanism's ε is known, and loud where one is broken."""

import json

import numpy as np
import pytest
from scipy import stats

from fedrank.cli.main import call
from fedrank.core.errors import ConfigError, RunError, UnknownNameError
from fedrank.core.privacy_report import PrivacyReport
from fedrank.privacy.accounts.randomised_response import account as response_account
from fedrank.privacy.audit import AUDITS, Audit, audit_mechanism, clopper_pearson, gaussian_distance, pure_bound
from fedrank.privacy.calibration import gaussian_epsilon
from fedrank.privacy.noisy_values import NoisyValues
from fedrank.privacy.piecewise import Piecewise, best
from fedrank.privacy.randomised_response import os_words, privatise, probability
from fedrank.ranking.mechanisms.piecewise import account as piecewise_account
from fedrank.report.load import load
from fedrank.texts.sketch.noise import SketchNoise, sketch_account
from fedrank_zoo.silo_sketch_2021 import PrintedNoise, continuous_laplace, printed_account


def test_intervals_are_those_of_scipy():
    hits = np.array([0, 1, 7, 50, 99, 100])
    low, high = clopper_pearson(hits, 100, 0.005)
    for k, (below, above) in zip(hits, zip(low, high, strict=True), strict=True):
        interval = stats.binomtest(int(k), 100).proportion_ci(0.99, method="exact")
        assert (below, above) == (pytest.approx(interval.low), pytest.approx(interval.high))


def test_bounds_are_of_the_intervals_ends():
    low, high = clopper_pearson(np.array([900, 100]), 1000, 0.005)
    (pure,) = pure_bound(np.array([900]), np.array([100]), 1000, 0.01, 0.01)
    assert pure == pytest.approx(np.log((low[0] - 0.01) / high[1]))
    (apart,) = gaussian_distance(np.array([900]), np.array([100]), 1000, 0.01, 0.01)
    assert apart == pytest.approx(stats.norm.ppf(low[0]) - stats.norm.ppf(high[1]))
    assert pure_bound(np.array([100]), np.array([900]), 1000, 0.0, 0.01).tolist() == [0.0]  # nothing is shown


def of_probabilities(table, epsilon, rng, **more):
    """An audit of a mechanism whose messages have known probabilities in both worlds."""
    return Audit("known", "message", "", epsilon, lambda world, n: rng.choice(len(table[0]), n, p=table[world]), **more)


def test_a_bound_is_right_as_often_as_it_says():
    """The mechanism has exactly the ε that is promised; with 80 % confidence at most a fifth of the bounds is above."""
    rng = np.random.default_rng(0)
    table = np.array([[0.6, 0.3, 0.1], [0.6 / np.e, 1 - 0.7 / np.e, 0.1 / np.e]])
    wrong = sum(audit_mechanism(of_probabilities(table, 1.0, rng), 1000, 0.8).broken for _ in range(100))
    assert wrong <= stats.binom.ppf(0.999, 100, 0.2)


def test_tight_mechanisms_are_shown_to_be_so():
    for name, epsilon in [
        ("piecewise", 0.5),
        ("piecewise", 4.0),
        ("randomised-response", 1.0),
        ("randomised-response", 4.0),
        ("laplace-values", 2.0),
    ]:
        one = audit_mechanism(AUDITS.get(name)(epsilon=epsilon), 100_000)
        assert 0.85 * epsilon <= one.shown <= epsilon and one.promised == epsilon and not one.broken


def test_noise_on_sums_is_not_broken():
    for name in ["laplace-sums", "gaussian-sums", "laplace-shares", "published-sketch"]:
        one = audit_mechanism(AUDITS.get(name)(epsilon=4.0), 3000)
        assert 0 < one.shown <= one.promised <= 4.0


def test_a_set_that_was_lucky_once_is_not_chosen():
    """Gaussian noise of ε = 4 at δ = 10⁻⁶ (μ = 0.838): few messages show most of it, every time."""
    rng, apart = np.random.default_rng(5), 0.8378587570904698
    assert gaussian_epsilon(1 / apart, 1e-6, 1.0) == pytest.approx(4.0)

    def sample(world, n):
        return np.rint(40 * (rng.normal(0.0, 1.0, n) + world * apart)).astype(np.int64)

    normal = Audit("normal", "message", "", 4.0, sample, 1e-6, gaussian=True, ordered=True, trials=4000)
    shown = [audit_mechanism(normal).shown for _ in range(60)]
    assert min(shown) > 2.0 and 2.9 < np.median(shown) < 3.3 and max(shown) <= 4.0


def test_gaussian_noise_is_judged_by_its_whole_curve():
    rng = np.random.default_rng(1)
    exact = gaussian_epsilon(4.0, 1e-6, 1.0)

    def sample(world, n):
        return np.rint(100 * (rng.normal(0.0, 4.0, n) + world)).astype(np.int64)

    one = audit_mechanism(Audit("normal", "message", "", exact, sample, 1e-6, gaussian=True, ordered=True), 400_000)
    assert 0.85 * exact <= one.shown <= exact
    assert audit_mechanism(Audit("normal", "message", "", exact, sample, 1e-6, ordered=True), 100_000).shown < one.shown


def test_a_wrong_probability_is_noticed():
    promised, real = 1.0, Piecewise(1.2)

    def sample(world, n):
        return real.respond(np.full(n, world * real.outside), os_words((n, 2)), np)

    one = audit_mechanism(Audit("piecewise", "message", "", promised, sample))
    assert one.broken and one.shown > 1.1


def test_randomness_that_is_used_twice_is_noticed():
    """Two reports with the same random words: whether they are equal says whether the truths are."""
    mechanism = best(0.5)

    def sample(world, n, words=None):
        words = os_words((n, 2))
        again = words if reused else os_words((n, 2))
        truths = np.zeros(n, np.int32), np.full(n, world * mechanism.outside)
        return np.stack([mechanism.respond(t, w, np) for t, w in zip(truths, (words, again), strict=True)], axis=1)

    reused = False
    assert not audit_mechanism(
        Audit("twice", "message", "", 0.5, sample), 50_000
    ).broken  # the second truth alone changes
    reused = True
    assert audit_mechanism(Audit("twice", "message", "", 0.5, sample), 50_000).shown > 5


def test_a_lie_that_is_never_told_is_noticed():
    p = probability(1.0, 11)

    def sample(world, n):
        words = os_words((n, 2))
        words[:, 1] = 0  # always the same lie
        return privatise(np.full(n, 10 * world, np.int32), words, p, 11)

    assert audit_mechanism(Audit("randomised-response", "interaction", "", 1.0, sample)).broken


def test_the_lowest_bits_of_floating_point_noise_are_noticed():
    """Continuous noise on 0 or on 1: numbers near 0 have bits that a sum with 1 cannot have (Mironov, CCS 2012)."""

    def sample(world, n):
        sent = world + continuous_laplace(1.0, (n,), None)
        near = (sent > 0) & (sent < 0.5)
        finer = np.where(near, sent * 2.0**53 % 1.0 != 0, False)
        return near.astype(np.int64) + finer

    assert audit_mechanism(Audit("floating point", "message", "", 1.0, sample)).shown > 4


def test_noise_as_printed_is_broken_and_known_to_be():
    one = audit_mechanism(AUDITS.get("sketch-answers-as-printed")(epsilon=0.5), 2000)
    assert one.broken and not one.holds and one.shown == one.most > 4


def test_what_cannot_be_audited_is_said():
    audit = of_probabilities(np.eye(2), 1.0, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="100 trials"):
        audit_mechanism(audit, 99)
    with pytest.raises(ConfigError, match="confidence"):
        audit_mechanism(audit, 1000, 1.0)
    rows = Audit("rows", "message", "", 1.0, lambda world, n: np.zeros((n, 2), np.int64), ordered=True)
    with pytest.raises(ConfigError, match="one number"):
        audit_mechanism(rows, 100)
    with pytest.raises(UnknownNameError, match="piecewise"):
        AUDITS.get("piecewize")


def test_the_command_prints_what_was_promised_and_shown(capsys):
    assert call(["privacy", "audit", "piecewise", "--epsilon", "2", "--trials", "20000", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["audited"]
    assert one["promised"] == 2.0 and 1.5 < one["shown"] <= 2.0 and not one["broken"]
    assert call(["privacy", "audit", "sketch-answers-as-printed", "--trials", "1000"]) == 0  # not meant to hold
    assert "sketch-answers-as-printed" in capsys.readouterr().out


def test_the_command_fails_where_a_promise_is_broken(capsys, monkeypatch):
    def lying(epsilon, delta):
        return of_probabilities(np.eye(2), epsilon, np.random.default_rng(0))

    monkeypatch.setattr(AUDITS, "get", lambda name: lying)
    assert call(["privacy", "audit", "piecewise", "--trials", "1000"]) == 1
    said = capsys.readouterr()
    assert "BROKEN" in said.out and "known" in said.err


def test_every_audit_goes_by_its_own_name_and_promises_what_it_is_told():
    for entry in AUDITS:
        one = entry.obj(epsilon=2.0, delta=1e-5)
        assert one.mechanism == entry.name and 0 <= one.epsilon <= 2.0 and one.delta in (0.0, 1e-5) and one.worlds
        messages = one.sample(1, 3)
        assert len(messages) == 3 and np.asarray(messages).dtype.kind == "i"


def test_accounts_name_an_audit_of_what_they_promise():
    """The audit of each report is made with its settings, and promises no more than the report does."""
    reports = [
        piecewise_account(best(1.0), 4, 1, 1e-6, 1),
        response_account(p=0.9, n=11, interactions_per_message=4, rounds=10),
        NoisyValues("laplace", 2.0, 1e-6, 2520).account(2, 2, 10, 1e-6),
        NoisyValues("gaussian", 2.0, 1e-6, 2520).account(2, 2, 10, 1e-6),
        sketch_account(SketchNoise("publish-once", 8.0, z=1), occurrences=10),
        printed_account(PrintedNoise("paper", 0.5, 3), 9, 10),
    ]
    for report in reports:
        again = PrivacyReport.from_json(json.loads(json.dumps(report.as_json())))
        made = AUDITS.get(again.audit.name)(**again.audit.settings)
        said = [promise.epsilon for promise in report.promises if promise.unit == made.unit]
        assert any(made.epsilon <= epsilon * (1 + 1e-12) for epsilon in said)
    assert response_account(p=1.0, n=11, interactions_per_message=4, rounds=10).audit is None


def test_a_run_is_audited_and_its_page_says_so(tmp_path, capsys):
    run = ["run", "foltr-es", "--clients", "2", "--rounds", "1", "--seeds", "1", "--evaluation.every", "1", "--quiet"]
    private = ["--population", "10", "--participations", "1", "--privacy.epsilon-user", "1"]
    assert call([*run, *private, "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    page = tmp_path / "run" / "report.html"
    assert "fedrank privacy audit" in page.read_text()
    assert call(["privacy", "audit", str(tmp_path / "run"), "--trials", "2000", "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)["audited"]
    kept = load(tmp_path / "run").audited
    assert kept is not None and kept.shown == said["shown"] > 0.5 and kept.promised == 1.0 and not kept.broken
    assert f"ε ≥ {kept.shown:.3g}" in page.read_text()
    (tmp_path / "run" / "audit.json").write_text('{"mechanism": "piecewise"}')
    with pytest.raises(RunError, match="not an audit"):
        load(tmp_path / "run")


def test_a_run_without_noise_has_nothing_to_audit(tmp_path, capsys):
    run = ["run", "foltr-es", "--clients", "2", "--rounds", "1", "--seeds", "1", "--evaluation.every", "1", "--quiet"]
    assert call([*run, "--privacy.p", "1", "--out", str(tmp_path / "run")]) == 0
    assert call(["privacy", "audit", str(tmp_path / "run")]) == 1
    assert "nothing to audit" in capsys.readouterr().err
