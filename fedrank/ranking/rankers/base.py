"""Base of rankers: weights as one flat vector, and a function from features to scores.

A flat vector because evolution strategies perturb all weights alike, and because it is what crosses the wire. In all
rankers the documents of a query are scored one by one: the score of a document depends on its own features only.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.registry import Registry


@dataclass(frozen=True)
class Ranker(abc.ABC):
    """A function from features of documents to scores.

    Subclasses are final, frozen dataclasses (hashable, so that they can be static under ``jax.jit``). :attr:`size` and
    :meth:`scores` are all that one must have.

    Attributes:
        n_features: Features of a document, ``f``.
    """

    n_features: int

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Number of weights of the ranker."""

    @abc.abstractmethod
    def scores(
        self, weights: Float[AnyArray, "parameters"], features: Float[AnyArray, "*documents features"]
    ) -> Float[Array, "*documents"]:
        """Scores of documents; a higher score ranks first.

        Args:
            weights: float32 [size].
            features: float32 [..., f].

        Returns:
            float32 [...].
        """

    def tensors(self, weights: Float[AnyArray, "parameters"]) -> dict[str, np.ndarray]:
        """The flat vector as named arrays, for files that other programs read; as one array unless overridden."""
        return {"weights": np.asarray(weights, np.float32)}

    @classmethod
    def build(cls, n_features: int, hidden: int) -> Ranker:
        """Make the ranker of a run; ``cls(n_features)`` unless overridden.

        Args:
            n_features: Features of a document.
            hidden: Hidden units; rankers without any ignore it.
        """
        del hidden
        return cls(n_features)

    def kernel_shape(self) -> tuple[int, int] | None:
        """``(f, hidden units)`` for the CPU kernel, 0 hidden units for linear; None if the kernel cannot compute it.

        None unless overridden: the ranker is then computed by JAX.
        """
        return None

    def initial(self) -> Float32[np.ndarray, "parameters"]:
        """The weights at the start: all zero, as in the paper (Section 5). float32 [size]."""
        return np.zeros(self.size, np.float32)


#: Rankers by name: the entry points of ``fedrank.rankers``.
RANKERS: Registry[type[Ranker]] = Registry("ranker", "fedrank.rankers")


def check_features(n_features: int) -> None:
    """Refuse a ranker with fewer than one feature.

    Raises:
        ConfigError: ``n_features`` is below 1.
    """
    if n_features < 1:
        raise ConfigError(f"n_features of a ranker must be at least 1, got {n_features}.")
