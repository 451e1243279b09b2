"""The linear ranker without bias (Kharitonov 2019, Section 5): s(x) = w·x."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.lazy import jax, jnp
from fedrank.core.registry import Entry
from fedrank.ranking.rankers.base import Ranker, check_features


@dataclass(frozen=True)
class Linear(Ranker):
    """s(x) = w·x, with ``f`` weights.

    A bias would be the same for all documents of a query and change no ranking.
    """

    n_features: int

    def __post_init__(self):
        check_features(self.n_features)

    @property
    def size(self) -> int:
        """Number of weights, one for each feature."""
        return self.n_features

    @override
    def scores(
        self, weights: Float[AnyArray, "parameters"], features: Float[AnyArray, "*documents features"]
    ) -> Float[Array, "*documents"]:
        # Full precision: reduced-precision matrix units of accelerators would reorder documents with close scores.
        return jnp.einsum("...f,f->...", features, weights, precision=jax.lax.Precision.HIGHEST)

    def tensors(self, weights: Float[AnyArray, "parameters"]) -> dict[str, np.ndarray]:
        """``{"weight": [1, f]}``: one output unit, as a dense layer stores it."""
        return {"weight": np.asarray(weights, np.float32).reshape(1, self.n_features)}

    @override
    def kernel_shape(self) -> tuple[int, int]:
        return self.n_features, 0


LINEAR = Entry("linear", Linear, "Linear without bias.", "kharitonov2019foltr")
