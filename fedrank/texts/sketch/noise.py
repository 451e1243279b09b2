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

The account is the ε of one occurrence of a word in the noisy counts that a silo hands out. What
silos do with each other's counts, features and training included, is post-processing of what was handed out. What a
silo computes from its *own* documents and judgements without noise, as the models that it sends in training, is not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Int32, Int64, Integer

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import (
    BASIC,
    DELTA,
    EVERYBODY,
    KNOWN_RANDOMNESS,
    NOBODY,
    SIMULATION,
    AuditedBy,
    PrivacyReport,
    Promise,
    Unit,
    remark,
)
from fedrank.privacy.calibration import concentrated_epsilon, gaussian_sigma, laplace_scale
from fedrank.privacy.noise.arrays import drawn, exact_gaussian, exact_laplace
from fedrank.texts.config import MODES

#: What noise is drawn from: a simulation's generator, or None, the operating system.
Source = np.random.Generator | None

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
        self, sketches: Integer[np.ndarray, "documents z w"], rng: Source = None
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

    def sizes(self, sizes: Integer[np.ndarray, "*lead 2"], rng: Source = None) -> Int64[np.ndarray, "*lead 2"]:
        """Lengths and numbers of different words with noise, to be handed out once; they may be negative.

        Args:
            sizes: Length and number of different words of fields of documents.
            rng: A simulation's generator; None for the operating system's randomness.
        """
        return sizes + self.draw("sizes", sizes.shape, rng)

    def draw(self, what: str, shape: tuple[int, ...], rng: Source) -> Int64[np.ndarray, " ..."]:
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


def statistics_noise(noise: SketchNoise, shape: int | tuple[int, ...], rng: Source = None) -> Int64[np.ndarray, " ..."]:
    """Noise that a silo adds to its statistics (sketches of document frequencies and occurrences, number of words).

    Each silo adds all of the noise that protects its own occurrences, with a secure sum or without one. The sum then
    has the noise of all silos, and no silo has to trust another to add its part.

    Args:
        noise: The mode and its settings.
        shape: Shape of the statistics, all of them or a part; parts are drawn independently at the same scale.
        rng: A simulation's generator; None for the operating system's randomness.
    """
    return noise.draw("statistics", (shape,) if isinstance(shape, int) else shape, rng)


#: What no account of sketches covers.
NOT_COVERED = (
    "Whole documents, and anything that many words of a document show together: for that, multiply by the number of "
    "occurrences.",
    "How many documents, queries, query words, training rows and cross pairs a silo has, which documents there are, "
    "and when they are added or taken away.",
    KNOWN_RANDOMNESS,
    SIMULATION,
    "Documents that go out a second time: after a change, with noise drawn anew, everything here is spent again.",
)

#: What training adds to it.
TRAINING = (
    "The models and steps that a silo sends in training, and, where features are scaled by all silos, sums of its "
    "features before it. They are made from its own documents, queries and judgements, without noise."
)

_COVERS = (
    "One occurrence of a word in a document: its trace in the silo's sketches, in the document's length and number "
    "of different words, and in the silo's document frequencies and counts of all occurrences.",
    "Against all other silos together and the server, also if they know the secret of the hashes and every other "
    "word of the document, and whatever they compute from what they got.",
    "A word replaced by another, at twice ε.",
)


def sketch_account(noise: SketchNoise, *, occurrences: int = 0, training: bool = True) -> PrivacyReport:
    """The privacy account of a mode.

    Args:
        noise: The mode and its settings.
        occurrences: Number of words of the longest document.
        training: Whether silos send models trained on their own documents.

    Raises:
        ConfigError: The number of words is negative.

    >>> from fedrank.texts.sketch.noise import SketchNoise
    >>> report = sketch_account(SketchNoise("publish-once", epsilon=8.0, z=30), occurrences=300)
    >>> [report.epsilon(unit) for unit in (Unit.OCCURRENCE, Unit.REPLACED_WORD, Unit.DOCUMENT)]
    [8.0, 16.0, 2400.0]
    """
    if occurrences < 0:
        raise ConfigError(f"occurrences must be at least 0, got {occurrences}.")
    gaussian, plain = noise.mechanism == "gaussian", noise.epsilon is None
    delta, distance = noise.delta if gaussian else 0.0, noise.change("sketches")
    tight = "concentrated differential privacy" if gaussian else BASIC
    all_in_all = _total(noise, 1)
    promises = (
        *(Promise(Unit.OCCURRENCE, _part(noise, what), delta, scope=what) for what in SHARES),
        Promise(Unit.OCCURRENCE, all_in_all, delta, tight),
        Promise(Unit.REPLACED_WORD, _total(noise, 2), delta, tight),
        Promise(Unit.DOCUMENT, _total(noise, occurrences), delta, tight),
        *(() if training else (Promise(Unit.ROUND, all_in_all, delta, tight),)),
    )
    report = PrivacyReport(
        mechanism="no noise" if plain else f"discrete {'Gaussian' if gaussian else 'Laplace'} noise",
        trust=EVERYBODY if plain else NOBODY,
        promises=promises,
        covers=() if plain else _COVERS,
        not_covered=(
            *(("Anything: counts go out as they are.",) if plain else ()),
            *((TRAINING,) if training else ()),
            *NOT_COVERED,
        ),
        details={
            "mode": noise.mode,
            "scale": noise.scale(),
            "sensitivity": math.sqrt(distance) if gaussian else float(distance),
            "occurrences": occurrences,
            "training": training,
            "delta": noise.delta,
        },
    )
    audit = None if plain or gaussian else AuditedBy("published-sketch", {"epsilon": noise.epsilon})
    return replace(report, words=(_paragraph(report),), audit=audit)


def _paragraph(report: PrivacyReport) -> str:
    """A paragraph for people who decide whether this may be deployed."""
    epsilon, got = report.epsilon, report.details
    if got["mode"] == "plain":
        return "Sketches have no noise. Whoever knows the secret of the hashes reads the counts of every word."
    low, at = epsilon(Unit.OCCURRENCE), f" at δ = {got['delta']:.0e}"
    gaussian = "Gaussian" in report.mechanism
    noise = f"{report.mechanism} of {'σ' if gaussian else 'scale'} {got['scale']:.4g}"
    models = ", and the models that silos train on their own documents and send without noise"
    return (
        f"Every sketch is published once with {noise} in each cell, and so are sizes and statistics. Whatever is "
        "looked up in them, by whom and how often, one occurrence of a word makes it at most e^ε times as likely, "
        f"with ε = {low:.4g}{at if gaussian else ''}, once and for all. Another silo "
        "reads most words of a document at ε = 4 and more, and tells whether a text is there at 0.4 and more; at "
        "0.2 it was not seen to, on four collections (fedrank privacy attack documents, fedrank-zoo). The server, "
        "which passes on sealed bytes, reads none. "
        f"A replaced word costs {epsilon(Unit.REPLACED_WORD):.4g}.{remark(low, limit=3.0)} Not covered, among "
        f"other things: whole documents (of {got['occurrences']:,} words, the bound would be "
        f"ε = {epsilon(Unit.DOCUMENT):.4g}){models if got['training'] else ''}."
    )


def _part(noise: SketchNoise, what: str) -> float:
    """ε of what is handed out once: sketches, sizes or statistics."""
    if noise.epsilon is None:
        return math.inf
    if noise.mechanism == "laplace":
        return noise.epsilon * noise.part(what)
    return concentrated_epsilon(noise.part(what) * _gaussian_rho(noise), noise.delta)


def _total(noise: SketchNoise, group: int) -> float:
    """ε of several occurrences at once; Laplace noise adds ε for each of a group, and ρ grows with its square."""
    if group == 0:
        return 0.0
    if noise.epsilon is None:
        return math.inf
    shares = sum(noise.shares.values())
    if noise.mechanism == "laplace":
        return group * shares * noise.epsilon
    return concentrated_epsilon(group**2 * shares * _gaussian_rho(noise), noise.delta)


def _gaussian_rho(noise: SketchNoise) -> float:
    """ρ of Gaussian noise whose σ has ε at δ."""
    assert noise.epsilon is not None
    return 0.5 / gaussian_sigma(noise.epsilon, noise.delta, 1.0) ** 2
