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
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int32, UInt32
from typing_extensions import override

from fedrank.core.errors import ConfigError
from fedrank.core.streams import folded, normals, stream
from fedrank.privacy.noise.arrays import exact_gaussian
from fedrank.privacy.randomised_response import os_words
from fedrank.silos.data.rows import Rows
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import Gradient
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

    batches: UInt32[np.ndarray, "*silos steps rows"]
    noise: Int32[np.ndarray, "*silos steps trainable"]


def simulated_noise(keys: UInt32[np.ndarray, "*keys 2"], shape: tuple[int, ...]) -> Int32[np.ndarray, "..."]:
    """Rounded normal noise of σ = :data:`SIGMA`, [*keys, *shape]: for simulations, it protects no record."""
    numbers = normals(stream(keys, math.prod(shape))).reshape(*keys.shape[:-1], *shape)
    return np.rint(np.float32(SIGMA) * numbers).astype(np.int32)


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
    def draw(self, keys: UInt32[np.ndarray, "silos 2"], shape: tuple[int, int]) -> Draws:
        steps, rows = self.steps(shape[1], shape[0] // self.epochs), shape[1]
        bits = stream(folded(keys, 0), steps * rows).reshape(-1, steps, rows)
        return Draws(bits, simulated_noise(folded(keys, 1), (steps, self.network.trainable)))

    @override
    def draw_from_os(self, shape: tuple[int, int]) -> Draws:
        steps, rows = self.steps(shape[1], shape[0] // self.epochs), shape[1]
        return Draws(os_words((steps, rows)), os_noise((steps, self.network.trainable)))

    @override
    def train(
        self, models: Float[np.ndarray, "silos size"], rows: Rows, draws: Draws, stepper: Any = None
    ) -> Float32[np.ndarray, "silos size"]:
        """Models after E epochs; NaN, which the server leaves out, for a number of rows not among ``multipliers``.

        Args:
            models: The models to start from.
            rows: Training rows of each silo: leading axis [silos].
            draws: As :meth:`draw` has them, [silos, …].
            stepper: Not here.
        """
        if stepper is not None:
            raise ConfigError("a record's ε is not known of this method's training; take fedavg or bandit-fedavg.")
        out, known = np.array(models, np.float32), dict(self.multipliers)
        counts = np.asarray(rows.n)
        with np.errstate(all="ignore"):
            for n in np.unique(counts[counts > 0]).tolist():
                (same,) = np.nonzero(counts == n)
                if n not in known:
                    out[same] = np.nan
                    continue
                mine = Rows(rows.x[same, :n], rows.y[same, :n], counts[same])
                steps = self.steps(n)
                some = Draws(draws.batches[same, :steps, :n], draws.noise[same, :steps])
                out[same] = self._train_together(out[same], mine, some, known[n])
        return out

    def _train_together(
        self, models: Float32[np.ndarray, "silos size"], rows: Rows, draws: Draws, multiplier: float
    ) -> Float32[np.ndarray, "silos size"]:
        """:meth:`train` of silos with equally many rows; ``models`` is changed and returned."""
        net, n = self.network, rows.x.shape[1]
        # A gradient's length in steps of the grid: rounding moves it by √d/2 at most, single precision by a little.
        length = np.float32(SIGMA) / np.float32(multiplier) - np.float32(0.5 * math.sqrt(net.trainable))
        grid = np.float32(self.clip) / length * np.float32(1 + (net.trainable + 10) * 2.0**-23)
        drawn = np.float32(min(self.batch, n))
        share = drawn / np.float32(n)
        width = self._room(n)
        chance = np.uint32(min(share, np.float32(1 - 2.0**-24)) * np.float32(2.0**32))
        for step in range(draws.noise.shape[1]):
            chosen = np.ones(rows.y.shape, bool) if share >= 1 else draws.batches[:, step] < chance
            most = min(width, int(chosen.sum(axis=1).max()))
            first = np.argsort(~chosen, axis=1, kind="stable")[:, :most]
            each = np.arange(len(models))[:, None]
            # Every row is a batch by itself; the model is the same for all rows of a silo.
            views = np.broadcast_to(models[:, None], (len(models), most, net.size))
            slopes = Gradient(net, views)(rows.x[each, first][:, :, None], rows.y[each, first][:, :, None] > 0.5)
            norm = np.sqrt(np.sum(slopes * slopes, axis=-1))
            there = chosen[each, first] & np.isfinite(norm)
            slopes *= np.minimum(np.float32(1), np.float32(self.clip) / np.maximum(norm, np.float32(1e-30)))[..., None]
            whole = np.where(there[..., None], np.rint(slopes / grid), np.float32(0)).astype(np.int32)
            total = (whole.sum(axis=1, dtype=np.int32) + draws.noise[:, step]).astype(np.float32) * grid
            models -= np.float32(self.learning_rate) * (total / drawn + np.float32(self.weight_decay) * models)
        return models
