"""The choice model that a platform with feedback learns from clicks: a multinomial logit of two parameters.

Item i of the slate A has the logit β k_i, where k_i is its kaleness, and no click has the logit c:
P(i | A) = exp(β k_i) / (exp(c) + Σ_A exp(β k_j)). A constant in all items' logits would change c alone: there is none.
The log-likelihood of clicks is concave in (β, c), and each step goes up its gradient. Its curvature is the covariance
of (k, 1 if none) under the model, at most ½ for kaleness in [0, 1], so that a rate below 4 always climbs on one batch.

SlateQ assumes a choice model that is known; one like this is easily learnt from responses (Deng et al. 2024, IV-A).
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.lazy import jax, jnp


def fitted_choice_scores(
    params: Float[Array, "2"], kaleness: Float[Array, " candidates"], clickless: bool = False
) -> tuple[Float[Array, " candidates"], Float[Array, ""]]:
    """Choice fitted_choice_scores of candidates, and of no click, scaled so that the largest is 1; only ratios matter.

    Args:
        params: β and c.
        kaleness: Of each candidate, in [0, 1].
        clickless: The user always clicks: no click has the score 0.
    """
    logits = params[0] * kaleness
    most = jnp.max(logits) if clickless else jnp.maximum(jnp.max(logits), params[1])
    return jnp.exp(logits - most), jnp.zeros_like(most) if clickless else jnp.exp(params[1] - most)


def log_likelihood(
    params: Float[Array, "2"],
    kaleness: Float[Array, "rows slots"],
    slots: Int[Array, " rows"],
    clickless: bool = False,
    where: Bool[Array, " rows"] | None = None,
) -> Float[Array, ""]:
    """Mean log-probability of what was clicked; 0 if no row counts.

    Args:
        params: β and c.
        kaleness: Of the slates' items.
        slots: The slot that was clicked; n: none.
        clickless: The user always clicks; rows without a click do not count.
        where: Rows that count; all if None.
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
    params: Float[Array, "2"],
    kaleness: Float[Array, "rows slots"],
    slots: Int[Array, " rows"],
    rate: float,
    clickless: bool = False,
    where: Bool[Array, " rows"] | None = None,
) -> Float[Array, "2"]:
    """One step of size ``rate`` up the gradient of :func:`log_likelihood`; the other arguments as there."""
    return params + rate * jax.grad(log_likelihood)(params, kaleness, slots, clickless, where)
