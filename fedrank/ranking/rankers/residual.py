"""A ranker that starts as another one: a base score, to which a linear function of the other features is added."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from typing_extensions import override

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.registry import Entry
from fedrank.ranking.rankers.base import Ranker


@dataclass(frozen=True)
class Residual(Ranker):
    """s(x) = x₀ + w·(x₁ … x_f₋₁), with f − 1 weights: the first feature is the base score.

    With all weights zero, as at the start, it ranks by the base score. The scale of the base score against the other
    features decides how much a weight of 1 moves.

    Raises:
        ConfigError: There are fewer than two features.
    """

    n_features: int

    def __post_init__(self):
        if self.n_features < 2:
            raise ConfigError(
                f"a residual ranker needs a base score and one more feature at least, got {self.n_features} features."
            )

    @property
    def size(self) -> int:
        """Number of weights, one for each feature but the first."""
        return self.n_features - 1

    @override
    def scores(
        self, weights: Float[AnyArray, "parameters"], features: Float[AnyArray, "*documents features"]
    ) -> Float[Array, "*documents"]:
        added = jnp.einsum("...f,f->...", features[..., 1:], weights, precision=jax.lax.Precision.HIGHEST)
        return jnp.asarray(features[..., 0]) + added


RESIDUAL = Entry(
    "residual", Residual, "The first feature as base score, and a linear function of the others added.", ""
)
