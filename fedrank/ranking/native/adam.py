"""One step of Adam (Kingma and Ba 2015, Algorithm 1) with NumPy, as ``optax.adam`` takes it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

_B1, _B2, _EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)
#: Rounded from double precision, as there: 1 − 0.999 in single precision is off by 5e-5 of itself.
_NEW1, _NEW2 = np.float32(1 - 0.9), np.float32(1 - 0.999)


class Adam(NamedTuple):
    """State of Adam, its fields in the order of those of ``optax.adam``.

    Attributes:
        count: int32 [runs], steps taken.
        first: float32 [runs, n], moving mean of the gradients.
        second: float32 [runs, n], moving mean of their squares.
    """

    count: Int[np.ndarray, " runs"]
    first: Float[np.ndarray, "runs n"]
    second: Float[np.ndarray, "runs n"]

    @classmethod
    def begin(cls, runs: int, size: int) -> Adam:
        """Before the first step."""
        return cls(np.zeros(runs, np.int32), np.zeros((runs, size), np.float32), np.zeros((runs, size), np.float32))

    def uphill(
        self, gradient: Float32[np.ndarray, "runs n"], learning_rate: float, heard: Bool[np.ndarray, " runs"]
    ) -> tuple[Float32[np.ndarray, "runs n"], Adam]:
        """A step along a gradient.

        Args:
            gradient: Of what is to grow.
            learning_rate: The step size.
            heard: False: the run takes no step, and its state stays as it is.

        Returns:
            What to add to the weights, and the state afterwards.
        """
        one = np.float32(1)
        count = np.where(heard, self.count + 1, self.count).astype(np.int32)
        first = _NEW1 * gradient + _B1 * self.first
        second = _NEW2 * (gradient * gradient) + _B2 * self.second
        steps = np.maximum(count, 1).astype(np.float32)[:, None]
        step = (first / (one - _B1**steps)) / (np.sqrt(second / (one - _B2**steps)) + _EPSILON)
        some = heard[:, None]
        moved = np.where(some, np.float32(learning_rate) * step, np.float32(0)).astype(np.float32)
        return moved, Adam(count, np.where(some, first, self.first), np.where(some, second, self.second))
