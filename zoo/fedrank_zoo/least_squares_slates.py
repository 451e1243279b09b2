"""Least-squares policy iteration over sums of several platforms (Lagoudakis and Parr, JMLR 2003).

The value of a click with d features φ of state and item is w·φ. With γ = 1 over a finite stay, the values of a policy
solve A w = b with A = Σ φ (φ − φ′)ᵀ and b = Σ φ r, where φ′ is what the policy would have clicked in the round after,
in expectation, and nothing after the last round. Both are sums over clicks: d² + d numbers a release. The users between
two releases evaluate the policy of the model before them, whatever they were shown themselves; the next model is
greedy by it. Rewards are a platform's own, so that greed towards the other platform's users is not seen.

State features are S = (1, trace / 2, e^(−(left − 1)/2.5), e^(−(left − 1)/7)); φ = (S, S·z, z² − ⅓) with the item's
feature z, nine in all. With ``width`` the critic is neural-linear (Riquelme et al., ICLR 2018): that many units of a
random layer, tanh of S and z, the same at all platforms, beside the nine; only the head is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Float32, Shaped
from typing_extensions import override

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.slates.sums.learner import PlatformState, SumLearner, item_feature

#: Rounds over which the two features of the clock rise by a factor of e.
_CLOCKS = (2.5, 7.0)
#: Features of a state, and those of a state and an item.
_STATE, _FEATURES = 2 + len(_CLOCKS), 2 * (2 + len(_CLOCKS)) + 1


class Known(NamedTuple):
    """The state of a user that features are made from.

    Attributes:
        trace: Fading sum of what they clicked here.
        before: Features of the click before; zeros before the first.
        reward: What it engaged, scaled.
    """

    trace: Float[Array, ""]
    before: Float[Array, " features"]
    reward: Float[Array, ""]


@dataclass(frozen=True)
class LeastSquares(SumLearner):
    """Values of clicks by least squares over a stay, policy by policy; with ``width`` a neural-linear critic.

    Attributes:
        scale: Divisor of engagement, above 0.
        ridge: Added to the diagonal of A, a share of a round.
        width: Units of the random layer; 0: none.
        seed: Of the random layer.
    """

    explorers: tuple[int, ...] = (40, 40, 40, 40, 40)
    clip: float = 300.0
    scale: float = 15.0
    ridge: float = 1e-3
    width: int = 0
    seed: int = 0

    name, steady = "least-squares", True

    def __post_init__(self):
        SumLearner.__post_init__(self)
        if not (self.scale > 0 and self.ridge > 0 and 0 <= self.width <= 256):
            raise ConfigError(
                f"scale and ridge must be above 0 and width in 0..256, got {self.scale}, {self.ridge} and {self.width}."
            )

    @property
    def parameters(self) -> int:  # type: ignore[override] - elsewhere an attribute of the class
        """Features of a click."""
        return _FEATURES + self.width

    @property
    def numbers(self) -> int:  # type: ignore[override] - as above
        """Numbers of A and b."""
        return self.parameters * (self.parameters + 1)

    @cached_property
    def _layer(self) -> Float32[np.ndarray, "inputs units"]:
        return np.random.default_rng(self.seed).normal(0, 1, (_STATE + 1, self.width)).astype(np.float32)

    def features(
        self, trace: Float[Array, ""], left: Shaped[Array, ""], item: Float[Array, " items"]
    ) -> Float[Array, "items features"]:
        """φ of clicks.

        Args:
            trace: Of the user's clicks.
            left: Rounds that are left, this one included.
            item: Feature of each item.
        """
        clocks = [jnp.exp(-(left - 1.0) / rounds) for rounds in _CLOCKS]
        state = jnp.broadcast_to(jnp.stack([jnp.float32(1.0), trace / 2, *clocks]), (*item.shape, _STATE))
        plain = jnp.concatenate([state, state * item[:, None], (item**2 - 1 / 3)[:, None]], axis=1)
        if not self.width:
            return plain
        inputs = jnp.concatenate([state, item[:, None]], axis=1)
        return jnp.concatenate([plain, jnp.tanh(inputs @ self._layer) / self.width**0.5], axis=1)

    @override
    def first_known(self) -> Known:
        return Known(jnp.float32(0.0), jnp.zeros(self.parameters), jnp.float32(0.0))

    @override
    def known_after(self, own: PlatformState, turn) -> Known:
        known, item = own.view.known, self.clicked_feature(own, turn)
        mine = self.features(known.trace, own.view.left, item[None])[0]
        reward = jnp.where(own.feedback, turn.engagement / self.scale, 0.0)
        return Known(self.fade * known.trace - item, jnp.where(turn.item >= 0, mine, 0.0), reward)

    @override
    def contribution(self, own, item, engagement):
        known, left = own.view.known, own.view.left
        # The click before is complete now that it is known where it led; the last one has nothing after it.
        chosen = self.best(own, self.values(own))
        shown = own.view.documents[chosen]
        chances = self.world.choice.probabilities(self.world.appeal(shown))[:-1]
        after = chances @ self.features(known.trace, left, item_feature(shown))
        mine = self.features(known.trace, left, item[None])[0]
        last = jnp.where(left <= 1, 1.0, 0.0)
        matrix = jnp.outer(known.before, known.before - after) + last * jnp.outer(mine, mine)
        vector = known.before * known.reward + last * mine * engagement / self.scale
        return jnp.concatenate([matrix.reshape(-1), vector])

    @override
    def solve(self, sums, rounds, model, noise):
        d = self.parameters
        mean = sums / jnp.maximum(rounds, 1.0)
        return jnp.linalg.solve(mean[: d * d].reshape(d, d) + self.ridge * jnp.eye(d), mean[d * d :])

    @override
    def values(self, own: PlatformState):
        view = own.view
        return self.features(view.known.trace, view.left, item_feature(view.documents)) @ own.model
