"""FOLtR-ES with separable natural evolution strategies (Wierstra et al., JMLR 2014).

The server keeps a normal distribution of models, with a mean θⱼ and a spread σⱼ a weight, and follows the natural
gradient of the expected utility of a candidate's rank (the paper's Algorithm 6, SNES). Devices do what they do in
:mod:`fedrank_zoo.adaptive_es`. With λ = 2N candidates θ ± σ⊙v, of which the best has rank 1::

    (1)  u_k ∝ max(0, ln(λ/2 + 1) − ln k), brought to a sum of 1, less 1/λ            fitness shaping
    (2)  ∇_θ = Σᵢ (uᵢ⁺ − uᵢ⁻) vᵢ,    ∇_σ = Σᵢ (uᵢ⁺ + uᵢ⁻)(vᵢ² − 1)
    (3)  θ ← θ + η_θ σ ⊙ ∇_θ,         σ ← σ ⊙ exp(½ η_σ ∇_σ)

The paper's η_θ = 1 and η_σ = (3 + ln n)/(5 √n) for n weights. A linear ranker that starts at zero is not changed by a
larger σ at the start: all weights grow with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Float, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.lazy import jnp
from fedrank_zoo.adaptive_es import AdaptiveES, Pairs


class NesState(NamedTuple):
    """The server's state between rounds.

    Attributes:
        round: uint32.
        weights: float32 [parameters], θ.
        sigma: float32 [parameters], σ.
    """

    round: UInt32[AnyArray, ""]
    weights: Float[AnyArray, "parameters"]
    sigma: Float[AnyArray, "parameters"]


@dataclass(frozen=True)
class FoltrNES(AdaptiveES):
    """FOLtR-ES whose server follows the natural gradient of ranks and adapts a spread a weight."""

    learning_rate: float = setting(1.0, "η_θ, rate of the mean, in perturbations.")
    spread_rate: float | None = setting(
        None,
        "η_σ, rate of the spreads; (3 + ln n)/(5 √n) for n weights if nothing is said. 0 keeps them.",
        low=0,
        high=10,
    )

    name, paper = "foltr-nes", "wierstra2014nes"
    published = "Wierstra et al.: Natural Evolution Strategies, JMLR 2014"

    def __post_init__(self):
        super().__post_init__()
        if self.spread_rate is not None and not 0 <= self.spread_rate <= 10:
            raise ConfigError(f"spread_rate must be in [0, 10], got {self.spread_rate}.")

    @property
    def rate_of_spread(self) -> float:
        """η_σ, step size of the logarithm of the spread: as set, else (3 + ln n) / (5 √n) for n weights."""
        n = self.ranker.size
        return (3 + math.log(n)) / (5 * math.sqrt(n)) if self.spread_rate is None else self.spread_rate

    @override
    def init(self, key: Any) -> NesState:  # type: ignore[override] - a state with other things in it
        del key
        weights = jnp.asarray(self.ranker.initial())
        return NesState(jnp.uint32(0), weights, jnp.full_like(weights, self.sigma))

    @override
    def spread(self, state: NesState) -> Float[Array, " n"]:
        return jnp.asarray(state.sigma)

    @override
    def step(self, state: NesState, pairs: Pairs) -> NesState:
        n, count = self.ranker.size, pairs.count
        plus, minus = pairs.utilities(lambda ranks: shaped(ranks, count))
        towards = pairs.sum(plus - minus, n)
        wider = pairs.squares(plus + minus, n) - jnp.sum(plus + minus)
        weights = state.weights + self.learning_rate * state.sigma * towards
        # A factor beyond e^±1 a round is no step but an accident of few candidates.
        sigma = state.sigma * jnp.exp(jnp.clip(0.5 * self.rate_of_spread * wider, -1.0, 1.0))
        return NesState(state.round, weights, sigma)


def shaped(ranks: Float[Array, " ranks"], count: Float[Array, ""]) -> Float[Array, " ranks"]:
    """The utilities (1) of ranks, float32 [ranks], where there are ``count`` candidates."""
    raw = jnp.where(ranks <= count, jnp.maximum(0.0, jnp.log(count / 2 + 1) - jnp.log(ranks)), 0.0)
    return raw / jnp.maximum(jnp.sum(raw), 1e-30) - 1 / jnp.maximum(count, 1.0)
