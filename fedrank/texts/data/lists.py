"""Candidate documents of a query for training and evaluation, and lists of them as padded arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int32, Integer

from fedrank.core.errors import ConfigError, DataError
from fedrank.texts.data.corpus import Corpus
from fedrank.texts.data.counts import TermColumns
from fedrank.texts.data.features import NAMES, Statistics, bm25


class CandidateList(NamedTuple):
    """Candidate documents of one query, in random order.

    Attributes:
        query: Number of the query in the corpus.
        documents: Different numbers of documents in the corpus.
        labels: Their grades; 0 for a document that nobody judged.
    """

    query: int
    documents: Int32[np.ndarray, " documents"]
    labels: Int32[np.ndarray, " documents"]


def search_list(scores: Float[np.ndarray, " documents"], depth: int) -> Int32[np.ndarray, " best"]:
    """The documents of the highest scores, best first; of equal scores, the lower number first.

    Args:
        scores: float [documents].
        depth: How many at most.

    Returns:
        int32 [min(depth, documents)].

    Raises:
        ConfigError: The depth is negative.
    """
    if depth < 0:
        raise ConfigError(f"the depth of a search must be at least 0, got {depth}.")
    return np.argsort(-scores, kind="stable")[:depth].astype(np.int32)


def own_lists(
    corpus: Corpus,
    queries: Integer[np.ndarray, " queries"],
    statistics: Statistics,
    depth: int,
    negatives: int,
    seed: int,
) -> tuple[CandidateList, ...]:
    """The candidates of a party's queries among its own documents.

    All documents that are judged for the query, whatever the grade; the first ``depth`` by BM25 of body and title
    together; and ``negatives`` others, chosen at random. Each document stands once, in random order.

    A query's list depends on the corpus, the seed and its own number, not on the other queries.

    Args:
        corpus: The party's documents, queries and judgements.
        queries: Numbers of the queries.
        statistics: Statistics, of the party or of the federation, of all terms of the corpus' vocabulary in its order.
        depth: Number of documents by BM25, or all if there are fewer; 0 for none.
        negatives: Number of other documents, or as many as there are.
        seed: Seed of the random choices.

    Returns:
        One list for each query, in order. Empty if the corpus has no document.

    Raises:
        ConfigError: ``depth`` or ``negatives`` is negative.
        DataError: There is no such query.
    """
    if negatives < 0:
        raise ConfigError(f"the number of random documents of a list must be at least 0, got {negatives}.")
    columns, lengths = TermColumns(corpus), corpus.lengths
    lists = []
    for query in map(int, queries):
        if not 0 <= query < corpus.n_queries:
            raise DataError(f"corpus {corpus.name!r} has {corpus.n_queries} queries, there is no number {query}.")
        terms = corpus.queries[query]
        scores = bm25(columns.counts(terms), lengths, statistics.of(terms)).sum(axis=-1)
        chosen = np.zeros(corpus.n_documents, bool)
        chosen[corpus.judged_documents[corpus.judged_queries == query]] = True
        chosen[search_list(scores, depth)] = True
        rng = np.random.default_rng([seed, query])
        others = rng.permutation(np.flatnonzero(~chosen))[:negatives]
        documents = rng.permutation(np.concatenate([np.flatnonzero(chosen), others])).astype(np.int32)
        lists.append(CandidateList(query, documents, corpus.labels(query)[documents].astype(np.int32)))
    return tuple(lists)


def padded(
    lists: Sequence[CandidateList], features: Sequence[np.ndarray]
) -> tuple[
    Float32[np.ndarray, "lists longest features"], Int32[np.ndarray, "lists longest"], Bool[np.ndarray, "lists longest"]
]:
    """Lists as arrays of one length, which training and the metrics take.

    Args:
        lists: The lists.
        features: One array for each list, float [documents, 16], in the order of its documents.

    Returns:
        ``(x, labels, where)``: features, grades, and False after a list's end, where the others are zeros.

    Raises:
        DataError: The features do not fit the lists.
    """
    if len(features) != len(lists):
        raise DataError(f"padding needs one array of features a list, got {len(features)} for {len(lists)} lists.")
    longest = max((len(one.documents) for one in lists), default=0)
    x = np.zeros((len(lists), longest, len(NAMES)), np.float32)
    labels = np.zeros(x.shape[:2], np.int32)
    where = np.zeros(x.shape[:2], bool)
    for row, (one, values) in enumerate(zip(lists, features, strict=True)):
        size = len(one.documents)
        if values.shape != (size, len(NAMES)):
            raise DataError(f"features of query {one.query} must be [{size}, {len(NAMES)}], got {list(values.shape)}.")
        x[row, :size], labels[row, :size], where[row, :size] = values, one.labels, True
    return x, labels, where
