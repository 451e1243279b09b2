"""Search of one collection: the documents that BM25 finds for each query, with the features by which a model ranks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int32

from fedrank.texts.data.corpus import Corpus
from fedrank.texts.data.counts import TermColumns
from fedrank.texts.data.features import NAMES, bm25, statistics_of, text_features
from fedrank.texts.data.lists import search_list

#: Documents that BM25 finds for a query, unless told otherwise: as many as in a run.
DEPTH = 30


class Found(NamedTuple):
    """What BM25 finds in a collection, query after query.

    Attributes:
        queries: Number of the query of each row.
        documents: Number of its document; those of a query in the order of BM25, best first.
        features: Its features, not scaled.
    """

    queries: Int32[np.ndarray, " rows"]
    documents: Int32[np.ndarray, " rows"]
    features: Float32[np.ndarray, "rows features"]


def search(corpus: Corpus, depth: int = DEPTH, as_published: bool = False) -> Found:
    """Search a collection for each of its queries; how rare a word is, is told by the collection.

    Args:
        corpus: Documents and queries.
        depth: Number of documents a query, or all if there are fewer.
        as_published: See :func:`~fedrank.texts.data.features.text_features`.

    Raises:
        ConfigError: The depth is negative.
    """
    columns, statistics = TermColumns(corpus), statistics_of((corpus,), corpus.vocabulary)
    lengths, distinct = corpus.lengths, corpus.distinct
    queries, documents, features = [], [], [np.zeros((0, len(NAMES)))]
    for query, terms in enumerate(corpus.queries):
        counts, known = columns.counts(terms), statistics.of(terms)
        best = search_list(bm25(counts, lengths, known).sum(axis=-1), depth)
        queries.append(np.full(len(best), query, np.int32))
        documents.append(best)
        features.append(text_features(counts[:, best], lengths[best], distinct[best], known, as_published))
    return Found(np.concatenate(queries), np.concatenate(documents), np.concatenate(features).astype(np.float32))
