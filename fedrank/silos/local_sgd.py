"""Local training at a silo: some epochs of mini-batch SGD over its rows (Lundahl 2021, Algorithm 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Float, Key, UInt32

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.privacy.randomised_response import os_words
from fedrank.silos.data.rows import Rows
from fedrank.silos.network import TabularNetwork


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
        if not 1 <= self.epochs <= 10_000:
            raise ConfigError(f"epochs must be in 1..10,000, got {self.epochs}.")
        if not 1 <= self.batch <= 10**6:
            raise ConfigError(f"batch must be in 1..1,000,000 rows, got {self.batch}.")
        if not 0 < self.learning_rate < 1e6:
            raise ConfigError(f"learning_rate must be positive and finite, got {self.learning_rate}.")
        if not 0 <= self.weight_decay < 1e6:
            raise ConfigError(f"weight_decay must not be negative, got {self.weight_decay}.")

    def rng_shape(self, rows: int) -> tuple[int, int]:
        """Shape of the random bits of one training, [epochs, rows]: rows are shuffled in every epoch."""
        return self.epochs, rows

    def draw(self, key: Key[Array, ""], shape: tuple[int, int]) -> PyTree:
        """The random numbers of a simulated silo's training, or of several.

        Args:
            key: Consumed.
            shape: As of :meth:`rng_shape`, with the epochs of all trainings.
        """
        return jax.random.bits(key, shape, jnp.uint32)

    def draw_from_os(self, shape: tuple[int, int]) -> PyTree:
        """The same of a real silo, from the operating system. The order of rows protects nobody."""
        return jnp.asarray(os_words(shape))

    def train(
        self,
        weights: Float[AnyArray, " size"],
        rows: Rows,
        rng_bits: UInt32[AnyArray, "epochs rows"],
        *,
        penalty: Callable[[Float[AnyArray, " trainable"]], Float[AnyArray, ""]] | None = None,
        frozen: Bool[AnyArray, " trainable"] | None = None,
    ) -> Float[AnyArray, " size"]:
        """The model after E epochs; a silo without rows returns the model that it got.

        Args:
            weights: The model to start from.
            rows: The silo's training rows: x [rows, features], y [rows], n.
            rng_bits: Random bits of the shuffles.
            penalty: A term of the loss, a function of the numbers that gradients change, such as Ditto's pull.
            frozen: Which of these numbers stay as they are.
        """
        rows = Rows(*(jnp.asarray(leaf) for leaf in rows))
        net, most = self.network, rows.x.shape[0]
        width = min(self.batch, most)
        batches = -(-most // width)
        cut = net.trainable
        valid = jnp.arange(most) < rows.n
        # Rows with equal bits are kept in the order of the rows: a stable sort, the same on every machine.
        order = jnp.argsort(jnp.where(valid[None], rng_bits >> 1, jnp.uint32(0xFFFFFFFF)), axis=-1, stable=True)
        mine = jnp.maximum(-(-rows.n // width), 1)  # batches of this silo
        number = jnp.arange(batches)
        first, end = (-(-(number + more) * rows.n // mine) for more in (0, 1))
        position = first[:, None] + jnp.arange(width)[None]
        where = (position < end[:, None]) & (number < mine)[:, None]
        position = jnp.minimum(position, most - 1)

        def objective(trainable, x, y, where):
            loss, statistics = net.loss(trainable, x, y, where)
            if self.weight_decay:
                loss = loss + 0.5 * self.weight_decay * jnp.sum(trainable * trainable)
            return loss if penalty is None else loss + penalty(trainable), statistics

        def step(model, batch):
            chosen, where = batch
            gradient, seen = jax.grad(objective, has_aux=True)(model[:cut], rows.x[chosen], rows.y[chosen], where)
            if frozen is not None:
                gradient = jnp.where(frozen, 0.0, gradient)
            moved = model[:cut] - self.learning_rate * gradient
            running = model[cut:] + net.momentum * (seen - model[cut:])
            return jnp.where(jnp.any(where), jnp.concatenate([moved, running]), model), None

        chosen = order[:, position].reshape(-1, width)
        always = jnp.broadcast_to(where, (self.epochs, batches, width)).reshape(-1, width)
        return jax.lax.scan(step, weights, (chosen, always))[0]
