"""DP-SGD at a silo: local training whose outcome hides each of the silo's rows (Abadi et al., CCS 2016, Algorithm 1).

One step, with q = B/n the probability that a row is drawn and C the longest gradient of one row::

    batch     every row with probability q, each by itself
    each row  g ← ∇ loss(θ; row),  g ← g · min(1, C/‖g‖)
    θ ← θ − η (Σ g + z C · noise) / (q n)  − η λ θ

Noise is a whole number on a grid: each row's gradient is rounded to the grid before the sum, which is exact then, and
discrete Gaussian noise is added. No bit of a floating-point number tells what was added, and the order of the sum does
not matter. Rounding and single precision lengthen a gradient a little; the grid is chosen so that z is kept.

Where a normalisation looks at a batch, one row changes what is computed of all others: there is no batch norm here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int32, Key, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.privacy.noise.arrays import exact_gaussian
from fedrank.privacy.randomised_response import os_words
from fedrank.silos.data.rows import Rows
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.records.sgd import noise_multiplier, room

#: σ of the noise in steps of the grid.
SIGMA = 2**17
#: It is drawn as one draw, of this σ, and so many times another one; both have tables.
_FINE, _TIMES = 2**10, 2**6
#: Sums must fit into 31 bits with noise of so many σ.
_FAR = 12


class Draws(NamedTuple):
    """Random numbers of one training.

    Attributes:
        batches: Random bits, by which each row is in a step's batch or not.
        noise: Noise of each step, in steps of the grid.
    """

    batches: UInt32[AnyArray, "steps rows"]
    noise: Int32[AnyArray, "steps trainable"]


def simulated_noise(key: Key[Array, ""], shape: tuple[int, ...]) -> Int32[AnyArray, "..."]:
    """Rounded normal noise of σ = :data:`SIGMA`: for simulations, it protects nobody."""
    return jnp.round(SIGMA * jax.random.normal(key, shape, jnp.float32)).astype(jnp.int32)


def os_noise(shape: tuple[int, ...]) -> Int32[np.ndarray, "..."]:
    """Discrete Gaussian noise of σ = :data:`SIGMA`, from the operating system's randomness.

    X + 64 Y of discrete Gaussian X and Y is discrete Gaussian, of σ² = σ_X² + 64² σ_Y², up to a relative error of
    about e^(−2π² σ_X²/64²), far below what any number here can hold (Micciancio and Peikert, CRYPTO 2013, Theorem 3.3).
    """
    coarse = math.sqrt(SIGMA**2 - _FINE**2) / _TIMES
    return (exact_gaussian(float(_FINE), shape) + _TIMES * exact_gaussian(coarse, shape)).astype(np.int32)


@dataclass(frozen=True)
class PrivateSgd(LocalSgd):
    """Local training with a record's (ε, δ) over the whole run.

    Attributes:
        epsilon: ε of a record, in nats, of all that a silo trains in a run.
        delta: δ of it.
        clip: C, longest gradient of one row.
        trainings: Trainings of a silo in the run, that before the first round included.
        multipliers: Number of rows of a silo, and z for it; see :meth:`for_rows`.
        elsewhere: The rows lie at silos that a server does not see: each makes its own noise, of the size that ε needs.

    Raises:
        ConfigError: A setting is out of range, or the network has batch norm.
    """

    epsilon: float = 8.0
    delta: float = 1e-6
    clip: float = 1.0
    trainings: int = 1
    multipliers: tuple[tuple[int, float], ...] = ()
    elsewhere: bool = False

    draws_noise = True

    @override
    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.epsilon <= 100 or not 0 < self.delta < 0.1:
            raise ConfigError(
                "epsilon of a record must be above 0 and at most 100, and delta above 0 and below 0.1, got "
                f"{self.epsilon:g} and {self.delta:g}."
            )
        if not 0 < self.clip < 1e6 or self.trainings < 1:
            raise ConfigError(
                f"clip must be positive and finite, and trainings at least 1, got {self.clip:g} and {self.trainings}."
            )
        if self.network.norm == "batch":
            raise ConfigError(
                "batch norm mixes the rows of a batch, so that no gradient belongs to one record: with a record's ε "
                "take network.norm = 'layer' or 'none'."
            )

    def share(self, rows: int) -> float:
        """q, the probability that a row of so many is in a step's batch."""
        return min(1.0, self.batch / rows)

    def steps(self, rows: int, trainings: int = 1) -> int:
        """Steps of so many trainings of a silo of so many rows."""
        return trainings * self.epochs * -(-rows // min(self.batch, rows))

    def for_rows(self, counts: set[int]) -> PrivateSgd:
        """The same with the noise that silos of these numbers of rows need.

        Raises:
            ConfigError: There is no such noise, or numbers would not fit.
        """
        found = []
        for rows in sorted(counts):
            z = noise_multiplier(self.share(rows), self.steps(rows, self.trainings), self.epsilon, self.delta)
            found.append((rows, z))
            longest = SIGMA / z
            if longest <= 4 * math.sqrt(self.network.trainable):
                raise ConfigError(
                    f"a network of {self.network.trainable:,} numbers is too large for noise of {z:.3g} times a row's "
                    "gradient; take fewer or narrower layers, fewer rounds, or a larger ε."
                )
            if self._room(rows) * longest + _FAR * SIGMA >= 2**31:
                raise ConfigError(f"{rows:,} rows of a silo are too many for one sum; take a smaller network.batch.")
        return replace(self, multipliers=tuple(found))

    def without_noise(self) -> LocalSgd:
        """Local training of the same network with the same settings and no noise, for what stays at a silo."""
        return LocalSgd(**{f.name: getattr(self, f.name) for f in fields(LocalSgd)})

    def _room(self, rows: int) -> int:
        return room(rows, self.share(rows), self.steps(rows, self.trainings), self.epsilon, self.delta)

    @override
    def draw(self, key: Key[Array, ""], shape: tuple[int, int]) -> Draws:
        first, second = jax.random.split(key)
        steps, rows = self.steps(shape[1], shape[0] // self.epochs), shape[1]
        return Draws(
            jax.random.bits(first, (steps, rows), jnp.uint32),
            simulated_noise(second, (steps, self.network.trainable)),
        )

    @override
    def draw_from_os(self, shape: tuple[int, int]) -> Draws:
        steps, rows = self.steps(shape[1], shape[0] // self.epochs), shape[1]
        return Draws(jnp.asarray(os_words((steps, rows))), jnp.asarray(os_noise((steps, self.network.trainable))))

    @override
    def train(  # type: ignore[override] - other random numbers
        self,
        weights: Float[AnyArray, " size"],
        rows: Rows,
        rng_bits: Draws,
        *,
        penalty: Callable[[Float[AnyArray, " trainable"]], Float[AnyArray, ""]] | None = None,
        frozen: Bool[AnyArray, " trainable"] | None = None,
    ) -> Float[AnyArray, " size"]:
        """The model after E epochs; NaN, which is not heard, for a number of rows that is not among ``multipliers``.

        Args:
            weights: The model to start from.
            rows: The silo's training rows: x [rows, features], y [rows], n.
            rng_bits: As :meth:`draw` has them.
            penalty: Not here.
            frozen: Not here.
        """
        if penalty is not None or frozen is not None:
            raise ConfigError("a record's ε is not known of this method's training; take fedavg or bandit-fedavg.")
        rows = Rows(*(jnp.asarray(leaf) for leaf in rows))
        net, most = self.network, rows.x.shape[0]
        valid = jnp.arange(most) < rows.n
        z = jnp.float32(jnp.nan)
        for count, multiplier in self.multipliers:
            z = jnp.where(rows.n == count, jnp.float32(multiplier), z)
        # A gradient's length in steps of the grid: rounding moves it by √d/2 at most, single precision by a little.
        length = SIGMA / z - 0.5 * math.sqrt(net.trainable)
        grid = self.clip / length * (1 + (net.trainable + 10) * 2.0**-23)
        drawn = jnp.minimum(self.batch, rows.n).astype(jnp.float32)
        share = drawn / jnp.maximum(rows.n, 1)
        width = max((self._room(count) for count, _ in self.multipliers), default=most)
        batches = self.epochs * -(-rows.n // jnp.maximum(jnp.minimum(self.batch, rows.n), 1))

        def gradient(trainable, x, y):
            return jax.grad(lambda t: net.loss(t, x[None], y[None], jnp.ones(1, bool))[0])(trainable)

        def step(model, given):
            number, bits, noise = given
            chosen = valid & ((share >= 1) | (bits < (share * 2.0**32).astype(jnp.uint32)))
            first = jnp.argsort(~chosen, stable=True)[:width]
            each = jax.vmap(gradient, in_axes=(None, 0, 0))(model, rows.x[first], rows.y[first])
            norm = jnp.linalg.norm(each, axis=1)
            there = chosen[first] & jnp.isfinite(norm)
            short = each * jnp.minimum(1.0, self.clip / jnp.maximum(norm, 1e-30))[:, None]
            whole = jnp.where(there[:, None], jnp.round(short / grid), 0.0).astype(jnp.int32)
            total = (jnp.sum(whole, axis=0) + noise).astype(jnp.float32) * grid
            moved = model - self.learning_rate * (total / drawn + self.weight_decay * model)
            return jnp.where((number < batches) & (rows.n > 0), moved, model), None

        numbers = jnp.arange(rng_bits.noise.shape[0])
        return jax.lax.scan(step, weights, (numbers, *rng_bits))[0]
