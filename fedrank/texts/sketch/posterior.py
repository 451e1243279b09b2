"""Posterior means of counts from noisy cells, with the federation's statistics as prior.

A median of noisy cells treats every value as equally likely. But the federation's statistics tell how many documents
hold a word, and how often it stands in them; so the mean of the posterior is taken instead::

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
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Float32, Integer, Real

from fedrank.core.errors import ConfigError
from fedrank.core.kernels import check_shapes
from fedrank.texts.sketch import Hashes

#: Largest count that is considered.
LARGEST = 24
#: A prior's share of documents is kept in this range: noisy statistics can be anything.
_SHARE = (1e-4, 0.9)
#: Likewise the mean count of a word where it stands.
_MEAN = (1.05, 8.0)


def posterior_counts(
    cells: Real[np.ndarray, "terms documents z"],
    signs: Integer[np.ndarray, "terms z"],
    share: Float[np.ndarray, " terms"],
    mean: Float[np.ndarray, " terms"],
    lengths: Real[np.ndarray, " documents"],
    mechanism: str,
    scale: float,
) -> Float32[np.ndarray, "terms documents"]:
    """The posterior mean of every count.

    Args:
        cells: Noisy cells at the terms' own positions.
        signs: +1 or −1.
        share: Share of documents that hold a term.
        mean: Mean count of a term in these.
        lengths: Words of each document; zero or less counts as one.
        mechanism: ``"laplace"`` or ``"gaussian"``.
        scale: Scale of the noise in a cell, or σ.

    Returns:
        Counts from 0 on. Where the cells' mean is beyond :data:`LARGEST`, it is that mean: the prior has nothing to add
        there.

    Raises:
        ConfigError: The scale is not positive.
    """
    if not scale > 0:
        raise ConfigError(
            f"a posterior needs noise of a positive scale, got {scale}; take the median where there is none."
        )
    terms, documents, z = cells.shape
    check_shapes(
        signs=(signs, (terms, z)), share=(share, (terms,)), mean=(mean, (terms,)), lengths=(lengths, (documents,))
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
def _kernel() -> Callable[..., np.ndarray]:
    """The loop over terms and documents, compiled when it is first needed."""
    from fedrank.core.compiled import njit, prange  # loads Numba

    low, high = _SHARE

    @njit(parallel=True, cache=True)
    def posterior(cells, signs, share, ratio, relative, laplace, scale):
        terms, documents, z = cells.shape
        out = np.empty((terms, documents), np.float32)
        for term in prange(terms):
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


def own_cells(
    values: Real[np.ndarray, "documents z w"], hashes: Hashes, w: int
) -> Real[np.ndarray, "terms documents z"]:
    """The cells of terms in published sketches.

    Args:
        values: The sketches.
        hashes: Hashes of the terms.
        w: Number of cells of a row.
    """
    z = hashes.rows.shape[1]
    flat = values.reshape(len(values), z * w)
    return np.moveaxis(flat[:, np.arange(z) * w + hashes.rows], 0, 1)
