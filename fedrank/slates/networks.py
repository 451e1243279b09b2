"""Networks for the values of clicks: each platform's own, and the one that joins theirs (Deng et al. 2024).

A platform's network gives N values from what it knows of the user and of its N candidates. The federated network Ω
takes the values of the platform that acts ("own") and those of the others, and gives the values that slates are made by
(equations 9 to 12). The same weights serve every platform, because "own" comes first.

The networks here share one small network over all items. Permute the candidates, and the values are permuted alike:
where candidates are drawn anew every round, a place in the list means nothing. Their output is linear.

Weights are one flat float32 vector, layer by layer: W [inputs, outputs] row by row, then b. They start as PyTorch's
linear layers do: uniform on ±1/√inputs.
"""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Key
from typing_extensions import override

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp

#: Beyond this, exp would overflow when squared, and Mish is the identity to the last bit.
_MISH_LINEAR = 20.0


def mish(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """x·tanh(ln(1 + eˣ)) (Misra 2020), with a single exponential: tanh(ln(1 + e)) = (e² + 2e) / (e² + 2e + 2)."""
    return _mish_with_slope()(x)


@functools.cache
def _mish_with_slope() -> Any:
    """:func:`mish` with a hand-written derivative; made when it is first asked for, because it needs JAX."""
    made = jax.custom_jvp(lambda x: x * _mish_gate(x))
    made.defjvp(_mish_jvp)
    return made


def _mish_jvp(at, along):
    # With t = tanh(ln(1 + e)) and c = 1 − t², dt/dx = 2 t c / (1 + t + √c): from t alone, to the last bits where t is
    # small. The exponential, the root and the quotients have a single use each, so that the compiler makes one loop of
    # what leads to t and one of what follows; of the derivative that JAX makes by itself it makes five.
    (x,), (dx,) = at, along
    t = _mish_gate(x)
    c = (1.0 - t) * (1.0 + t)
    return x * t, t * (1.0 + 2.0 * x * c / (1.0 + t + jnp.sqrt(c))) * dx


def _mish_gate(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """tanh(ln(1 + eˣ)), in (0, 1]."""
    e = jnp.exp(jnp.minimum(x, _MISH_LINEAR))
    square = e * (e + 2.0)
    return square / (square + 2.0)


class Network:
    """A network whose weights are one vector, by default of linear layers with an activation between them."""

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of each linear layer."""
        return ()

    @property
    def size(self) -> int:
        """Number of weights of the network."""
        return _count(self.layers)

    def init(self, key: Key[Array, ""]) -> Float[Array, " weights"]:
        """Random first weights, uniform on ±1/√inputs of their layer; ``key`` is consumed."""
        return _uniform(key, self.layers)


class LocalQ(Network, ABC):
    """A platform's own network: a Q-value for each candidate slate item, from a user's and the items' features."""

    @abstractmethod
    def values(
        self,
        weights: Float[Array, " weights"],
        user: Float[Array, " user_features"],
        items: Float[Array, "candidates item_features"],
    ) -> Float[Array, " candidates"]:
        """Value of a click on each candidate.

        Args:
            weights: Weights of the network.
            user: What the platform knows of the user.
            items: Features of the candidates.
        """

    def of_batch(
        self,
        weights: Float[Array, " weights"],
        user: Float[Array, "rows user_features"],
        items: Float[Array, "rows candidates item_features"],
    ) -> Float[Array, "rows candidates"]:
        """:meth:`values` of each row, as they are learnt from: a network may have its gradients written out."""
        return jax.vmap(self.values, in_axes=(None, 0, 0))(weights, user, items)


class FederatedQ(Network, ABC):
    """The network Ω that joins the platforms' values."""

    @abstractmethod
    def values(
        self,
        weights: Float[Array, " weights"],
        own: Float[Array, " candidates"],
        others: Float[Array, " candidates"],
    ) -> Float[Array, " candidates"]:
        """Joint values (equations 9 and 10).

        Args:
            weights: Weights of Ω.
            own: Values of the platform that acts.
            others: Values of the other platform, or the mean of several.
        """


@dataclass(frozen=True)
class ItemQ(LocalQ):
    """One network, of the user's and one item's features, shared by all items.

    Attributes:
        user_features: F.
        item_features: d.
        widths: Units of each hidden layer.
    """

    user_features: int
    item_features: int
    widths: tuple[int, ...] = (64, 64)

    def __post_init__(self):
        check_network(self.widths, user_features=self.user_features, item_features=self.item_features)

    @property
    @override
    def layers(self) -> tuple[tuple[int, int], ...]:
        return layer_pairs(self.user_features + self.item_features, self.widths, 1)

    @override
    def values(self, weights, user, items):
        matrix, bias, rest = _first(weights, self.layers)
        # The user's part of the first layer is the same for all items: once instead of N times, a tenth of the cost.
        shared = user @ matrix[: self.user_features] + bias
        hidden = items @ matrix[self.user_features :] + shared[None]
        later = self.layers[1:]
        return forward(rest, later, mish(hidden) if later else hidden)[:, 0]

    @override
    def of_batch(self, weights, user, items):
        return _item_values_with_gradients()(self, weights, user, items)


@functools.cache
def _item_values_with_gradients() -> Any:
    """:func:`_item_values` with hand-written gradients; made when it is first asked for, because it needs JAX."""
    made = jax.custom_vjp(_item_values, nondiff_argnums=(0,))
    made.defvjp(_item_values_kept, _item_values_back)
    return made


def _item_values(
    net: ItemQ,
    weights: Float[Array, " weights"],
    user: Float[Array, "rows user_features"],
    items: Float[Array, "rows candidates item_features"],
) -> Float[Array, "rows candidates"]:
    """:meth:`ItemQ.values` of each row. Its gradients are those that JAX derives, in a fifth less time.

    The slopes of the activations are made beside them. All rows and candidates are in one product a layer, and the
    gradients of the first layer's matrix and bias, which is a further row of the matrix for an input of one, in one.
    """
    return jax.vmap(net.values, in_axes=(None, 0, 0))(weights, user, items)


def _item_values_kept(net, weights, user, items):
    (_, after), later = net.layers[0], net.layers[1:]
    users = jnp.broadcast_to(user[:, None], (*items.shape[:2], user.shape[1]))
    together = jnp.concatenate([users, items, jnp.ones((*items.shape[:2], 1), items.dtype)], axis=2)
    inputs, slopes, cut = [together.reshape(-1, together.shape[2])], [], together.shape[2] * after
    x, rest = inputs[0] @ weights[:cut].reshape(-1, after), weights[cut:]
    for layer in later:
        x, slope = jax.jvp(mish, (x,), (jnp.ones_like(x),))
        inputs.append(x)
        slopes.append(slope)
        matrix, bias, rest = _first(rest, (layer,))
        x = x @ matrix + bias[None]
    return x.reshape(items.shape[:2]), (weights, inputs, slopes)


def _item_values_back(net, kept, gradient):
    weights, inputs, slopes = kept
    x, by_weights, end = gradient.reshape(-1, 1), [], net.size
    for at in range(len(net.layers) - 1, 0, -1):
        before, after = net.layers[at]
        start = end - _count(net.layers[at : at + 1])
        matrix, end = weights[start : start + before * after].reshape(before, after), start
        by_weights = [(inputs[at].T @ x).reshape(-1), jnp.sum(x, axis=0), *by_weights]
        x = (x * matrix.T if after == 1 else x @ matrix.T) * slopes[at - 1]
    by_weights = jnp.concatenate([(inputs[0].T @ x).reshape(-1), *by_weights])
    by_inputs = (x @ weights[:end].reshape(-1, x.shape[1]).T).reshape(*gradient.shape, -1)
    by_user, by_items = by_inputs[..., : net.user_features], by_inputs[..., net.user_features : -1]
    return by_weights, jnp.sum(by_user, axis=1), by_items


#: Inputs of a head for one item.
_HEAD_INPUTS = 4


@dataclass(frozen=True)
class ItemHead(FederatedQ):
    """a·own_i + b·others_i + f(own_i, others_i, mean own, mean others): one small network, shared by all items.

    The last layer of f starts at zero, and a + b = 1: the first joint values are a mean of both platforms' values. A
    platform without feedback begins with the others' opinion of an item, not with its random first weights.

    Attributes:
        widths: Units of each hidden layer.
        share: b before anything is learnt, in [0, 1]; 0 where item i of the others is another item.
    """

    widths: tuple[int, ...] = (32, 32)
    share: float = 0.5

    def __post_init__(self):
        check_network(self.widths)
        _check_share(self.share)

    @property
    @override
    def layers(self) -> tuple[tuple[int, int], ...]:  # of f
        return layer_pairs(_HEAD_INPUTS, self.widths, 1)

    @property
    @override
    def size(self) -> int:  # weights of f, then a and b
        return _count(self.layers) + 2

    @override
    def init(self, key):
        last = _count(self.layers[-1:])
        weights = _uniform(key, self.layers)
        skip = jnp.asarray([1.0 - self.share, self.share], jnp.float32)
        return jnp.concatenate([jnp.asarray(weights).at[len(weights) - last :].set(0.0), skip])

    @override
    def values(self, weights, own, others):
        inputs = _head_inputs(own, others)
        return weights[-2] * own + weights[-1] * others + forward(weights[:-2], self.layers, inputs)[:, 0]


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
    @override
    def size(self) -> int:
        return _HEAD_INPUTS + 1

    @override
    def init(self, key):  # a mean of both platforms' values
        del key
        return jnp.zeros(self.size, jnp.float32).at[:2].set(jnp.asarray([1.0 - self.share, self.share]))

    @override
    def values(self, weights, own, others):
        return _head_inputs(own, others) @ weights[:_HEAD_INPUTS] + weights[_HEAD_INPUTS]


@dataclass(frozen=True)
class IdentityHead(FederatedQ):
    """No federation: a platform's own values as they are. It has one weight that is not used, as Ω must have some."""

    @property
    @override
    def size(self) -> int:
        return 1

    @override
    def init(self, key):
        del key
        return jnp.zeros(1, jnp.float32)

    @override
    def values(self, weights, own, others):
        del weights, others
        return own


def _head_inputs(own: Float[Array, " candidates"], others: Float[Array, " candidates"]) -> Float[Array, "candidates 4"]:
    """The inputs of a head for each item: its own and the others' value, and the means of both over the candidates."""
    means = (jnp.broadcast_to(jnp.mean(values), values.shape) for values in (own, others))
    return jnp.stack([own, others, *means], axis=1)


def _check_share(share: float) -> None:
    if not 0 <= share <= 1:
        raise ConfigError(f"the others' share of a federated value must be in [0, 1], got {share}.")


def check_network(widths: tuple[int, ...], **counts: int) -> None:
    """Refuse widths or numbers of inputs that no network has.

    Raises:
        ConfigError: Says which.
    """
    if any(not 1 <= width <= 65_536 for width in widths):
        raise ConfigError(f"widths of a value network must be in 1..65,536, got {widths}.")
    for name, count in counts.items():
        if count < 1:
            raise ConfigError(f"{name} of a value network must be at least 1, got {count}.")


def layer_pairs(inputs: int, widths: tuple[int, ...], outputs: int) -> tuple[tuple[int, int], ...]:
    """Inputs and outputs of each linear layer between ``inputs`` and ``outputs`` numbers."""
    return tuple(itertools.pairwise((inputs, *widths, outputs)))


def _count(layers: tuple[tuple[int, int], ...]) -> int:
    return sum(before * after + after for before, after in layers)


def _uniform(key: Key[Array, ""], layers: tuple[tuple[int, int], ...]) -> Float[Array, " weights"]:
    """Weights and biases uniform on ±1/√inputs of their layer."""
    bound = [np.full(before * after + after, before**-0.5, np.float32) for before, after in layers]
    return jnp.concatenate(bound) * jax.random.uniform(key, (_count(layers),), jnp.float32, -1.0, 1.0)


def _first(
    weights: Float[Array, " weights"], layers: tuple[tuple[int, int], ...]
) -> tuple[Float[Array, "inputs outputs"], Float[Array, " outputs"], Float[Array, " rest"]]:
    """Matrix and bias of the first layer, and the weights of the layers after it."""
    before, after = layers[0]
    matrix, bias = before * after, before * after + after
    return weights[:matrix].reshape(before, after), weights[matrix:bias], weights[bias:]


def forward(
    weights: Float[Array, " weights"],
    layers: tuple[tuple[int, int], ...],
    x: Float[Array, "rows inputs"],
) -> Float[Array, "rows outputs"]:
    """The network's outputs for each row of inputs; :func:`mish` is between the layers, not after the last.

    Args:
        weights: Layer by layer, matrix and bias.
        layers: Inputs and outputs of each layer.
        x: Inputs.
    """
    while layers:
        matrix, bias, weights = _first(weights, layers)
        x, layers = x @ matrix + bias[None], layers[1:]
        x = mish(x) if layers else x
    return x
