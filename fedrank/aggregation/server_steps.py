"""Steps of a server: how it moves its model once a round's replies are combined.

A step is a frozen dataclass whose fields are settings, found by an entry point of ``fedrank.server_steps``. It is given
a direction, a gradient uphill or the way to the devices' mean, and works on arrays of NumPy and JAX alike, with any
leading axes: those of several runs.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from typing_extensions import override

from fedrank.core.arrays import AnyArray, module_of
from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting


class Moments(NamedTuple):
    """State of a step that adapts to past directions.

    Attributes:
        count: int32 [...]: steps taken.
        first: float32 [..., n]: moving mean of the directions.
        second: float32 [..., n]: moving mean of their squares.
    """

    count: Int[AnyArray, "*runs"]
    first: Float[AnyArray, "*runs n"]
    second: Float[AnyArray, "*runs n"]


class ServerStep(abc.ABC):
    """A step of the server.

    Attributes:
        name: Name in files and on the command line.
        kind: ``"gradient"`` for steps along a gradient, ``"mean"`` for steps towards the mean of the devices' weights.
        citation: Key in ``core/references.bib``.
        averages: The model becomes the mean of the devices' weights.
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    citation: ClassVar[str] = ""
    averages: ClassVar[bool] = False

    def init(self, weights: Float[AnyArray, "*runs n"]) -> Any:
        """State before the first step; by default none."""
        del weights
        return ()

    @abc.abstractmethod
    def step(
        self,
        state: Any,
        weights: Float[AnyArray, "*runs n"],
        direction: Float[AnyArray, "*runs n"],
        heard: Bool[AnyArray, "*runs"],
    ) -> tuple[Float[AnyArray, "*runs n"], Any]:
        """Weights and state after a step.

        Args:
            state: State before.
            weights: Weights before.
            direction: Gradient of what is to grow, or the way to the devices' mean.
            heard: False: no reply arrived, and nothing changes.
        """

    def towards(
        self,
        state: Any,
        weights: Float[AnyArray, "*runs n"],
        mean: Float[AnyArray, "*runs n"],
        heard: Bool[AnyArray, "*runs"],
    ) -> tuple[Float[AnyArray, "*runs n"], Any]:
        """:meth:`step` towards the mean of the devices' weights."""
        return self.step(state, weights, mean - weights, heard)


@dataclass(frozen=True)
class Average(ServerStep):
    """The mean of the devices' weights becomes the model (FedAvg)."""

    name, kind, citation = "average", "mean", "mcmahan2017fedavg"
    averages = True

    @override
    def step(self, state, weights, direction, heard):
        return self.towards(state, weights, weights + direction, heard)

    @override
    def towards(self, state, weights, mean, heard):
        return module_of(weights, mean).where(heard[..., None], mean, weights), state


@dataclass(frozen=True)
class SGD(ServerStep):
    """A step along the direction, times the learning rate."""

    name, kind = "sgd", "gradient"

    learning_rate: float = setting(0.1, "Step size of the server.")

    def __post_init__(self):
        _check_positive(learning_rate=self.learning_rate)

    @override
    def step(self, state, weights, direction, heard):
        moved = weights + np.float32(self.learning_rate) * direction
        return module_of(weights, direction).where(heard[..., None], moved, weights), state


@dataclass(frozen=True)
class Adam(ServerStep):
    """A step of Adam (Kingma and Ba, ICLR 2015, Algorithm 1) uphill, with the decay rates 0.9 and 0.999."""

    name, kind, citation = "adam", "gradient", "kingma2015adam"

    learning_rate: float = setting(0.001, "Step size of the server.")

    def __post_init__(self):
        _check_positive(learning_rate=self.learning_rate)

    @override
    def init(self, weights):
        xp = module_of(weights)
        zero = xp.zeros(weights.shape, xp.float32)
        return Moments(xp.zeros(weights.shape[:-1], xp.int32), zero, zero)

    @override
    def step(self, state, weights, direction, heard):
        xp, one = module_of(weights, direction), np.float32(1)
        # Rounded from double precision: 1 − 0.999 in single precision is off by 5e-5 of itself.
        first = np.float32(1 - 0.9) * direction + np.float32(0.9) * state.first
        second = np.float32(1 - 0.999) * (direction * direction) + np.float32(0.999) * state.second
        count = xp.where(heard, state.count + 1, state.count).astype(xp.int32)
        steps = xp.maximum(count, 1).astype(xp.float32)[..., None]
        first_mean = first / (one - np.float32(0.9) ** steps)
        step = first_mean / (xp.sqrt(second / (one - np.float32(0.999) ** steps)) + np.float32(1e-8))
        some = heard[..., None]
        # Adam would go on by its momentum where no reply arrived.
        moved = weights + xp.where(some, np.float32(self.learning_rate) * step, np.float32(0))
        return moved, Moments(count, xp.where(some, first, state.first), xp.where(some, second, state.second))


@dataclass(frozen=True)
class FedAdam(ServerStep):
    """An adaptive step towards the devices' mean (Reddi et al., ICLR 2021, Algorithm 2): Adam without bias correction.

    With Δ the way to the mean::

        m ← β₁ m + (1 − β₁) Δ,    v ← β₂ v + (1 − β₂) Δ²,    θ ← θ + η m / (√v + τ)

    v starts at τ². The other steps of the paper differ in v. The defaults are those of the paper's text tasks.
    """

    name, kind, citation = "fedadam", "mean", "reddi2021fedopt"

    learning_rate: float = setting(0.01, "Step size of the server.")
    beta_1: float = setting(0.9, "Decay of the mean change.")
    beta_2: float = setting(0.99, "Decay of its square.")
    tau: float = setting(1e-3, "How adaptive the server's steps are; the smaller, the more.")

    def __post_init__(self):
        _check_positive(learning_rate=self.learning_rate, tau=self.tau)
        for name, beta in (("beta_1", self.beta_1), ("beta_2", self.beta_2)):
            if not 0 <= beta < 1:
                raise ConfigError(f"{name} must be in [0, 1), got {beta}.")

    @override
    def init(self, weights):
        xp = module_of(weights)
        zero = xp.zeros(weights.shape, xp.float32)
        return Moments(xp.zeros(weights.shape[:-1], xp.int32), zero, zero + np.float32(self.tau) ** 2)

    def square(self, old: Float[AnyArray, "*runs n"], new: Float[AnyArray, "*runs n"]) -> Float[AnyArray, "*runs n"]:
        """V after a step, from v before it and Δ²."""
        gamma = np.float32(self.beta_2)
        return gamma * old + (1 - gamma) * new

    @override
    def step(self, state, weights, direction, heard):
        xp, beta = module_of(weights, direction), np.float32(self.beta_1)
        moment = beta * state.first + (1 - beta) * direction
        square = self.square(state.second, direction * direction)
        moved = weights + np.float32(self.learning_rate) * moment / (xp.sqrt(square) + np.float32(self.tau))
        some = heard[..., None]
        count = xp.where(heard, state.count + 1, state.count).astype(xp.int32)
        moments = Moments(count, xp.where(some, moment, state.first), xp.where(some, square, state.second))
        return xp.where(some, moved, weights), moments


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """The step of :class:`FedAdam` with v ← v − (1 − β₂) Δ² sign(v − Δ²)."""

    name = "fedyogi"

    @override
    def square(self, old, new):
        return old - (1 - np.float32(self.beta_2)) * new * module_of(old, new).sign(old - new)


@dataclass(frozen=True)
class FedAdagrad(FedAdam):
    """The step of :class:`FedAdam` with v ← v + Δ²; β₂ is not used."""

    name = "fedadagrad"

    @override
    def square(self, old, new):
        return old + new


def _check_positive(**settings: float) -> None:
    for name, value in settings.items():
        if not 0 < value < 1e30:
            raise ConfigError(f"{name} must be positive and finite, got {value}.")
