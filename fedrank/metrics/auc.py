"""Measures of a binary classifier: the area under the ROC curve, and the cross-entropy."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Shaped

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.lazy import jax, jit, jnp

# Sums of counts are kept in two whole numbers of 32 bits, of which this one is the base.
_BASE = 1 << 12


@jit
def auc(
    scores: Float[AnyArray, "*lists rows"],
    labels: Shaped[AnyArray, "*lists rows"],
    where: Bool[AnyArray, "*lists rows"] | None = None,
) -> Float[Array, "*lists"]:
    """Area under the ROC curve: the probability that a positive row scores above a negative one; a tie counts half.

    The rank formula (Hanley & McNeil 1982), (R − n₁(n₁ + 1)/2) / (n₁·n₀) with R the sum of the ranks of the n₁ positive
    rows, ties having their middle rank. What it counts are the negative rows below each positive one, and that is how
    it is computed: the negative scores are sorted and each positive one is looked up from both sides. Everything up to
    the last division is whole numbers, exact for up to 500,000 rows.

    Works under ``jit`` and ``vmap``. On two CPU cores sorting and looking up took 9 ms for 1,000 lists of 100 rows and
    44 ms for 80 lists of 4,000; comparing all pairs took 16 ms for the former, one sort of all rows 10 and 51.

    Args:
        scores: Float [..., rows]; a higher score means that label 1 is more likely.
        labels: [..., rows]; above 0 is positive.
        where: bool [..., rows], False on padding; None if all rows count. What padding holds, NaN included, has no
            effect.

    Returns:
        float32 [...], in [0, 1]. NaN where there is no positive or no negative row: AUC is not defined there, and 0.5
        would be a claim. NaN also where the score of a row that counts is NaN: a model that diverged.
    """
    scores, labels = jnp.asarray(scores), jnp.asarray(labels)
    where = jnp.ones(scores.shape, bool) if where is None else jnp.asarray(where)
    positive, negative = (labels > 0) & where, (labels <= 0) & where
    n1, n0 = positive.sum(-1, dtype=jnp.int32), negative.sum(-1, dtype=jnp.int32)
    # −0 and 0 are the same score.
    scores = jnp.where(scores == 0, jnp.zeros_like(scores), scores)
    rest = jnp.sort(jnp.where(negative, scores, jnp.inf), axis=-1)
    below, upto = _looked_up(rest, scores, "left"), _looked_up(rest, scores, "right")
    # A positive score of infinity is not above what stands for the rows that are no negatives.
    last = jnp.expand_dims(n0, -1)
    twice = jnp.where(positive, jnp.minimum(below, last) + jnp.minimum(upto, last), 0)
    wins = (twice // _BASE).sum(-1).astype(jnp.float32) * _BASE + (twice % _BASE).sum(-1).astype(jnp.float32)
    pairs = n1.astype(jnp.float32) * n0.astype(jnp.float32)
    defined = (pairs > 0) & ~(jnp.isnan(scores) & where).any(-1)
    return jnp.where(defined, wins / (2 * jnp.maximum(pairs, 1)), jnp.nan).astype(jnp.float32)


@jit
def log_loss(
    logits: Float[AnyArray, "*lists rows 2"],
    labels: Shaped[AnyArray, "*lists rows"],
    where: Bool[AnyArray, "*lists rows"] | None = None,
) -> Float[Array, "*lists"]:
    """Mean cross-entropy of two logits, in natural units: −mean log p(label).

    Args:
        logits: Float [..., rows, 2]; the second is that of label 1.
        labels: [..., rows]; above 0 is label 1.
        where: bool [..., rows], False on padding; None if all rows count. What padding holds has no effect.

    Returns:
        float32 [...], at least 0; NaN where no row counts. Guessing gives log 2 ≈ 0.693.
    """
    logits, labels = jnp.asarray(logits), jnp.asarray(labels)
    where = jnp.ones(labels.shape, bool) if where is None else jnp.asarray(where)
    # log(1 + exp(other − own)); padding is set before, so that a gradient through it is 0 and not NaN.
    gap = jnp.where(where, logits[..., 1] - logits[..., 0], 0)
    loss = jnp.where(where, jax.nn.softplus(jnp.where(labels > 0, -gap, gap)), 0)
    n = where.sum(-1)
    return jnp.where(n > 0, loss.sum(-1) / jnp.maximum(n, 1), jnp.nan).astype(jnp.float32)


def _looked_up(
    sorted_: Float[Array, "*lists rows"], values: Float[Array, "*lists rows"], side: str
) -> Int[Array, "*lists rows"]:
    """Index at which each value would be inserted into its sorted list, on the given side of equal values."""
    rows = values.shape[-1]
    lists = (sorted_.reshape(-1, rows), values.reshape(-1, rows))
    found = jax.vmap(lambda a, v: jnp.searchsorted(a, v, side=side, method="scan"))(*lists)
    return found.reshape(values.shape)


def host_auc(
    scores: Float[np.ndarray, "*#lists rows"],
    labels: Shaped[np.ndarray, "*#lists rows"],
    where: Bool[np.ndarray, "*#lists rows"],
) -> Float32[np.ndarray, "*lists"]:
    """:func:`auc` with NumPy: the same number for the same scores, since both count in whole numbers.

    Arguments and result as there; the three broadcast against each other.
    """
    scores, labels, where = np.broadcast_arrays(np.asarray(scores, np.float32), labels, where)
    positive, negative = (labels > 0) & where, (labels <= 0) & where
    n1, n0 = positive.sum(-1), negative.sum(-1)
    held = np.where(where, scores, np.inf)
    order = np.argsort(held, axis=-1)
    ranked, up, down = (np.take_along_axis(a, order, axis=-1) for a in (held, positive, negative))
    upto = np.cumsum(down, axis=-1)
    # Negative rows below, and not above, each group of equal scores: sums at its first and after its last row.
    change = ranked[..., 1:] != ranked[..., :-1]
    edge = np.ones((*change.shape[:-1], 1), bool)
    first, last = np.concatenate([edge, change], axis=-1), np.concatenate([change, edge], axis=-1)
    below = np.maximum.accumulate(np.where(first, upto - down, 0), axis=-1)
    within = np.minimum.accumulate(np.where(last, upto, upto.shape[-1])[..., ::-1], axis=-1)[..., ::-1]
    wins = np.where(up, below + within, 0).sum(-1)
    pairs = n1 * n0
    defined = (pairs > 0) & ~(np.isnan(scores) & where).any(-1)
    found = wins.astype(np.float32) / (2 * np.maximum(pairs, 1)).astype(np.float32)
    return np.where(defined, found, np.float32(np.nan))


def host_log_loss(
    margins: Float[np.ndarray, "*#lists rows"],
    labels: Shaped[np.ndarray, "*#lists rows"],
    where: Bool[np.ndarray, "*#lists rows"],
) -> Float32[np.ndarray, "*lists"]:
    """:func:`log_loss` with NumPy, of the differences of the logits; equal but for rounding."""
    gap = np.where(where, margins, np.float32(0))
    loss = np.where(where, np.logaddexp(np.float32(0), np.where(labels > 0, -gap, gap)), np.float32(0))
    n = np.broadcast_to(where, loss.shape).sum(-1)
    mean = loss.sum(-1) / np.maximum(n, 1)
    return np.where(n > 0, mean, np.nan).astype(np.float32)
