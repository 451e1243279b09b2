"""Exact counts of a query's words in all documents of a corpus, column by column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Float64, Int32, Integer

from fedrank.core.errors import DataError
from fedrank.texts.data.corpus import Corpus
from fedrank.texts.data.features import Statistics, text_features

#: Number of a word that the corpus does not have.
NOT_HERE = -1


class TermColumns:
    """Counts of a corpus laid out by term, so that the documents of a term are one slice.

    Attributes:
        corpus: The documents.

    Args:
        corpus: The documents.
    """

    def __init__(self, corpus: Corpus):
        self.corpus = corpus
        self._columns = tuple(counts.tocsc() for counts in corpus.counts)
        self._sizes = corpus.lengths, corpus.distinct
        self._places: dict[str, int] | None = None

    def places(self, words: Sequence[str]) -> Int32[np.ndarray, " words"]:
        """Numbers of words in this corpus' vocabulary; :data:`NOT_HERE` for a word that it does not have."""
        if self._places is None:
            self._places = {word: number for number, word in enumerate(self.corpus.vocabulary)}
        return np.array([self._places.get(word, NOT_HERE) for word in words], np.int32)

    def counts(self, terms: Integer[np.ndarray, " terms"]) -> Float32[np.ndarray, "terms documents fields"]:
        """Occurrences of each term in each document and field; whole numbers.

        Args:
            terms: Numbers in the corpus' vocabulary or :data:`NOT_HERE`; a repeated one gets two rows.

        Raises:
            DataError: A number is neither in the vocabulary nor :data:`NOT_HERE`.
        """
        known = len(self.corpus.vocabulary)
        if len(terms) and not (terms.min() >= NOT_HERE and terms.max() < known):
            raise DataError(
                f"terms of corpus {self.corpus.name!r} are numbered 0 to {known - 1}, and {NOT_HERE} for none, "
                f"got {terms.min()} to {terms.max()}."
            )
        out = np.zeros((len(terms), self.corpus.n_documents, len(self._columns)), np.float32)
        for field, columns in enumerate(self._columns):
            for row, term in enumerate(terms):
                if term != NOT_HERE:
                    entries = slice(columns.indptr[term], columns.indptr[term + 1])
                    out[row, columns.indices[entries], field] = columns.data[entries]
        return out

    def features(
        self,
        terms: Integer[np.ndarray, " terms"],
        statistics: Statistics,
        documents: Integer[np.ndarray, " documents"] | None = None,
        as_published: bool = False,
    ) -> Float64[np.ndarray, "documents features"]:
        """The 16 features of one query and some documents, without a sketch and without noise.

        Args:
            terms: As for :meth:`counts`.
            statistics: Statistics of the same terms, row by row.
            documents: Numbers of the documents; None for all.
            as_published: See :func:`~fedrank.texts.data.features.text_features`.
        """
        counts = self.counts(terms)
        lengths, distinct = self._sizes
        if documents is not None:
            counts, lengths, distinct = counts[:, documents], lengths[documents], distinct[documents]
        return text_features(counts, lengths, distinct, statistics, as_published)
