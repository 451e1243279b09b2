"""A silo's rows: its queries with its own documents, labelled, and with the documents that others let it see.

One definition of the features serves both (:mod:`fedrank.texts.data.features`). Everything here happens at the silo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Float64, Int8, Int64, Real

from fedrank.texts.data.corpus import FIELDS, Corpus
from fedrank.texts.data.features import (
    NAMES,
    Statistics,
    TermColumns,
    bm25,
    own_lists,
    padded,
    search_list,
    statistics_of,
    text_features,
)
from fedrank.texts.silo_sketch.setup.settings import SetupSettings
from fedrank.texts.silo_sketch.state import PARTS, TRAIN, UNUSED

#: Columns of BM25 among the features.
_BM25 = [NAMES.index(f"{field} BM25") for field in FIELDS]
#: A feature whose variance is below this part of its squared mean is left unscaled: computed at home, and from sums
#: that have crossed in single precision.
CONSTANT, CONSTANT_CROSSED = 1e-12, 1e-6


class SiloTexts(NamedTuple):
    """Texts of one silo.

    Attributes:
        corpus: Its documents, queries and judgements.
        part: Part that each query belongs to; -1 for none.
    """

    corpus: Corpus
    part: Int8[np.ndarray, " queries"]

    @property
    def used_queries(self) -> Int64[np.ndarray, " used"]:
        """Numbers of the queries that belong to a part, ascending."""
        return np.flatnonzero(self.part != UNUSED)

    @property
    def lacking(self) -> tuple[str, ...]:
        """Names of the parts that have no query."""
        return tuple(name for name, number in PARTS.items() if not (self.part == number).any())

    @property
    def words(self) -> tuple[str, ...]:
        """The different words of these queries, in order."""
        numbers = sorted({int(term) for query in self.used_queries for term in self.corpus.queries[query]})
        return tuple(self.corpus.vocabulary[number] for number in numbers)


class ForeignDocuments(NamedTuple):
    """A silo's view of the documents of another silo.

    Attributes:
        counts: Function from words of a query to their counts, float [terms, documents, fields].
        lengths: Number of words of each field of each document.
        distinct: Number of different words of each field.
        likely: Function from words and their IDF, float [terms, fields], to the numbers of the documents that hold them
            most, int [n]; None where all documents are candidates.
    """

    counts: Callable[[Sequence[str]], np.ndarray]
    lengths: Real[np.ndarray, "documents fields"]
    distinct: Real[np.ndarray, "documents fields"]
    likely: Callable[[Sequence[str], np.ndarray], np.ndarray] | None = None


#: A function from words to the statistics of all documents about them.
StatisticsOf: TypeAlias = Callable[[Sequence[str]], Statistics]


def exact_foreign(corpus: Corpus) -> ForeignDocuments:
    """The documents of another silo with their exact counts: a control that no federation has."""
    columns = TermColumns(corpus)
    return ForeignDocuments(lambda words: columns.counts(columns.places(words)), corpus.lengths, corpus.distinct)


def own_rows(texts: SiloTexts, statistics: StatisticsOf, s: SetupSettings) -> dict[str, np.ndarray]:
    """The silo's queries with its own documents.

    Which documents a query has is decided by the statistics of the silo's own ones: it is the same with and without a
    federation.

    Args:
        texts: Documents and queries of the silo.
        statistics: The federation's statistics.
        s: What was agreed; its ``texts`` say which rows.

    Returns:
        Arrays by name, for q queries with d documents each: ``queries`` int32 [q], ``part`` int32 [q], ``documents``
        int32 [q, d], ``x`` float32 [q, d, 16], ``y`` int32 [q, d], ``where`` bool [q, d], ``found`` bool [q, d] (a
        search by BM25 finds the document), ``bm25`` float32 [q, d] (of body and title together).
    """
    corpus, used = texts.corpus, texts.used_queries
    alone, federated = statistics_of((corpus,), corpus.vocabulary), statistics(corpus.vocabulary)
    lists = own_lists(corpus, used, alone, s.texts.depth, s.texts.negatives, s.seed)
    columns = TermColumns(corpus)
    features, found = [], []
    for one in lists:
        terms = corpus.queries[one.query]
        features.append(columns.features(terms, federated.of(terms), one.documents, s.sketch.as_published))
        scores = bm25(columns.counts(terms), corpus.lengths, alone.of(terms)).sum(axis=-1)
        best = search_list(scores, s.texts.depth)
        found.append(np.isin(one.documents, best))
    x, y, where = padded(lists, features)
    numbers, reached = np.full(where.shape, -1, np.int32), np.zeros(where.shape, bool)
    for row, (one, best) in enumerate(zip(lists, found, strict=True)):
        numbers[row, : len(best)], reached[row, : len(best)] = one.documents, best
    part = texts.part[used].astype(np.int32)
    out = {"queries": used.astype(np.int32), "part": part, "documents": numbers, "x": x, "y": y, "where": where}
    return {**out, "found": reached, "bm25": x[..., _BM25].sum(axis=-1)}


def cross_rows(
    texts: SiloTexts,
    others: Sequence[ForeignDocuments | None],
    statistics: StatisticsOf,
    s: SetupSettings,
    judged: Sequence[Sequence[np.ndarray]] | None = None,
) -> dict[str, np.ndarray]:
    """The silo's queries with documents of other silos: of each silo, the best by BM25 of the counts that are seen.

    Args:
        texts: Documents and queries of the silo.
        others: By the number of a silo; None for itself and for who was not heard.
        statistics: The federation's statistics.
        s: What was agreed; its ``texts`` say which rows.
        judged: Numbers of documents to add, for each of these queries and each silo, int [n]; only a party that has all
            judgements knows them.

    Returns:
        Arrays by name, for the q queries of :func:`own_rows` and c = silos · documents of a silo: ``cross_x`` float32
        [q, c, 16], ``cross_where`` bool [q, c], ``cross_silo`` and ``cross_document`` int32 [q, c] (-1 on padding),
        ``cross_found`` bool [q, c] (found by BM25, not added), ``cross_bm25`` float32 [q, c].
    """
    corpus, used = texts.corpus, texts.used_queries
    place = {word: number for number, word in enumerate(texts.words)}
    known = statistics(texts.words)
    more = max((len(one) for query in judged or () for one in query), default=0)
    room = s.texts.foreign + more
    shape = (len(used), len(others) * room)
    x, where = np.zeros((*shape, len(NAMES)), np.float32), np.zeros(shape, bool)
    silo, document = np.full(shape, -1, np.int32), np.full(shape, -1, np.int32)
    found = np.zeros(shape, bool)
    for row, query in enumerate(used):
        words = [corpus.vocabulary[term] for term in corpus.queries[query]]
        of_query = known.of(np.array([place[word] for word in words], np.int64))
        for number, other in enumerate(others):
            if other is None or not len(other.lengths):
                continue
            counts = other.counts(words)
            scores = bm25(counts, other.lengths, of_query).sum(axis=-1)
            if other.likely is not None:
                chosen = np.zeros(len(scores), bool)
                chosen[other.likely(words, of_query.idf)] = True
                scores = np.where(chosen, scores, -1.0)  # BM25 is never negative
            best = search_list(scores, s.texts.foreign)
            found[row, number * room : number * room + len(best)] = True
            if judged is not None:
                best = np.concatenate([best, np.setdiff1d(judged[row][number], best).astype(np.int32)])
            places = slice(number * room, number * room + len(best))
            x[row, places] = text_features(
                counts[:, best], other.lengths[best], other.distinct[best], of_query, s.sketch.as_published
            )
            where[row, places], silo[row, places], document[row, places] = True, number, best
    out = {"cross_x": x, "cross_where": where, "cross_silo": silo, "cross_document": document, "cross_found": found}
    return {**out, "cross_bm25": x[..., _BM25].sum(axis=-1)}


def moments(
    rows: dict[str, np.ndarray],
) -> tuple[int, Float64[np.ndarray, " features"], Float64[np.ndarray, " features"]]:
    """Number of the labelled training rows, and sum and sum of squares of each feature over them."""
    x = _training(rows)
    return len(x), x.sum(axis=0), (x**2).sum(axis=0)


def scale_of(
    count: float,
    sums: Float64[np.ndarray, " features"],
    squares: Float64[np.ndarray, " features"],
    crossed: bool = False,
) -> tuple[Float64[np.ndarray, " features"], Float64[np.ndarray, " features"]]:
    """Mean and standard deviation of each feature; 0 and 1 where there are no rows, deviation 1 for a constant feature.

    Args:
        count: Number of rows.
        sums: Sum of each feature.
        squares: Sum of each feature's square.
        crossed: Whether the sums have crossed in single precision, which hides small variances.
    """
    if not count:
        return np.zeros_like(sums), np.ones_like(sums)
    means = sums / count
    variances = np.maximum(squares / count - means**2, 0.0)
    least = CONSTANT_CROSSED if crossed else CONSTANT
    constant = variances <= least * np.maximum(means**2, least)
    return means, np.where(constant, 1.0, np.sqrt(variances))


def scale_rows(
    rows: dict[str, np.ndarray],
    scale: str,
    means: Float[np.ndarray, " features"] | None = None,
    deviations: Float[np.ndarray, " features"] | None = None,
) -> dict[str, np.ndarray]:
    """The rows with centred and scaled features; documents of others by the same numbers as own ones.

    Args:
        rows: Own and cross rows, as :func:`own_rows` and :func:`cross_rows` make them.
        scale: Which rows to scale by, as in ``texts.scale``.
        means: Mean of each feature over all silos; where ``scale`` is ``federation``.
        deviations: Its standard deviation.

    Returns:
        The rows; and, unless each list is scaled by itself, by what they were scaled: ``mean`` and ``deviation``
        float64 [16].
    """
    x, where = rows["x"].astype(np.float64), rows["where"]
    if scale == "query":
        count = np.maximum(where.sum(axis=1), 1)[:, None]
        shown = np.where(where[..., None], x, 0.0)
        pairs = [scale_of(float(n), s, q) for n, s, q in zip(count[:, 0], shown.sum(1), (shown**2).sum(1), strict=True)]
        mean, deviation = (np.stack([pair[i] for pair in pairs])[:, None] for i in (0, 1))
    elif scale == "silo":
        mean, deviation = scale_of(*moments(rows))
    else:
        mean, deviation = np.asarray(means, np.float64), np.asarray(deviations, np.float64)
    out = dict(rows) if scale == "query" else {**rows, "mean": mean, "deviation": deviation}
    for name, there in (("x", where), ("cross_x", rows["cross_where"])):
        values = (rows[name].astype(np.float64) - mean) / deviation
        out[name] = np.where(there[..., None], values, 0.0).astype(np.float32)
    return out


def _training(rows: dict[str, np.ndarray]) -> Float64[np.ndarray, "rows features"]:
    """Features of the labelled training rows."""
    return rows["x"][rows["where"] & (rows["part"] == TRAIN)[:, None]].astype(np.float64)
