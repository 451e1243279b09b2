"""Numbers of a hit that stand beside its BM25 score; the same code makes them for learning and for serving.

Both lie in [−1, 1] and are rounded to multiples of :data:`STEP`. They tell no more about a document's words than its
score does: the title's share is computed from scores that are rounded already.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

#: The numbers, in order: cosine of the query's and the document's vectors (0 without an encoder); share of the BM25
#: score that comes from the title.
NAMES = ("dense", "title")
#: Weight of the cosine beside a BM25 score that is divided by the list's best: what collections other than a given one
#: would choose for it (``python -m benchmarks.served_search``).
COSINE = 2.0
#: What the numbers are rounded to.
STEP = 0.01


def features_of(
    by_field: Float64[np.ndarray, "documents fields"], cosines: Float64[np.ndarray, " documents"] | None
) -> Float64[np.ndarray, "documents features"]:
    """The numbers of each document.

    Args:
        by_field: BM25 of body and title of each document, rounded as scores are that leave.
        cosines: Cosine of the vectors of query and document; None: there is no encoder.
    """
    out = np.zeros((len(by_field), len(NAMES)))
    if cosines is not None:
        out[:, 0] = cosines
    total = by_field.sum(axis=1)
    np.divide(by_field[:, 1], total, out=out[:, 1], where=total > 0)
    return np.clip(np.round(out / STEP) * STEP, -1.0, 1.0)
