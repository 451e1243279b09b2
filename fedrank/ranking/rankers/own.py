"""A ranker from a function of the caller's own: any JAX function of parameters and features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Float32
from typing_extensions import override

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.ranking.rankers.base import Ranker, check_features


@dataclass(frozen=True, init=False, eq=False)
class FunctionRanker(Ranker):
    """A ranker whose scores are a function of the caller's own.

    Weights cross as one flat vector: the leaves of the parameters, one after another, in single precision. Two rankers
    are equal only if they are one object, so that each is compiled for by itself.

    >>> def scores(parameters, features):
    ...     return jax.nn.tanh(features @ parameters["into"]) @ parameters["out"]
    >>> random = np.random.default_rng(0)
    >>> first = {"into": random.normal(0, 0.1, (46, 8)), "out": np.zeros(8)}
    >>> FunctionRanker(scores, first, n_features=46).size
    376

    Args:
        scores: ``(parameters, features float32 [documents, features]) -> scores [documents]``, which JAX can
            transform. The score of a document must depend on its own features only.
        initial: The parameters at the start: arrays in any nesting of dictionaries, lists and tuples. Where all are
            zero, a network of several layers may never move: see ``TwoLayer`` and its paper for one that does.
        n_features: Features of a document.

    Raises:
        ConfigError: The function does not give one number a document, or there is nothing to learn.
    """

    function: Callable[[PyTree, Any], Any] = field(repr=False)
    start: PyTree = field(repr=False)

    def __init__(self, scores: Callable[[PyTree, Any], Any], initial: PyTree, *, n_features: int):
        check_features(n_features)
        start = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), initial)
        from jax.flatten_util import ravel_pytree

        vector, unravel = ravel_pytree(start)
        if not vector.size:
            raise ConfigError("a ranker of one's own needs parameters to learn; initial has no numbers.")
        for name, value in (
            ("n_features", n_features),
            ("function", scores),
            ("start", start),
            ("_vector", np.asarray(vector, np.float32)),
            ("_unravel", unravel),
        ):
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        weights = jax.ShapeDtypeStruct((self.size,), jnp.float32)
        documents = jax.ShapeDtypeStruct((3, self.n_features), jnp.float32)
        try:
            found = jax.eval_shape(self._call, weights, documents)
        except Exception as cause:  # whatever the caller's function raises
            raise ConfigError(
                f"the ranker's function cannot be computed for features [3, {self.n_features}]: {cause}"
            ) from cause
        if found.size != 3:
            raise ConfigError(f"the ranker's function must give one score a document, [3] of 3, got {found.shape}.")

    @property
    def size(self) -> int:
        """Number of weights: all numbers of the parameters."""
        return len(self._vector)  # type: ignore[attr-defined]

    @override
    def scores(
        self, weights: Float[AnyArray, "parameters"], features: Float[AnyArray, "*documents features"]
    ) -> Float[Array, "*documents"]:
        *lead, n = features.shape
        return self._call(weights, jnp.asarray(features).reshape(-1, n)).reshape(lead)

    def _call(self, weights: Any, documents: Any) -> Any:
        """The function's answer as it comes, in single precision."""
        return jnp.asarray(self.function(self.parameters(weights), documents), jnp.float32)

    def parameters(self, weights: Float[AnyArray, "parameters"]) -> PyTree:
        """The flat vector as the parameters that the function takes."""
        return self._unravel(jnp.asarray(weights, jnp.float32))  # type: ignore[attr-defined]

    @override
    def tensors(self, weights: Float[AnyArray, "parameters"]) -> dict[str, np.ndarray]:
        leaves, _ = jax.tree_util.tree_flatten_with_path(self.parameters(np.asarray(weights, np.float32)))
        return {_name(path): np.asarray(leaf) for path, leaf in leaves}

    @override
    def initial(self) -> Float32[np.ndarray, "parameters"]:
        return self._vector  # type: ignore[attr-defined]


def _name(path: tuple[Any, ...]) -> str:
    """A leaf's name in a file: its keys with dots between; ``weights`` where the parameters are one array."""
    keys = (getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))) for key in path)
    return ".".join(map(str, keys)) or "weights"
