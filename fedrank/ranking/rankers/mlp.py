"""The two-layer ranker (Kharitonov 2019, Section 5): one hidden layer of 10 ReLU units.

s(x) = v·max(0, W x + b). The output has no bias, which would change no ranking.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.registry import Entry
from fedrank.ranking.rankers.base import Ranker, check_features


@dataclass(frozen=True)
class TwoLayer(Ranker):
    """s(x) = v·max(0, W x + b), with ``hidden·(f + 2)`` weights in the order W (row by row), b, v.

    Attributes:
        n_features: Features of a document, ``f``.
        hidden: Hidden units.
    """

    n_features: int
    hidden: int = 10

    def __post_init__(self):
        check_features(self.n_features)
        if self.hidden < 1:
            raise ConfigError(f"hidden of the two-layer ranker must be at least 1, got {self.hidden}.")

    @property
    def size(self) -> int:
        """Number of weights: hidden·(f + 2)."""
        return self.hidden * (self.n_features + 2)

    def _split(self, weights):
        h, f = self.hidden, self.n_features
        return weights[: h * f].reshape(h, f), weights[h * f : h * f + h], weights[h * f + h :]

    @override
    def scores(
        self, weights: Float[AnyArray, "parameters"], features: Float[AnyArray, "*documents features"]
    ) -> Float[Array, "*documents"]:
        into, bias, out = self._split(weights)
        hidden = jnp.einsum("...f,hf->...h", features, into, precision=jax.lax.Precision.HIGHEST)
        hidden = jax.nn.relu(hidden + jnp.broadcast_to(bias, hidden.shape))
        return jnp.einsum("...h,h->...", hidden, out, precision=jax.lax.Precision.HIGHEST)

    def tensors(self, weights: Float[AnyArray, "parameters"]) -> dict[str, np.ndarray]:
        """``hidden.weight`` [h, f], ``hidden.bias`` [h], ``output.weight`` [1, h]."""
        into, bias, out = self._split(np.asarray(weights, np.float32))
        return {"hidden.weight": into, "hidden.bias": bias, "output.weight": out.reshape(1, -1)}

    @classmethod
    @override
    def build(cls, n_features: int, hidden: int) -> TwoLayer:
        return cls(n_features, hidden)

    @override
    def kernel_shape(self) -> tuple[int, int]:
        return self.n_features, self.hidden


MLP = Entry("mlp", TwoLayer, "Two layers: 10 hidden ReLU units, one score.", "kharitonov2019foltr")
