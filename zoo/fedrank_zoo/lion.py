"""A step of the server by signs: Lion (Chen et al., NeurIPS 2023, Algorithm 2), without weight decay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from fedrank.aggregation.server_steps import ServerStep
from fedrank.core.arrays import module_of
from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting


@dataclass(frozen=True)
class Lion(ServerStep):
    """A step of the same size for each weight, in the direction of a mean of the ways to the devices' mean.

    With Δ the way to the mean::

        θ ← θ + η sign(β₁ m + (1 − β₁) Δ),    m ← β₂ m + (1 − β₂) Δ

    The state is m, float32 [..., n]. The decays are those of the paper's experiments.
    """

    name, kind = "lion", "mean"

    learning_rate: float = setting(1e-3, "Step size of the server, η: how far each weight moves.", low=0, high=1e3)
    beta_1: float = setting(0.9, "Part of the mean of past ways in the step, β₁.", low=0, high=1)
    beta_2: float = setting(0.99, "Part of the mean of past ways that a round keeps, β₂.", low=0, high=1)

    def __post_init__(self):
        if not 0 < self.learning_rate <= 1e3 or not (0 <= self.beta_1 < 1 and 0 <= self.beta_2 < 1):
            raise ConfigError(
                "learning_rate must be in (0, 1000], beta_1 and beta_2 in [0, 1), got "
                f"{self.learning_rate}, {self.beta_1} and {self.beta_2}."
            )

    @override
    def init(self, weights):
        return module_of(weights).zeros_like(weights)

    @override
    def step(self, state, weights, direction, heard):
        xp, some = module_of(weights, direction), heard[..., None]
        first, second = np.float32(self.beta_1), np.float32(self.beta_2)
        towards = xp.sign(first * state + (1 - first) * direction)
        moved = weights + np.float32(self.learning_rate) * towards
        return xp.where(some, moved, weights), xp.where(some, second * state + (1 - second) * direction, state)
