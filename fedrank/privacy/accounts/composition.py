"""Composition of mechanisms whose privacy loss is +ε, 0 or −ε: randomised response and the piecewise mechanism."""

from __future__ import annotations

import math

import numpy as np

#: Compositions beyond this are bounded in closed form: the exact distribution would take minutes.
_EXACT = 1_000_000


def basis_of(times: int) -> str:
    """The name, for a report, of how :func:`three_losses_epsilon` composes ``times`` releases."""
    return "privacy loss distribution" if times <= _EXACT else "Hoeffding's bound"


def three_losses_epsilon(epsilon: float, likely: float, unlikely: float, times: int, delta: float) -> float:
    """ε at δ of independent releases, each with a privacy loss of +ε, −ε or 0.

    On a grid of step ε the privacy loss distribution is exact, and so is its composition, up to floating-point error
    and a truncated tail of 1e-15. (Where the total is above about 700, dp-accounting rounds it up to a multiple of the
    single ε.)

    Beyond a million releases the tail is bounded by Hoeffding's inequality instead: the losses lie in [−ε, ε] and have
    the mean m = (``likely`` − ``unlikely``) ε, so T m + ε √(2 T log(1/δ)) holds.

    Args:
        epsilon: ε ≥ 0 of one release; may be infinite.
        likely: Probability of the loss +ε.
        unlikely: Probability of the loss −ε.
        times: Number of releases T, ≥ 0.
        delta: δ in (0, 1).

    Returns:
        ε ≥ 0, never above basic composition.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    if times == 0 or epsilon in (0.0, math.inf):
        return epsilon if times else 0.0
    if times > _EXACT:
        mean, tail = times * (likely - unlikely) * epsilon, epsilon * math.sqrt(2 * times * math.log(1 / delta))
        return min(times * epsilon, mean + tail)
    losses = {1: likely, 0: max(0.0, 1.0 - likely - unlikely), -1: unlikely}
    pmf = pld_pmf.create_pmf(losses, discretization=epsilon, infinity_mass=0.0, pessimistic_estimate=True)
    composed = privacy_loss_distribution.PrivacyLossDistribution(pmf).self_compose(times)
    with np.errstate(over="ignore"):  # e^ε beyond double precision: compared with, never used
        return min(float(composed.get_epsilon_for_delta(delta)), times * epsilon)
