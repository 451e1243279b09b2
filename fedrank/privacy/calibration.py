"""Calibration of noise: how much one party can change a sum, and how much noise hides that.

Between the two stands the *sensitivity*: the largest distance between two vectors that are to look alike. What is
protected here is everything one party puts into a round: its vector is replaced by any other that the clip lets
through. A vector of norm up to s can be replaced by its opposite, so that the distance is 2 s, not s; and Laplace noise
asks for the distance in L1, which for vectors of d coordinates clipped in L2 is up to √d times as large.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.privacy.quantise import ROUNDINGS, check_steps

#: Orders of Rényi divergence among which the best is taken; each gives a valid bound.
_ORDERS = (1.0 + np.geomspace(0.02, 1e6, 600)).tolist()

#: Rounds beyond which Laplace noise is bounded in closed form.
LAPLACE_ROUNDS = 50_000

#: Points of a privacy loss distribution after composition, beyond which a coarser grid is taken: seconds of work.
_POINTS = 2_000_000

#: Points of an exact loss distribution after composition, beyond which a bound by continuous noise is taken.
_EXACT = 200_000


def replacement_sensitivity(
    clip: float,
    clip_norm: str,
    parameters: int,
    norm: str,
    steps: int | None = None,
    rounding: str = "down",
) -> float:
    """The largest distance between two vectors of one party: twice the largest norm of one.

    Args:
        clip: Largest norm s of a vector.
        clip_norm: The norm that is clipped, ``"l1"`` or ``"l2"``.
        parameters: Coordinates d.
        norm: The norm wanted: ``"l1"`` for Laplace noise, ``"l2"`` for Gaussian noise.
        steps: Steps of a unit if vectors are quantised after clipping; None if not.
        rounding: How they are; see :data:`fedrank.privacy.quantise.ROUNDINGS`. Towards zero, no norm grows; to the
            nearest step, each coordinate may grow by half a step.

    Returns:
        The distance, in steps if there are any, else in the unit of the clip. In L1 and in steps it is a whole number.

    >>> replacement_sensitivity(5.0, "l2", 46, "l1") / (2 * 5.0 * 46**0.5)
    1.0
    >>> replacement_sensitivity(5.0, "l1", 46, "l1")
    10.0
    """
    if clip_norm not in ("l1", "l2") or norm not in ("l1", "l2"):
        raise ConfigError(f"norms must be 'l1' or 'l2', got clip_norm={clip_norm!r} and norm={norm!r}.")
    if not 0.0 < clip < math.inf or parameters < 1:
        raise ConfigError(f"clip must be positive and finite and parameters at least 1, got {clip} and {parameters}.")
    if rounding not in ROUNDINGS:
        raise ConfigError(f"rounding must be one of {', '.join(ROUNDINGS)}, got {rounding!r}.")
    largest = clip * math.sqrt(parameters) if (clip_norm, norm) == ("l2", "l1") else clip
    if steps is None:
        return 2.0 * largest
    check_steps(steps)
    grows = {"down": 0.0, "nearest": 0.5}[rounding]
    largest = largest * steps + grows * (parameters if norm == "l1" else math.sqrt(parameters))
    # An integer vector's L1 norm is an integer, hence each vector's is at most the one below.
    return 2.0 * (math.floor(largest) if norm == "l1" else largest)


def laplace_scale(epsilon: float, sensitivity: float) -> float:
    """The scale t of Laplace noise for this ε: sensitivity/ε, rounded up.

    Args:
        epsilon: ε > 0 of one release, in nats.
        sensitivity: Largest L1 distance between two vectors that are to look alike.

    Returns:
        t in the unit of the sensitivity; t · ε is at least the sensitivity, exactly.

    >>> laplace_scale(4.5, 9)
    2.0
    """
    _positive("epsilon", epsilon)
    _positive("sensitivity", sensitivity)
    scale = sensitivity / epsilon
    return scale if Fraction(scale) * Fraction(epsilon) >= Fraction(sensitivity) else math.nextafter(scale, math.inf)


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float, *, integers: bool = True) -> float:
    """The σ of Gaussian noise for this ε and δ.

    Args:
        epsilon: ε > 0 of one release, in nats.
        delta: δ in (0, 1).
        sensitivity: Largest L2 distance between two vectors that are to look alike.
        integers: The noise is discrete, in any number of coordinates: from its concentrated differential privacy.
            Otherwise continuous, and the σ is the smallest there is (Balle and Wang, ICML 2018), a few per cent less.

    Returns:
        σ in the unit of the sensitivity.

    >>> round(gaussian_sigma(1.0, 1e-5, 1.0, integers=False), 3), round(gaussian_sigma(1.0, 1e-5, 1.0), 3)
    (3.731, 4.046)
    """
    from scipy.optimize import brentq

    _positive("epsilon", epsilon)
    _positive("sensitivity", sensitivity)
    _probability("delta", delta)
    if not integers:
        from dp_accounting.gaussian_mechanism import get_sigma_gaussian

        return sensitivity * get_sigma_gaussian(epsilon, delta)

    # No ρ above ε has this ε at any δ worth having; log₂ of σ, so that the tolerance is relative.
    low, high = math.log2(1.0 / math.sqrt(2.0 * (epsilon + 50.0))), 60.0
    root = brentq(lambda x: concentrated_epsilon(2.0 ** (-2 * x - 1), delta) - epsilon, low, high, xtol=1e-12)
    return sensitivity * 2.0 ** float(root) * (1.0 + 1e-9)  # type: ignore[arg-type]


def shared_gaussian_sigma(
    epsilon: float, delta: float, sensitivity: float, shares: int, parameters: int, rounds: int = 1
) -> float:
    """The σ of discrete Gaussian noise that is made of shares, for this ε and δ of several rounds together.

    Args:
        epsilon: ε > 0 of all rounds, in nats.
        delta: δ in (0, 1).
        sensitivity: Largest L2 distance between two vectors of one party in a round, in steps.
        shares: Shares m that make up the noise of a round.
        parameters: Coordinates d.
        rounds: Rounds that a party takes part in.

    Returns:
        σ of the sum, in steps: the smallest, but at least √m/2, below which nothing is proven of shares. 2⁵⁹ where
        even that is too little, which no sum in 32 bits holds.

    >>> one = shared_gaussian_sigma(1.0, 1e-6, 1000.0, 1, 46)
    >>> round(one / gaussian_sigma(1.0, 1e-6, 1000.0), 6)
    1.0
    >>> round(shared_gaussian_sigma(1.0, 1e-6, 1000.0, 9, 46, rounds=4) / one, 3)
    2.0
    """
    _positive("epsilon", epsilon)
    _positive("sensitivity", sensitivity)
    _probability("delta", delta)

    def spent(log: float) -> float:
        rho = rounds * gaussian_rho(2.0**log, sensitivity, shares, parameters)
        return concentrated_epsilon(rho, delta)

    low, high = math.log2(0.5 * math.sqrt(shares) * (1 + 1e-9)) if shares > 1 else -40.0, 59.0
    low = max(low, math.log2(sensitivity) - 10.0)  # an ε of over 500,000 is as good as none
    if spent(low) <= epsilon:
        return 2.0**low
    if spent(high) > epsilon:
        return 2.0**high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
    return 2.0**high


def gaussian_epsilon(sigma: float, delta: float, sensitivity: float) -> float:
    """The exact ε at δ of one release with continuous Gaussian noise (Balle and Wang, ICML 2018)."""
    from dp_accounting.gaussian_mechanism import get_epsilon_gaussian

    return float(get_epsilon_gaussian(sigma / sensitivity, delta))


def gaussian_rho(sigma: float, sensitivity: float, shares: int = 1, parameters: int = 1) -> float:
    """ρ of concentrated differential privacy, Rényi divergences of at most ρ α, with discrete Gaussian noise.

    One discrete Gaussian variable a coordinate has (Δ/σ)²/2, as a continuous one (Canonne et al. 2020). A sum of m of
    them is not quite one: (Δ/σ + τ √d)²/2 with τ = 10 Σ_{k<m} exp(−2π² (σ²/m) k/(k + 1)) (Kairouz, Liu and Steinke,
    *The distributed discrete Gaussian mechanism*, ICML 2021).

    Args:
        sigma: σ of the noise in the sum, in steps; each of m shares has σ/√m.
        sensitivity: Largest L2 distance Δ, in steps.
        shares: Shares m that make up the noise.
        parameters: Coordinates d.

    Raises:
        ConfigError: Each share has a σ below half a step, where nothing is proven.
    """
    if shares < 1 or parameters < 1:
        raise ConfigError(f"shares and parameters must be at least 1, got {shares} and {parameters}.")
    _positive("sigma", sigma)
    if shares == 1:
        return 0.5 * (sensitivity / sigma) ** 2
    each = sigma / math.sqrt(shares)
    if each < 0.5:
        raise ConfigError(
            f"each of {shares:,} shares of discrete Gaussian noise has σ = {each:.3g} steps; at least 1/2 is needed. "
            "Cut a unit into more steps."
        )
    k = np.arange(1, shares)
    tau = 10.0 * float(np.exp(-2.0 * (math.pi * each) ** 2 * k / (k + 1)).sum())
    return 0.5 * (sensitivity / sigma + tau * math.sqrt(parameters)) ** 2


def concentrated_epsilon(rho: float, delta: float) -> float:
    """ε at δ of what has concentrated differential privacy ρ (Canonne et al. 2020, Proposition 12).

    Args:
        rho: ρ ≥ 0; for several releases the sum of theirs.
        delta: δ in (0, 1).
    """
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    _probability("delta", delta)
    return float(compute_epsilon(_ORDERS, [order * rho for order in _ORDERS], delta)[0])


def laplace_epsilon(epsilon: float, rounds: int, delta: float, sensitivity: int | None) -> float:
    """ε at δ of several rounds with Laplace noise.

    The loss distribution of discrete noise is exact on a grid of step 1/t. Where that grid is too fine to compose, the
    distribution of continuous noise with a distance of ``ε + 2 log cosh(ε/(2Δ))`` takes its place: the corners of the
    discrete trade-off curve lie on that curve, which is convex. Beyond 50,000 rounds the tail is bounded by Hoeffding's
    inequality: losses lie in [−ε, ε] and have the mean ε − 1 + e^−ε.

    Args:
        epsilon: ε of one round.
        rounds: Rounds, ≥ 0.
        delta: δ in (0, 1).
        sensitivity: L1 distance Δ in steps of discrete noise; None if the noise is continuous.

    Returns:
        ε ≥ 0, never above basic composition.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    basic = rounds * epsilon
    if rounds == 0:
        return 0.0
    if sensitivity is not None and 2 * sensitivity * rounds <= _EXACT:
        loss = pld_pmf.create_pmf(
            _discrete_losses(epsilon, sensitivity),
            discretization=epsilon / sensitivity,
            infinity_mass=0.0,
            pessimistic_estimate=True,
        )
        composed = privacy_loss_distribution.PrivacyLossDistribution(loss).self_compose(rounds)
    else:
        if sensitivity is not None:
            epsilon += 2.0 * math.log(math.cosh(0.5 * epsilon / sensitivity))
        if rounds > LAPLACE_ROUNDS:
            mean = epsilon + math.expm1(-epsilon)
            return min(basic, rounds * mean + epsilon * math.sqrt(2.0 * rounds * math.log(1.0 / delta)))
        # Of the grid there are between 40 and 2,000 points on either side of zero.
        step = epsilon / min(2000, _POINTS // rounds)
        composed = privacy_loss_distribution.from_laplace_mechanism(
            1.0, epsilon, value_discretization_interval=step
        ).self_compose(rounds)
    with np.errstate(over="ignore"):  # e^ε beyond double precision: compared with, never used
        return min(float(composed.get_epsilon_for_delta(delta)), basic)


def _discrete_losses(epsilon: float, sensitivity: int) -> dict[int, float]:
    """The loss ``(|X − Δ| − |X|)/t`` of discrete Laplace noise X, in units of 1/t: values and probabilities."""
    step = epsilon / sensitivity
    x = np.arange(1, sensitivity)
    end = 1.0 / (1.0 + math.exp(-step))  # P(X ≤ 0)
    middle = math.tanh(0.5 * step) * np.exp(-step * x)
    return {
        sensitivity: end,
        **dict(zip((sensitivity - 2 * x).tolist(), middle.tolist(), strict=True)),
        -sensitivity: end * math.exp(-epsilon),
    }


def _positive(name: str, value: float) -> None:
    if not 0.0 < value < math.inf:
        raise ConfigError(f"{name} must be positive and finite, got {value}.")


def _probability(name: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise ConfigError(f"{name} must be in (0, 1), got {value}.")
