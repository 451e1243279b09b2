"""Rows of a table as arrays of one size: the first ``n`` are data, the rest is padding."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Rows(NamedTuple):
    """Rows of one party, or of many with leading axes, such as [silos] or [seeds, silos].

    The arrays are NumPy's or JAX's; as a named tuple of arrays it passes through ``jit``, ``vmap`` and ``scan``.

    Attributes:
        x: Features, float32 [..., rows, features]; 0 on padding.
        y: Labels, float32 [..., rows], 0 or 1; 0 on padding.
        n: Number of valid rows, int32 [...], 0 .. rows. They come first.
    """

    x: Any
    y: Any
    n: Any

    @property
    def where(self) -> Any:
        """Which rows are data: bool [..., rows].

        >>> Rows(np.zeros((3, 2), np.float32), np.zeros(3, np.float32), np.int32(2)).where
        array([ True,  True, False])
        """
        *leading, rows = self.y.shape
        index = np.arange(rows, dtype=np.int32).reshape((1,) * len(leading) + (rows,))
        n = self.n if hasattr(self.n, "reshape") else np.asarray(self.n)
        return n.reshape(*leading, 1) > index
