"""Numbers of a hit that stand beside its BM25 score; the same code makes them for learning and for serving.

All lie in [−1, 1], are made at the owner from the document itself and the federation's statistics, and are rounded to
multiples of :data:`STEP` before they leave, as scores are rounded.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from fedrank.texts.data.features import Statistics
from fedrank.texts.served.documents import Words

#: The numbers, in order: cosine of the query's and the document's vectors (0 without an encoder); share of the query's
#: different words that the document holds, each weighted by its IDF; share of the pairs of neighbours in the query that
#: are neighbours in the document, in this order; share of the BM25 score that comes from the title.
NAMES = ("dense", "covered", "adjacent", "title")
#: Weight of the cosine beside a BM25 score that is divided by the list's best: what collections other than a given one
#: would choose for it (``python -m benchmarks.served_search``).
COSINE = 2.0
#: What the numbers are rounded to.
STEP = 0.01


def features_of(
    query: Sequence[str],
    documents: Sequence[Words],
    statistics: Statistics,
    by_field: Float64[np.ndarray, "documents fields"],
    cosines: Float64[np.ndarray, " documents"] | None,
) -> Float64[np.ndarray, "documents features"]:
    """The numbers of each document.

    Args:
        query: Words of the query, in order.
        documents: Words of the documents.
        statistics: Statistics of the query's words, row by row.
        by_field: BM25 of body and title of each document.
        cosines: Cosine of the vectors of query and document; None: there is no encoder.
    """
    weights = dict(zip(query, statistics.idf.max(axis=1).tolist(), strict=True)) if len(query) else {}
    whole = sum(weights.values())
    pairs = {pair for pair in itertools.pairwise(query) if pair[0] != pair[1]}
    out = np.zeros((len(documents), len(NAMES)))
    if cosines is not None:
        out[:, 0] = cosines
    for row, words in enumerate(documents):
        held = set(words.body) | set(words.title)
        out[row, 1] = sum(weight for word, weight in weights.items() if word in held) / whole if whole > 0 else 0.0
        if pairs:
            found = pairs & {pair for text in words for pair in itertools.pairwise(text)}
            out[row, 2] = len(found) / len(pairs)
    total = by_field.sum(axis=1)
    np.divide(by_field[:, 1], total, out=out[:, 3], where=total > 0)
    return np.clip(np.round(out / STEP) * STEP, -1.0, 1.0)
