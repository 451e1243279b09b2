"""A party's documents and queries as numbers: how often each word occurs in the body and the title of each document.

Words are what bm25s's tokeniser yields: lower case, two letters or digits at least, without English stop words, and
stemmed with the English Snowball stemmer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, Int64, Integer
from scipy.sparse import csr_array

from fedrank.core.errors import DataError
from fedrank.core.lazy import require
from fedrank.texts.data.collection import Judged, Texts

#: The parts of a document, in the order of every array that has an axis of fields.
FIELDS = ("body", "title")


@dataclass(frozen=True, eq=False)
class Corpus(Judged):
    """One party's documents and queries, counted.

    Attributes:
        name: Such as ``"cranfield"`` or ``"cranfield/silo-1"``.
        vocabulary: Every term of the documents and the queries, in order; a term's number is its place here.
        counts: Occurrences of each term in body and title: int32 [documents, terms] each.
        document_ids: One id a document, each once.
        query_ids: One id a query, each once.
        queries: Term numbers of each query; a repeated word stands repeatedly. May be empty.
        judged_queries: Number of the query of each judgement, int32.
        judged_documents: Number of its document, int32.
        grades: Its grade, int32, 0 or more, larger is better.
        generated: True if the texts were made up by a program.
        citation: Key in ``core/references.bib``; empty if there is nothing to cite.
        notes: What a reader of the numbers should know, one sentence each.

    Raises:
        DataError: As :class:`~fedrank.texts.data.collection.Texts`, or the counts do not fit the documents and the
        vocabulary.
    """

    name: str
    vocabulary: tuple[str, ...]
    counts: tuple[csr_array, csr_array]
    document_ids: tuple[str, ...]
    query_ids: tuple[str, ...]
    queries: tuple[np.ndarray, ...]
    judged_queries: Integer[np.ndarray, " judgements"]
    judged_documents: Integer[np.ndarray, " judgements"]
    grades: Integer[np.ndarray, " judgements"]
    generated: bool = False
    citation: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        self._check_judgements()
        shape = (self.n_documents, len(self.vocabulary))
        for field, counts in zip(FIELDS, self.counts, strict=True):
            if counts.shape != shape or counts.dtype != np.int32:
                raise DataError(
                    f"counts of the {field} of {self.name!r} must be int32 {list(shape)} [documents, terms], "
                    f"got {counts.dtype} {[*counts.shape]}."  # type: ignore[misc] - scipy has no types
                )
        if len(self.queries) != self.n_queries:
            raise DataError(f"{self.name!r} has {self.n_queries} query ids, but {len(self.queries)} queries.")

    @property
    def lengths(self) -> Int64[np.ndarray, "documents fields"]:
        """Number of words of each document and field."""
        return np.stack([np.asarray(counts.sum(axis=1), np.int64) for counts in self.counts], axis=1)

    @property
    def distinct(self) -> Int64[np.ndarray, "documents fields"]:
        """Number of different words of each document and field."""
        return np.stack([np.diff(counts.indptr).astype(np.int64) for counts in self.counts], axis=1)

    @property
    def max_grade(self) -> int:
        """The best grade that was given; 0 if nothing was judged."""
        return int(self.grades.max(initial=0))

    def labels(self, query: int) -> Int32[np.ndarray, " documents"]:
        """Grade of every document for one query; 0 without a judgement."""
        labels = np.zeros(self.n_documents, np.int32)
        own = self.judged_queries == query
        labels[self.judged_documents[own]] = self.grades[own]
        return labels

    def answerable_queries(self) -> Int64[np.ndarray, " answered"]:
        """Numbers of the queries that have a relevant document here, ascending."""
        return np.unique(self.judged_queries[self.grades > 0]).astype(np.int64)

    def select(
        self,
        documents: Integer[np.ndarray, " chosen_documents"],
        queries: Integer[np.ndarray, " chosen_queries"],
        name: str,
    ) -> Corpus:
        """A part of the corpus, with only its own words and the judgements of these documents.

        Args:
            documents: Numbers of the documents to keep, in the order they shall have; each once.
            queries: The same for queries.
            name: Name of the part.

        Raises:
            DataError: A number is out of range or stands twice, or nothing would be left.
        """
        documents, queries = _numbers(documents, self.n_documents, name), _numbers(queries, self.n_queries, name)
        counts = tuple(field[documents] for field in self.counts)
        words = [self.queries[number] for number in queries]
        used = np.zeros(len(self.vocabulary), bool)
        for numbers in (*(field.indices for field in counts), *words):
            used[numbers] = True
        terms = np.flatnonzero(used)
        renumbered = np.full(len(used), -1, np.int32)
        renumbered[terms] = np.arange(len(terms), dtype=np.int32)
        places_d, places_q = np.full(self.n_documents, -1, np.int32), np.full(self.n_queries, -1, np.int32)
        places_d[documents] = np.arange(len(documents), dtype=np.int32)
        places_q[queries] = np.arange(len(queries), dtype=np.int32)
        judged_q, judged_d = places_q[self.judged_queries], places_d[self.judged_documents]
        kept = (judged_q >= 0) & (judged_d >= 0)
        return Corpus(
            name,
            tuple(self.vocabulary[term] for term in terms),
            (_tidy(counts[0][:, terms]), _tidy(counts[1][:, terms])),
            tuple(self.document_ids[number] for number in documents),
            tuple(self.query_ids[number] for number in queries),
            tuple(renumbered[own] for own in words),
            judged_q[kept],
            judged_d[kept],
            self.grades[kept],
            self.generated,
            self.citation,
            self.notes,
        )


def tokenise(texts: Sequence[str], stem: bool = True, stopwords: bool = True) -> list[list[str]]:
    """The words of texts, in order; a text without any gives an empty list.

    Args:
        texts: The texts.
        stem: Whether to stem (Snowball, English).
        stopwords: Whether to leave out English stop words (bm25s's list).
    """
    require("texts", "The words of texts", "bm25s", "Stemmer")
    import bm25s
    import Stemmer

    words = bm25s.tokenize(
        list(texts),
        stopwords="en" if stopwords else [],
        stemmer=Stemmer.Stemmer("english") if stem else None,  # type: ignore[arg-type]
        return_ids=False,
        show_progress=False,
    )
    # Older releases of bm25s put one empty word into a text without words.
    return [[word for word in own if word] for own in words]  # type: ignore[union-attr]


def corpus_of(texts: Texts, stem: bool = True, stopwords: bool = True) -> Corpus:
    """Count the words of a text collection.

    Args:
        texts: The collection.
        stem: Whether to stem.
        stopwords: Whether to leave out English stop words.

    Returns:
        Its corpus. A note says how many queries or documents have no word left.
    """
    cut = tokenise((*texts.bodies, *texts.titles, *texts.queries), stem, stopwords)
    vocabulary = sorted({word for own in cut for word in own})
    number = {word: place for place, word in enumerate(vocabulary)}
    words = [np.array([number[word] for word in own], np.int32) for own in cut]
    n = texts.n_documents
    bodies, titles, queries = words[:n], words[n : 2 * n], words[2 * n :]
    empty = sum(not len(body) and not len(title) for body, title in zip(bodies, titles, strict=True))
    wordless = sum(not len(query) for query in queries)
    notes = []
    if empty:
        notes.append(f"Documents without a word: {empty}.")
    if wordless:
        notes.append(f"Queries without a word: {wordless}.")
    return Corpus(
        texts.name,
        tuple(vocabulary),
        (_count_words(bodies, len(vocabulary)), _count_words(titles, len(vocabulary))),
        texts.document_ids,
        texts.query_ids,
        tuple(queries),
        texts.judged_queries,
        texts.judged_documents,
        texts.grades,
        texts.generated,
        texts.citation,
        (*texts.notes, *notes),
    )


def _count_words(words: Sequence[np.ndarray], n_terms: int) -> csr_array:
    """Occurrences of each term in each text: int32 [texts, terms]."""
    from scipy.sparse import coo_array

    rows = np.repeat(np.arange(len(words), dtype=np.int32), [len(own) for own in words])
    columns = np.concatenate([np.zeros(0, np.int32), *words])
    # Turning coordinates into rows adds up what stands at one place.
    return _tidy(coo_array((np.ones(len(rows), np.int32), (rows, columns)), shape=(len(words), n_terms)).tocsr())


def _tidy(counts: csr_array) -> csr_array:
    """The matrix with the terms of a row ascending, each once, so that its stored entries are the different words."""
    counts.sum_duplicates()
    return counts


def _numbers(chosen: np.ndarray, n: int, name: str) -> np.ndarray:
    chosen = np.asarray(chosen, np.int64)
    if chosen.ndim != 1 or len(np.unique(chosen)) < len(chosen) or chosen.min(initial=0) < 0:
        raise DataError(f"part {name!r} needs a list of different numbers from 0, got {chosen.tolist()[:10]}.")
    if chosen.max(initial=-1) >= n:
        raise DataError(f"part {name!r} asks for number {chosen.max()}, but there are {n}.")
    return chosen
