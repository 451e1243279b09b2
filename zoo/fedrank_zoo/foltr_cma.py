"""FOLtR-ES with CMA-ES on the server (Hansen: *The CMA Evolution Strategy: A Tutorial*, 2016, arXiv 1604.00772).

The server keeps a normal distribution of models N(θ, s²C) and adapts mean, step size and covariance to the ranks of
what devices tried (the tutorial's Figure 6). Devices do what they do in :mod:`fedrank_zoo.adaptive_es`, with
A = s√C. With λ = 2N candidates θ ± Av, of which the best has rank 1, and n weights::

    (1)  w_k ∝ max(0, ln((λ + 1)/2) − ln k), brought to a sum of 1;   μ_w = 1/Σ w_k²
    (2)  z = Σᵢ (wᵢ⁺ − wᵢ⁻) vᵢ,   y = √C z;   θ ← θ + c_m s y
    (3)  p_s ← (1 − c_s) p_s + √(c_s (2 − c_s) m) z,   s ← s · exp(c_s/d_s · (‖p_s‖/E‖N(0, I)‖ − 1))
    (4)  h = 1 if ‖p_s‖ / √(1 − (1 − c_s)^(2g)) < (1.4 + 2/(n + 1)) E‖N(0, I)‖ after g rounds, else 0
         p_c ← (1 − c_c) p_c + h √(c_c (2 − c_c) m) y
    (5)  C ← (1 − c_1 − c_μ + (1 − h) c_1 c_c (2 − c_c)) C + c_1 p_c p_cᵀ + c_μ √C (Σᵢ (wᵢ⁺ + wᵢ⁻) vᵢ vᵢᵀ) √C

m is the number that brings z to unit variance where ranks are drawn by lot. The tutorial's is μ_w; of pairs v, −v it is
1/Σᵢ (wᵢ⁺ − wᵢ⁻)². The rates are the tutorial's (:func:`rates`), of positive weights only. √C is the symmetric root, so
that C^(−½) y in the tutorial's (3) is z.

``"separable"`` keeps the diagonal of C only and learns it (n + 2)/3 times as fast (Ros and Hansen, PPSN 2008): the
broadcast has 4 bytes more a weight. ``"full"`` sends the matrix, 4n² bytes: 8,464 for 46 weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jaxtyping import Float, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.lazy import jax, jnp
from fedrank_zoo.adaptive_es import AdaptiveES, Pairs

#: What of the covariance is learnt.
COVARIANCES = ("separable", "full")
#: Most weights of a ranker whose whole covariance is kept.
LARGEST = 1024


class CmaState(NamedTuple):
    """The server's state between rounds.

    Attributes:
        round: uint32.
        weights: float32 [n], θ.
        sigma: float32, s.
        step_path: float32 [n], p_s.
        path: float32 [n], p_c.
        covariance: float32 [n] or [n, n], C.
        root: float32, as ``covariance``: √C.
        told: float32, g: rounds in which at least one device was heard.
    """

    round: UInt32[AnyArray, ""]
    weights: Float[AnyArray, " n"]
    sigma: Float[AnyArray, ""]
    step_path: Float[AnyArray, " n"]
    path: Float[AnyArray, " n"]
    covariance: Float[AnyArray, "..."]
    root: Float[AnyArray, "..."]
    told: Float[AnyArray, ""]


class Rates(NamedTuple):
    """Learning rates of a CMA-ES; float32 numbers, named as in the tutorial's Table 1."""

    c_s: Any
    d_s: Any
    c_c: Any
    c_1: Any
    c_mu: Any


@dataclass(frozen=True)
class FoltrCMA(AdaptiveES):
    """FOLtR-ES whose server is CMA-ES: step size and covariance follow the ranks."""

    learning_rate: float = setting(1.0, "c_m, rate of the mean, in perturbations.")
    covariance: Literal["separable", "full"] = setting(
        "separable", "What is learnt of the covariance: a spread a weight, or a matrix, which is broadcast."
    )

    name, paper = "foltr-cma", "hansen2016cma"
    published = "Hansen: The CMA Evolution Strategy: A Tutorial, 2016"

    def __post_init__(self):
        super().__post_init__()
        if self.covariance not in COVARIANCES:
            raise ConfigError(f"covariance must be one of {', '.join(COVARIANCES)}, got {self.covariance!r}.")
        if self.ranker is not None and self.matrix and self.ranker.size > LARGEST:
            raise ConfigError(
                f"covariance = 'full' sends a number for each pair of weights, for {LARGEST:,} weights at "
                f"most; the ranker has {self.ranker.size:,}. Use 'separable'."
            )

    @property
    @override
    def matrix(self) -> bool:
        return self.covariance == "full"

    @override
    def init(self, key: Any) -> CmaState:  # type: ignore[override] - a state with other things in it
        del key
        return start(jnp.asarray(self.ranker.initial()), self.sigma, self.matrix)

    @override
    def spread(self, state: CmaState) -> Float[Array, "..."]:
        return jnp.asarray(state.sigma) * state.root

    @override
    def step(self, state: CmaState, pairs: Pairs) -> CmaState:
        n, count = self.ranker.size, pairs.count
        plus, minus = pairs.utilities(lambda ranks: recombination(ranks, count))
        total = 1 / jnp.maximum(jnp.sum(recombination(jnp.arange(1.0, 2 * len(plus) + 1), count) ** 2), 1e-30)
        found = rates(n, total, separable=not self.matrix)
        apart = plus - minus
        z, by_chance = pairs.sum(apart, n), 1 / jnp.maximum(jnp.sum(apart**2), 1e-30)
        second = (pairs.products if self.matrix else pairs.squares)(plus + minus, n)
        return adapted(state, z, second, jnp.sum(plus + minus), by_chance, found, self.learning_rate)


def start(weights: Float[Array, " n"], sigma: float, matrix: bool) -> CmaState:
    """The state before the first round: no correlation, and paths of length 0."""
    zero, one = jnp.zeros_like(weights), jnp.ones_like(weights)
    unit = jnp.diag(one) if matrix else one
    return CmaState(jnp.uint32(0), weights, jnp.float32(sigma), zero, zero, unit, unit, jnp.float32(0))


def recombination(ranks: Float[Array, " ranks"], count: Float[AnyArray, ""]) -> Float[Array, " ranks"]:
    """The weights (1) of ranks, float32 [ranks], where there are ``count`` candidates."""
    raw = jnp.where(ranks <= count, jnp.maximum(0.0, jnp.log((count + 1) / 2) - jnp.log(ranks)), 0.0)
    return raw / jnp.maximum(jnp.sum(raw), 1e-30)


def rates(n: int, mass: Any, separable: bool = False) -> Rates:
    """The tutorial's default rates.

    Args:
        n: Number of weights.
        mass: μ_w, the variance-effective number of candidates.
        separable: The covariance is diagonal, and learnt faster.
    """
    c_s = (mass + 2) / (n + mass + 5)
    d_s = 1 + 2 * jnp.maximum(0.0, jnp.sqrt(jnp.maximum(mass - 1, 0.0) / (n + 1)) - 1) + c_s
    c_c = (4 + mass / n) / (n + 4 + 2 * mass / n)
    faster = (n + 2) / 3 if separable else 1.0
    c_1 = jnp.minimum(1.0, faster * 2 / ((n + 1.3) ** 2 + mass))
    c_mu = jnp.minimum(1 - c_1, faster * 2 * (0.25 + mass + 1 / mass - 2) / ((n + 2) ** 2 + mass))
    return Rates(c_s, d_s, c_c, c_1, jnp.maximum(c_mu, 0.0))


def adapted(
    state: CmaState,
    z: Float[Array, " n"],
    second: Float[Array, "..."],
    total: Float[AnyArray, ""],
    mass: Float[AnyArray, ""],
    rates: Rates,
    rate_of_mean: float = 1.0,
) -> CmaState:
    """The state after one round: (2) to (5).

    Args:
        state: Before.
        z: float32 [n], the weighted sum of the perturbations.
        second: float32 [n] or [n, n], the weighted sum of their squares or products.
        total: Sum of the weights, 1 but where ranks were cut.
        mass: m, what brings z to unit variance where ranks are drawn by lot.
        rates: The learning rates.
        rate_of_mean: c_m.
    """
    n, (c_s, d_s, c_c, c_1, c_mu) = len(z), rates
    matrix, root = state.covariance.ndim == 2, state.root
    exact = jax.lax.Precision.HIGHEST
    y = jnp.einsum("mn,n->m", root, z, precision=exact) if matrix else root * z
    usual = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))  # E‖N(0, I)‖
    step_path = (1 - c_s) * state.step_path + jnp.sqrt(c_s * (2 - c_s) * mass) * z
    length, told = jnp.sqrt(jnp.sum(step_path**2)), state.told + 1
    sigma = state.sigma * jnp.exp(jnp.minimum(c_s / d_s * (length / usual - 1), 1.0))
    settled = length / jnp.sqrt(1 - (1 - c_s) ** (2 * told)) < (1.4 + 2 / (n + 1)) * usual
    h = settled.astype(jnp.float32)
    path = (1 - c_c) * state.path + h * jnp.sqrt(c_c * (2 - c_c) * mass) * y
    kept = 1 - c_1 - c_mu * total + (1 - h) * c_1 * c_c * (2 - c_c)
    if not matrix:
        covariance = kept * state.covariance + c_1 * path**2 + c_mu * root * second * root
        new_root = jnp.sqrt(covariance)
    else:
        tried = jnp.einsum("ab,bc,cd->ad", root, second, root, precision=exact)
        covariance = kept * state.covariance + c_1 * path[:, None] * path[None, :] + c_mu * tried
        covariance = (covariance + covariance.T) / 2
        values, vectors = jnp.linalg.eigh(covariance)
        lengths = jnp.sqrt(jnp.maximum(values, 0.0))
        new_root = jnp.einsum("ab,b,cb->ac", vectors, lengths, vectors, precision=exact)
    weights = state.weights + rate_of_mean * state.sigma * y
    return CmaState(state.round, weights, sigma, step_path, path, covariance, new_root, told)
