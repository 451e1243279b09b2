"""Rows of a table as arrays of one size: the first ``n`` are data, the rest is padding."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from fedrank.core.arrays import JaxArray as Array

#: An array of JAX or NumPy.
AnyArray: TypeAlias = Array | np.ndarray


class Rows(NamedTuple):
    """Rows of one silo, or of many with leading axes, such as [silos] or [seeds, silos].

    The arrays are NumPy's or JAX's; as a named tuple of arrays it passes through ``jit``, ``vmap`` and ``scan``.

    Attributes:
        x: Features; 0 on padding.
        y: Labels, 0 or 1; 0 on padding.
        n: Number of valid rows, 0 .. rows. They come first.
    """

    x: Float[AnyArray, "*lead rows features"]
    y: Float[AnyArray, "*lead rows"]
    n: Int[AnyArray, "*lead"]

    @property
    def where(self) -> Bool[AnyArray, "*lead rows"]:
        """Which rows are data rather than padding.

        >>> Rows(np.zeros((3, 2), np.float32), np.zeros(3, np.float32), np.int32(2)).where
        array([ True,  True, False])
        """
        *leading, rows = self.y.shape
        index = np.arange(rows, dtype=np.int32).reshape((1,) * len(leading) + (rows,))
        n = self.n if hasattr(self.n, "reshape") else np.asarray(self.n)
        return n.reshape(*leading, 1) > index
