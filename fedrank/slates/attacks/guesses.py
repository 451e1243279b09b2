"""Guessers that are fitted on some users and judged on others: what an attacker makes of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

#: What counts as exact: a part in a hundred.
EXACTLY = 0.01
#: Penalties that a fitted attacker chooses from, on standardised features; the last all but guesses the mean.
_PENALTIES = np.array([1e-6, 1e-4, 1e-2, 1e-1, 1.0, 10.0, 1e3])
#: Hinges of a non-linear attacker.
_HINGES = 96
#: Standard deviations beyond which features of hinges are cut.
_FAR = 4.0


class Accuracy(NamedTuple):
    """How well somebody guesses numbers.

    Attributes:
        r2: Part of their variance that is explained, 1 − Σ(truth − guess)² / Σ(truth − mean)²; NaN of a constant.
        rank: Spearman's rank correlation; NaN of a constant.
        error: Mean absolute error, in the unit of the numbers.
        blind: The same of whoever guesses their mean.
        exact: Part that is guessed to a part in a hundred.
    """

    r2: float
    rank: float
    error: float
    blind: float
    exact: float


def accuracy(truth: np.ndarray, guess: np.ndarray, mean: float | None = None) -> Accuracy:
    """How well numbers were guessed.

    Args:
        truth: [n].
        guess: [n].
        mean: What a blind guesser says; default: the mean of ``truth``.

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
        exact=float(np.mean(np.abs(truth - guess) <= EXACTLY * np.abs(truth))),
    )


def straight(features: np.ndarray, truth: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A least-squares guesser, its penalty chosen by guessing either half of the rows from the other."""
    middle, spread = features.mean(0), features.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    x, mean = (features - middle) / spread, truth.mean()
    half = len(x) // 2

    def weights(rows: slice) -> np.ndarray:
        values, vectors = np.linalg.eigh(x[rows].T @ x[rows] / max(1, len(x[rows])))
        inner = vectors.T @ (x[rows].T @ (truth[rows] - mean)) / max(1, len(x[rows]))
        return vectors @ (inner[:, None] / (np.maximum(values, 0.0)[:, None] + _PENALTIES))

    def missed(fitted: slice, judged: slice) -> np.ndarray:
        return np.sum((truth[judged, None] - mean - x[judged] @ weights(fitted)) ** 2, axis=0)

    first, second = slice(None, half), slice(half, None)
    best = int(np.argmin(missed(first, second) + missed(second, first)))
    chosen = weights(slice(None))[:, best]
    return lambda new: (new - middle) / spread @ chosen + mean


def bent(features: np.ndarray, truth: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The same of the features and of random hinges of them: a network whose hidden layer is left as it was drawn."""
    middle, spread = features.mean(0), features.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    rng = np.random.default_rng(0)  # the attacker's own chance: part of the attack, not of what is attacked
    directions = rng.normal(size=(features.shape[1], _HINGES)) / features.shape[1] ** 0.5
    places = rng.normal(size=_HINGES)

    def hinged(x: np.ndarray) -> np.ndarray:
        x = (x - middle) / spread
        near = np.clip(x, -_FAR, _FAR)  # straight lines go on for ever, what bends does not
        return np.concatenate([x, np.maximum(near @ directions - places, 0.0)], axis=1)

    guess = straight(hinged(features), truth)
    return lambda new: guess(hinged(new))
