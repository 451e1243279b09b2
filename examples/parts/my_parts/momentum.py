"""Momentum of the server (FedAvgM; Hsu, Qi, Brown 2019)."""

from dataclasses import dataclass

import numpy as np

from fedrank.aggregation.server_steps import ServerStep
from fedrank.core.arrays import module_of
from fedrank.core.fields import setting


@dataclass(frozen=True)
class Momentum(ServerStep):
    """A step along a moving sum of the ways to the devices' mean: v ← βv + Δ, θ ← θ + ηv."""

    name, kind = "momentum", "mean"

    learning_rate: float = setting(1.0, "Step size of the server, η.", low=0)
    beta: float = setting(0.9, "Part of the sum that a round keeps, β.", low=0, high=1)

    def init(self, weights):
        """No movement yet."""
        return module_of(weights).zeros_like(weights)

    def step(self, state, weights, direction, heard):
        """Weights and v after a step; both stay where no reply was heard."""
        xp, some = module_of(weights, direction), heard[..., None]
        moving = np.float32(self.beta) * state + direction
        moved = weights + np.float32(self.learning_rate) * moving
        return xp.where(some, moved, weights), xp.where(some, moving, state)
