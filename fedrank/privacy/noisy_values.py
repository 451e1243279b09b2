"""Noise on the Q-values that a platform lets others see; and on the sums of rewards of a device (:class:`NoisyValues`).

A vector holds N values, one for each candidate. Each value is cut to [centre − clip, centre + clip], rounded to a grid
that cuts this range into 2·steps, and gets separate discrete Laplace or discrete Gaussian noise, exact on that grid.
The platform does it by itself, before anything leaves it: no other party has to be trusted.

The unit of ``epsilon`` is **one vector**: all that one message says of one moment of one user at one platform. It may
be any vector, and may be replaced by any other.

**Why each value is cut, and not a norm of the vector.** Values at one moment have much in common (about r/(1 − γ) each
where engagement is not centred) and differ by little. A ball has to let the vector pass whose values are all ``clip``:
of radius clip √N in L2, clip N in L1. Two vectors in it are as far apart as in the box of all values up to ``clip``:
2 clip √N and 2 clip N. So a norm would save nothing; and where it cuts, one candidate's value would move all others'.
What does save is ``centre``, a number that is public beforehand and no data has a part in: noise follows the
range, not the values' size.

**Sums of rewards** that one device reports get noise as an alternative to randomised response. Randomised response
(:mod:`fedrank.privacy.randomised_response`) lies about single interactions and needs a metric with few values: its ε at
a given rate of lies grows with their number. Noise on the *sum* of a device's values does not care how many values
there are. Both are local: the device itself does it, and no other party has to be trusted.

Values are integers (a metric's numerators), so the noise is discrete and exact. The unit of ``epsilon`` is one
interaction, as for randomised response: one value changes by up to the metric's range, and with it one sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32, Int32, Key

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.privacy_report import SEED, AuditedBy, PrivacyReport, Promise, Unit
from fedrank.privacy.accounts.vectors import Replay, sum_account, value_account
from fedrank.privacy.calibration import gaussian_sigma, laplace_scale
from fedrank.privacy.noise import discrete as noise
from fedrank.privacy.noise.arrays import exact_gaussian, exact_laplace
from fedrank.privacy.noise.simulated import LARGEST_SCALE, simulated_discrete_gaussian, simulated_discrete_laplace
from fedrank.privacy.quantise import check_steps

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


@dataclass(frozen=True)
class ValueNoise:
    """The clipping, rounding and noise that vectors of Q-values get before they leave a platform.

    Attributes:
        clip: Half the range of a value, in the unit of the values, above 0.
        epsilon: ε of one vector, in nats, above 0; None: values are cut, but get no noise and are not rounded.
        delta: δ of one vector, in (0, 1), for Gaussian noise; Laplace noise has none.
        mechanism: ``"gaussian"`` or ``"laplace"``.
        centre: The middle of the range: a public number.
        steps: Steps of the grid from the middle of the range to its end, a power of two.

    Raises:
        ConfigError: No such mechanism, or a number out of range.
    """

    clip: float
    epsilon: float | None = None
    delta: float = 1e-6
    mechanism: str = "gaussian"
    centre: float = 0.0
    steps: int = 256

    def __post_init__(self):
        if self.mechanism not in MECHANISMS:
            raise ConfigError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {self.mechanism!r}.")
        if not 0.0 < self.clip < 1e6 or not abs(self.centre) < 1e6:
            raise ConfigError(
                f"clip of values must be in (0, 1e6) and centre in (-1e6, 1e6), got {self.clip} and {self.centre}."
            )
        if self.epsilon is not None and not 0.0 < self.epsilon < 1e6:
            raise ConfigError(f"epsilon of a vector of values must be in (0, 1e6), got {self.epsilon}.")
        if not 0.0 < self.delta < 1.0:
            raise ConfigError(f"delta of a vector of values must be in (0, 1), got {self.delta}.")
        check_steps(self.steps)
        if self.steps > LARGEST_SCALE:
            raise ConfigError(f"steps of a value's range must be at most {LARGEST_SCALE:,}, got {self.steps:,}.")

    def sensitivity(self, candidates: int) -> float:
        """The largest distance between two vectors, in steps: in L1 for Laplace, in L2 for Gaussian noise.

        Args:
            candidates: N, the number of values of a vector.
        """
        across = 2 * self.steps
        return float(across * candidates) if self.mechanism == "laplace" else across * math.sqrt(candidates)

    def scale(self, candidates: int) -> float:
        """Scale of Laplace noise, or σ of Gaussian noise, of each value, in steps.

        Args:
            candidates: N, the number of values of a vector.

        Raises:
            ConfigError: There is no noise, or it is too large for the grid.
        """
        if self.epsilon is None:
            raise ConfigError("values without an epsilon get no noise, and so no scale of it.")
        apart = self.sensitivity(candidates)
        if self.mechanism == "laplace":
            scale = laplace_scale(self.epsilon, apart)
        else:
            scale = gaussian_sigma(self.epsilon, self.delta, apart)
        if scale > LARGEST_SCALE:
            raise ConfigError(
                f"noise of {scale:,.0f} steps on {candidates} values is beyond 2**20; their range has {2 * self.steps} "
                "steps. Use fewer steps, or a larger epsilon."
            )
        return scale

    def draw(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Int32[Array, "*shape"]:
        """Noise of a simulated platform: int32 ``shape``, in steps.

        Args:
            key: Typed key, consumed.
            shape: [..., N].
        """
        if self.epsilon is None:
            return jnp.zeros(shape, jnp.int32)
        sampler = simulated_discrete_laplace if self.mechanism == "laplace" else simulated_discrete_gaussian
        return sampler(key, shape, self.scale(shape[-1]))

    def draw_from_os(self, shape: tuple[int, ...]) -> Int32[Array, "*shape"]:
        """Noise of a real platform, exact and from the operating system's randomness: int32 ``shape``, in steps.

        Args:
            shape: [..., N].
        """
        if self.epsilon is None:
            return jnp.zeros(shape, jnp.int32)
        sampler = exact_laplace if self.mechanism == "laplace" else exact_gaussian
        return jnp.asarray(sampler(self.scale(shape[-1]), shape), jnp.int32)

    def apply(self, values: Float32[Array, "*shape"], noise: Int32[Array, "*shape"]) -> Float32[Array, "*shape"]:
        """Values as they leave the platform: cut to the range, rounded to the grid, and with their noise.

        Args:
            values: float32 [..., N]; what is not a number becomes the centre.
            noise: int32 [..., N], from :meth:`draw` or :meth:`draw_from_os`.

        Returns:
            float32 [..., N], multiples of clip/steps around the centre; they may lie beyond the range.
        """
        part = (values - jnp.float32(self.centre)) / jnp.float32(self.clip)
        part = jnp.clip(jnp.where(jnp.isnan(part), 0.0, part), -1.0, 1.0)
        if self.epsilon is None:
            return part * jnp.float32(self.clip) + jnp.float32(self.centre)
        # In whole steps from here on: whatever single precision rounds, no vector is further than sensitivity().
        whole = jnp.rint(part * jnp.float32(self.steps)).astype(jnp.int32) + noise
        return whole.astype(jnp.float32) * jnp.float32(self.clip / self.steps) + jnp.float32(self.centre)

    def account(self, rounds: int, delta: float, candidates: int, replay: Replay) -> PrivacyReport:
        """The privacy report of a run with this noise.

        Args:
            rounds: Rounds of the run.
            delta: δ of the ε over a user's stay and over the run, in (0, 1).
            candidates: N, the number of values of a vector.
            replay: Settings of the run, as of :func:`fedrank.privacy.accounts.vectors.vectors`.

        Raises:
            ConfigError: There is no noise to account for.
        """
        return value_account(
            mechanism=self.mechanism,
            scale=self.scale(candidates),
            sensitivity=self.sensitivity(candidates),
            unit=self.clip / self.steps,
            vector_delta=self.delta,
            rounds=rounds,
            delta=delta,
            replay=replay,
        )
