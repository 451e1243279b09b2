"""The account of DP-SGD: how much noise hides one record in the training of a network (Abadi et al., CCS 2016).

In each step every row is in the batch with probability q, each by itself (Poisson sampling); its gradient is shortened
to a length of at most C, and Gaussian noise of deviation z C is added to the sum. Two tables that differ in one row's
place then give sums that lie, in the worst case, C on this and C on that side of what the other rows give, with
probability q: normal distributions N(0, z²) mixed with N(1, z²), or with N(−1, z²). Their privacy loss distribution,
composed over all steps, is dp-accounting's (*Connect the dots*: Doroshenko et al., PoPETs 2022), which errs on the safe
side only. Noise is drawn on a grid; the moments of its privacy loss are those of continuous noise (Canonne, Kamath and
Steinke, NeurIPS 2020).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from fedrank.core.errors import ConfigError

#: Grid of the privacy loss, in nats.
_GRID = 1e-3
#: Part of δ for steps in which more rows are drawn than there is room for.
_CROWDED = 0.01
#: Noise multipliers among which one is looked for.
_LEAST, _MOST = 0.2, 1e5


def _loss(multiplier: float, share: float, steps: int) -> Any:
    """Privacy loss distribution of so many steps for one record in another's place."""
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
    from dp_accounting.privacy_accountant import NeighboringRelation

    # The losses of one step may lie far apart where there is little noise: a coarser grid errs on the safe side.
    grid = max(_GRID, 1e-3 / multiplier**2)
    return from_gaussian_mechanism(
        multiplier,
        sampling_prob=share,
        value_discretization_interval=grid,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    ).self_compose(steps)


@lru_cache(maxsize=4096)
def sgd_epsilon(multiplier: float, share: float, steps: int, delta: float) -> float:
    """ε at δ of a record in so many steps of DP-SGD.

    Args:
        multiplier: z, deviation of the noise in units of the longest gradient of a row.
        share: q, probability of a row to be in a step's batch, in (0, 1].
        steps: Steps, ≥ 0.
        delta: δ in (0, 1).
    """
    if steps == 0:
        return 0.0
    return float(_loss(multiplier, share, steps).get_epsilon_for_delta(delta * (1 - _CROWDED)))


@lru_cache(maxsize=256)
def noise_multiplier(share: float, steps: int, epsilon: float, delta: float) -> float:
    """The least z that gives this ε, to three digits; arguments as of :func:`sgd_epsilon`.

    Raises:
        ConfigError: Noise of the largest size that there is does not do.
    """
    low, high = _LEAST, _LEAST
    while sgd_epsilon(high, share, steps, delta) > epsilon:
        low, high = high, 2 * high
        if high > _MOST:
            raise ConfigError(
                f"no noise of a sensible size gives ε = {epsilon:g} of a record in {steps:,} steps; take fewer rounds, "
                "fewer epochs, or a larger ε."
            )
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        if sgd_epsilon(middle, share, steps, delta) > epsilon:
            low = middle
        else:
            high = middle
    return high


def room(rows: int, share: float, steps: int, epsilon: float, delta: float) -> int:
    """Rows of a batch beyond which the others are left out, so that a step has a fixed size.

    Which rows are drawn depends on no data. But for a probability p of all steps nothing is left out, and what then
    holds holds always with p (1 + e^ε) more of δ, which is a hundredth of it.

    Args:
        rows: Rows of the silo.
        share: q.
        steps: Steps of all training.
        epsilon: ε of a record.
        delta: δ.
    """
    from scipy import stats

    if share >= 1:
        return rows
    p = _CROWDED * delta / (1 + math.exp(min(epsilon, 600.0))) / steps
    sizes = np.arange(rows + 1)
    return int(np.argmax(stats.binom.sf(sizes, rows, share) <= p))


def largest_attack(multiplier: float, share: float, steps: int) -> float:
    """The largest AUC of anybody who tells whether a record was there, from the whole privacy loss distribution.

    Each (ε, δ) of it bounds the trade-off of errors from below by 1 − δ − e^ε α; the AUC is 1 less the area under the
    largest of these (Dong, Roth and Su, *Gaussian differential privacy*, 2022).
    """
    epsilon = np.concatenate([np.linspace(-8, 8, 321), np.linspace(8.5, 60, 104)])
    delta = np.asarray(_loss(multiplier, share, steps).get_delta_for_epsilon(epsilon))
    alpha = np.linspace(0, 1, 4001)[1:]  # right ends: the curve falls, so that the area comes out too small
    lower = np.max(1 - delta[:, None] - np.exp(epsilon)[:, None] * alpha, axis=0)
    return float(1 - np.clip(lower, 0, 1).mean())
