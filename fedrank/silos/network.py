"""A network for tables: linear layers with a normalisation between them, ReLU, and the logits of two classes.

Lundahl 2021, Section 8.5: four linear layers, three batch normalisations between them, ReLU, softmax over two classes,
weights drawn from a normal distribution. Widths are not given there.

A network's numbers are one flat vector, so that models can be averaged, sent and counted: first what gradients change
(layer by layer: W row by row, b, and the normalisation's γ and β), then batch normalisation's running means and
variances. The statistics are part of the model on purpose. Where only what gradients change is averaged, as in many
federated codes, every party silently keeps its own statistics, and the averaged model has not been tested by any party.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, UInt32

from fedrank.core.errors import ConfigError
from fedrank.core.streams import normals, stream

#: How layers are normalised: over the batch (Ioffe and Szegedy 2015), over a row's units (Ba et al. 2016), or not.
NORMS = ("batch", "layer", "none")

#: Number of classes, hence of logits.
CLASSES = 2

#: Added to variances before the square root, as PyTorch's default.
EPSILON = 1e-5


@dataclass(frozen=True)
class TabularNetwork:
    """Features to two logits.

    Attributes:
        n_features: Columns of the table.
        widths: Units of each hidden layer.
        norm: One of :data:`NORMS`, after each hidden linear layer and before its ReLU.
        momentum: Part of a batch's statistics in the running ones, in (0, 1]; PyTorch's default.
    """

    n_features: int
    widths: tuple[int, ...] = (64, 32, 16)
    norm: Literal["batch", "layer", "none"] = "batch"
    momentum: float = 0.1

    def __post_init__(self):
        if self.n_features < 1:
            raise ConfigError(f"a network needs at least one feature, got {self.n_features}.")
        if any(not 1 <= width <= 65_536 for width in self.widths):
            raise ConfigError(f"widths must be in 1..65,536, got {self.widths}.")
        if self.norm not in NORMS:
            raise ConfigError(f"norm must be one of {', '.join(NORMS)}, got {self.norm!r}.")
        if not 0 < self.momentum <= 1:
            raise ConfigError(f"momentum must be in (0, 1], got {self.momentum}.")

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of each linear layer."""
        sizes = (self.n_features, *self.widths, CLASSES)
        return tuple(itertools.pairwise(sizes))

    @property
    def trainable(self) -> int:
        """Number of weights that gradients change; they come first in the vector."""
        affine = 0 if self.norm == "none" else 2 * sum(self.widths)
        return affine + sum(before * after + after for before, after in self.layers)

    @property
    def statistics(self) -> int:
        """Number of running means and variances; they come last."""
        return 2 * sum(self.widths) if self.norm == "batch" else 0

    @property
    def size(self) -> int:
        """Length of the vector of all the network's numbers."""
        return self.trainable + self.statistics

    def initial(self, keys: UInt32[np.ndarray, "*lead 2"]) -> Float32[np.ndarray, "*lead size"]:
        """Fresh weights: W ~ N(0, 2 / inputs) (He et al. 2015), biases 0, normalisations the identity.

        The thesis says "normal" and no more; with a fixed variance of 1 the logits would be in the hundreds.

        Args:
            keys: Both words of a key for each network, consumed.
        """
        scale, constant = np.zeros(self.size, np.float32), np.zeros(self.size, np.float32)
        at = 0
        for name, shape in self._shapes:
            here = slice(at, at := at + int(np.prod(shape)))
            if name.startswith("layer") and name.endswith(".weight"):
                scale[here] = np.sqrt(2 / shape[0])
            elif name.endswith((".weight", ".running_var")):
                constant[here] = 1.0
        return constant + scale * normals(stream(keys, self.size))

    def of_log_odds(self, beta: Float[np.ndarray, " p"]) -> Float32[np.ndarray, " size"]:
        """The numbers of a network without hidden layers that has these coefficients, the intercept first."""
        half = np.outer(beta, (-0.5, 0.5))
        return np.concatenate([half[1:].ravel(), half[0]]).astype(np.float32)

    @property
    def _shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Name and shape of every tensor of the vector, in order."""
        shapes: list[tuple[str, tuple[int, ...]]] = []
        for number, (before, after) in enumerate(self.layers, 1):
            shapes += [(f"layer{number}.weight", (before, after)), (f"layer{number}.bias", (after,))]
            if number <= len(self.widths) and self.norm != "none":
                shapes += [(f"norm{number}.weight", (after,)), (f"norm{number}.bias", (after,))]
        if self.norm == "batch":
            for number, width in enumerate(self.widths, 1):
                shapes += [(f"norm{number}.running_mean", (width,)), (f"norm{number}.running_var", (width,))]
        return shapes

    def logits(
        self, weights: Float[np.ndarray, "*#lead size"], x: Float[np.ndarray, "*#lead rows features"]
    ) -> Float[np.ndarray, "*lead rows 2"]:
        """Logits as finished models give them, with the running statistics.

        Args:
            weights: One model, or many with leading axes.
            x: Features, with leading axes that broadcast against the models'.
        """
        return self._forward(weights[..., : self.trainable], x, running=weights[..., self.trainable :])[0]

    def scores(
        self, weights: Float[np.ndarray, "*#lead size"], x: Float[np.ndarray, "*#lead rows features"]
    ) -> Float[np.ndarray, "*lead rows"]:
        """The log-odds of label 1: the difference of the logits; arguments as of :meth:`logits`."""
        logits = self.logits(weights, x)
        return logits[..., 1] - logits[..., 0]

    def recalibrate(
        self,
        weights: Float[np.ndarray, "*lead size"],
        x: Float[np.ndarray, "*lead rows features"],
        where: Bool[np.ndarray, "*lead rows"],
    ) -> Float[np.ndarray, "*lead size"]:
        """The same model with running statistics that are those of the rows ``x``; without batch norm, unchanged.

        An average of models has averaged means and variances, which are those of no data at all. Layer after layer,
        each with the statistics of what the layers before it now give. Of no rows at all, the statistics stay.
        """
        if self.norm != "batch":
            return weights
        statistics = self._forward(weights[..., : self.trainable], x, where=where)[1]
        kept = np.where(np.any(where, axis=-1)[..., None], statistics, weights[..., self.trainable :])
        return np.concatenate([weights[..., : self.trainable], kept], axis=-1)

    def _forward(
        self,
        trainable: Float[np.ndarray, "*#lead trainable"],
        x: Float[np.ndarray, "*#lead rows features"],
        where: Bool[np.ndarray, "*#lead rows"] | None = None,
        running: Float[np.ndarray, "*#lead statistics"] | None = None,
    ) -> tuple[Float[np.ndarray, "*lead rows 2"], Float[np.ndarray, "*lead batch_statistics"]]:
        """Logits, and the statistics of the batch; ``running`` ones are used instead where they are given."""
        seen, statistics, lead = 0, [], trainable.shape[:-1]
        *layers, last = _layers(self, trainable)
        for layer in layers:
            x = x @ layer.weight + layer.bias
            if layer.scale is not None and layer.shift is not None:
                units = layer.scale.shape[-1]
                if self.norm == "layer":
                    mean, variance = np.mean(x, -1, keepdims=True), np.var(x, -1, keepdims=True)
                elif running is not None:
                    both = running[..., seen : seen + 2 * units].reshape(*lead, 2, 1, units)
                    mean, variance = both[..., 0, :, :], both[..., 1, :, :]
                    seen += 2 * units
                else:
                    mean, variance, unbiased = _batch_moments(x, where)
                    statistics += [mean[..., 0, :], unbiased[..., 0, :]]
                x = (x - mean) * (1 / np.sqrt(variance + EPSILON) * layer.scale) + layer.shift
            x = np.maximum(x, 0)
        x = x @ last.weight + last.bias
        return x, np.concatenate(statistics, axis=-1) if statistics else np.zeros((*lead, 0), np.float32)

    def tensors(self, weights: Float[np.ndarray, " size"] | Int[np.ndarray, " size"]) -> dict[str, np.ndarray]:
        """The vector as named tensors, for a file: ``layer1.weight`` [inputs, outputs], ``layer1.bias``, and so on."""
        ends = np.cumsum([int(np.prod(shape)) for _, shape in self._shapes])
        parts = np.split(np.asarray(weights), ends[:-1])
        return {name: part.reshape(shape) for (name, shape), part in zip(self._shapes, parts, strict=True)}

    def positions(self, what: Literal["norm", "statistics", "head"]) -> Int[np.ndarray, " positions"]:
        """Positions of a part of the network in the vector, ascending.

        Args:
            what: ``"norm"``: γ, β and statistics (what FedBN keeps at a party); ``"statistics"``; ``"head"``: the last
                linear layer (what FedPer keeps).
        """
        begin = {"norm": "norm", "statistics": "norm", "head": f"layer{len(self.layers)}."}[what]
        named = self.tensors(np.arange(self.size))
        chosen = [
            part.reshape(-1)
            for name, part in named.items()
            if name.startswith(begin) and (what != "statistics" or ".running_" in name)
        ]
        return np.sort(np.concatenate([np.zeros(0, int), *chosen]))


def _batch_moments(
    x: Float[np.ndarray, "*lead rows units"], where: Bool[np.ndarray, "*#lead rows"] | None
) -> tuple[Float[np.ndarray, "*lead 1 units"], Float[np.ndarray, "*lead 1 units"], Float[np.ndarray, "*lead 1 units"]]:
    """Mean, variance and unbiased variance of the rows that count."""
    assert where is not None  # batch statistics are of a batch
    weight = where.astype(x.dtype)[..., None]
    count = np.maximum(np.sum(weight, axis=-2, keepdims=True), 1.0)
    mean = np.sum(x * weight, axis=-2, keepdims=True) / count
    squares = np.sum((x - mean) ** 2 * weight, axis=-2, keepdims=True)
    return mean, squares / count, squares / np.maximum(count - 1.0, 1.0)


@dataclass(frozen=True)
class _Layer:
    """Numbers of one layer in flat vectors [*lead, …]: views, [*lead, inputs, outputs] or [*lead, 1, units].

    Attributes:
        weight, bias: Of the linear layer.
        scale, shift: Of its normalisation; None without one.
    """

    weight: Float[np.ndarray, "*lead inputs outputs"]
    bias: Float[np.ndarray, "*lead 1 outputs"]
    scale: Float[np.ndarray, "*lead 1 outputs"] | None = None
    shift: Float[np.ndarray, "*lead 1 outputs"] | None = None


def _layers(network: TabularNetwork, vectors: Float[np.ndarray, "*lead numbers"]) -> list[_Layer]:
    """The layers of vectors that begin with the numbers that gradients change."""
    at, out = 0, []
    for number, (before, after) in enumerate(network.layers):
        parts = []
        for rows in (before, 1, 1, 1) if number < len(network.widths) and network.norm != "none" else (before, 1):
            part = vectors[..., at : at + rows * after]
            parts.append(part.reshape(*vectors.shape[:-1], rows, after))
            at += rows * after
        out.append(_Layer(*parts))
    return out


class Gradient:
    """Gradient of a batch's mean cross-entropy at many models, written out by hand.

    Args:
        network: The network of all models.
        models: Vectors [..., numbers] that begin with what gradients change. They are looked at in each call.

    Attributes:
        slopes: The last gradient, [..., trainable].
        statistics: Means and unbiased variances of the last batch, as in PyTorch, [..., statistics].
    """

    def __init__(self, network: TabularNetwork, models: Float[np.ndarray, "*lead numbers"]):
        self.network, lead = network, models.shape[:-1]
        self.slopes = np.empty((*lead, network.trainable), np.float32)
        self.statistics = np.empty((*lead, network.statistics), np.float32)
        self._layers, self._into = _layers(network, models), _layers(network, self.slopes)

    def __call__(
        self, x: Float[np.ndarray, "*lead batch features"], y: Bool[np.ndarray, "*lead batch"]
    ) -> Float32[np.ndarray, "*lead trainable"]:
        """:attr:`slopes` of one batch for each model; :attr:`statistics` change, too."""
        inputs: list[Any] = [x]
        kept: list[tuple[Any, Any]] = []
        rows, layers, at = np.float32(x.shape[-2]), self._layers, 0
        for layer in layers[:-1]:
            z = inputs[-1] @ layer.weight
            z += layer.bias
            if self.network.norm == "none":
                normal = inverse = None
            else:
                axis, many = (-2, rows) if self.network.norm == "batch" else (-1, np.float32(z.shape[-1]))
                mean = z.sum(axis, keepdims=True) / many
                z -= mean
                squares = np.square(z).sum(axis, keepdims=True)
                inverse = 1 / np.sqrt(squares / many + np.float32(EPSILON))
                if self.network.norm == "batch":
                    units = z.shape[-1]
                    self.statistics[..., at : at + units] = mean[..., 0, :]
                    unbiased = squares[..., 0, :] / np.maximum(rows - 1, np.float32(1))
                    self.statistics[..., at + units : at + 2 * units] = unbiased
                    at += 2 * units
                normal = np.multiply(z, inverse, out=z)
                z = normal * layer.scale
                z += layer.shift
            kept.append((normal, inverse))
            inputs.append(np.maximum(z, 0, out=z))
        logits = inputs[-1] @ layers[-1].weight + layers[-1].bias
        margin = logits[..., 1] - logits[..., 0]
        slope = (1 / (1 + np.exp(-margin)) - y) / rows
        above = np.stack([-slope, slope], axis=-1)
        for number in range(len(layers) - 1, -1, -1):
            into = self._into[number]
            np.matmul(inputs[number].swapaxes(-1, -2), above, out=into.weight)
            above.sum(-2, keepdims=True, out=into.bias)
            if number == 0:
                break
            below = above @ layers[number].weight.swapaxes(-1, -2)
            below *= inputs[number] > 0
            normal, inverse = kept[number - 1]
            above = self._through_norm(number - 1, normal, inverse, below)
        return self.slopes

    def _through_norm(self, number: int, normal: Any, inverse: Any, below: Any) -> Any:
        """The slope with respect to a normalisation's input, from that of its output."""
        layer, into = self._layers[number], self._into[number]
        if layer.scale is None or into.scale is None or into.shift is None:
            return below
        shift, product = into.shift, below * normal
        below.sum(-2, keepdims=True, out=shift)
        product.sum(-2, keepdims=True, out=into.scale)
        if self.network.norm == "batch":
            rows = np.float32(below.shape[-2])
            below -= shift / rows
            below -= np.multiply(normal, into.scale / rows, out=product)
            below *= layer.scale * inverse
            return below
        units = np.float32(below.shape[-1])
        below *= layer.scale
        np.multiply(below, normal, out=product)
        mean = product.sum(-1, keepdims=True) / units
        below -= below.sum(-1, keepdims=True) / units
        below -= np.multiply(normal, mean, out=product)
        below *= inverse
        return below


#: Rows of a block: a silo's validation rows are few.
ROWS = 128


def blocks(x: Float[np.ndarray, "rows features"]) -> Float32[np.ndarray, "blocks block_rows features"]:
    """Rows in blocks of :data:`ROWS`, the last one filled up with zeros."""
    x = np.asarray(x, np.float32)
    filled = np.zeros((-(-max(1, len(x)) // ROWS) * ROWS, x.shape[1]), np.float32)
    filled[: len(x)] = x
    return filled.reshape(-1, ROWS, x.shape[1])


def scores(
    network: TabularNetwork,
    weights: Float[np.ndarray, " size"],
    parts: Float[np.ndarray, "blocks block_rows features"],
    n_rows: int,
) -> Float32[np.ndarray, " rows"]:
    """Log-odds of label 1.

    Args:
        network: The network.
        weights: All of its numbers.
        parts: The rows as :func:`blocks` makes them.
        n_rows: Number of rows in all blocks, without what fills up the last one.

    Returns:
        float32 [n_rows].
    """
    model = np.ascontiguousarray(weights, np.float32)
    with np.errstate(all="ignore"):  # a model that diverged scores no numbers
        return np.concatenate([network.scores(model, part) for part in parts])[:n_rows]
