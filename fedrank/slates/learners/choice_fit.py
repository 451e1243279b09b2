"""What a platform that sees clicks learns about how its users choose: a multinomial logit of two numbers.

Item i of the slate A has the logit β k_i, where k_i is its kaleness, and no click has the logit c:
P(i | A) = exp(β k_i) / (exp(c) + Σ_A exp(β k_j)). A constant in all items' logits would change c alone: there is none.
The log-likelihood of clicks is concave in (β, c), and each step goes up its gradient. Its curvature is the covariance
of (k, 1 if none) under the model, at most ½ for kaleness in [0, 1], so that a rate below 4 always climbs on one batch.

SlateQ assumes a choice model that is known; one like this is easily learnt from responses (Deng et al. 2024, IV-A).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

#: Slope on kaleness, and the logit of no click.
SIZE = 2


def initial() -> jax.Array:
    """Everything equally likely: float32 [2], zeros."""
    return jnp.zeros(SIZE, jnp.float32)


def scores(params: jax.Array, kaleness: jax.Array, clickless: bool = False) -> tuple[jax.Array, jax.Array]:
    """Choice scores of candidates.

    Args:
        params: float32 [2]: β, and c.
        kaleness: float32 [N].
        clickless: The user always clicks: no click has no score.

    Returns:
        v float32 [N] and v0 float32 [], scaled so that the largest is 1; only ratios matter.
    """
    logits = params[0] * kaleness
    most = jnp.max(logits) if clickless else jnp.maximum(jnp.max(logits), params[1])
    return jnp.exp(logits - most), jnp.zeros_like(most) if clickless else jnp.exp(params[1] - most)


def log_likelihood(
    params: jax.Array,
    kaleness: jax.Array,
    slots: jax.Array,
    clickless: bool = False,
    where: jax.Array | None = None,
) -> jax.Array:
    """Mean log-probability of what was clicked.

    Args:
        params: float32 [2].
        kaleness: float32 [B, n], of the slates' items.
        slots: int32 [B], which slot was clicked; n: none.
        clickless: The user always clicks; rows without a click do not count.
        where: bool [B], rows that count; all if None.

    Returns:
        float32 []; 0 if no row counts.
    """
    rows, n = kaleness.shape
    logits = params[0] * kaleness
    counted = jnp.ones(rows, bool) if where is None else where
    if clickless:
        counted = counted & (slots < n)
    else:
        logits = jnp.concatenate([logits, jnp.broadcast_to(params[1], (rows, 1))], axis=1)
    seen = jnp.where(counted, slots, 0)[:, None]
    each = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=1), seen, axis=1)[:, 0]
    return jnp.sum(jnp.where(counted, each, 0.0)) / jnp.maximum(jnp.sum(counted), 1)


def fit_step(
    params: jax.Array,
    kaleness: jax.Array,
    slots: jax.Array,
    rate: float,
    clickless: bool = False,
    where: jax.Array | None = None,
) -> jax.Array:
    """One step up the gradient of :func:`log_likelihood`: float32 [2]; arguments as there, and the step size."""
    return params + rate * jax.grad(log_likelihood)(params, kaleness, slots, clickless, where)
