"""Noisy releases of a silo: sums of squares and products, a logistic model, an AUC; all hide each record.

Gaussian noise is drawn on a grid: exact from the operating system, quick in a simulation. A number is rounded to a
multiple of a step and gets discrete Gaussian noise of many steps, so that no bit of a floating-point number tells what
noise was added. The rounding moves two sums that differ by one record apart by at most one step a number, which the
sensitivity holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import ConfigError, DataError
from fedrank.privacy.calibration import gaussian_rho, gaussian_sigma
from fedrank.privacy.noise.arrays import drawn, exact_gaussian
from fedrank.silos.glm import Sums, newton, sums, symmetric
from fedrank.silos.sceptic.auc import auc
from fedrank_zoo.noisy_statistics.ranges import Ranges

#: Steps of σ: rounding then costs next to nothing.
_STEPS = 2**11


@lru_cache(maxsize=256)
def _sigma_of(epsilon: float, delta: float) -> float:
    """σ of a sensitivity of 1."""
    return gaussian_sigma(epsilon, delta, 1.0)


@dataclass(frozen=True)
class RecordNoise:
    """Noise that hides one record in numbers of which it can change the length by so much.

    Attributes:
        epsilon: ε of a record, in nats.
        delta: δ.
        sensitivity: Largest distance (L2) between the numbers of two sets of rows of which one record differs.
        numbers: How many numbers there are.

    Raises:
        ConfigError: A number is out of range.
    """

    epsilon: float
    delta: float
    sensitivity: float
    numbers: int

    def __post_init__(self):
        if not 0 < self.epsilon <= 100 or not 0 < self.delta < 0.1:
            raise ConfigError(
                f"epsilon of a record must be above 0 and at most 100, and delta above 0 and below 0.1, got "
                f"{self.epsilon:g} and {self.delta:g}."
            )
        if not 0 < self.sensitivity < math.inf or self.numbers < 1:
            raise ConfigError(f"sensitivity must be above 0 and finite, got {self.sensitivity:g}.")

    @cached_property
    def step(self) -> float:
        """The grid: a power of two."""
        sigma = self.sensitivity * _sigma_of(self.epsilon, self.delta)
        return 2.0 ** math.floor(math.log2(sigma / _STEPS))

    @property
    def sigma(self) -> float:
        """σ in the numbers' unit, that of the rounding included."""
        return self._in_steps[1] * self.step

    @property
    def rho(self) -> float:
        """ρ of concentrated differential privacy, by which releases add up."""
        apart, sigma = self._in_steps
        return gaussian_rho(sigma, apart)

    @cached_property
    def _in_steps(self) -> tuple[float, float]:
        # A little more, as sums of floating-point numbers are not exact either.
        apart = self.sensitivity / self.step * (1 + 1e-9) + math.sqrt(self.numbers)
        return apart, apart * _sigma_of(self.epsilon, self.delta)

    def add_noise(
        self, values: Float[np.ndarray, " numbers"], rng: np.random.Generator | None
    ) -> Float[np.ndarray, " numbers"]:
        """The numbers with noise.

        Args:
            values: What the silo's rows give.
            rng: A simulation's generator, which protects no record; None: the operating system.
        """
        sigma = self._in_steps[1]
        noise = exact_gaussian(sigma, self.numbers) if rng is None else drawn(rng, "gaussian", sigma, self.numbers)
        return (np.round(values / self.step) + noise) * self.step


#: c² in units of R²: how much of the noise's budget goes to t, on which a model's direction depends most.
_WEIGHT = 4.0


class Statistics(NamedTuple):
    """Statistics of one silo, or a sum over several.

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


def release_sums(
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
        rng: A simulation's generator, which protects no record; None: the operating system.
    """
    u = ranges.rows(x)
    p, noise = u.shape[1], noise_of(ranges, epsilon, delta)
    c = np.sqrt(_WEIGHT * (1 + ranges.clip**2))
    upper = np.triu_indices(p)
    # Off the diagonal √2 times: the length of the upper triangle is that of the matrix.
    scale = np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0))
    flat = np.concatenate([c * (u.T @ (y - 0.5)), ((u.T @ u)[upper] * scale)[1:]])
    sent = noise.add_noise(flat, rng)
    second = symmetric(np.concatenate([[len(y)], sent[p:]]) / scale, p)
    return Statistics(sent[:p] / c, second, len(y), noise.sigma / c, noise.sigma / np.sqrt(2.0))


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


def perturb(
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
        rng: A simulation's generator, which protects no record; None: the operating system.
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
        return sums(beta, u, y)

    made = newton(ask, np.zeros(p), penalty * np.eye(p))
    sensitivity = 2 * length / penalty
    left = float(np.linalg.norm(made.at.gradient - penalty * made.beta)) / penalty
    if left > _CLOSE * sensitivity:
        raise ConfigError("the minimum of the penalised likelihood was not found; nothing is sent.")
    noise = RecordNoise(epsilon, delta, sensitivity * (1 + 2 * _CLOSE), p)
    return Perturbed(noise.add_noise(made.beta, rng), penalty, noise.sigma, len(y))


def auc_noise(positive: int, negative: int, epsilon: float, delta: float) -> RecordNoise:
    """The noise of one AUC.

    How many rows have each label is public here, besides the number of rows: without it an AUC of few positive rows
    could change by anything. A record is replaced by another of the same label, which changes the AUC by at most one
    part in the number of rows with that label.

    Args:
        positive: Rows with label 1.
        negative: Rows with label 0.
        epsilon: ε of a record.
        delta: δ.

    Raises:
        DataError: One of the labels is missing; there is no AUC then.
    """
    rarer = min(positive, negative)
    if not rarer:
        raise DataError("all rows have one label; there is no AUC to tell.")
    return RecordNoise(epsilon, delta, 1 / rarer, 1)


def noisy_auc(
    scores: Float[np.ndarray, " rows"],
    y: Float[np.ndarray, " rows"],
    epsilon: float,
    delta: float,
    rng: np.random.Generator | None = None,
) -> tuple[float, RecordNoise]:
    """The AUC of a model that comes from elsewhere, with noise, and the noise.

    Args:
        scores: Of all rows of the silo; the model must not depend on them beyond what was sent with noise.
        y: Their labels.
        epsilon: ε of a record.
        delta: δ.
        rng: A simulation's generator, which protects no record; None: the operating system.
    """
    positive = int(y.sum())
    noise = auc_noise(positive, len(y) - positive, epsilon, delta)
    told = noise.add_noise(np.array([auc(scores, y).value]), rng)[0]
    return float(min(1.0, max(0.0, told))), noise
