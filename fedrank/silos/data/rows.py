"""Rows of a table as arrays of one size: the first ``n`` are data, the rest is padding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int


class Rows(NamedTuple):
    """Rows of one silo, or of many with leading axes, such as [silos] or [seeds, silos].

    Attributes:
        x: Features; 0 on padding.
        y: Labels, 0 or 1; 0 on padding.
        n: Number of valid rows, 0 .. rows. They come first.
    """

    x: Float[np.ndarray, "*lead rows features"]
    y: Float[np.ndarray, "*lead rows"]
    n: Int[np.ndarray, "*lead"]

    @property
    def where(self) -> Bool[np.ndarray, "*lead rows"]:
        """Which rows are data rather than padding.

        >>> Rows(np.zeros((3, 2), np.float32), np.zeros(3, np.float32), np.int32(2)).where
        array([ True,  True, False])
        """
        return np.asarray(self.n)[..., None] > np.arange(self.y.shape[-1], dtype=np.int32)
