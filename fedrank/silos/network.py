"""A network for tables: linear layers with a normalisation between them, ReLU, and the logits of two classes.

Lundahl 2021, Section 8.5: four linear layers, three batch normalisations between them, ReLU, softmax over two classes,
weights drawn from a normal distribution. Widths are not given there.

A network's numbers are one flat vector, so that models can be averaged, sent and counted: first what gradients change
(layer by layer: W row by row, b, and the normalisation's γ and β), then batch normalisation's running means and
variances. The statistics are part of the model on purpose. Where only what gradients change is averaged, as in many
federated codes, every party silently keeps its own statistics, and the averaged model is one that nobody has tested.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int, Key

from fedrank.core.arrays import AnyArray, module_of
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp

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
        """How many numbers gradients change; they come first in the vector."""
        affine = 0 if self.norm == "none" else 2 * sum(self.widths)
        return affine + sum(before * after + after for before, after in self.layers)

    @property
    def statistics(self) -> int:
        """How many running means and variances there are; they come last."""
        return 2 * sum(self.widths) if self.norm == "batch" else 0

    @property
    def size(self) -> int:
        """Length of the vector of all the network's numbers."""
        return self.trainable + self.statistics

    def initial(self, key: Key[Array, ""]) -> Float[AnyArray, " size"]:
        """Fresh weights: W ~ N(0, 2 / inputs) (He et al. 2015), biases 0, normalisations the identity.

        The thesis says "normal" and no more; with a fixed variance of 1 the logits would be in the hundreds.
        """
        # The barrier keeps the compiler from joining factors: the same bits in a program as by itself.
        normal = jax.lax.optimization_barrier(jax.random.normal(key, (self.size,), jnp.float32))
        return self.initial_of(normal)

    def initial_of(self, normal: Float[AnyArray, "*lead size"]) -> Float[AnyArray, "*lead size"]:
        """Fresh weights of standard normal numbers, as :meth:`initial` draws them."""
        xp = module_of(normal)
        scale, constant = np.zeros(self.size, np.float32), np.zeros(self.size, np.float32)
        at = 0
        for name, shape in self._shapes:
            here = slice(at, at := at + int(np.prod(shape)))
            if name.startswith("layer") and name.endswith(".weight"):
                scale[here] = np.sqrt(2 / shape[0])
            elif name.endswith((".weight", ".running_var")):
                constant[here] = 1.0
        return xp.asarray(constant) + xp.asarray(scale) * normal

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
        self, weights: Float[AnyArray, "*#lead size"], x: Float[AnyArray, "*#lead rows features"]
    ) -> Float[AnyArray, "*lead rows 2"]:
        """Logits as finished models give them, with the running statistics.

        Args:
            weights: One model, or many with leading axes.
            x: Features, with leading axes that broadcast against the models'.
        """
        return self._forward(weights[..., : self.trainable], x, running=weights[..., self.trainable :])[0]

    def scores(
        self, weights: Float[AnyArray, "*#lead size"], x: Float[AnyArray, "*#lead rows features"]
    ) -> Float[AnyArray, "*lead rows"]:
        """The log-odds of label 1: the difference of the logits; arguments as of :meth:`logits`."""
        logits = self.logits(weights, x)
        return logits[..., 1] - logits[..., 0]

    def loss(
        self,
        trainable: Float[AnyArray, " trainable"],
        x: Float[AnyArray, "rows features"],
        y: Float[AnyArray, " rows"],
        where: Bool[AnyArray, " rows"],
    ) -> tuple[Float[AnyArray, ""], Float[AnyArray, " statistics"]]:
        """Mean cross-entropy of a batch, normalised by the batch's own statistics.

        Args:
            trainable: The numbers that gradients change.
            x: Features.
            y: Labels, 0 or 1.
            where: Which rows count.

        Returns:
            The loss, and the batch's statistics, with unbiased variances as in PyTorch.
        """
        logits, statistics = self._forward(trainable, x, where=where)
        margin = logits[:, 1] - logits[:, 0]
        each = jax.nn.softplus(jnp.where(y > 0.5, -margin, margin))
        return jnp.sum(jnp.where(where, each, 0.0)) / jnp.maximum(jnp.sum(where), 1), statistics

    def recalibrated(
        self,
        weights: Float[AnyArray, "*lead size"],
        x: Float[AnyArray, "*lead rows features"],
        where: Bool[AnyArray, "*lead rows"],
    ) -> Float[AnyArray, "*lead size"]:
        """The same model with running statistics that are those of the rows ``x``; without batch norm, unchanged.

        An average of models has averaged means and variances, which are those of no data at all. Layer after layer,
        each with the statistics of what the layers before it now give. Of no rows at all, the statistics stay.
        """
        if self.norm != "batch":
            return weights
        xp = module_of(weights, x)
        statistics = self._forward(weights[..., : self.trainable], x, where=where)[1]
        kept = xp.where(xp.any(where, axis=-1)[..., None], statistics, weights[..., self.trainable :])
        return xp.concatenate([weights[..., : self.trainable], kept], axis=-1)

    def _forward(
        self,
        trainable: Float[AnyArray, "*#lead trainable"],
        x: Float[AnyArray, "*#lead rows features"],
        where: Bool[AnyArray, "*#lead rows"] | None = None,
        running: Float[AnyArray, "*#lead statistics"] | None = None,
    ) -> tuple[Float[AnyArray, "*lead rows 2"], Float[AnyArray, "*lead batch_statistics"]]:
        """Logits, and the statistics of the batch; ``running`` ones are used instead where they are given."""
        xp = module_of(trainable, x)
        x = xp.asarray(x)
        at, seen, statistics, lead = 0, 0, [], trainable.shape[:-1]

        def take(*shape):
            nonlocal at
            size = int(np.prod(shape))
            at += size
            return trainable[..., at - size : at].reshape(*lead, *shape)

        for number, (before, after) in enumerate(self.layers):
            x = x @ take(before, after) + take(1, after)
            if number == len(self.widths):
                break
            if self.norm != "none":
                scale, shift = take(1, after), take(1, after)
                if self.norm == "layer":
                    mean, variance = xp.mean(x, -1, keepdims=True), xp.var(x, -1, keepdims=True)
                elif running is not None:
                    both = running[..., seen : seen + 2 * after].reshape(*lead, 2, 1, after)
                    mean, variance = both[..., 0, :, :], both[..., 1, :, :]
                    seen += 2 * after
                else:
                    mean, variance, unbiased = _batch_moments(x, where)
                    statistics += [mean[..., 0, :], unbiased[..., 0, :]]
                x = (x - mean) * (_inverse_root(variance + EPSILON) * scale) + shift
            x = np.maximum(x, 0) if xp is np else jax.nn.relu(x)
        return x, xp.concatenate(statistics, axis=-1) if statistics else xp.zeros((*lead, 0), np.float32)

    def tensors(self, weights: Float[AnyArray, " size"] | Int[np.ndarray, " size"]) -> dict[str, np.ndarray]:
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
    x: Float[AnyArray, "*lead rows units"], where: Bool[AnyArray, "*#lead rows"] | None
) -> tuple[Float[AnyArray, "*lead 1 units"], Float[AnyArray, "*lead 1 units"], Float[AnyArray, "*lead 1 units"]]:
    """Mean, variance and unbiased variance of the rows that count."""
    assert where is not None  # batch statistics are of a batch
    xp = module_of(x, where)
    weight = where.astype(x.dtype)[..., None]
    count = xp.maximum(xp.sum(weight, axis=-2, keepdims=True), 1.0)
    mean = xp.sum(x * weight, axis=-2, keepdims=True) / count
    squares = xp.sum((x - mean) ** 2 * weight, axis=-2, keepdims=True)
    return mean, squares / count, squares / xp.maximum(count - 1.0, 1.0)


def _inverse_root(x: Float[AnyArray, "*shape"]) -> Float[AnyArray, "*shape"]:
    return 1 / np.sqrt(x) if module_of(x) is np else jax.lax.rsqrt(x)
