"""Noise on the values that one device reports: the alternative to randomised response for rewards.

Randomised response (:mod:`fedrank.privacy.randomised_response`) lies about single interactions and needs a metric with
few values: its ε at a given rate of lies grows with their number. Noise on the *sum* of a device's values does not care
how many values there are. Both are local: the device itself does it, and no other party has to be trusted.

Values are integers (a metric's numerators), so the noise is discrete and exact. The unit of ``epsilon`` is one
interaction, as for randomised response: one value changes by up to the metric's range, and with it one sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedrank.core.arrays import AnyArray
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.privacy_report import SEED, AuditedBy, PrivacyReport, Promise, Unit
from fedrank.privacy.accounts.sums import sum_account
from fedrank.privacy.calibration import gaussian_sigma, laplace_scale
from fedrank.privacy.noise import discrete as noise
from fedrank.privacy.noise.simulated import simulated_discrete_gaussian, simulated_discrete_laplace

MECHANISMS = ("laplace", "gaussian")


@dataclass(frozen=True)
class NoisyValues:
    """Discrete noise for sums of values from 0 to ``largest``.

    Attributes:
        mechanism: ``"laplace"`` or ``"gaussian"``.
        epsilon: ε of one interaction, above 0.
        delta: δ of one interaction, for Gaussian noise.
        largest: Largest value, in steps: what one interaction can change.

    Raises:
        ConfigError: No such mechanism, or a number out of range.
    """

    mechanism: str
    epsilon: float
    delta: float
    largest: int

    def __post_init__(self):
        if self.mechanism not in MECHANISMS:
            raise ConfigError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {self.mechanism!r}.")
        if not 0.0 < self.epsilon < 1e6:
            raise ConfigError(f"epsilon of noise must be positive and finite, got {self.epsilon}.")

    @property
    def scale(self) -> float:
        """Scale of Laplace noise, or σ of Gaussian noise, in steps."""
        if self.mechanism == "laplace":
            return laplace_scale(self.epsilon, self.largest)
        return gaussian_sigma(self.epsilon, self.delta, self.largest)

    def draw(self, key: AnyArray, shape: tuple[int, ...]) -> AnyArray:
        """Noise of a simulated device, from its key: int32 ``shape``."""
        sampler = simulated_discrete_laplace if self.mechanism == "laplace" else simulated_discrete_gaussian
        return sampler(key, shape, self.scale)

    def draw_from_os(self, shape: tuple[int, ...]) -> jax.Array:
        """Noise of a real device, drawn exactly from the operating system's randomness: int32 ``shape``."""
        sampler = noise.discrete_laplace if self.mechanism == "laplace" else noise.discrete_gaussian
        return jnp.asarray(sampler(self.scale, int(np.prod(shape))).reshape(shape), jnp.int32)

    def account(self, each: int, sums: int, rounds: int, delta: float) -> PrivacyReport:
        """The account of a run.

        Args:
            each: Interactions behind each sum.
            sums: Sums in a message.
            rounds: Messages of a device.
            delta: δ of the bound over the run.
        """
        apart = each * self.largest * (sums if self.mechanism == "laplace" else sums**0.5)
        report = sum_account(
            mechanism=self.mechanism,
            scale=self.scale,
            sensitivity=apart,
            rounds=rounds,
            enough=1,
            secure_sum=False,
            parameters=sums,
            delta=delta,
        )
        first, *run = report.promises
        one = Promise(Unit.INTERACTION, self.epsilon, first.delta)
        at = f" at δ = {first.delta:.0e}" if first.delta else ""
        said = (
            f"{report.mechanism[:1].upper()}{report.mechanism[1:]} is added to each sum of rewards before it is sent. "
            f"One interaction: ε = {self.epsilon:.3g}{at}, without any trust in the server."
        )
        return replace(
            report,
            promises=(one, replace(first, unit=Unit.MESSAGE), *run),
            not_covered=(SEED, *report.not_covered),
            details={**report.details, "interactions_per_round": each * sums},
            words=(said, *report.words),
            audit=AuditedBy(f"{self.mechanism}-sums", {"epsilon": self.epsilon, "delta": self.delta}),
        )
