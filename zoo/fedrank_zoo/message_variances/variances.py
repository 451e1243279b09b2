"""Variances of what mechanisms transmit of the difference of two rankers, at one ε of a message.

A message of FOLtR-ES is about B interactions, half of them with each of two opposite rankers. What the server needs of
it is d, the difference of the halves' mean rewards, in [−1, 1]. At the same ε of the whole message every mechanism here
gives an unbiased estimate of d; the smaller its variance, the fewer devices the same gradient takes. All variances are
closed forms. All are local: no other party has to be trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import ConfigError
from fedrank.privacy.piecewise import AT_ENDS, Piecewise, best
from fedrank.privacy.randomised_response import probability


@dataclass(frozen=True)
class Compared:
    """One mechanism at one ε of a message.

    Attributes:
        name: The mechanism, and what it is applied to.
        at_zero: Variance of the estimate of d where d = 0.
        mean: Its mean where d is the difference of two independent rewards, uniform over the values.
        worst: The largest variance of all d.
        clipped: The mean where nine in ten differences are at an end of a range that was cut to a part of it, in units
            of that range; None: single interactions are privatised, and nothing can be cut.
        nbytes: Bytes of the payload beside the seed.
    """

    name: str
    at_zero: float
    mean: float
    worst: float
    clipped: float | None
    nbytes: int


def compare_mechanisms(
    epsilon: float, interactions: int, values: Sequence[float] | Float[np.ndarray, " n"]
) -> list[Compared]:
    """All mechanisms at one ε, the smallest mean variance first.

    Args:
        epsilon: ε of a message, in nats.
        interactions: B, interactions behind a message; even.
        values: All values of the reward, from 0 to 1.

    Raises:
        ConfigError: B is odd or not positive, or ε out of the mechanisms' range.

    >>> [one.name for one in compare_mechanisms(1.0, 4, [0.0, 0.5, 1.0])][0]
    'piecewise, best of its family (3 reports)'
    """
    if interactions < 2 or interactions % 2:
        raise ConfigError(f"interactions of a message must be even and at least 2, got {interactions}.")
    one_bit, chosen, clipped = Piecewise(epsilon), best(epsilon), best(epsilon, AT_ENDS)
    names = {chosen: f"piecewise, best of its family ({chosen.reports} reports)"}
    if clipped != one_bit:
        names.setdefault(clipped, f"piecewise, best where clipped ({clipped.reports} reports)")
    names.setdefault(one_bit, "one bit (Duchi)")
    rows = [
        Compared(
            name,
            float(one.variance(0.0)),
            one.mean_variance,
            one.worst_variance,
            AT_ENDS * float(one.variance(1.0)) + (1 - AT_ENDS) * one.mean_variance,
            1,
        )
        for one, name in names.items()
    ]
    # Laplace noise: d changes by up to 2; two sums, of 0 to 1 each, change by 2 together, and their noise adds up.
    rows += [
        Compared(name, variance, variance, variance, variance, nbytes)
        for name, variance, nbytes in (
            ("Laplace noise on the difference", 8 / epsilon**2, 4),
            ("Laplace noise on both sums", 16 / epsilon**2, 8),
        )
    ]
    rows.append(_randomised_response(epsilon, interactions, np.asarray(values, np.float64)))
    return sorted(rows, key=lambda row: row.mean)


def _randomised_response(epsilon: float, interactions: int, values: Float[np.ndarray, " n"]) -> Compared:
    """Randomised response on each interaction, with an equal part of ε."""
    n = len(values)
    p = probability(epsilon / interactions, n)
    q = (1 - p) / (n - 1)
    slope = p - q
    first, second = slope * values + q * values.sum(), slope * values**2 + q * (values**2).sum()
    each = (second - first**2) / slope**2  # of a debiased report, by its true value
    at_zero = 4 / interactions * each.mean()  # both halves alike, the values uniform
    return Compared(
        f"randomised response on each of {interactions} interactions (the paper's)",
        float(at_zero),
        float(at_zero),
        float(4 / interactions * each.max()),
        None,
        4,
    )
