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

import functools
import math

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.texts.sketch import Hashes

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
        float32 [terms, documents], from 0 on. Where the cells' mean is beyond :data:`LARGEST`, it is that mean: there
        the prior has nothing to add.

    Raises:
        ConfigError: The scale is not positive.
    """
    if not scale > 0:
        raise ConfigError(
            f"a posterior needs noise of a positive scale, got {scale}; take the median where there is none."
        )
    lengths = np.maximum(np.asarray(lengths, np.float64), 1.0)
    share, mean = np.clip(share, *_SHARE), np.clip(mean, *_MEAN)
    return _kernel()(
        np.ascontiguousarray(cells, np.float32),
        np.ascontiguousarray(signs, np.float32),
        np.asarray(share, np.float64),
        1.0 - 1.0 / np.asarray(mean, np.float64),
        lengths / lengths.mean() if len(lengths) else lengths,
        mechanism == "laplace",
        float(scale),
    )


@functools.cache
def _kernel():
    """Compiled when it is first needed."""
    import numba

    low, high = _SHARE

    @numba.njit(parallel=True, cache=True)
    def posterior(cells, signs, share, ratio, relative, laplace, scale):
        terms, documents, z = cells.shape
        out = np.empty((terms, documents), np.float32)
        for term in numba.prange(terms):
            logs = np.empty(LARGEST + 1)
            step, first = math.log(ratio[term]), math.log1p(-ratio[term])
            for document in range(documents):
                plain = 0.0
                for row in range(z):
                    plain += cells[term, document, row] * signs[term, row] / z
                if plain > LARGEST:
                    out[term, document] = plain
                    continue
                present = min(max(share[term] * relative[document], low), high)
                before = math.log(present) + first
                best = -math.inf
                for count in range(LARGEST + 1):
                    value = math.log1p(-present) if count == 0 else before + (count - 1) * step
                    for row in range(z):
                        off = cells[term, document, row] * signs[term, row] - count
                        value -= abs(off) / scale if laplace else off * off / (2 * scale * scale)
                    logs[count] = value
                    best = max(best, value)
                total, weighted = 0.0, 0.0
                for count in range(LARGEST + 1):
                    weight = math.exp(logs[count] - best)
                    total += weight
                    weighted += weight * count
                out[term, document] = weighted / total
        return out

    return posterior


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
