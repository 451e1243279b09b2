"""Documents to attack: a collection cut by chance among owners, as words and as counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64
from scipy.sparse import csr_array

from fedrank.core.errors import DataError
from fedrank.texts.data.collection import Texts
from fedrank.texts.served.documents import Document, Words, words_of


class Holdings(NamedTuple):
    """Owners' documents.

    Attributes:
        documents: All documents.
        words: Their words.
        vocabulary: Every word of a body, in order.
        counts: Occurrences in the bodies, int32 [documents, vocabulary].
        owner: Whose a document is.
    """

    documents: list[Document]
    words: list[Words]
    vocabulary: tuple[str, ...]
    counts: csr_array
    owner: Int64[np.ndarray, " documents"]

    def of(self, owner: int) -> Int64[np.ndarray, " documents"]:
        """Numbers of an owner's documents."""
        return np.flatnonzero(self.owner == owner)

    def present(self, documents: np.ndarray) -> csr_array:
        """Which words stand in documents: 0 or 1."""
        part = self.counts[documents]
        return csr_array((np.ones_like(part.data), part.indices, part.indptr), shape=part.shape)

    def prior(self, documents: Int64[np.ndarray, " some"]) -> Float64[np.ndarray, " vocabulary"]:
        """The part of these documents that holds each word; below one document where none does."""
        held = np.asarray(self.present(documents).sum(axis=0)).ravel()
        return np.maximum(held, 0.5) / (len(documents) + 1)


def holdings_of(texts: Texts, owners: int, rng: np.random.Generator) -> Holdings:
    """Give the documents of a collection out by chance.

    Args:
        texts: The collection.
        owners: Number of owners.
        rng: Generator.

    Raises:
        DataError: There are fewer than 20 documents for each owner.
    """
    documents = [
        Document(str(number), title, body)
        for number, (title, body) in enumerate(zip(texts.titles, texts.bodies, strict=True))
    ]
    if len(documents) < 20 * owners:
        raise DataError(
            f"{texts.name}: an attack needs 20 documents for each of {owners} owners, got {len(documents)}."
        )
    words = words_of(documents)
    vocabulary = tuple(sorted({word for one in words for word in one.body}))
    places = {word: number for number, word in enumerate(vocabulary)}
    columns = np.fromiter((places[word] for one in words for word in one.body), np.int64)
    rows = np.repeat(np.arange(len(words)), [len(one.body) for one in words])
    counts = csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=(len(words), len(vocabulary)))
    counts.sum_duplicates()
    return Holdings(documents, words, vocabulary, counts, rng.permutation(len(words)) % owners)
