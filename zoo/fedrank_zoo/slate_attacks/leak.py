"""Findings of attacks on platforms, and regressions that attackers fit on some users and are judged by on others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedrank.core.trees import Json
from fedrank.metrics.returns import MeanInterval, mean_interval
from fedrank_zoo.slate_attacks.settings import SUMS

#: Relative error up to which a guess counts as exact.
EXACT = 0.01
#: Penalties that a fitted attacker chooses from, on standardised features; the last all but guesses the mean.
_PENALTIES = np.array([1e-6, 1e-4, 1e-2, 1e-1, 1.0, 10.0, 1e3])
#: Random hinge functions of the non-linear regression.
_HINGES = 96
#: Standard deviations at which features of hinge functions are clipped.
_FAR = 4.0


#: From features [rows, features] to guesses [rows].
Guesser = Callable[[Float[np.ndarray, "rows features"]], Float[np.ndarray, " rows"]]


class Accuracy(NamedTuple):
    """Accuracy of guessed numbers.

    Attributes:
        r2: Share of their variance that is explained, 1 − Σ(truth − guess)² / Σ(truth − mean)²; NaN of a constant.
        rank: Spearman's rank correlation; NaN of a constant.
        error: Mean absolute error, in the unit of the numbers.
        blind: Mean absolute error of always guessing their mean.
        exact: Share of guesses with a relative error of at most one per cent.
    """

    r2: float
    rank: float
    error: float
    blind: float
    exact: float


def accuracy(
    truth: Float[np.ndarray, " rows"], guess: Float[np.ndarray, " rows"], mean: float | None = None
) -> Accuracy:
    """Accuracy of guessed numbers.

    Args:
        truth: The numbers.
        guess: The guesses.
        mean: The constant guess that ``blind`` is about; default: the mean of ``truth``.

    >>> accuracy(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0]))[:2]
    (0.5, 1.0)
    """
    from scipy.stats import rankdata

    truth, guess = np.asarray(truth, np.float64), np.asarray(guess, np.float64)
    spread = float(np.sum((truth - truth.mean()) ** 2))
    ranks = rankdata(truth), rankdata(guess)
    varied = spread > 0 and np.ptp(guess) > 0
    blind = float(np.mean(np.abs(truth - (truth.mean() if mean is None else mean))))
    return Accuracy(
        r2=1.0 - float(np.sum((truth - guess) ** 2)) / spread if spread > 0 else float("nan"),
        rank=float(np.corrcoef(*ranks)[0, 1]) if varied else float("nan"),
        error=float(np.mean(np.abs(truth - guess))),
        blind=blind,
        exact=float(np.mean(np.abs(truth - guess) <= EXACT * np.abs(truth))),
    )


def linear_guesser(features: Float[np.ndarray, "rows features"], truth: Float[np.ndarray, " rows"]) -> Guesser:
    """A ridge regression, its penalty chosen by two-fold cross-validation."""
    middle, spread = features.mean(0), features.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    x, mean = (features - middle) / spread, truth.mean()
    half = len(x) // 2

    def weights(rows: slice) -> np.ndarray:
        values, vectors = np.linalg.eigh(x[rows].T @ x[rows] / max(1, len(x[rows])))
        inner = vectors.T @ (x[rows].T @ (truth[rows] - mean)) / max(1, len(x[rows]))
        return vectors @ (inner[:, None] / (np.maximum(values, 0.0)[:, None] + _PENALTIES))

    def squared_errors(fitted: slice, judged: slice) -> np.ndarray:
        return np.sum((truth[judged, None] - mean - x[judged] @ weights(fitted)) ** 2, axis=0)

    first, second = slice(None, half), slice(half, None)
    best = int(np.argmin(squared_errors(first, second) + squared_errors(second, first)))
    chosen = weights(slice(None))[:, best]
    return lambda new: (new - middle) / spread @ chosen + mean


def non_linear_guesser(features: Float[np.ndarray, "rows features"], truth: Float[np.ndarray, " rows"]) -> Guesser:
    """A ridge regression on the features and on random hinge functions of them (random features)."""
    middle, spread = features.mean(0), features.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    rng = np.random.default_rng(0)  # part of the attack, so that it does not depend on the run's seed
    directions = rng.normal(size=(features.shape[1], _HINGES)) / features.shape[1] ** 0.5
    places = rng.normal(size=_HINGES)

    def add_hinges(x: np.ndarray) -> np.ndarray:
        x = (x - middle) / spread
        near = np.clip(x, -_FAR, _FAR)  # hinge functions are not extrapolated, linear ones are
        return np.concatenate([x, np.maximum(near @ directions - places, 0.0)], axis=1)

    guess = linear_guesser(add_hinges(features), truth)
    return lambda new: guess(add_hinges(new))


@dataclass(frozen=True)
class Leak:
    """One attacker's finding from one mode's messages.

    Attributes:
        mode: One of :data:`~fedrank_zoo.slate_attacks.settings.MODES`; with the ε of its noise, if it has any.
        attacker: The coordinator or a platform.
        secret: What it learns about.
        means: How.
        measures: By name, with an interval over seeds. Of numbers ``r2``, ``rank``, ``error``, ``blind`` and ``exact``
            as in :class:`~fedrank_zoo.slate_attacks.leak.Accuracy`, of sums without ``rank`` and ``exact``; of clicks
            ``exact`` and ``blind``, shares that are right; of who was there ``advantage``, true less false positives,
            and ``bound``, the most that the promised ε allows of it, 1 without one. ``ceiling``, where it is known, is
            what the best such attacker reaches.
    """

    mode: str
    attacker: str
    secret: str
    means: str
    measures: Mapping[str, MeanInterval]

    @property
    def of_sums(self) -> bool:
        """True for a finding about sums over users; these have separate tables."""
        return self.mode.split(",")[0] in SUMS

    @property
    def words(self) -> str:
        """The finding as a sentence."""
        m, who = self.measures, f"{self.mode}: {self.attacker}, by {self.means}, finds {self.secret}"
        most = f"; the best attacker reaches {m['ceiling'].mean:.3f}" if "ceiling" in m else ""
        if "advantage" in m:
            allowed = m["bound"].mean
            bound = f", ε allows {allowed:.3f}" if allowed < 1 else ", nothing is promised"
            return f"{who} with an advantage of {m['advantage'].mean:.3f} (1 is certainty{bound}){most}"
        if "r2" not in m:
            return f"{who} in {_percent(m['exact'].mean)} of transitions (guessing: {_percent(m['blind'].mean)})"
        explained = "nothing to explain, it is constant" if math.isnan(m["r2"].mean) else f"R² = {m['r2'].mean:.3f}"
        exact = f"; {_percent(m['exact'].mean)} to a part in a hundred" if "exact" in m else ""
        return (
            f"{who} with {explained}; off by {m['error'].mean:.3g}, where guessing the mean is off by "
            f"{m['blind'].mean:.3g}{exact}{most}"
        )

    def as_json(self) -> dict[str, Json]:
        """For programs; what is not a number is null."""
        measures = {
            name: {end: None if math.isnan(value) else value for end, value in interval._asdict().items()}
            for name, interval in self.measures.items()
        }
        named = {name: getattr(self, name) for name in ("mode", "attacker", "secret", "means")}
        return {**named, **measures, "words": self.words}


def leak_of(mode: str, attacker: str, secret: str, means: str, each: Sequence[Accuracy]) -> Leak:
    """The finding of how accurately a number was guessed in each seed."""
    measures = {name: interval([getattr(one, name) for one in each]) for name in Accuracy._fields}
    return Leak(mode, attacker, secret, means, measures)


def interval(values: Sequence[float]) -> MeanInterval:
    """Mean and interval over seeds; NaN if one of the values is."""
    if any(math.isnan(value) for value in values):
        return MeanInterval(math.nan, math.nan, math.nan)
    return mean_interval(values)


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"
