"""A penalised logistic model with noise on its coefficients: output perturbation.

Chaudhuri, Monteleoni and Sarwate (JMLR 2011), with Gaussian noise. The objective ``Σ log(1 + e^(−sβ'u)) + ½ Λ |β|²``
is strongly convex with Λ, and one row has a gradient of at most R, so that replacing it moves the minimum by at most
2R/Λ. Objective perturbation, the alternative, moves less where rows say much; but its proof needs noise of real
numbers and the exact minimum, which no computer has, where here noise lies on a grid and the distance of what was
computed from the minimum is known from the gradient and added to the sensitivity.

The penalty has to come from public numbers: chosen by the rows it would cost ε.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import ConfigError
from fedrank.silos.glm.families import Sums, sums
from fedrank.silos.glm.newton import Newton
from fedrank.silos.records.gaussian import RecordNoise
from fedrank.silos.records.ranges import Ranges

#: Largest distance of the computed minimum from the true one, in units of the sensitivity.
_CLOSE = 1e-6
#: Length of the noise, all coefficients together, that the penalty is chosen for.
_LENGTH = 1.0


class Perturbed(NamedTuple):
    """A model with noise.

    Attributes:
        beta: Coefficients of rows in their ball, the intercept first.
        penalty: Λ.
        sigma: σ of the noise in each of them.
        rows: Number of rows, which is public.
    """

    beta: Float[np.ndarray, " p"]
    penalty: float
    sigma: float
    rows: int


@lru_cache(maxsize=256)
def _unit_sigma(epsilon: float, delta: float, numbers: int) -> float:
    return RecordNoise(epsilon, delta, 1.0, numbers).sigma


def penalty_of(ranges: Ranges, epsilon: float, delta: float) -> float:
    """Λ at which the noise of all coefficients together is about as long as coefficients are."""
    p = len(ranges.names) + 1
    one = _unit_sigma(epsilon, delta, p)
    return 2 * float(np.sqrt(1 + ranges.clip**2)) * one * p**0.5 / _LENGTH


def perturbed(
    x: Float[np.ndarray, "rows columns"],
    y: Float[np.ndarray, " rows"],
    ranges: Ranges,
    epsilon: float,
    delta: float,
    rng: np.random.Generator | None = None,
    penalty: float | None = None,
) -> Perturbed:
    """One silo's model with noise.

    Args:
        x: Its rows, in the columns' own units.
        y: Their labels.
        ranges: Public ranges of the columns.
        epsilon: ε of a record.
        delta: δ.
        rng: A simulation's generator, which protects nobody; None: the operating system.
        penalty: Λ, above 0 and not chosen by the rows; None: :func:`penalty_of`.

    Raises:
        ConfigError: The penalty is not above 0, or the minimum was not found.
    """
    penalty = penalty_of(ranges, epsilon, delta) if penalty is None else penalty
    if not 0 < penalty < np.inf:
        raise ConfigError(f"the penalty of a model with noise must be above 0 and finite, got {penalty:g}.")
    u, length = ranges.rows(x), float(np.sqrt(1 + ranges.clip**2))
    p = u.shape[1]

    def ask(beta: np.ndarray) -> Sums:
        return sums("logistic", beta, u, y)

    made = Newton()(ask, np.zeros(p), penalty * np.eye(p))
    sensitivity = 2 * length / penalty
    left = float(np.linalg.norm(made.at.gradient - penalty * made.beta)) / penalty
    if left > _CLOSE * sensitivity:
        raise ConfigError("the minimum of the penalised likelihood was not found; nothing is sent.")
    noise = RecordNoise(epsilon, delta, sensitivity * (1 + 2 * _CLOSE), p)
    return Perturbed(noise.added(made.beta, rng), penalty, noise.sigma, len(y))
