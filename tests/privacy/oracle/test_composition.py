"""Calibration and account of noise in sums against closed forms, brute force and another library's distributions."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import optimize, special, stats

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import BASIC, NOBODY, Unit
from fedrank.privacy.accounts.vectors import sum_account
from fedrank.privacy.calibration import (
    concentrated_epsilon,
    gaussian_epsilon,
    gaussian_rho,
    gaussian_sigma,
    laplace_epsilon,
    laplace_scale,
    replacement_sensitivity,
)
from fedrank.privacy.quantise import clip_to_norm, quantise


def account(**changes):
    settings = {
        "mechanism": "laplace",
        "scale": 20.0,
        "sensitivity": 30,
        "rounds": 10,
        "enough": 100,
        "secure_sum": True,
        "delta": 1e-6,
    }
    return sum_account(**{**settings, **changes})


def laplace_pmf(scale, shift, reach):
    x = np.arange(-reach, reach + 1)
    return math.tanh(0.5 / scale) * np.exp(-np.abs(x - shift) / scale)


def hockey_stick(p, q, epsilon):
    """δ(ε) by definition: Σ max(0, P − e^ε Q)."""
    return np.maximum(p - math.exp(epsilon) * q, 0.0).sum()


def gaussian_delta(sigma, sensitivity, epsilon):
    """Balle and Wang 2018, Theorem 8."""
    a, b = sensitivity / (2 * sigma), epsilon * sigma / sensitivity
    return stats.norm.cdf(a - b) - math.exp(epsilon + stats.norm.logcdf(-a - b))


# What one party can change


def test_vectors_of_one_party_are_twice_the_clip_apart():
    d, s = 46, 5.0
    # Opposite ends of the diagonal: L2 norm s each, in L1 as far apart as can be.
    far = np.full(d, s / math.sqrt(d))
    assert np.abs(far - -far).sum() == pytest.approx(replacement_sensitivity(s, "l2", d, "l1"))
    assert np.linalg.norm(far - -far) == pytest.approx(replacement_sensitivity(s, "l2", d, "l2"))
    axis = np.eye(d)[0] * s
    assert np.abs(axis - -axis).sum() == replacement_sensitivity(s, "l1", d, "l1") == 10.0
    assert np.linalg.norm(axis - -axis) == replacement_sensitivity(s, "l1", d, "l2") == 10.0


def test_no_two_quantised_vectors_are_further_apart():
    for clip_norm in ["l1", "l2"]:
        for rounding in ["down", "nearest"]:
            random = np.random.default_rng(0)
            d, steps, clip = 9, 4, 3.0
            diagonals = [np.stack([np.full(d, c), np.full(d, -c)]) for c in np.linspace(0.01, 1.2, 40)]
            axis = np.stack([np.eye(d)[0], -np.eye(d)[0]]) * 9.0
            pairs = [*diagonals, axis, *random.normal(size=(200, 2, d)), *(10.0 * random.normal(size=(200, 2, d)))]
            largest = {"l1": 0.0, "l2": 0.0}
            for values in pairs:
                a, b = (
                    quantise(clip_to_norm(v.astype(np.float32), clip, clip_norm), steps, clip, rounding).astype(float)
                    for v in values
                )
                largest["l1"] = max(largest["l1"], np.abs(a - b).sum())
                largest["l2"] = max(largest["l2"], np.linalg.norm(a - b))
            for norm, found in largest.items():
                bound = replacement_sensitivity(clip, clip_norm, d, norm, steps, rounding)
                assert 0.6 * bound < found <= bound


def test_rounding_to_the_nearest_step_can_lengthen_a_vector():
    half = np.full(16, 0.51, np.float32)  # L1 norm 8.16
    whole = quantise(half, 1, 1.0, "nearest")
    assert whole.sum() == 16
    assert replacement_sensitivity(8.16, "l1", 16, "l1", 1, "nearest") == 2 * 16
    assert replacement_sensitivity(8.16, "l1", 16, "l1", 1, "down") == 2 * 8


# The published account of FPDGD


def test_a_published_round_costs_2_root_d_times_what_is_claimed():
    for published, clip in [(1.2, 3.0), (2.3, 3.0), (4.5, 5.0), (10.0, 5.0)]:
        d, scale = 46, clip / published
        l2 = account(
            scale=scale,
            sensitivity=replacement_sensitivity(clip, "l2", d, "l1"),
            integers=False,
            rounds=1,
            published=published,
        )
        assert l2.details["epsilon_published"] == published
        assert l2.epsilon_round == pytest.approx(2 * math.sqrt(46) * published)
        l1 = account(scale=scale, sensitivity=replacement_sensitivity(clip, "l1", d, "l1"), integers=False, rounds=1)
        assert l1.epsilon_round == pytest.approx(2 * published)
        # In steps of 2⁻¹⁶, rounded down, the same but for the last step.
        steps = 2**16
        whole = replacement_sensitivity(clip, "l2", d, "l1", steps)
        assert whole == 2 * math.floor(clip * math.sqrt(46) * steps)
        assert account(scale=scale * steps, sensitivity=whole).epsilon_round == pytest.approx(
            l2.epsilon_round, rel=1e-6
        )


# Laplace noise


def test_scale_and_epsilon_are_each_others_inverse():
    for epsilon in [0.01, 1.0, 4.5, 61.0]:
        for sensitivity in [1, 0.3, 17.0, 655_360]:
            scale = laplace_scale(epsilon, sensitivity)
            assert Fraction(scale) * Fraction(epsilon) >= Fraction(sensitivity)  # never less noise than asked for
            assert scale == pytest.approx(sensitivity / epsilon, rel=1e-15)


def test_one_round_of_continuous_noise_has_a_closed_form():
    """δ(ε') = 1 − e^((ε' − ε)/2) for continuous Laplace noise."""
    for delta in [1e-6, 0.05]:
        for epsilon in [0.5, 3.0]:
            assert account(integers=False, scale=1.0, sensitivity=epsilon, rounds=1).epsilon_round == epsilon
            expected = epsilon + 2 * math.log1p(-delta)
            assert laplace_epsilon(epsilon, 1, delta, None) == pytest.approx(expected, abs=1e-4)
            assert laplace_epsilon(epsilon, 1, delta, None) >= expected - 1e-9


def test_one_round_of_discrete_noise_by_definition():
    for scale, sensitivity in [(1.0, 1), (2.0, 3), (7.5, 10)]:
        reach = 60 * math.ceil(scale)
        p, q = laplace_pmf(scale, 0, reach), laplace_pmf(scale, sensitivity, reach)
        assert account(scale=scale, sensitivity=sensitivity, rounds=1).epsilon_round == pytest.approx(
            np.log(p / q).max()
        )
        for delta in (1e-3, 0.05, 0.2):
            epsilon = laplace_epsilon(sensitivity / scale, 1, delta, sensitivity)
            assert hockey_stick(p, q, epsilon) == pytest.approx(delta, rel=1e-6)


def test_rounds_of_discrete_noise_by_convolution():
    """All sums of three losses, listed."""
    scale, sensitivity, delta = 2.0, 4, 1e-3
    reach = 80
    p, q = laplace_pmf(scale, 0, reach), laplace_pmf(scale, sensitivity, reach)
    loss = np.rint((np.log(p) - np.log(q)) * scale).astype(int)  # in units of 1/t
    one = np.bincount(loss + sensitivity, weights=p, minlength=2 * sensitivity + 1)
    three = np.convolve(np.convolve(one, one), one)
    losses = (np.arange(three.size) - 3 * sensitivity) / scale

    def excess(epsilon):
        return (three * np.maximum(0.0, -np.expm1(epsilon - losses))).sum() - delta

    expected = optimize.brentq(excess, 0.0, 3 * sensitivity / scale)
    assert laplace_epsilon(sensitivity / scale, 3, delta, sensitivity) == pytest.approx(expected, rel=1e-9)


def test_rounds_against_another_librarys_distributions():
    for epsilon, sensitivity in [(0.3, 6), (2.0, 5)]:
        for rounds in [2, 30, 400]:
            discrete = pld.from_discrete_laplace_mechanism(
                epsilon / sensitivity, sensitivity, value_discretization_interval=epsilon / sensitivity / 64
            )
            continuous = pld.from_laplace_mechanism(1.0, epsilon, value_discretization_interval=1e-3)
            for composed, steps in ((discrete, sensitivity), (continuous, None)):
                expected = composed.self_compose(rounds).get_epsilon_for_delta(1e-5)
                assert laplace_epsilon(epsilon, rounds, 1e-5, steps) == pytest.approx(expected, rel=5e-3)


def test_fine_steps_are_bounded_by_continuous_noise_and_close_to_it():
    for epsilon, rounds in ((0.5, 20), (3.0, 200)):
        continuous = laplace_epsilon(epsilon, rounds, 1e-6, None)
        fine = laplace_epsilon(epsilon, rounds, 1e-6, 500_000)  # too fine to list
        assert continuous <= fine * (1 + 1e-9) and fine == pytest.approx(continuous, rel=1e-4)


def test_many_rounds_of_coarse_steps_are_bounded_too():
    """Too many to list in the package, not for the other library: losses are multiples of a half, exactly."""
    exact = pld.from_discrete_laplace_mechanism(0.5, 3, value_discretization_interval=0.5).self_compose(40_000)
    expected = exact.get_epsilon_for_delta(1e-6)
    assert expected <= laplace_epsilon(1.5, 40_000, 1e-6, 3) < 1.06 * expected


def test_why_continuous_noise_with_a_longer_shift_bounds_discrete_noise():
    for epsilon, sensitivity in [(1.0, 1), (3.0, 2), (5.0, 10), (0.5, 3)]:
        scale = sensitivity / epsilon
        p, q = (laplace_pmf(scale, shift, 80 * sensitivity) for shift in (0, sensitivity))
        longer = epsilon + 2 * math.log(math.cosh(0.5 / scale))
        gaps = [
            max(0.0, -math.expm1((at - longer) / 2)) - hockey_stick(p, q, at)
            for at in np.linspace(0.0, epsilon, 200, endpoint=False)
        ]
        assert min(gaps) >= -1e-12
        assert min(gaps) < 1e-3  # and no shorter shift would do
        shorter = epsilon + 0.9 * (longer - epsilon)
        assert any(
            hockey_stick(p, q, at) > -math.expm1((at - shorter) / 2)
            for at in np.linspace(0.0, epsilon, 200, endpoint=False)
        )


def test_the_whole_distance_in_one_coordinate_is_the_worst_case():
    """Two coordinates, moved by one step each, against one moved by two."""
    scale = 1.5
    still, moved, twice = (laplace_pmf(scale, shift, 40) for shift in (0, 1, 2))
    for epsilon in np.linspace(-1.3, 1.3, 27):
        spread = hockey_stick(np.outer(still, still), np.outer(moved, moved), epsilon)
        assert spread <= hockey_stick(still, twice, epsilon) + 1e-12


def test_a_run_never_costs_more_than_its_rounds_added_up():
    for scale, sensitivity in [(20.0, 3), (20.0, 100), (0.5, 30), (50_000.0, 600_000)]:
        reports = [account(scale=scale, sensitivity=sensitivity, rounds=rounds) for rounds in (0, 1, 7, 1000, 60_000)]
        assert reports[0].epsilon(Unit.USER, basis=BASIC) == reports[0].epsilon(Unit.USER) == 0.0
        for a, b in itertools.pairwise(reports):
            assert a.epsilon(Unit.USER) <= b.epsilon(Unit.USER)
        for report in reports:
            assert report.epsilon(Unit.USER, basis=BASIC) == pytest.approx(
                report.details["rounds"] * sensitivity / scale
            )
            assert report.epsilon(Unit.USER) <= report.epsilon(Unit.USER, basis=BASIC)
        assert (
            reports[-1].promises[1].basis == "Hoeffding's bound"
            and reports[1].promises[1].basis == "privacy loss distribution"
        )


def test_beyond_its_limit_the_bound_is_hoeffdings():
    epsilon, rounds, delta = 0.2, 60_000, 1e-6
    mean = 0.2 - 1 + math.exp(-0.2)  # of the loss: Kullback-Leibler divergence of two Laplace distributions
    grid = np.linspace(-40, 40, 400_001)
    density = 0.5 * np.exp(-np.abs(grid))
    assert mean == pytest.approx(np.trapezoid(density * (np.abs(grid - 0.2) - np.abs(grid)), grid), abs=1e-6)
    expected = rounds * mean + epsilon * math.sqrt(2 * rounds * math.log(1 / delta))
    assert laplace_epsilon(epsilon, rounds, delta, None) == pytest.approx(expected)
    assert laplace_epsilon(epsilon, 50_000, delta, None) < expected


# Gaussian noise


def test_continuous_gaussian_noise_meets_its_closed_form():
    """Rounds of Gaussian noise are one round with √T times the distance."""
    for ratio in [0.05, 0.5, 3.0]:
        for rounds in [1, 10, 1000]:
            report = account(mechanism="gaussian", scale=1.0, sensitivity=ratio, integers=False, rounds=rounds)
            at = gaussian_delta(1.0, ratio * math.sqrt(rounds), report.epsilon(Unit.USER))
            assert at == pytest.approx(1e-6, rel=1e-3) or report.epsilon(Unit.USER) == 0.0
            assert gaussian_delta(1.0, ratio, report.epsilon_round) == pytest.approx(1e-6, rel=1e-3)
            assert report.epsilon(Unit.USER) <= report.epsilon(Unit.USER, basis=BASIC)
            one = gaussian_epsilon(1.0, 1e-6 / rounds, ratio)
            assert report.epsilon(Unit.USER, basis=BASIC) == pytest.approx(rounds * one)


def test_continuous_gaussian_noise_against_another_librarys_distribution():
    composed = pld.from_gaussian_mechanism(2.0, 1.0, value_discretization_interval=1e-3).self_compose(50)
    report = account(mechanism="gaussian", scale=2.0, sensitivity=1.0, integers=False, rounds=50)
    assert report.epsilon(Unit.USER) == pytest.approx(composed.get_epsilon_for_delta(1e-6), rel=1e-3)


def test_sigma_inverts_epsilon():
    for epsilon in [0.1, 1.0, 4.5, 50.0]:
        sigma = gaussian_sigma(epsilon, 1e-6, 3.0, integers=False)
        assert gaussian_delta(sigma, 3.0, epsilon) == pytest.approx(1e-6, rel=1e-6)
        discrete = gaussian_sigma(epsilon, 1e-6, 3.0)
        assert concentrated_epsilon(gaussian_rho(discrete, 3.0), 1e-6) == pytest.approx(epsilon, rel=1e-6)
        assert concentrated_epsilon(gaussian_rho(discrete, 3.0), 1e-6) <= epsilon
        assert sigma < discrete < 1.2 * sigma


def test_concentrated_epsilon_lies_between_the_exact_and_the_first_bound():
    """Bun and Steinke 2016, Proposition 1.3: ρ + 2 √(ρ log 1/δ); no bound for all mechanisms beats the Gaussian's."""
    for rho in [1e-4, 0.02, 0.5, 10.0, 300.0]:
        epsilon = concentrated_epsilon(rho, 1e-6)
        assert gaussian_epsilon(1 / math.sqrt(2 * rho), 1e-6, 1.0) <= epsilon
        assert epsilon < rho + 2 * math.sqrt(rho * math.log(1e6))


def discrete_gaussian_pmf(sigma, reach):
    weights = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * sigma**2))
    return weights / weights.sum()


def test_renyi_divergences_of_discrete_gaussian_noise_by_summation():
    for sigma, sensitivity, shares in [(1.0, 1, 1), (2.0, 3, 1), (1.0, 1, 4), (1.2, 2, 2)]:
        one = discrete_gaussian_pmf(sigma / math.sqrt(shares), 40)
        noise = one
        for _ in range(shares - 1):
            noise = np.convolve(noise, one)
        p, q = noise[sensitivity:], noise[:-sensitivity]
        keep = (p > 1e-250) & (q > 1e-250)
        p, q = np.log(p[keep]), np.log(q[keep])
        rho = gaussian_rho(sigma, sensitivity, shares)
        for order in (1.5, 2.0, 4.0, 16.0):
            divergence = special.logsumexp(order * p + (1 - order) * q) / (order - 1)
            assert divergence <= order * rho * (1 + 1e-9)
            assert shares > 1 or divergence >= 0.95 * order * rho


def test_shares_of_discrete_gaussian_noise_cost_little_once_each_is_a_few_steps_wide():
    assert gaussian_rho(200.0, 50.0, 1000, 480) == pytest.approx(gaussian_rho(200.0, 50.0), rel=1e-9)
    assert gaussian_rho(20.0, 5.0, 1000, 480) > 1.5 * gaussian_rho(20.0, 5.0)
    with pytest.raises(ConfigError, match=r"σ = 0\.316 steps; at least 1/2 is needed"):
        gaussian_rho(10.0, 5.0, 1000)


def test_discrete_gaussian_runs_add_up_their_rho():
    report = account(mechanism="gaussian", scale=100.0, sensitivity=50.0, rounds=40, parameters=46)
    rho = 40 * (50 / 100) ** 2 / 2
    assert report.epsilon(Unit.USER) == pytest.approx(concentrated_epsilon(rho, 1e-6), rel=1e-9)
    assert report.epsilon_round == pytest.approx(concentrated_epsilon(rho / 40, 1e-6), rel=1e-9)
    assert report.promises[1].basis == "concentrated differential privacy"


# What a report says


def test_without_a_secure_sum_there_is_no_local_privacy():
    report = account(secure_sum=False, scale=72_818.0, sensitivity=655_360, enough=1000, published=4.5)
    words = report.words[-1]
    assert "no local privacy" in words
    assert "in 97.8 % of its coordinates that share is exactly zero" in words
    assert "The published account of such a round is ε = 4.5" in words and "ε = 9 " not in words
    assert report.trust != NOBODY and any("against the server" in line for line in report.not_covered)
    assert "Not against the server." in report.covers[0]


def test_with_a_secure_sum_the_server_is_covered_too():
    report = account(secure_sum=True)
    assert "no local privacy" not in report.words[-1] and "the server as well" in report.words[-1]
    assert report.trust != NOBODY
    assert any("keys that it made itself" in line for line in report.not_covered)


def test_whoever_adds_all_the_noise_alone_is_protected_alone():
    report = account(secure_sum=False, enough=1)
    assert report.trust == NOBODY and "against every reader, the server included" in report.words[-1]


def test_reports_are_json():
    for mechanism, integers in [("laplace", True), ("laplace", False), ("gaussian", True)]:
        report = account(mechanism=mechanism, integers=integers, secure_sum=False)
        content = json.loads(json.dumps(report.as_json(), allow_nan=False))
        assert content["mechanism"] == f"{'discrete' if integers else 'continuous'} {mechanism.capitalize()} noise"
        assert content["epsilon_round"] == report.epsilon_round and content["covers"] == list(report.covers)
        assert (report.details["zero_share"] is not None) == (mechanism == "laplace" and integers)
        assert f"ε = {report.epsilon_round:.3g}" in report.words[-1]
        assert "no local privacy" in report.words[-1]


def test_arguments_out_of_range():
    for wrong in (
        {"mechanism": "cauchy"},
        {"scale": 0.0},
        {"sensitivity": math.inf},
        {"rounds": -1},
        {"enough": 0},
        {"delta": 0.0},
    ):
        with pytest.raises(ConfigError, match=f"^(.* and )?{next(iter(wrong))}|scale and sensitivity|rounds must"):
            account(**wrong)
    for call in (
        lambda: laplace_scale(0.0, 1.0),
        lambda: gaussian_sigma(1.0, 1.0, 1.0),
        lambda: gaussian_sigma(1.0, 1e-6, -1.0),
        lambda: replacement_sensitivity(1.0, "l3", 2, "l1"),
        lambda: replacement_sensitivity(1.0, "l2", 0, "l1"),
        lambda: replacement_sensitivity(1.0, "l2", 2, "l1", 3),
        lambda: replacement_sensitivity(1.0, "l2", 2, "l1", 4, "up"),
        lambda: gaussian_rho(1.0, 1.0, 0),
        lambda: concentrated_epsilon(1.0, 0.0),
    ):
        with pytest.raises(ConfigError):
            call()
