"""Bring features to a common range.

Online learners take one step size for all features, so a feature that counts to 10⁸ drowns the others. LETOR
4.0 publishes its features normalised within each query (``Querylevelnorm``); MSLR-WEB's are as they were
measured. The same recipe here: each feature of each query runs from 0 to 1. It needs no statistics of other
queries, so a device can do it alone.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from fedrank.core.errors import UnknownNameError
from fedrank.ranking.data.queries import QuerySet

#: What :func:`normalise` knows.
HOWS = ("none", "query-minmax", "auto")


def in_unit_range(queries: QuerySet) -> bool:
    """True if every feature of every document lies in [0, 1]."""
    return bool(queries.features.min() >= 0.0 and queries.features.max() <= 1.0)


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
