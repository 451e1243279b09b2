"""Local training at a silo: some epochs of mini-batch SGD over its rows (Lundahl 2021, Algorithm 5).

Many silos are trained at once. Silos with equally many rows are trained together, so that batches have the same size
and no row is padded; one step is then a stack of small matrix products for each layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Float32, UInt32

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.streams import stream
from fedrank.privacy.randomised_response import os_words
from fedrank.silos.data.splits import Rows
from fedrank.silos.network import Gradient, TabularNetwork

#: Numbers of a layer's activations, over all models, that are computed at once: what stays in a processor's cache.
_AT_ONCE = 1 << 16

#: A step on one batch: changes models in place, given features [models, batch, features] and labels [models, batch].
Step: TypeAlias = Callable[[Float[np.ndarray, "models batch features"], Bool[np.ndarray, "models batch"]], None]


@dataclass(frozen=True)
class LocalSgd:
    """Settings of local training.

    Attributes:
        network: What is trained.
        epochs: E.
        batch: B, most rows of a batch. A silo's rows are cut into batches of nearly equal size: a rest of one or two
            rows would ruin batch normalisation, and leaving it out would leave out rows.
        learning_rate: η.
        weight_decay: λ of λ/2·‖θ‖², which is added to the loss.
    """

    network: TabularNetwork
    epochs: int = 6
    batch: int = 16
    learning_rate: float = 0.05
    weight_decay: float = 0.0

    #: Whether a training draws noise for every number of the network in every step.
    draws_noise: ClassVar[bool] = False

    def __post_init__(self):
        if not 0 < self.learning_rate < 1e6:
            raise ConfigError(f"learning_rate must be positive and finite, got {self.learning_rate}.")

    def for_rows(self, counts: set[int]) -> LocalSgd:
        """The same for silos of these numbers of rows."""
        return self

    def for_server(self) -> LocalSgd:
        """The same at a server that does not see the silos' rows."""
        return self

    def without_noise(self) -> LocalSgd:
        """The same without noise, for what stays at a silo."""
        return self

    def noise_on_judgements(self, values: int) -> Any:
        """Noise on AUCs by which a run chooses among the models; None where those have none.

        Args:
            values: How many AUCs the target tells in the run, at least 1.
        """
        return None

    def rng_shape(self, rows: int) -> tuple[int, int]:
        """Shape of the random bits of one training, [epochs, rows]: rows are shuffled in every epoch."""
        return self.epochs, rows

    def draw(self, keys: UInt32[np.ndarray, "silos 2"], shape: tuple[int, int]) -> PyTree:
        """The random numbers of simulated silos' trainings: uint32 [silos, epochs, rows].

        Args:
            keys: Both words of each silo's key, consumed.
            shape: As of :meth:`rng_shape`, with the epochs of all trainings.
        """
        return stream(keys, shape[0] * shape[1]).reshape(-1, *shape)

    def draw_from_os(self, shape: tuple[int, int]) -> PyTree:
        """The same of one real silo, from the operating system. The order of rows protects nothing."""
        return os_words(shape)

    def train(
        self,
        models: Float[np.ndarray, "silos numbers"],
        rows: Rows,
        draws: UInt32[np.ndarray, "silos epochs rows"],
        stepper: Callable[[Float32[np.ndarray, "models numbers"]], Step] | None = None,
    ) -> Float32[np.ndarray, "silos numbers"]:
        """Models after E epochs, each at a silo; a silo without rows returns the model that it got.

        Args:
            models: The models to start from: vectors of the network, or whatever ``stepper`` takes.
            rows: Training rows of each silo: leading axis [silos].
            draws: Random bits of the shuffles.
            stepper: A method's training: makes the step of some models, which changes them in place; by default
                :meth:`descent`.
        """
        out = np.array(models, np.float32)
        counts, most = np.asarray(rows.n), rows.x.shape[-2]
        width = min(self.batch, most)
        together = max(1, _AT_ONCE // (max(self.network.n_features, 1, *self.network.widths) * width))
        with np.errstate(all="ignore"):  # a training that diverges is recognised by its result
            for n in np.unique(counts[counts > 0]).tolist():
                (same,) = np.nonzero(counts == n)
                batches = -(-n // width)
                ends = [-(-number * n // batches) for number in range(batches + 1)]
                for first in range(0, len(same), together):
                    part = same[first : first + together]
                    each = np.arange(len(part))[:, None]
                    # Rows with equal bits are kept in the order of the rows: a stable sort, on every machine.
                    order = np.argsort(draws[part, :, :n] >> np.uint32(1), axis=-1, kind="stable")
                    x, y = rows.x[part, :n], rows.y[part, :n] > 0.5
                    mine = out[part]
                    step = (stepper or self.descent)(mine)
                    for epoch in range(self.epochs):
                        shuffled = order[:, epoch]
                        xs, ys = x[each, shuffled], y[each, shuffled]
                        for begin, end in itertools.pairwise(ends):
                            step(xs[:, begin:end], ys[:, begin:end])
                    out[part] = mine
        return out

    def descent(self, models: Float32[np.ndarray, "models size"]) -> Step:
        """A step of SGD, which changes models in place."""
        gradient = Gradient(self.network, models)

        def step(x: Any, y: Any) -> None:
            self.move(models, gradient(x, y), gradient.statistics)

        return step

    def move(
        self,
        models: Float32[np.ndarray, "models size"],
        slopes: Float32[np.ndarray, "models trainable"],
        statistics: Float32[np.ndarray, "models statistics"],
    ) -> None:
        """Change models by a step along slopes, with weight decay, and running statistics towards a batch's.

        Args:
            models: Changed in place.
            slopes: The gradient; consumed.
            statistics: Those of the batch; consumed.
        """
        net, cut = self.network, self.network.trainable
        if self.weight_decay:
            slopes += np.float32(self.weight_decay) * models[:, :cut]
        slopes *= np.float32(self.learning_rate)
        models[:, :cut] -= slopes
        if net.statistics:
            statistics -= models[:, cut:]
            statistics *= np.float32(net.momentum)
            models[:, cut:] += statistics
