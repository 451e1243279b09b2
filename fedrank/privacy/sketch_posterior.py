"""Counts from noisy cells, given what is known beforehand: most words do not stand in most documents.

A median of noisy cells takes every value for equally likely. But how many documents hold a word, and how often it
stands in them, the federation knows from its statistics; so the mean of the posterior is taken instead::

    P(c = 0) = 1 − p,   P(c) = p (1 − r) r^(c − 1) for c ≥ 1        a word's prior in a document of mean length
    P(x | c) ∝ Π over rows a of f(g_a x_a − c)                      f the noise's density; collisions are left out
    ĉ = Σ c P(c | x)

p is the share of documents that hold the word, times the document's length over the mean length; r comes from the mean
count where it stands. This is post-processing of what was published, so that it costs no privacy. The estimates are
shrunk: near 0 where the noise is large, instead of far off.
"""

from __future__ import annotations

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.privacy.sketch import Hashes

#: Counts that are considered: 0 … this.
LARGEST = 24
#: A prior's share of documents is kept in this range: noisy statistics can be anything.
_SHARE = (1e-4, 0.9)
#: Likewise the mean count of a word where it stands.
_MEAN = (1.05, 8.0)


def posterior_counts(
    cells: np.ndarray,
    signs: np.ndarray,
    share: np.ndarray,
    mean: np.ndarray,
    lengths: np.ndarray,
    mechanism: str,
    scale: float,
) -> np.ndarray:
    """The posterior mean of every count.

    Args:
        cells: [terms, documents, z]: noisy cells of the terms' own positions.
        signs: int [terms, z], +1 or −1.
        share: float [terms]: share of documents that hold a term.
        mean: float [terms]: its mean count where it stands.
        lengths: float [documents]: words of each document; zero or less counts as one.
        mechanism: ``"laplace"`` or ``"gaussian"``.
        scale: Scale of the noise in a cell, or σ.

    Returns:
        float32 [terms, documents], between 0 and :data:`LARGEST`.

    Raises:
        ConfigError: The scale is not positive.
    """
    if not scale > 0:
        raise ConfigError(
            f"a posterior needs noise of a positive scale, got {scale}; take the median where there is none."
        )
    lengths = np.maximum(np.asarray(lengths, np.float64), 1.0)
    relative = lengths / lengths.mean()
    values = np.arange(LARGEST + 1)
    out = np.empty(cells.shape[:2], np.float32)
    for term, (own, sign) in enumerate(zip(cells, signs, strict=True)):
        x = own.astype(np.float64) * sign  # [documents, z]
        off = x[:, :, None] - values  # [documents, z, counts]
        likelihood = (
            -np.abs(off).sum(axis=1) / scale if mechanism == "laplace" else -(off**2).sum(axis=1) / (2 * scale**2)
        )
        present = np.clip(np.clip(share[term], *_SHARE) * relative, *_SHARE)
        ratio = 1.0 - 1.0 / np.clip(mean[term], *_MEAN)
        prior = np.log(present)[:, None] + np.log1p(-ratio) + (values - 1) * np.log(ratio)
        prior[:, 0] = np.log1p(-present)
        logs = likelihood + prior
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        out[term] = (weights @ values) / weights.sum(axis=1)
    return out


def own_cells(values: np.ndarray, hashes: Hashes, w: int) -> np.ndarray:
    """The cells of terms in published sketches.

    Args:
        values: [documents, z, w].
        hashes: Of the terms.
        w: Cells of a row.

    Returns:
        [terms, documents, z].
    """
    z = hashes.rows.shape[1]
    flat = values.reshape(len(values), z * w)
    return np.moveaxis(flat[:, np.arange(z) * w + hashes.rows], 0, 1)
