"""Measures of a binary classifier: the area under the ROC curve, and the cross-entropy."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Float32, Shaped


def host_auc(
    scores: Float[np.ndarray, "*#lists rows"],
    labels: Shaped[np.ndarray, "*#lists rows"],
    where: Bool[np.ndarray, "*#lists rows"],
) -> Float32[np.ndarray, "*lists"]:
    """Area under the ROC curve: the probability that a positive row scores above a negative one; a tie counts half.

    The rank formula (Hanley & McNeil 1982): what it counts are the negative rows below each positive one. Everything up
    to the last division is whole numbers.

    Args:
        scores: Float [..., rows]; a higher score means that label 1 is more likely.
        labels: [..., rows]; above 0 is positive.
        where: bool [..., rows], False on padding. What padding holds, NaN included, has no effect. The three broadcast
            against each other.

    Returns:
        float32 [...], in [0, 1]. NaN where there is no positive or no negative row: AUC is not defined there, and 0.5
        would be a claim. NaN also where the score of a row that counts is NaN: a model that diverged.
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
    """Mean cross-entropy of two logits, in natural units: −mean log p(label).

    Args:
        margins: Float [..., rows]: the logit of label 1 minus that of label 0.
        labels: [..., rows]; above 0 is label 1.
        where: bool [..., rows], False on padding. What padding holds has no effect.

    Returns:
        float32 [...], at least 0; NaN where no row counts. Guessing gives log 2 ≈ 0.693.
    """
    gap = np.where(where, margins, np.float32(0))
    loss = np.where(where, np.logaddexp(np.float32(0), np.where(labels > 0, -gap, gap)), np.float32(0))
    n = np.broadcast_to(where, loss.shape).sum(-1)
    mean = loss.sum(-1) / np.maximum(n, 1)
    return np.where(n > 0, mean, np.nan).astype(np.float32)
