"""The 16 features of a query and a document: eight of the body, the same eight of the title.

One definition serves a silo's own documents and, from sketches, those of others: the functions take counts, sizes and
statistics of the federation, exact or estimated. Exact ones give the exact features. Noisy ones may have impossible
values, which are corrected where a formula needs it, so that every feature is finite:

- a count lies between 0 and the length of the field: an empty field holds no word;
- a length is at least 0; the number of different words lies between 1 (or the length, if that is less) and the length;
- a document frequency lies between 1 and the number of documents, so a word in no document counts as in one;
- a word occurs at least half a time in the collection, so that no language model gives a word the probability 0;
- the number of documents and of tokens is at least 1.

None of these changes a true value, except of a word in no document. An empty query has the sum over no word: 0 in all
features but the two lengths. A word that stands twice in the query counts twice.

Features and where they come from: Shi et al., Journal of Software 2021, section 5.1, after LETOR 4.0 (Qin & Liu 2013).

Exact counts of a query's words in all documents of a corpus, column by column.

Candidate documents of a query for training and evaluation, and lists of them as padded arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int32, Integer, Real

from fedrank.core.errors import ConfigError, DataError
from fedrank.texts.data.corpus import FIELDS, Corpus

#: How fast BM25 saturates with a word's count. Usual value; also that of the paper's program.
K1 = 1.2
#: How much BM25 allows for the length of a document. Usual value; also that of the paper's program.
B = 0.75
#: Share of the collection's model in Jelinek-Mercer smoothing; best for short queries in Zhai & Lafferty (2004).
LAMBDA = 0.1
#: Pseudo-tokens of Dirichlet smoothing: the value of the paper's program, within the range of Zhai & Lafferty (2004).
MU = 1000.0
#: What absolute discounting takes off each different word's count; about the best in Zhai & Lafferty (2004).
DELTA = 0.7
#: Number of different words per word that the paper's program assumes for documents of others.
PUBLISHED_DISTINCT = 0.8
#: Occurrences in the collection of a word that has none.
UNSEEN = 0.5

#: The features of one field, in order.
OF_A_FIELD = ("length", "TF", "IDF", "TF-IDF", "BM25", "LMIR.ABS", "LMIR.DIR", "LMIR.JM")
#: The 16 features, in order: those of the body, then those of the title.
NAMES = tuple(f"{field} {feature}" for field in FIELDS for feature in OF_A_FIELD)


class Statistics(NamedTuple):
    """Statistics of all documents of a federation about some terms, as the features need them.

    Attributes:
        documents: Number of documents, N.
        document_frequency: Number of documents whose field holds the term.
        collection: Occurrences of the term in the field, over all documents.
        tokens: Occurrences of all terms in the field, over all documents.
    """

    documents: float
    document_frequency: Float[np.ndarray, "terms fields"]
    collection: Float[np.ndarray, "terms fields"]
    tokens: Float[np.ndarray, " fields"]

    @property
    def idf(self) -> Float64[np.ndarray, "*terms fields"]:
        """ln(N / document frequency), the latter clipped to 1 … N; at least 0."""
        documents = max(float(self.documents), 1.0)
        return np.log(documents / np.clip(np.asarray(self.document_frequency, np.float64), 1.0, documents))

    def of(self, terms: Integer[np.ndarray, " n"]) -> Statistics:
        """The statistics of some of the terms.

        Args:
            terms: Rows of ``document_frequency``, a repeated one repeatedly.
        """
        return self._replace(document_frequency=self.document_frequency[terms], collection=self.collection[terms])


def statistics_of(corpora: Sequence[Corpus], terms: Sequence[str]) -> Statistics:
    """Exact statistics of the documents of several parties together, which a federation can only estimate.

    Args:
        corpora: The parties' documents.
        terms: The words; one that no party has gets zeros.
    """
    frequency, collection = np.zeros((2, len(terms), len(FIELDS)))
    tokens = np.zeros(len(FIELDS))
    for corpus in corpora:
        place = {word: number for number, word in enumerate(corpus.vocabulary)}
        here = [row for row, word in enumerate(terms) if word in place]
        numbers = [place[terms[row]] for row in here]
        for field, counts in enumerate(corpus.counts):
            frequency[here, field] += np.asarray((counts > 0).sum(axis=0)).reshape(-1)[numbers]  # type: ignore[attr-defined]
            collection[here, field] += np.asarray(counts.sum(axis=0)).reshape(-1)[numbers]
        tokens += corpus.lengths.sum(axis=0)
    return Statistics(float(sum(corpus.n_documents for corpus in corpora)), frequency, collection, tokens)


class _Corrected(NamedTuple):
    """Counts, lengths and statistics after the corrections that the module describes.

    Attributes:
        counts: Occurrences of each term.
        lengths: Number of words.
        frequencies: tf, counts over lengths; 0 in an empty field.
        idf: Inverse document frequency.
        probabilities: Probability of each term in the collection.
        mean_length: Mean length over the collection.
    """

    counts: Float64[np.ndarray, "terms documents fields"]
    lengths: Float64[np.ndarray, "documents fields"]
    frequencies: Float64[np.ndarray, "terms documents fields"]
    idf: Float64[np.ndarray, "terms 1 fields"]
    probabilities: Float64[np.ndarray, "terms 1 fields"]
    mean_length: Float64[np.ndarray, " fields"]


def _correct(counts: np.ndarray, lengths: np.ndarray, statistics: Statistics) -> _Corrected:
    """Corrects the estimates; refuses shapes that do not fit."""
    counts, lengths = np.asarray(counts, np.float64), np.maximum(np.asarray(lengths, np.float64), 0.0)
    fields = len(FIELDS)
    for name in ("document_frequency", "collection"):
        if getattr(statistics, name).shape != (len(counts), fields):
            raise DataError(
                f"features need the {name} of the query's terms, [{len(counts)}, {fields}], "
                f"got {list(getattr(statistics, name).shape)}; choose the rows with Statistics.of."
            )
    counts = np.clip(counts, 0.0, lengths)
    documents = max(float(statistics.documents), 1.0)
    tokens = np.maximum(np.asarray(statistics.tokens, np.float64), 1.0)
    collection = np.clip(np.asarray(statistics.collection, np.float64), UNSEEN, tokens)
    return _Corrected(
        counts=counts,
        lengths=lengths,
        frequencies=counts / np.where(lengths > 0, lengths, 1.0),
        idf=statistics.idf[:, None],
        probabilities=(collection / tokens)[:, None],
        mean_length=tokens / documents,
    )


def _bm25(corrected: _Corrected, as_published: bool) -> np.ndarray:
    amount = corrected.frequencies if as_published else corrected.counts
    saturation = K1 * (1 - B + B * corrected.lengths / corrected.mean_length)
    return (corrected.idf * amount * (K1 + 1) / (amount + saturation)).sum(axis=0)


def bm25(
    counts: Real[np.ndarray, "terms documents fields"],
    lengths: Real[np.ndarray, "documents fields"],
    statistics: Statistics,
    as_published: bool = False,
) -> Float64[np.ndarray, "documents fields"]:
    """BM25 of one query and each document, field by field (Robertson et al. 1995).

    The sum over the query's words of IDF · c (k₁ + 1) / (c + k₁ (1 − b + b · length / mean length)) with
    IDF = ln(N / document frequency), never negative (Definition 3 of the paper): the variant known as ATIRE's.

    Args:
        counts: See :func:`text_features`.
        lengths: See :func:`text_features`.
        statistics: See :func:`text_features`.
        as_published: The paper's formula as printed, with c / length in place of the count c.

    Returns:
        0 where no word of the query stands in the field.
    """
    return _bm25(_correct(counts, lengths, statistics), as_published)


def text_features(
    counts: Real[np.ndarray, "terms documents fields"],
    lengths: Real[np.ndarray, "documents fields"],
    distinct: Real[np.ndarray, "documents fields"],
    statistics: Statistics,
    as_published: bool = False,
) -> Float64[np.ndarray, "documents features"]:
    """The 16 features of one query and each of some documents, named by :data:`NAMES`.

    With c the count of a word, tf = c / length and p its probability in the collection, summed over the query's words:

    - TF: tf; IDF: ln(N / document frequency), the same for all documents; TF-IDF: tf · IDF; BM25: :func:`bm25`;
    - LMIR.ABS: ln[max(c − δ, 0) / length + δ · distinct / length · p] (absolute discounting);
    - LMIR.DIR: ln[(c + μ p) / (length + μ)] (Dirichlet prior);
    - LMIR.JM: ln[(1 − λ) tf + λ p] (Jelinek-Mercer).

    The last three are log-likelihoods of the query, at most 0, larger for a better match (Zhai & Lafferty 2004);
    the paper writes them with the other sign. In an empty field they are ln(δ p), ln p and ln(λ p).

    Args:
        counts: Occurrences of each word of the query in each document's body and title. A word that stands twice in the
            query has two rows. Fractions and negative numbers may occur.
        lengths: Number of words of body and title.
        distinct: Number of different words of body and title.
        statistics: Statistics of the same words, row by row (:meth:`Statistics.of`).
        as_published: As the paper and its program have it: tf in place of the count in BM25, and 0.8 · length in
            place of ``distinct``.

    Returns:
        The features, finite.

    Raises:
        DataError: The statistics are not of the query's words, or a number is not finite.
    """
    corrected = _correct(counts, lengths, statistics)
    c, length, tf, idf, p, _ = corrected
    divisor = np.where(length > 0, length, 1.0)
    # An empty field counts as one whose words are all different.
    words = np.clip(np.asarray(distinct, np.float64), np.minimum(length, 1.0), length)
    share = np.full_like(length, PUBLISHED_DISTINCT) if as_published else np.where(length > 0, words / divisor, 1.0)
    of_a_field = (
        length,
        tf.sum(axis=0),
        np.broadcast_to(idf.sum(axis=0), length.shape),
        (tf * idf).sum(axis=0),
        _bm25(corrected, as_published),
        np.log(np.maximum(c - DELTA, 0.0) / divisor + DELTA * share * p).sum(axis=0),
        np.log((c + MU * p) / (length + MU)).sum(axis=0),
        np.log((1 - LAMBDA) * tf + LAMBDA * p).sum(axis=0),
    )
    features = np.stack(of_a_field, axis=-1).reshape(len(length), len(NAMES))
    if not np.isfinite(features).all():
        raise DataError("a count, a size or a statistic of the features is not finite; look where they were estimated.")
    return features


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


class CandidateList(NamedTuple):
    """Candidate documents of one query, in random order.

    Attributes:
        query: Number of the query in the corpus.
        documents: Different numbers of documents in the corpus.
        labels: Their grades; 0 for a document without a judgement.
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
