"""Local training of many silos at once with NumPy: :meth:`fedrank.silos.local_sgd.LocalSgd.train`, gradient by hand.

Models are trained together whose silos have the same number of rows, so that a batch has the same number of rows for
all of them and none is padded. One step is then a stack of small matrix products for each layer.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, UInt32

from fedrank.silos.data.rows import Rows
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import EPSILON, TabularNetwork

#: Numbers of a layer's activations, over all models, that are worked on at once: what stays in a processor's cache.
_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class _Layer:
    """Parts of flat vectors [models, …] as arrays of one layer: views, [models, inputs, outputs] or [models, 1, units].

    Attributes:
        weight, bias: Of the linear layer.
        scale, shift: Of its normalisation; None where it has none.
    """

    weight: Float[np.ndarray, "models inputs outputs"]
    bias: Float[np.ndarray, "models 1 outputs"]
    scale: Float[np.ndarray, "models 1 outputs"] | None = None
    shift: Float[np.ndarray, "models 1 outputs"] | None = None


def _layers(network: TabularNetwork, vectors: Float[np.ndarray, "models numbers"]) -> list[_Layer]:
    """The layers of vectors that begin with the numbers that gradients change."""
    at, out = 0, []

    def take(*shape: int) -> np.ndarray:
        nonlocal at
        size = shape[0] * shape[1]
        at += size
        return vectors[:, at - size : at].reshape(len(vectors), *shape)

    for number, (before, after) in enumerate(network.layers):
        parts = [take(before, after), take(1, after)]
        if number < len(network.widths) and network.norm != "none":
            parts += [take(1, after), take(1, after)]
        out.append(_Layer(*parts))
    return out


def trained(
    sgd: LocalSgd,
    models: Float[np.ndarray, "models size"],
    rows: Rows,
    rng_bits: UInt32[np.ndarray, "models epochs rows"],
    pull: float = 0.0,
    anchors: Float[np.ndarray, "models size"] | None = None,
) -> Float32[np.ndarray, "models size"]:
    """Models after E epochs, each at a silo; one whose silo has no rows stays as it is.

    Args:
        sgd: Settings of training, without noise.
        models: The models to start from.
        rows: The silo of each: leading axis [models].
        rng_bits: Random bits of the shuffles.
        pull: λ of a term λ/2·‖θ − a‖² of the loss, over the numbers that gradients change (Ditto).
        anchors: a, one of each model.
    """
    out = np.array(models, np.float32)
    counts = np.asarray(rows.n)
    widest = max(sgd.network.n_features, 1, *sgd.network.widths) * min(sgd.batch, rows.x.shape[-2])
    together = max(1, _AT_ONCE // widest)
    with np.errstate(all="ignore"):  # a training that diverges is told by what comes out
        for n in np.unique(counts[counts > 0]).tolist():
            (same,) = np.nonzero(counts == n)
            for first in range(0, len(same), together):
                part = same[first : first + together]
                # Rows with equal bits are kept in the order of the rows, as everywhere: a stable sort.
                order = np.argsort(rng_bits[part, :, :n] >> np.uint32(1), axis=-1, kind="stable")
                x, y = np.asarray(rows.x)[part, :n], np.asarray(rows.y)[part, :n]
                near = None if anchors is None else np.float32(pull) * anchors[part, : sgd.network.trainable]
                out[part] = _together(sgd, out[part], x, y, order, min(sgd.batch, rows.x.shape[-2]), pull, near)
    return out


def _together(
    sgd: LocalSgd,
    models: Float32[np.ndarray, "models size"],
    x: Float[np.ndarray, "models rows features"],
    y: Float[np.ndarray, "models rows"],
    order: Int[np.ndarray, "models epochs rows"],
    width: int,
    pull: float,
    near: Float32[np.ndarray, "models trainable"] | None,
) -> Float32[np.ndarray, "models size"]:
    """The same of silos of equally many rows; ``models`` is changed and returned, ``near`` is λ·a."""
    net, n = sgd.network, x.shape[1]
    cut = net.trainable
    gradient = np.empty((len(models), cut), np.float32)
    layers, slopes = _layers(net, models), _layers(net, gradient)
    seen = np.empty((len(models), net.statistics), np.float32)
    batches = -(-n // width)
    ends = [-(-number * n // batches) for number in range(batches + 1)]
    each = np.arange(len(models))[:, None]
    for epoch in range(sgd.epochs):
        shuffled = order[:, epoch]
        xs, ys = x[each, shuffled], y[each, shuffled] > 0.5
        for begin, end in itertools.pairwise(ends):
            _gradient(net, layers, slopes, seen, xs[:, begin:end], ys[:, begin:end])
            if sgd.weight_decay:
                gradient += np.float32(sgd.weight_decay) * models[:, :cut]
            if near is not None:
                gradient += np.float32(pull) * models[:, :cut] - near
            gradient *= np.float32(sgd.learning_rate)
            models[:, :cut] -= gradient
            if net.statistics:
                seen -= models[:, cut:]
                seen *= np.float32(net.momentum)
                models[:, cut:] += seen
    return models


def _gradient(
    net: TabularNetwork,
    layers: list[_Layer],
    slopes: list[_Layer],
    seen: Float32[np.ndarray, "models statistics"],
    x: Float[np.ndarray, "models batch features"],
    y: Bool[np.ndarray, "models batch"],
) -> None:
    """The gradient of a batch's mean cross-entropy into ``slopes``, and the batch's statistics into ``seen``."""
    rows = np.float32(x.shape[1])
    inputs, kept = [x], []
    at = 0
    for layer in layers[:-1]:
        z = inputs[-1] @ layer.weight
        z += layer.bias
        if net.norm == "none":
            normal = inverse = None
        else:
            axis, many = (1, rows) if net.norm == "batch" else (2, np.float32(z.shape[2]))
            mean = z.sum(axis, keepdims=True) / many
            z -= mean
            squares = np.square(z).sum(axis, keepdims=True)
            inverse = 1 / np.sqrt(squares / many + np.float32(EPSILON))
            if net.norm == "batch":
                units = z.shape[2]
                seen[:, at : at + units] = mean[:, 0]
                seen[:, at + units : at + 2 * units] = squares[:, 0] / np.maximum(rows - 1, np.float32(1))
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
        layer, into = layers[number], slopes[number]
        np.matmul(inputs[number].swapaxes(1, 2), above, out=into.weight)
        above.sum(1, keepdims=True, out=into.bias)
        if number == 0:
            break
        below = above @ layer.weight.swapaxes(1, 2)
        below *= inputs[number] > 0
        normal, inverse = kept[number - 1]
        above = _through_norm(net, layers[number - 1], slopes[number - 1], normal, inverse, below)


def _through_norm(net: TabularNetwork, layer: _Layer, into: _Layer, normal: Any, inverse: Any, below: Any) -> Any:
    """The slope by what a normalisation got, from that by what it gave; those of its own numbers into ``into``."""
    if layer.scale is None or into.scale is None or into.shift is None:
        return below
    shift, product = into.shift, below * normal
    below.sum(1, keepdims=True, out=shift)
    product.sum(1, keepdims=True, out=into.scale)
    if net.norm == "batch":
        rows = np.float32(below.shape[1])
        below -= shift / rows
        below -= np.multiply(normal, into.scale / rows, out=product)
        below *= layer.scale * inverse
        return below
    units = np.float32(below.shape[2])
    below *= layer.scale
    np.multiply(below, normal, out=product)
    mean = product.sum(2, keepdims=True) / units
    below -= below.sum(2, keepdims=True) / units
    below -= np.multiply(normal, mean, out=product)
    below *= inverse
    return below
