"""Search of one collection: the documents that BM25 finds for each query, with the features by which a model ranks.

A trained model of texts as an object that scores: a ranker of 16 features, and how each silo scales them.

It ranks what a search by BM25 finds in one collection (:mod:`fedrank.texts.model`), as a silo does at home.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int32
from typing_extensions import override

from fedrank.core.errors import ConfigError, DataError, ModelError, UnknownNameError
from fedrank.core.trees import Json
from fedrank.data import load
from fedrank.data.frames import in_single_precision, query_ids, table_of
from fedrank.engine.layers import Dense, Layer, QueryStandardise, Softmax, Standardise
from fedrank.engine.model import MEASURES, Model, ModelParts, best_first, blocks, run_lines, scores
from fedrank.metrics.offline import offline_metric
from fedrank.texts.config import Texts
from fedrank.texts.data.collection import UniqueTexts, texts_of
from fedrank.texts.data.corpus import Corpus, corpus_of
from fedrank.texts.data.features import NAMES, TermColumns, bm25, search_list, statistics_of, text_features
from fedrank.texts.data.reader import TextReader
from fedrank.texts.graded import GradedLearner
from fedrank.texts.scores import NOT_FOUND, PADDING, ROWS, depth_of, pad_lists
from fedrank.texts.silo_sketch.setup.rows import CONSTANT, scale_of

#: Documents that BM25 finds for a query, unless told otherwise: as many as in a run.
DEPTH = 30


class Found(NamedTuple):
    """Documents that BM25 finds in a collection, query after query.

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


#: Name of all queries together in what :meth:`TextModel.evaluate` returns.
ALL_QUERIES = "all"

#: Mean and deviation of each feature, float64 [features] each.
Scale = tuple[Float[np.ndarray, " features"], Float[np.ndarray, " features"]]


@dataclass(frozen=True, eq=False, repr=False)
class TextModel(Model):
    """The ranker that silos with texts have trained together.

    Attributes:
        learner: The ranker's settings.
        weights: float32 [learner.size].
        texts: Settings of documents and queries, of which a model needs ``stem``, ``stopwords``, and ``scale``: the
            rows by which features are scaled, ``silo``, ``federation`` or ``query``, the list itself.
        scales: Silo -> mean and deviation by which it scales features; empty for ``query``, and where they are
            unknown, as at a server that has no texts (:meth:`fitted` sets them).
        as_published: Whether features are as printed (:func:`~fedrank.texts.data.features.text_features`).
        about: Where the model comes from.
    """

    task: ClassVar[str] = "texts"

    learner: GradedLearner
    weights: Float32[np.ndarray, " size"]
    texts: Texts = field(default_factory=Texts)
    scales: Mapping[str, Scale] = field(default_factory=dict)
    as_published: bool = False
    about: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self):
        if np.shape(self.weights) != (self.learner.size,):
            raise ModelError(f"weights must have shape ({self.learner.size},), got {np.shape(self.weights)}.")
        for silo, pair in self.scales.items():
            for values in pair:
                if np.shape(values) != (self.learner.features,):
                    raise ModelError(
                        f"mean and deviation of {silo!r} must have shape ({self.learner.features},), got "
                        f"{np.shape(values)}."
                    )

    @property
    @override
    def architecture(self) -> dict[str, Json]:
        return {
            "n_features": self.learner.features,
            "grades": self.learner.grades,
            "loss": self.learner.loss,
            "feature_names": list(NAMES),
            "scaling": self.texts.scale,
            "scales": {silo: [values.tolist() for values in pair] for silo, pair in self.scales.items()},
            "stem": self.texts.stem,
            "stopwords": self.texts.stopwords,
            "as_published": self.as_published,
        }

    @property
    @override
    def tensors(self) -> dict[str, np.ndarray]:
        return {"weights": self.weights}

    @classmethod
    @override
    def from_parts(cls, parts: ModelParts) -> TextModel:
        a = parts.architecture
        if tuple(a["feature_names"]) != NAMES:
            raise ModelError("its features are not those of this version of fedrank; train again.")
        scales = {
            silo: (np.asarray(mean, np.float64), np.asarray(deviation, np.float64))
            for silo, (mean, deviation) in a["scales"].items()
        }
        learner = GradedLearner(int(a["n_features"]), int(a["grades"]), a["loss"])
        texts = Texts(scale=a["scaling"], stem=a["stem"], stopwords=a["stopwords"])
        return cls(learner, parts.tensors["weights"], texts, scales, a["as_published"], parts.about)

    def fitted(self, features: Any, silo: str) -> TextModel:
        """The same model with the scale of a silo's own rows.

        Args:
            features: Features of its labelled training rows, as of :meth:`score`.
            silo: What to call it.
        """
        x = self._table(features).astype(np.float64)
        return replace(self, scales={**self.scales, silo: scale_of(len(x), x.sum(axis=0), (x**2).sum(axis=0))})

    def _scale(self, silo: str | None) -> Scale:
        """The scale of a silo.

        Raises:
            ModelError: It is unknown, or there are several and none was named.
            UnknownNameError: There is no such silo.
        """
        if not self.scales:
            raise ModelError(
                "it does not say how features are scaled: the server that wrote it has no texts. A silo sets its own "
                "with model.fitted(features of its training rows, name)."
            )
        if silo is None and (len(self.scales) == 1 or self.texts.scale == "federation"):
            return next(iter(self.scales.values()))
        if silo is None:
            raise ModelError(
                f"each silo scales features by its own rows; say whose: silo=… (--silo). There are "
                f"{', '.join(self.scales)}."
            )
        if silo not in self.scales:
            raise UnknownNameError("silo", silo, self.scales)
        return self.scales[silo]

    @override
    def for_party(self, name: str) -> TextModel:
        """The model with the scale of one silo only, which can be handed on and exported.

        Raises:
            ModelError: Each query's documents are scaled by themselves, or the scales are unknown.
            UnknownNameError: There is no such silo.
        """
        if self.texts.scale == "query":
            raise ModelError(f"it scales the documents of each query by themselves; leave the silo {name!r} out.")
        return replace(self, scales={name: self._scale(name)})

    @override
    def layers(self) -> tuple[Layer, ...]:
        first = QueryStandardise(CONSTANT) if self.texts.scale == "query" else Standardise(*self._scale(None))
        n, grades = self.learner.features, self.learner.grades
        if self.learner.loss == "classification":  # the mean grade of the distribution
            matrix = self.weights.reshape(n + 1, grades)
            return first, Dense(matrix[:n], matrix[n]), Softmax(), Dense(np.arange(grades, dtype=np.float32)[:, None])
        return first, Dense(self.weights[:n, None], self.weights[n : n + 1])

    # ------------------------------------------------------------------------------------------------------- scoring

    @override
    def score(
        self, features: Any, qid: Sequence[Any] | np.ndarray | None = None, *, silo: str | None = None
    ) -> Float32[np.ndarray, " documents"]:
        """Scores of documents; within a query the highest ranks first.

        Args:
            features: [documents, 16] in the order of :attr:`feature_names`, not scaled; or a data frame with columns of
                these names.
            qid: The query of each document, where features are scaled within a query; None: the column ``qid`` of a
                data frame that has one, else all are of one query.
            silo: Whose scale to take, where each silo has its own.

        Returns:
            float32 [documents]: the very numbers that the run's own evaluation ranked by.

        Raises:
            DataError: The features do not fit; says which.
            ModelError: The model does not know the scale.
        """
        table = self._table(features)
        if self.texts.scale == "query":
            return self._scores(self._by_list(table, query_ids(features, NAMES) if qid is None else qid))
        mean, deviation = self._scale(silo)
        return self._scores(((table.astype(np.float64) - mean) / deviation).astype(np.float32))

    def rank(
        self, features: Any, qid: Sequence[Any] | np.ndarray | None = None, *, silo: str | None = None
    ) -> Int[np.ndarray, " documents"]:
        """Row numbers of the documents, best first; with ``qid`` query after query in their order, best first in each.

        Equal scores stay in the order of the rows. Arguments and errors as of :meth:`score`; documents of a query stand
        together.
        """
        qid = query_ids(features, NAMES) if qid is None else qid
        return best_first(self.score(features, qid, silo=silo), qid)

    def score_texts(
        self, query: str, documents: Sequence[str | tuple[str, str]], *, silo: str | None = None
    ) -> Float32[np.ndarray, " documents"]:
        """Scores of documents for a query, from their texts.

        How rare a word is, is told by these documents: hand over all that are searched. (A silo in a run knows how rare
        it is in the whole federation; a file that told it would tell the federation's words.)

        Args:
            query: The query.
            documents: Texts, or pairs of title and text.
            silo: As of :meth:`score`.

        Raises:
            DataError: There is no document.
            ModelError: The model does not know the scale.
            MissingExtraError: The extra ``texts`` is not installed.
        """
        pairs = [("", one) if isinstance(one, str) else one for one in documents]
        texts, asked = UniqueTexts("document"), UniqueTexts("query")
        asked.put("query", (query,))
        for number, pair in enumerate(pairs):
            texts.put(str(number), pair)
        corpus = corpus_of(texts_of("documents", texts, asked, []), self.texts.stem, self.texts.stopwords)
        terms = corpus.queries[0]
        statistics = statistics_of((corpus,), corpus.vocabulary).of(terms)
        return self.score(TermColumns(corpus).features(terms, statistics, None, self.as_published), silo=silo)

    def rank_texts(
        self, query: str, documents: Sequence[str | tuple[str, str]], *, silo: str | None = None
    ) -> Int[np.ndarray, " documents"]:
        """Places of the documents, best first; arguments and errors as of :meth:`score_texts`."""
        return np.argsort(-self.score_texts(query, documents, silo=silo), kind="stable")

    # -------------------------------------------------------------------------------------------- whole collections

    @override
    def evaluate(
        self,
        data: Any,
        measures: Sequence[str] = MEASURES,
        *,
        silo: str | None = None,
        depth: int = DEPTH,
        folder: str | os.PathLike[str] | None = None,
    ) -> dict[str, dict[str, float]]:
        """Measures of the model in a search of a collection with judged queries.

        BM25 finds ``depth`` documents a query, the model ranks them. All relevant documents count, also those that were
        not found, so that the best value may be below 1.

        Args:
            data: In any form that :func:`fedrank.data.load` takes texts: a folder of documents, queries and judgements
                as BEIR has it, a name of the catalogue, or the three in memory.
            measures: Offline measures with a cutoff, such as ``nDCG(dcg='exp-log2')@10``, by the names of
                :mod:`fedrank.metrics.offline`.
            silo: As of :meth:`score`.
            depth: Documents that are found for a query.
            folder: Where data sets are looked for.

        Returns:
            ``all`` -> measure -> mean over all queries; with `` (judged)`` behind the name over those that have a
            relevant document.

        Raises:
            ConfigError: There is no such measure, or it has no cutoff; or the depth is negative.
            DataError: The data is no text collection with judgements.
            ModelError: The model does not know the scale.
        """
        cutoffs = {name: depth_of(name) for name in measures if offline_metric(name)}
        if unbounded := [name for name, cutoff in cutoffs.items() if cutoff is None]:
            raise ConfigError(f"{unbounded[0]} of a search needs a cutoff, such as {unbounded[0]}@{depth}.")
        corpus, found = self._search_all(data, depth, folder)
        scored = self.score(found.features, found.queries, silo=silo)
        given, labels, where = _lists(corpus, found, scored)
        judged, table = (labels > 0).any(axis=1), {}
        if not judged.any():
            raise DataError("no document is relevant for any query, so that there is nothing to measure by.")
        for name in measures:
            # Padding fills the ranks down to the cutoff, so that documents that were not found are never among them.
            padded = pad_lists((given, labels, where), (PADDING, 0, True), cutoffs[name] or 0)
            values = offline_metric(name)(*padded).astype(np.float64)
            table |= {name: float(values.mean()), f"{name} (judged)": float(values[judged].mean())}
        return {ALL_QUERIES: table}

    @override
    def trec_run(
        self,
        data: Any,
        *,
        name: str = "fedrank",
        silo: str | None = None,
        depth: int = DEPTH,
        folder: str | os.PathLike[str] | None = None,
    ) -> Iterator[str]:
        """Lines of a TREC run file of a search: query, ``Q0``, document, rank, score, name of the run.

        Args:
            data: As of :meth:`evaluate`; judgements are not needed.
            name: Name of the run.
            silo: As of :meth:`score`.
            depth: Documents that BM25 finds for a query, and the model ranks.
            folder: Where data sets are looked for.

        Raises:
            ConfigError: The depth is negative.
            DataError: The data is no text collection.
            ModelError: The model does not know the scale; or the name has white space.
        """
        corpus, found = self._search_all(data, depth, folder, judged=False)
        scored = self.score(found.features, found.queries, silo=silo)
        ends = np.searchsorted(found.queries, np.arange(corpus.n_queries + 1))
        return run_lines(
            (
                (qid, [corpus.document_ids[number] for number in found.documents[a:b]], scored[a:b])
                for qid, a, b in zip(corpus.query_ids, ends[:-1], ends[1:], strict=True)
            ),
            name,
        )

    def _search_all(self, data: Any, depth: int, folder: Any, judged: bool = True) -> tuple[Corpus, Found]:
        """A collection and what BM25 finds in it."""
        texts = load(data, TextReader(judged=judged), folder=folder)
        corpus = corpus_of(texts, self.texts.stem, self.texts.stopwords)
        return corpus, search(corpus, depth, self.as_published)

    def _scores(self, x: Float32[np.ndarray, "documents features"]) -> Float32[np.ndarray, " documents"]:
        return scores(self.learner, self.weights, blocks(x, ROWS), len(x)) if len(x) else np.zeros(0, np.float32)

    def _by_list(self, table: Float32[np.ndarray, "documents features"], qid: Any) -> Float32[np.ndarray, "_ features"]:
        ids = np.zeros(len(table), np.int64) if qid is None else np.asarray(qid)
        if ids.shape != (len(table),):
            raise DataError(f"qid must name the query of each of {len(table)} documents, got shape {ids.shape}.")
        out = np.zeros_like(table)
        for one in np.unique(ids):
            x = table[ids == one].astype(np.float64)
            mean, deviation = scale_of(float(len(x)), x.sum(axis=0), (x**2).sum(axis=0))
            out[ids == one] = ((x - mean) / deviation).astype(np.float32)
        return out

    def _table(self, features: Any) -> Float32[np.ndarray, "documents features"]:
        return in_single_precision(table_of(features, self.n_features, NAMES), NAMES)


def _lists(
    corpus: Corpus, found: Found, scored: Float32[np.ndarray, " rows"]
) -> tuple[
    Float32[np.ndarray, "queries documents"],
    Int32[np.ndarray, "queries documents"],
    Bool[np.ndarray, "queries documents"],
]:
    """Scores, grades and places of each query's documents: those that were found, then relevant ones that were not."""
    rows = []
    for query in range(corpus.n_queries):
        own, grades = found.queries == query, corpus.labels(query)
        here = found.documents[own]
        missed = np.setdiff1d(np.flatnonzero(grades), here)
        given = np.concatenate([scored[own], np.full(len(missed), NOT_FOUND, np.float32)])
        rows.append((given, grades[np.concatenate([here, missed])]))
    shape = len(rows), max(len(given) for given, _ in rows)
    padded_scores, labels, where = np.zeros(shape, np.float32), np.zeros(shape, np.int32), np.zeros(shape, bool)
    for row, (given, grades) in enumerate(rows):
        padded_scores[row, : len(given)], labels[row, : len(given)], where[row, : len(given)] = given, grades, True
    return padded_scores, labels, where
