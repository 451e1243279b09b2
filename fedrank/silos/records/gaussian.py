"""Gaussian noise on a silo's numbers, drawn on a grid: exact from the operating system, quick in a simulation.

A number is rounded to a multiple of a step and gets discrete Gaussian noise of many steps, so that no bit of a
floating-point number tells what noise was added. The rounding moves two sums that differ by one record apart by at most
one step a number, which the sensitivity holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import ConfigError
from fedrank.privacy.calibration import gaussian_rho, gaussian_sigma
from fedrank.privacy.noise.arrays import drawn, exact_gaussian

#: Steps of σ: rounding then costs next to nothing.
_STEPS = 2**11


@lru_cache(maxsize=256)
def _multiple(epsilon: float, delta: float) -> float:
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
        sigma = self.sensitivity * _multiple(self.epsilon, self.delta)
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
        return apart, apart * _multiple(self.epsilon, self.delta)

    def added(
        self, values: Float[np.ndarray, " numbers"], rng: np.random.Generator | None
    ) -> Float[np.ndarray, " numbers"]:
        """The numbers with noise.

        Args:
            values: What the silo's rows give.
            rng: A simulation's generator, which protects nobody; None: the operating system.
        """
        sigma = self._in_steps[1]
        noise = exact_gaussian(sigma, self.numbers) if rng is None else drawn(rng, "gaussian", sigma, self.numbers)
        return (np.round(values / self.step) + noise) * self.step
