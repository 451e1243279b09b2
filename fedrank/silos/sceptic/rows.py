"""One silo's rows as statistics programs have them: columns in their own units, and folds that keep both labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fedrank.silos.data.copies import copies
from fedrank.silos.data.tables import SiloTable


class Own(NamedTuple):
    """The rows of one silo.

    Attributes:
        x: Features; NaN where a value is missing.
        y: Labels, 0 or 1.
    """

    x: Float[np.ndarray, "rows columns"]
    y: Float[np.ndarray, " rows"]

    def __getitem__(self, which) -> Own:  # type: ignore[override]
        return Own(self.x[which], self.y[which])

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def rarer(self) -> int:
        """Rows of the rarer label; of copies one counts."""
        first = self.first
        positive = int(self.y[first].sum())
        return min(positive, len(first) - positive)

    @property
    def first(self) -> Int[np.ndarray, " rows"]:
        """The first row of each group of copies, and all rows where there are none: those that judge a model."""
        found = copies(self.x)
        return np.arange(self.rows) if found is None else found.first


def rows_of(table: SiloTable) -> list[Own]:
    """The rows of every silo, double precision."""
    return [Own(silo.features.astype(float), silo.labels.astype(float)) for silo in table.silos]


def folds(own: Own, count: int, rng: np.random.Generator) -> Int[np.ndarray, " rows"]:
    """A fold for each row, in which each label has its share up to one row; copies of a row are in one fold.

    Args:
        own: The rows.
        count: Number of folds; there are as many as rows of the rarer label if these are fewer, and at least 2.
        rng: Draws the order.
    """
    found = copies(own.x)
    first = np.arange(own.rows) if found is None else found.first
    positive = int(own.y[first].sum())
    count = max(2, min(count, positive, len(first) - positive))
    out = np.empty(own.rows, int)
    start = 0
    for label in (1.0, 0.0):
        some = rng.permutation(first[own.y[first] == label])
        out[some] = (np.arange(len(some)) + start) % count
        start += len(some)  # the next label begins where this one ended, so that folds are of one size
    if found is not None:
        of_group = np.empty(len(first), int)
        of_group[found.group[first]] = out[first]
        out = of_group[found.group]
    return out


def split(y: Float[np.ndarray, " rows"], share: float, rng: np.random.Generator) -> Bool[np.ndarray, " rows"]:
    """Which rows are for the test: this share of each label, at least one where there are two."""
    test = np.zeros(len(y), bool)
    for label in (0.0, 1.0):
        own = rng.permutation(np.flatnonzero(y == label))
        if len(own) > 1:
            test[own[: max(1, round(share * len(own)))]] = True
    return test
