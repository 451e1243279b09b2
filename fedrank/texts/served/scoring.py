"""Scores of documents that owners with different engines give alike: BM25 with the federation's statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from fedrank.texts.data.corpus import FIELDS
from fedrank.texts.data.features import Statistics, bm25
from fedrank.texts.served.documents import Words


def scored(
    query: Sequence[str], documents: Sequence[Words], statistics: Statistics
) -> Float64[np.ndarray, "documents fields"]:
    """BM25 of body and title; a document's score is their sum.

    Args:
        query: Words of the query; one that stands twice counts twice.
        documents: Words of the documents.
        statistics: Statistics of the query's words, row by row.
    """
    if not documents:
        return np.zeros((0, len(FIELDS)))
    counts, lengths = counts_of(query, documents)
    return bm25(counts, lengths, statistics)


def counts_of(
    query: Sequence[str], documents: Sequence[Words]
) -> tuple[Float64[np.ndarray, "terms documents fields"], Float64[np.ndarray, "documents fields"]]:
    """How often each word of the query stands in each document's body and title, and their lengths in words."""
    counts = np.zeros((len(query), len(documents), 2))
    lengths = np.zeros((len(documents), 2))
    wanted: dict[str, list[int]] = {}
    for place, word in enumerate(query):
        wanted.setdefault(word, []).append(place)
    for number, words in enumerate(documents):
        for field, own in enumerate((words.body, words.title)):
            lengths[number, field] = len(own)
            for word, count in Counter(word for word in own if word in wanted).items():
                counts[wanted[word], number, field] = count
    return counts, lengths
