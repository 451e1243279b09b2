"""The types of arrays in this wing's signatures."""

from __future__ import annotations

from typing import TypeAlias

import jax
import numpy as np

#: An array of JAX (also while it is traced) or of NumPy.
AnyArray: TypeAlias = jax.Array | np.ndarray
