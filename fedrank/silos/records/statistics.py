"""Noisy sufficient statistics: one message of a silo, from which everybody makes any linear predictor without more ε.

The log-likelihood of a logistic model is, up to the second order around β = 0, a function of two sums over rows::

    l(β) ≈ t'β − ⅛ β'Sβ + constant,        t = Σ (y − ½) u,   S = Σ u u'        u: a row with a one in front

(Huggins, Adams, Broderick: *PASS-GLM*, NeurIPS 2017). A silo sends both with Gaussian noise, once (sufficient
statistics perturbation: Vu and Slavković 2009; the noisy S is Dwork et al.'s *Analyze Gauss*, STOC 2014). Penalties,
weights and whom to take are chosen afterwards, by whoever has the message, on rows of its own: that is post-processing
and costs nothing. Silos' messages add up, and in a secure sum so does their noise.

**Sensitivity.** The number of rows is public, so that two neighbouring tables differ in one row's place: u, y becomes
v, z, with lengths of u and v of at most R (a row's one included). Counted as a matrix::

    |uu' − vv'|² = |u|⁴ + |v|⁴ − 2(u'v)² ≤ 2 R⁴,        |(y − ½)u − (z − ½)v| ≤ R

With c·t in place of t the two together change by at most R √(2R² + c²).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedrank.silos.records.gaussian import RecordNoise
from fedrank.silos.records.ranges import Ranges

#: c² in units of R²: how much of the noise's budget goes to t, on which a model's direction depends most.
_WEIGHT = 4.0


class Statistics(NamedTuple):
    """What one silo sends, or a sum of what several send.

    Attributes:
        first: t, noise included.
        second: S, noise included; made positive semi-definite by :meth:`curvature`.
        rows: Number of rows, which is public.
        sigma_first: σ of the noise in each number of t.
        sigma_second: σ of the noise in S beside its diagonal; on it σ√2.
    """

    first: Float[np.ndarray, " p"]
    second: Float[np.ndarray, "p p"]
    rows: int
    sigma_first: float
    sigma_second: float

    def __add__(self, other: Statistics) -> Statistics:  # type: ignore[override]
        return Statistics(
            self.first + other.first,
            self.second + other.second,
            self.rows + other.rows,
            float(np.hypot(self.sigma_first, other.sigma_first)),
            float(np.hypot(self.sigma_second, other.sigma_second)),
        )

    def curvature(self) -> Float[np.ndarray, "p p"]:
        """¼ S without what noise made negative."""
        values, vectors = np.linalg.eigh(self.second)
        return (vectors * np.maximum(values, 0.0) / 4) @ vectors.T

    def pull(self) -> Float[np.ndarray, "p p"]:
        """The L2 penalty that the noise asks for by itself: the size of the noise in ¼ S; none on the intercept."""
        size = self.sigma_second * np.sqrt(len(self.first)) / 2
        return np.diag([0.0, *[size] * (len(self.first) - 1)])

    def model(self, penalty: float) -> Float[np.ndarray, " p"]:
        """β of the largest approximate likelihood with an L2 penalty, besides the one of the noise.

        Args:
            penalty: Its strength.
        """
        p = len(self.first)
        weight = self.curvature() + self.pull() + np.diag([1e-6, *[penalty] * (p - 1)])
        return np.linalg.solve(weight, self.first)


@lru_cache(maxsize=256)
def _noise(epsilon: float, delta: float, columns: int, clip: float) -> RecordNoise:
    p = columns + 1
    square = 1 + clip**2
    # The first number of S is the number of rows, which is public.
    return RecordNoise(epsilon, delta, float(square * np.sqrt(2 + _WEIGHT)), p + p * (p + 1) // 2 - 1)


def noise_of(ranges: Ranges, epsilon: float, delta: float) -> RecordNoise:
    """The noise of one message.

    Args:
        ranges: Public ranges of the columns.
        epsilon: ε of a record.
        delta: δ.
    """
    return _noise(epsilon, delta, len(ranges.names), ranges.clip)


def released(
    x: Float[np.ndarray, "rows columns"],
    y: Float[np.ndarray, " rows"],
    ranges: Ranges,
    epsilon: float,
    delta: float,
    rng: np.random.Generator | None = None,
) -> Statistics:
    """One silo's message.

    Args:
        x: Its rows, in the columns' own units.
        y: Their labels.
        ranges: Public ranges of the columns.
        epsilon: ε of a record.
        delta: δ.
        rng: A simulation's generator, which protects nobody; None: the operating system.
    """
    u = ranges.rows(x)
    p, noise = u.shape[1], noise_of(ranges, epsilon, delta)
    c = np.sqrt(_WEIGHT * (1 + ranges.clip**2))
    upper = np.triu_indices(p)
    # Off the diagonal √2 times: the length of the upper triangle is that of the matrix.
    scale = np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0))
    flat = np.concatenate([c * (u.T @ (y - 0.5)), ((u.T @ u)[upper] * scale)[1:]])
    sent = noise.added(flat, rng)
    second = np.zeros((p, p))
    second[upper] = np.concatenate([[len(y)], sent[p:]]) / scale
    second = second + np.triu(second, 1).T
    return Statistics(sent[:p] / c, second, len(y), noise.sigma / c, noise.sigma / np.sqrt(2.0))
