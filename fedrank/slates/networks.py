"""Networks for the values of clicks: each platform's own, and the one that joins theirs (Deng et al. 2024).

A platform's network gives N values from what it knows of the user and of its N candidates. The federated network Ω
takes the values of the platform that acts ("own") and those of the others, and gives the values that slates are made by
(equations 9 to 12). The same weights serve every platform, because "own" comes first.

Two families. *Item networks* share one small network over all items. Permute the candidates, and the values are
permuted alike: where candidates are drawn anew every round, a place in the list means nothing. Their output is linear.
*Positional networks* are the published ones: one large network over all candidates at once, with one output a place,
Mish (Misra 2020) and a hyperbolic tangent at the end, so that values lie in [−1, 1] whatever the rewards are.

Weights are one flat float32 vector, layer by layer: W [inputs, outputs] row by row, then b. They start as PyTorch's
linear layers do: uniform on ±1/√inputs.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.core.errors import ConfigError

#: Beyond this, exp would overflow when squared, and Mish is the identity to the last bit.
_MISH_LINEAR = 20.0


def mish(x: jax.Array) -> jax.Array:
    """x·tanh(ln(1 + eˣ)) (Misra 2020), with a single exponential: tanh(ln(1 + e)) = (e² + 2e) / (e² + 2e + 2)."""
    e = jnp.exp(jnp.minimum(x, _MISH_LINEAR))
    square = e * (e + 2.0)
    return x * (square / (square + 2.0))


#: What hidden layers apply.
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {"mish": mish, "relu": jax.nn.relu}


class LocalQ(ABC):
    """A platform's own network."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Length of the weights."""

    @abstractmethod
    def init(self, key: jax.Array) -> jax.Array:
        """Fresh weights: float32 [size]."""

    @abstractmethod
    def values(self, weights: jax.Array, user: jax.Array, items: jax.Array) -> jax.Array:
        """Values of a click on each candidate.

        Args:
            weights: float32 [size].
            user: float32 [F], what the platform knows of the user.
            items: float32 [N, d], features of the candidates.

        Returns:
            float32 [N].
        """


class FederatedQ(ABC):
    """The network Ω that joins the platforms' values."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Length of the weights."""

    @abstractmethod
    def init(self, key: jax.Array) -> jax.Array:
        """Fresh weights: float32 [size]."""

    @abstractmethod
    def values(self, weights: jax.Array, own: jax.Array, others: jax.Array) -> jax.Array:
        """Joint values (equations 9 and 10).

        Args:
            weights: float32 [size].
            own: float32 [N], values of the platform that acts.
            others: float32 [N], values of the other platform, or what those of several were pooled to.

        Returns:
            float32 [N].
        """


class _Layered(ABC):
    """Linear layers with an activation between them: their weights."""

    @property
    @abstractmethod
    def _layers(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of each linear layer."""

    @property
    def size(self) -> int:
        """Length of the weights."""
        return _count(self._layers)

    def init(self, key: jax.Array) -> jax.Array:
        """Fresh weights: float32 [size], uniform on ±1/√inputs of their layer."""
        return _uniform(key, self._layers)


@dataclass(frozen=True)
class ItemQ(_Layered, LocalQ):
    """One network, of the user's and one item's features, shared by all items.

    Attributes:
        user_features: F.
        item_features: d.
        widths: Units of each hidden layer.
        activation: One of :data:`ACTIVATIONS`.
    """

    user_features: int
    item_features: int
    widths: tuple[int, ...] = (64, 64)
    activation: str = "mish"

    def __post_init__(self):
        _check(self.widths, self.activation, user_features=self.user_features, item_features=self.item_features)

    @property
    def _layers(self):
        return _pairs(self.user_features + self.item_features, self.widths, 1)

    def values(self, weights: jax.Array, user: jax.Array, items: jax.Array) -> jax.Array:
        """Values [N]; see :meth:`LocalQ.values`."""
        matrix, bias, rest = _first(weights, self._layers)
        # The user's part of the first layer is the same for all items: once instead of N times, a tenth of the cost.
        shared = user @ matrix[: self.user_features] + bias
        hidden = items @ matrix[self.user_features :] + shared[None]
        activate, later = ACTIVATIONS[self.activation], self._layers[1:]
        return _forward(rest, later, activate(hidden) if later else hidden, activate)[:, 0]


@dataclass(frozen=True)
class PositionalQ(_Layered, LocalQ):
    """The published network: one over [user ‖ items row by row], with an output for each place.

    Attributes:
        user_features: F.
        item_features: d.
        candidates: N.
        widths: Units of each hidden layer; published: five of 4096.
        squash: Tanh at the end.
    """

    user_features: int
    item_features: int
    candidates: int
    widths: tuple[int, ...] = (4096,) * 5
    squash: bool = True

    def __post_init__(self):
        _check(self.widths, item_features=self.item_features, candidates=self.candidates)

    @property
    def _layers(self):
        return _pairs(self.user_features + self.candidates * self.item_features, self.widths, self.candidates)

    def values(self, weights: jax.Array, user: jax.Array, items: jax.Array) -> jax.Array:
        """Values [N]; see :meth:`LocalQ.values`."""
        together = jnp.concatenate([user, items.reshape(-1)])[None]
        out = _forward(weights, self._layers, together, mish)[0]
        return jnp.tanh(out) if self.squash else out


#: What a head sees of one item: its own and the others' value, and the means of both over the candidates.
_HEAD_INPUTS = 4


@dataclass(frozen=True)
class ItemHead(FederatedQ):
    """a·own_i + b·others_i + f(own_i, others_i, mean own, mean others): one small network, shared by all items.

    The last layer of f starts at zero, and a + b = 1: the first joint values are a mean of both platforms' values. A
    platform without feedback begins with the others' opinion of an item, not with the chance of its own first weights.

    Attributes:
        widths: Units of each hidden layer.
        activation: One of :data:`ACTIVATIONS`.
        share: b before anything is learnt, in [0, 1]; 0 where item i of the others is another item.
    """

    widths: tuple[int, ...] = (32, 32)
    activation: str = "mish"
    share: float = 0.5

    def __post_init__(self):
        _check(self.widths, self.activation)
        _check_share(self.share)

    @property
    def _layers(self):
        return _pairs(_HEAD_INPUTS, self.widths, 1)

    @property
    def size(self) -> int:
        """Length of the weights: those of f, then a and b."""
        return _count(self._layers) + 2

    def init(self, key: jax.Array) -> jax.Array:
        """Fresh weights: float32 [size]."""
        last = _count(self._layers[-1:])
        weights = _uniform(key, self._layers)
        skip = jnp.asarray([1.0 - self.share, self.share], jnp.float32)
        return jnp.concatenate([weights.at[len(weights) - last :].set(0.0), skip])

    def values(self, weights: jax.Array, own: jax.Array, others: jax.Array) -> jax.Array:
        """Joint values [N]; see :meth:`FederatedQ.values`."""
        seen = _seen(own, others)
        return (
            weights[-2] * own
            + weights[-1] * others
            + _forward(weights[:-2], self._layers, seen, ACTIVATIONS[self.activation])[:, 0]
        )


@dataclass(frozen=True)
class ItemLinearHead(FederatedQ):
    """The ablation: linear in (own_i, others_i, mean own, mean others, 1).

    Attributes:
        share: As of :class:`ItemHead`.
    """

    share: float = 0.5

    def __post_init__(self):
        _check_share(self.share)

    @property
    def size(self) -> int:
        """Length of the weights."""
        return _HEAD_INPUTS + 1

    def init(self, key: jax.Array) -> jax.Array:
        """A mean of both platforms' values: float32 [size]; nothing is drawn."""
        del key
        return jnp.zeros(self.size, jnp.float32).at[:2].set(jnp.asarray([1.0 - self.share, self.share]))

    def values(self, weights: jax.Array, own: jax.Array, others: jax.Array) -> jax.Array:
        """Joint values [N]; see :meth:`FederatedQ.values`."""
        return _seen(own, others) @ weights[:_HEAD_INPUTS] + weights[_HEAD_INPUTS]


@dataclass(frozen=True)
class IdentityHead(FederatedQ):
    """No federation: a platform's own values as they are. Holds one weight that means nothing, as Ω must have some."""

    @property
    def size(self) -> int:
        """One."""
        return 1

    def init(self, key: jax.Array) -> jax.Array:
        """Zero: float32 [1]."""
        del key
        return jnp.zeros(1, jnp.float32)

    def values(self, weights: jax.Array, own: jax.Array, others: jax.Array) -> jax.Array:
        """The platform's own; see :meth:`FederatedQ.values`."""
        del weights, others
        return own


@dataclass(frozen=True)
class PositionalHead(_Layered, FederatedQ):
    """The published network: one over [own ‖ others], with an output for each place.

    Attributes:
        candidates: N.
        widths: Units of each hidden layer; published: four of 2048, where the paper says five layers.
        squash: Tanh at the end.
    """

    candidates: int
    widths: tuple[int, ...] = (2048,) * 4
    squash: bool = True

    def __post_init__(self):
        _check(self.widths, candidates=self.candidates)

    @property
    def _layers(self):
        return _pairs(2 * self.candidates, self.widths, self.candidates)

    def values(self, weights: jax.Array, own: jax.Array, others: jax.Array) -> jax.Array:
        """Joint values [N]; see :meth:`FederatedQ.values`."""
        out = _forward(weights, self._layers, jnp.concatenate([own, others])[None], mish)[0]
        return jnp.tanh(out) if self.squash else out


@dataclass(frozen=True)
class PositionalLinearHead(PositionalHead):
    """The paper's ablation: a single linear layer over [own ‖ others], nothing after it."""

    widths: tuple[int, ...] = ()
    squash: bool = False


def _seen(own: jax.Array, others: jax.Array) -> jax.Array:
    """What a head sees of each item: float32 [N, 4]."""
    means = (jnp.broadcast_to(jnp.mean(values), values.shape) for values in (own, others))
    return jnp.stack([own, others, *means], axis=1)


def _check_share(share: float) -> None:
    if not 0 <= share <= 1:
        raise ConfigError(f"the others' share of a federated value must be in [0, 1], got {share}.")


def _check(widths: tuple[int, ...], activation: str = "mish", **counts: int) -> None:
    if any(not 1 <= width <= 65_536 for width in widths):
        raise ConfigError(f"widths of a value network must be in 1..65,536, got {widths}.")
    if activation not in ACTIVATIONS:
        raise ConfigError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}.")
    for name, count in counts.items():
        if count < 1:
            raise ConfigError(f"{name} of a value network must be at least 1, got {count}.")


def _pairs(inputs: int, widths: tuple[int, ...], outputs: int) -> tuple[tuple[int, int], ...]:
    """Inputs and outputs of each linear layer."""
    return tuple(itertools.pairwise((inputs, *widths, outputs)))


def _count(layers: tuple[tuple[int, int], ...]) -> int:
    return sum(before * after + after for before, after in layers)


def _uniform(key: jax.Array, layers: tuple[tuple[int, int], ...]) -> jax.Array:
    """Weights and biases uniform on ±1/√inputs of their layer: float32 [count]."""
    bound = [np.full(before * after + after, before**-0.5, np.float32) for before, after in layers]
    return jnp.concatenate(bound) * jax.random.uniform(key, (_count(layers),), jnp.float32, -1.0, 1.0)


def _first(weights: jax.Array, layers: tuple[tuple[int, int], ...]) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Matrix [inputs, outputs] and bias [outputs] of the first layer, and the weights of those after it."""
    before, after = layers[0]
    matrix, bias = before * after, before * after + after
    return weights[:matrix].reshape(before, after), weights[matrix:bias], weights[bias:]


def _forward(weights: jax.Array, layers: tuple[tuple[int, int], ...], x: jax.Array, activate: Callable) -> jax.Array:
    """Rows [rows, inputs] to rows [rows, outputs]; the last layer is linear."""
    while layers:
        matrix, bias, weights = _first(weights, layers)
        x, layers = x @ matrix + bias[None], layers[1:]
        x = activate(x) if layers else x
    return x
