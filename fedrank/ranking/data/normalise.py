"""Bring features to a common range, within each query or by constants.

Online learners take one step size for all features, so a feature that counts to 10⁸ drowns the others. LETOR
4.0 publishes its features normalised within each query (``Querylevelnorm``); MSLR-WEB's are as they were
measured. The same recipe here: each feature of each query runs from 0 to 1. It needs no statistics of other
queries, so a device can do it alone; but a document's score depends on which others are scored with it, which no
search engine computes. :class:`Constants` are fitted once, and a document alone has the score that it has among others.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Float32, Float64

from fedrank.core.errors import UnknownNameError
from fedrank.core.trees import Json
from fedrank.ranking.data.queries import QuerySet

#: Normalisations that :func:`normalise` knows.
HOWS = ("none", "query-minmax", "auto")
#: Those by constants, which :func:`fit_constants` fits.
CONSTANT = ("standard", "min-max", "log")


@dataclass(frozen=True, eq=False)
class Constants:
    """A normalisation by constants: (x − centre) / spread of each feature; 0 where the spread is 0.

    Attributes:
        how: ``standard``: mean and standard deviation; ``min-max``: least value and range; ``log``: mean and standard
            deviation of sign(x) · ln(1 + |x|), which is taken first.
        centre: float64 [f].
        spread: float64 [f], at least 0.
    """

    how: str
    centre: Float64[np.ndarray, " f"]
    spread: Float64[np.ndarray, " f"]

    def apply(self, features: Float[np.ndarray, "documents f"]) -> Float32[np.ndarray, "documents f"]:
        """Features normalised by the constants, float32 of the shape of the features given."""
        x = _signed_log(features) if self.how == "log" else features
        varies = self.spread > 0
        scaled = (np.asarray(x, np.float64) - self.centre) / np.where(varies, self.spread, 1.0)
        return np.where(varies, scaled, 0.0).astype(np.float32)

    def as_json(self) -> dict[str, Json]:
        """The constants as JSON can hold them, exactly."""
        return {"how": self.how, "centre": self.centre.tolist(), "spread": self.spread.tolist()}

    @classmethod
    def from_json(cls, kept: dict[str, Json]) -> Constants:
        """The inverse of :meth:`as_json`.

        Raises:
            KeyError: Something is missing.
            ValueError: A spread is negative, or a number is not finite.
        """
        centre, spread = np.array(kept["centre"], np.float64), np.array(kept["spread"], np.float64)
        if not (np.isfinite(centre) & np.isfinite(spread) & (spread >= 0)).all():
            raise ValueError("constants of a normalisation must be finite, and spreads at least 0")
        return cls(str(kept["how"]), centre, spread)


def fit_constants(features: Float[np.ndarray, "documents f"], how: str) -> Constants:
    """Constants of the documents' features.

    Args:
        features: The documents.
        how: One of :data:`CONSTANT`.

    Raises:
        UnknownNameError: There is no such normalisation.
    """
    if how not in CONSTANT:
        raise UnknownNameError("normalisation", how, CONSTANT)
    x = _signed_log(features) if how == "log" else features
    low, high = x.min(axis=0).astype(np.float64), x.max(axis=0).astype(np.float64)
    if how == "min-max":
        return Constants(how, low, high - low)
    # A constant feature has no deviation, though rounding may make one.
    return Constants(how, x.mean(axis=0, dtype=np.float64), np.where(high > low, x.std(axis=0, dtype=np.float64), 0.0))


def _signed_log(x: Float[np.ndarray, "documents f"]) -> Float32[np.ndarray, "documents f"]:
    wide = np.asarray(x, np.float64)
    return (np.sign(wide) * np.log1p(np.abs(wide))).astype(np.float32)


def in_unit_range(queries: QuerySet) -> bool:
    """True if every feature of every document lies in [0, 1]."""
    return in_range(queries.features)


def in_range(features: Float[np.ndarray, "documents f"]) -> bool:
    """True if every feature lies in [0, 1]."""
    return bool(features.min() >= 0.0 and features.max() <= 1.0)


def normalise(queries: QuerySet, how: str = "auto") -> QuerySet:
    """Normalised features.

    Args:
        queries: Any features that 32 bits can hold.
        how: ``none`` leaves the features alone; ``query-minmax`` maps each feature of each query to [0, 1] by
            (x − min) / (max − min), and to 0 where a feature is constant within the query; ``auto`` leaves
            the features alone if all of them lie in [0, 1], and is ``query-minmax`` otherwise.

    Returns:
        A new set; or ``queries`` itself if nothing is to be done.

    Raises:
        UnknownNameError: There is no such normalisation.

    >>> features = np.array([[1.0, 7.0], [5.0, 7.0], [2.0, 7.0]])
    >>> raw = QuerySet(features, np.zeros(3, int), np.array([0, 3]), np.array(["q"]))
    >>> normalise(raw).features.tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.25, 0.0]]
    """
    if how not in HOWS:
        raise UnknownNameError("normalisation", how, HOWS)
    if how == "none" or (how == "auto" and in_unit_range(queries)):
        return queries
    normal = np.empty_like(queries.features)
    for first, last in itertools.pairwise(queries.offsets):
        # Double precision: max − min of two float32 near the largest ones overflows in 32 bits.
        rows = queries.features[first:last].astype(np.float64)
        low = rows.min(axis=0)
        span = rows.max(axis=0) - low
        normal[first:last] = np.where(span > 0, (rows - low) / np.where(span > 0, span, 1.0), 0.0)
    return replace(queries, features=normal)
