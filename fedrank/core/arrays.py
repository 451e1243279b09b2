"""The type of arrays in signatures of functions that take those of JAX and those of NumPy alike."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import jax

    #: An array of JAX (also while it is traced) or of NumPy.
    AnyArray: TypeAlias = jax.Array | np.ndarray
else:
    # A device has NumPy only, and importing JAX takes a second: whether something is an array of JAX is asked of the
    # module once it is there.
    class _OfEither(type):
        def __instancecheck__(cls, value: object) -> bool:
            jax = sys.modules.get("jax")
            return isinstance(value, np.ndarray | np.generic) or (jax is not None and isinstance(value, jax.Array))

    class AnyArray(metaclass=_OfEither):
        """An array of JAX (also while it is traced) or of NumPy."""
