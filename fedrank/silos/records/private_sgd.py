"""DP-SGD at a silo, its account, and noise on the AUCs of a target: what hides each record in a run of networks.

Local training hides each of the silo's rows (Abadi et al., CCS 2016, Algorithm 1). One step, with q = B/n the
probability that a row is drawn and C the longest gradient of one row::

    batch     every row with probability q, each by itself
    each row  g ← ∇ loss(θ; row),  g ← g · min(1, C/‖g‖)
    θ ← θ − η (Σ g + z C · noise) / (q n)  − η λ θ

Noise is a whole number on a grid: each row's gradient is rounded to the grid before the sum, which is exact then, and
discrete Gaussian noise is added. No bit of a floating-point number tells what was added, and the order of the sum does
not matter. Rounding and single precision lengthen a gradient a little; the grid is chosen so that z is kept. Where a
normalisation looks at a batch, one row changes what is computed of all others: there is no batch norm here.

**Account.** In each step every row is in the batch with probability q (Poisson sampling); two tables that differ in one
row's place then give sums that lie, in the worst case, C on this and C on that side of what the other rows give, with
probability q: normal distributions N(0, z²) mixed with N(1, z²), or with N(−1, z²). Their privacy loss distribution,
composed over all steps, is dp-accounting's (*Connect the dots*: Doroshenko et al., PoPETs 2022), which errs on the safe
side only. Noise is drawn on a grid; the moments of its privacy loss are those of continuous noise (Canonne, Kamath and
Steinke, NeurIPS 2020).

**AUCs of a target.** All of a run together have a record's ε. How many validation rows have each label is public. A
record in the place of another one of its label moves an AUC by at most one part in the number of rows of the rarer
label; m of them by √m times that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int32, UInt32
from typing_extensions import override

from fedrank.core.errors import ConfigError
from fedrank.core.streams import fold_words, normals, stream
from fedrank.privacy.calibration import concentrated_epsilon, gaussian_sigma
from fedrank.privacy.noise.arrays import exact_gaussian
from fedrank.privacy.randomised_response import os_words
from fedrank.silos.config import RecordPrivacy
from fedrank.silos.data.splits import Rows
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import Gradient

#: Grid of the privacy loss, in nats.
_GRID = 1e-3
#: Part of δ for steps in which more rows are drawn than there is room for.
_CROWDED = 0.01
#: Noise multipliers among which one is looked for.
_LEAST, _MOST = 0.2, 1e5


def privacy_loss(multiplier: float, share: float, steps: int) -> Any:
    """Privacy loss distribution (dp-accounting) of ``steps`` steps for one record in another's place.

    Arguments as of :func:`sgd_epsilon`.
    """
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
    """ε at δ of a record in ``steps`` steps of DP-SGD.

    Args:
        multiplier: z, deviation of the noise in units of the longest gradient of a row.
        share: q, probability of a row to be in a step's batch, in (0, 1].
        steps: Steps, ≥ 0.
        delta: δ in (0, 1).
    """
    if steps == 0:
        return 0.0
    return float(privacy_loss(multiplier, share, steps).get_epsilon_for_delta(delta * (1 - _CROWDED)))


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


#: σ of the noise in steps of the grid.
SIGMA = 2**17
#: The noise is a draw with σ = _FINE plus _TIMES times another draw; both have tables.
_FINE, _TIMES = 2**10, 2**6
#: σ of noise with which sums must fit into 31 bits.
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
    """Rounded normal noise of σ = :data:`SIGMA`, [keys..., shape...]: for simulations, it protects no record."""
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
        privacy: ε of a record, in nats, of all that a silo trains in a run, with its δ; C, longest gradient of one row.
        trainings: Trainings of a silo in the run, that before the first round included.
        multipliers: Number of rows of a silo, and z for it; see :meth:`for_rows`.
        elsewhere: The rows lie at silos that a server does not see: each makes its own noise, of the size that ε needs.

    Raises:
        ConfigError: A setting is out of range, or the network has batch norm.
    """

    privacy: RecordPrivacy = field(default_factory=lambda: RecordPrivacy(epsilon=8.0))
    trainings: int = 1
    multipliers: tuple[tuple[int, float], ...] = ()
    elsewhere: bool = False

    draws_noise = True

    @override
    def __post_init__(self):
        super().__post_init__()
        if self.trainings < 1:
            raise ConfigError(f"trainings must be at least 1, got {self.trainings}.")
        if self.network.norm == "batch":
            raise ConfigError(
                "batch norm mixes the rows of a batch, so that no gradient belongs to one record: with a record's ε "
                "take network.norm = 'layer' or 'none'."
            )

    @property
    def epsilon(self) -> float:
        """ε of one record over the whole run, in nats, above 0."""
        assert self.privacy.epsilon is not None  # else there is no noise
        return self.privacy.epsilon

    def share(self, rows: int) -> float:
        """q, the probability that one of ``rows`` rows is in a step's batch."""
        return min(1.0, self.batch / rows)

    def steps(self, rows: int, trainings: int = 1) -> int:
        """Steps of ``trainings`` trainings of a silo of ``rows`` rows."""
        return trainings * self.epochs * -(-rows // min(self.batch, rows))

    @override
    def for_rows(self, counts: set[int]) -> PrivateSgd:
        """The same with the noise that silos of these numbers of rows need.

        Raises:
            ConfigError: There is no such noise, or numbers would not fit.
        """
        found = []
        for rows in sorted(counts):
            z = noise_multiplier(self.share(rows), self.steps(rows, self.trainings), self.epsilon, self.privacy.delta)
            found.append((rows, z))
            longest = SIGMA / z
            if longest <= 4 * math.sqrt(self.network.trainable):
                raise ConfigError(
                    f"a network of {self.network.trainable:,} numbers is too large for noise of {z:.3g} times a row's "
                    "gradient; take fewer or narrower layers, fewer rounds, or a larger ε."
                )
            if self._room(rows) * longest + _FAR * SIGMA >= 2**31:
                raise ConfigError(f"{rows:,} rows of a silo are too many for one sum; take a smaller network.batch.")
        return replace(self, multipliers=tuple(found), elsewhere=False)

    @override
    def for_server(self) -> PrivateSgd:
        return replace(self, elsewhere=True)

    @override
    def without_noise(self) -> LocalSgd:
        return LocalSgd(self.network, self.epochs, self.batch, self.learning_rate, self.weight_decay)

    @override
    def noise_on_judgements(self, values: int) -> NoisyJudgements:
        return NoisyJudgements(self.epsilon, self.privacy.delta, values)

    def _room(self, rows: int) -> int:
        return room(rows, self.share(rows), self.steps(rows, self.trainings), self.epsilon, self.privacy.delta)

    @override
    def draw(self, keys: UInt32[np.ndarray, "silos 2"], shape: tuple[int, int]) -> Draws:
        steps, rows = self.steps(shape[1], shape[0] // self.epochs), shape[1]
        bits = stream(fold_words(keys, 0), steps * rows).reshape(-1, steps, rows)
        return Draws(bits, simulated_noise(fold_words(keys, 1), (steps, self.network.trainable)))

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
        clip = np.float32(self.privacy.clip)
        grid = clip / length * np.float32(1 + (net.trainable + 10) * 2.0**-23)
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
            slopes *= np.minimum(np.float32(1), clip / np.maximum(norm, np.float32(1e-30)))[..., None]
            whole = np.where(there[..., None], np.rint(slopes / grid), np.float32(0)).astype(np.int32)
            total = (whole.sum(axis=1, dtype=np.int32) + draws.noise[:, step]).astype(np.float32) * grid
            models -= np.float32(self.learning_rate) * (total / drawn + np.float32(self.weight_decay) * models)
        return models


@lru_cache(maxsize=64)
def _multiple(epsilon: float, delta: float) -> float:
    return gaussian_sigma(epsilon, delta, 1.0)


@dataclass(frozen=True)
class NoisyJudgements:
    """Noise on AUCs.

    Attributes:
        epsilon: ε of a record, in nats, of all AUCs of the run.
        delta: δ.
        values: How many AUCs the target tells in the run at most.
    """

    epsilon: float
    delta: float
    values: int

    @property
    def length(self) -> float:
        """Distance that a record moves one AUC, in steps of the grid on which σ is :data:`SIGMA`."""
        return SIGMA / (_multiple(self.epsilon, self.delta) * math.sqrt(self.values))

    def add_noise(
        self, values: Float[np.ndarray, "#silos models"], rows: Rows, noise: Int32[np.ndarray, "silos models"]
    ) -> Float[np.ndarray, "silos models"]:
        """The AUCs with noise, in [0, 1]; of rows of one label, of which there is none, one half with noise.

        Whether a label is missing may depend on one record, so that neither a refusal nor a mark may say it.

        Args:
            values: AUCs of models on each target's validation rows.
            rows: These rows.
            noise: Whole numbers of σ = :data:`SIGMA`.
        """
        positive = np.sum(rows.where & (rows.y > 0.5), axis=-1)
        rarer = np.maximum(np.minimum(positive, rows.n - positive), 1).astype(np.float32)
        grid = (1 / (rarer * np.float32(self.length - 1)))[:, None]  # rounding moves numbers apart by one step at most
        values = np.where(np.isfinite(values), values, np.float32(0.5))
        return np.clip((np.rint(values / grid) + noise.astype(np.float32)) * grid, 0, 1).astype(np.float32)

    def spent(self, values: int, delta: float) -> float:
        """ε of a validation row, in nats, of all AUCs that the target told.

        Args:
            values: How many AUCs it told, at least 0. By zero-concentrated differential privacy they cost
                values · Δ²/2, where Δ is how far a row moves one AUC, in units of the noise's deviation.
            delta: δ, in (0, 1).
        """
        return concentrated_epsilon(values * (self.length / SIGMA) ** 2 / 2, delta) if values else 0.0
