"""Noise for sketches of documents, which a silo adds before another silo may read its counts.

What is protected is **one occurrence**: one appearance of one word in one document is added or removed (Definition 5 of
Shi et al., 2021). It lies in one field of one document. It changes

* the sketch of that field by 1 in each of its z rows: z in L1 and √z in L2;
* the field's length by 1 and its number of different words by at most 1: 2 in L1, √2 in L2;
* the silo's document-frequency sketch and its sketch of all occurrences by at most 1 in each of z rows, and the silo's
  number of occurrences by 1: 2z + 1 in L1, √(2z + 1) in L2.

A word replaced by another is two occurrences and costs twice ε. A whole document is not covered.

Two modes:

*publish-once*   Every sketch gets noise once and is handed out. Whatever is looked up in it is post-processing and
                 costs nothing more. ε is that of an occurrence, once and for all; three shares of
                 it go to sketches, sizes and statistics (after Pagh and Thorup, *Improved Utility Analysis of Private
                 CountSketch*, NeurIPS 2022).

*plain*          No noise.

Noise from ``rng=None`` comes from the operating system, by the exact samplers of :mod:`fedrank.privacy.noise.arrays`
wherever it promises anything; that is what a deployed silo uses. Noise from a generator is for simulations, where it is
no protection.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from jaxtyping import Int32, Int64, Integer

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import DELTA
from fedrank.privacy.calibration import gaussian_sigma, laplace_scale
from fedrank.privacy.noise.arrays import drawn, exact_gaussian, exact_laplace
from fedrank.texts.config import MODES

#: Kinds of noise on integers.
MECHANISMS = ("laplace", "gaussian")

#: What of an occurrence's ε goes to what a silo hands out. Counts of single documents are small and need most.
SHARES = {"sketches": 0.8, "sizes": 0.1, "statistics": 0.1}

#: By how much an occurrence changes a field's length and its number of different words together, in L1.
SIZES_CHANGE = 2

#: Cells that get their noise together.
_AT_ONCE = 2**18

_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class SketchNoise:
    """The noise of one mode.

    Attributes:
        mode: One of :data:`fedrank.texts.config.MODES`.
        epsilon: ε > 0 in nats of an occurrence in total. None exactly if plain.
        z: Rows of a document's sketch: the cells that one occurrence changes.
        mechanism: ``"laplace"`` or ``"gaussian"``.
        delta: δ of Gaussian noise.
        shares: What of ε goes to ``"sketches"``, ``"sizes"`` and ``"statistics"``; they sum to 1. For Gaussian noise
            they are shares of ρ.
        statistics_change: L1 distance by which an occurrence changes a silo's statistics, each by 1 at most; 2z + 1 if
            None.

    Raises:
        ConfigError: A setting is unknown, out of range or contradicts the mode.
    """

    mode: str
    epsilon: float | None
    z: int
    mechanism: str = "laplace"
    delta: float = DELTA
    shares: Mapping[str, float] = field(default_factory=lambda: dict(SHARES), hash=False)
    statistics_change: int | None = None

    modes: ClassVar[Collection[str]] = MODES

    def __post_init__(self) -> None:
        if self.mode not in self.modes or self.mechanism not in MECHANISMS:
            raise ConfigError(
                f"mode must be one of {', '.join(self.modes)} and mechanism one of {', '.join(MECHANISMS)}, "
                f"got {self.mode!r} and {self.mechanism!r}."
            )
        if (self.epsilon is None) != (self.mode == "plain"):
            raise ConfigError(f"epsilon must be given, except in mode plain; got {self.epsilon} in mode {self.mode}.")
        if self.epsilon is not None and not 0.0 < self.epsilon < math.inf:
            raise ConfigError(f"epsilon must be positive and finite, got {self.epsilon}.")
        if self.z < 1 or not 0.0 < self.delta < 1.0:
            raise ConfigError(f"z must be at least 1 and delta in (0, 1), got {self.z} and {self.delta}.")
        if set(self.shares) != set(SHARES) or min(self.shares.values()) <= 0 or sum(self.shares.values()) > 1 + 1e-12:
            raise ConfigError(
                f"shares must be positive, for {', '.join(SHARES)}, and sum to 1 at most, got {dict(self.shares)}."
            )
        if self.statistics_change is not None and self.statistics_change < 1:
            raise ConfigError(f"statistics_change must be at least 1, got {self.statistics_change}.")

    def change(self, what: str) -> int:
        """L1 sensitivity to one occurrence; its square root is the L2 sensitivity.

        Args:
            what: ``"sketches"``, ``"sizes"`` or ``"statistics"``.
        """
        statistics = 2 * self.z + 1 if self.statistics_change is None else self.statistics_change
        return {"sketches": self.z, "sizes": SIZES_CHANGE, "statistics": statistics}[what]

    def part(self, what: str) -> float:
        """The part of ε (of ρ, for Gaussian noise) that all of ``what`` costs.

        Args:
            what: ``"sketches"``, ``"sizes"`` or ``"statistics"``.
        """
        return self.shares[what]

    def scale(self, what: str = "sketches") -> float | None:
        """Scale of Laplace noise, or σ of Gaussian noise, in each number of ``what``; None where there is no noise.

        Args:
            what: ``"sketches"`` (cells), ``"sizes"`` or ``"statistics"``.

        >>> SketchNoise("publish-once", epsilon=0.5, z=30).scale()
        75.0
        """
        distance = self.change(what)
        if self.epsilon is None:
            return None
        if self.mechanism == "laplace":
            return laplace_scale(self.epsilon * self.part(what), distance)
        # σ² of a part p of ρ is σ²/p: ρ = (Δ/σ)²/2.
        return _sigma(self.epsilon, self.delta, math.sqrt(distance / self.part(what)))

    def publish(
        self, sketches: Integer[np.ndarray, "documents z w"], rng: np.random.Generator | None = None
    ) -> Int32[np.ndarray, "documents z w"]:
        """Sketches with noise, to be handed out once and never drawn again; values are clipped to 32 bits.

        Args:
            sketches: Sketches of one field.
            rng: A simulation's generator; None for the operating system's randomness.

        Raises:
            ConfigError: The sketches have another number of rows.
        """
        if sketches.ndim != 3 or sketches.shape[1] != self.z:
            raise ConfigError(f"sketches must be [documents, z = {self.z}, w], got {list(sketches.shape)}.")
        published = np.empty(sketches.shape, np.int32)
        some = max(1, _AT_ONCE * len(sketches) // max(1, sketches.size))
        for start in range(0, len(sketches), some):  # noise of all at once would take twice their memory
            part = slice(start, start + some)
            noisy = sketches[part] + self.draw("sketches", sketches[part].shape, rng)
            published[part] = np.clip(noisy, _INT32.min, _INT32.max)
        return published

    def sizes(
        self, sizes: Integer[np.ndarray, "*lead 2"], rng: np.random.Generator | None = None
    ) -> Int64[np.ndarray, "*lead 2"]:
        """Lengths and numbers of different words with noise, to be handed out once; they may be negative.

        Args:
            sizes: Length and number of different words of fields of documents.
            rng: A simulation's generator; None for the operating system's randomness.
        """
        return sizes + self.draw("sizes", sizes.shape, rng)

    def draw(self, what: str, shape: tuple[int, ...], rng: np.random.Generator | None) -> Int64[np.ndarray, " ..."]:
        """Noise alone; zeros where the mode has none.

        Args:
            what: ``"sketches"``, ``"sizes"`` or ``"statistics"``.
            shape: Shape of what it is added to.
            rng: A simulation's generator; None for the operating system's randomness.
        """
        scale = self.scale(what)
        if scale is None:
            return np.zeros(shape, np.int64)
        if rng is not None:
            return drawn(rng, self.mechanism, scale, shape)
        return (exact_laplace if self.mechanism == "laplace" else exact_gaussian)(scale, shape)


@functools.lru_cache(maxsize=256)
def _sigma(epsilon: float, delta: float, distance: float) -> float:
    return gaussian_sigma(epsilon, delta, distance)  # a search, and every block of noise asks


def statistics_noise(
    noise: SketchNoise, shape: int | tuple[int, ...], rng: np.random.Generator | None = None
) -> Int64[np.ndarray, " ..."]:
    """Noise that a silo adds to its statistics (sketches of document frequencies and occurrences, number of words).

    Each silo adds all of the noise that protects its own occurrences, with a secure sum or without one. The sum then
    has the noise of all silos, and no silo has to trust another to add its part.

    Args:
        noise: The mode and its settings.
        shape: Shape of the statistics, all of them or a part; parts are drawn independently at the same scale.
        rng: A simulation's generator; None for the operating system's randomness.
    """
    return noise.draw("statistics", (shape,) if isinstance(shape, int) else shape, rng)
