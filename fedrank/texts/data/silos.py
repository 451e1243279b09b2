"""Organisations that hold documents and queries: one collection cut into silos, or several collections as silos."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64
from scipy.sparse import csr_array

from fedrank.core.errors import ConfigError, DataError, UnknownNameError
from fedrank.core.lazy import require
from fedrank.texts.data.corpus import Corpus

#: How one collection is cut into silos.
CUTS = ("random", "topic")

# Dimensions of the space in which documents of one topic lie near each other; a hundred or so is usual for latent
# semantic analysis, fewer do for small collections.
_DIMENSIONS = 50
# How often k-means starts anew; the best end counts.
_STARTS = 4
# Queries to learn from, to choose by, and to measure on.
_PARTS = ("train", "vali", "test")


@dataclass(frozen=True, eq=False)
class Federation:
    """Silos with separate documents and queries, and all of them together.

    Attributes:
        whole: All documents and queries with all judgements, which no party of the federation sees; for baselines and
            measures.
        silos: Texts of each silo, with its own words and the judgements between its own queries and documents only.
        documents: For each silo the numbers that its documents have in ``whole``, in its own order.
        queries: The same for queries.
        names: Name of each silo.
        notes: What a reader of the numbers should know, one sentence each.

    Raises:
        DataError: There are fewer than two silos, two have one name, or a document or query lies at two silos.
    """

    whole: Corpus
    silos: tuple[Corpus, ...]
    documents: tuple[Int64[np.ndarray, " _"], ...]
    queries: tuple[Int64[np.ndarray, " _"], ...]
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        if not 2 <= self.n_silos == len(self.documents) == len(self.queries) == len(self.names):
            raise DataError(
                f"federation {self.name!r} needs two silos at least, each with documents, queries and a name, got "
                f"{self.n_silos} silos, {len(self.documents)} and {len(self.queries)} lists, {len(self.names)} names."
            )
        if len(set(self.names)) < len(self.names):
            raise DataError(f"two silos of {self.name!r} have one name: {', '.join(self.names)}.")
        for what, lists in (("document", self.documents), ("query", self.queries)):
            dealt = np.concatenate(lists)
            if len(np.unique(dealt)) < len(dealt):
                raise DataError(f"a {what} of {self.name!r} lies at two silos; each may lie at one only.")

    @property
    def name(self) -> str:
        """Name of the federation: that of the whole collection."""
        return self.whole.name

    @property
    def n_silos(self) -> int:
        """Number of silos that hold the documents."""
        return len(self.silos)

    @property
    def generated(self) -> bool:
        """True if the texts were made up by a program."""
        return self.whole.generated

    @property
    def citation(self) -> str:
        """Key in ``core/references.bib``; empty if there is nothing, or more than one thing, to cite."""
        return self.whole.citation

    @property
    def citations(self) -> tuple[str, ...]:
        """Keys of everything to cite, each once."""
        keys = (self.whole.citation, *(silo.citation for silo in self.silos))
        return tuple(dict.fromkeys(key for key in keys if key))

    def foreign_share(self) -> float:
        """Share of the relevant pairs whose document lies at another silo than the query; NaN if there is no pair."""
        at_d, at_q = np.full(self.whole.n_documents, -1), np.full(self.whole.n_queries, -1)
        for silo, (documents, queries) in enumerate(zip(self.documents, self.queries, strict=True)):
            at_d[documents], at_q[queries] = silo, silo
        pairs = self.whole.grades > 0
        d, q = at_d[self.whole.judged_documents[pairs]], at_q[self.whole.judged_queries[pairs]]
        dealt = (d >= 0) & (q >= 0)
        return float((d != q)[dealt].mean()) if dealt.any() else math.nan


def federation_of(
    whole: Corpus, documents: Sequence[np.ndarray], queries: Sequence[np.ndarray], names: Sequence[str] = ()
) -> Federation:
    """A federation from the numbers of each silo's documents and queries.

    Args:
        whole: All documents and queries.
        documents: For each silo the numbers of its documents.
        queries: For each silo the numbers of its queries.
        names: Name of each silo; by default ``silo-1``, ``silo-2``, …

    Raises:
        DataError: A silo would have no document or no query, or something lies at two silos.
    """
    names = tuple(names) or tuple(f"silo-{k}" for k in range(1, len(documents) + 1))
    documents = tuple(np.asarray(own, np.int64) for own in documents)
    queries = tuple(np.asarray(own, np.int64) for own in queries)
    for what, lists in (("document", documents), ("query", queries)):
        for name, own in zip(names, lists, strict=True):
            if not len(own):
                raise DataError(f"{name} of {whole.name!r} would have no {what}; make fewer silos.")
    silos = tuple(
        whole.select(d, q, f"{whole.name}/{name}") for d, q, name in zip(documents, queries, names, strict=True)
    )
    federation = Federation(whole, silos, documents, queries, names, whole.notes)
    poor = [name for name, silo in zip(names, silos, strict=True) if not len(silo.answerable_queries())]
    notes = [f"No query of {name} has a relevant document there." for name in poor]
    return replace(federation, notes=(*whole.notes, *notes))


def cut(corpus: Corpus, silos: int, how: str = "random", seed: int = 0) -> Federation:
    """Cut one collection into silos.

    ``random`` deals documents and queries out evenly, so with k silos about (k − 1)/k of a query's relevant documents
    are foreign. ``topic`` puts documents of one topic together (k-means on the latent semantic space of tf-idf) and a
    query to the silo that holds most of its relevant documents; among several such, and without any, to the one that
    has the fewest queries so far.

    Args:
        corpus: The collection.
        silos: Number of silos, at least 2.
        how: One of :data:`CUTS`.
        seed: Seed of the random assignment and of k-means.

    Raises:
        ConfigError: Fewer than two silos.
        UnknownNameError: No such way.
        DataError: There are too few documents or queries for the silos.
    """
    if silos < 2:
        raise ConfigError(f"silos must be at least 2, got {silos}.")
    if how not in CUTS:
        raise UnknownNameError("way to cut a collection", how, CUTS)
    if min(corpus.n_documents, corpus.n_queries) < silos:
        raise DataError(
            f"{corpus.name!r} has {corpus.n_documents} documents and {corpus.n_queries} queries, "
            f"too few for {silos} silos."
        )
    rng = np.random.default_rng(seed)
    if how == "random":
        at_d = _dealt(rng, corpus.n_documents, silos)
        at_q = _dealt_queries(rng, corpus, silos)
    else:
        at_d = _by_topic(corpus, silos, seed)
        at_q = _queries_to_relevant(rng, corpus, at_d, silos)
    numbers = range(silos)
    federation = federation_of(
        corpus, [np.flatnonzero(at_d == k) for k in numbers], [np.flatnonzero(at_q == k) for k in numbers]
    )
    sizes = ", ".join(str(len(own)) for own in federation.documents)
    dealt = ", ".join(str(len(own)) for own in federation.queries)
    share = federation.foreign_share()
    foreign = "" if math.isnan(share) else f"; {share:.0%} of the relevant pairs are foreign"
    by = "at random" if how == "random" else "by topic"
    note = f"{corpus.name} was cut into {silos} silos {by}: {sizes} documents, {dealt} queries{foreign}."
    return replace(federation, notes=(*federation.notes, note))


def join_collections(corpora: Sequence[Corpus]) -> Federation:
    """Several collections as silos. Ids in the whole begin with the collection's name: ``cranfield/12``.

    Relevance does not cross: no query has a relevant document at another silo, as far as anybody judged. Grades stay as
    they are in each collection.

    Raises:
        DataError: Fewer than two collections, or two of one name.
    """
    names = [corpus.name for corpus in corpora]
    if len(set(names)) < len(names) or len(names) < 2:
        raise DataError(f"several collections as silos need two at least with different names, got {names}.")
    vocabulary = sorted({term for corpus in corpora for term in corpus.vocabulary})
    number = {term: place for place, term in enumerate(vocabulary)}
    places = [np.array([number[term] for term in corpus.vocabulary], np.int32) for corpus in corpora]
    first_d = np.cumsum([0, *(corpus.n_documents for corpus in corpora)])
    first_q = np.cumsum([0, *(corpus.n_queries for corpus in corpora)])
    citations = {corpus.citation for corpus in corpora}
    whole = Corpus(
        "+".join(names),
        tuple(vocabulary),
        (_stack(corpora, places, 0, len(vocabulary)), _stack(corpora, places, 1, len(vocabulary))),
        tuple(f"{corpus.name}/{one}" for corpus in corpora for one in corpus.document_ids),
        tuple(f"{corpus.name}/{one}" for corpus in corpora for one in corpus.query_ids),
        tuple(place[words] for corpus, place in zip(corpora, places, strict=True) for words in corpus.queries),
        np.concatenate([c.judged_queries + f for c, f in zip(corpora, first_q, strict=False)]).astype(np.int32),
        np.concatenate([c.judged_documents + f for c, f in zip(corpora, first_d, strict=False)]).astype(np.int32),
        np.concatenate([corpus.grades for corpus in corpora]),
        any(corpus.generated for corpus in corpora),
        citations.pop() if len(citations) == 1 else "",
        tuple(f"{corpus.name}: {note}" for corpus in corpora for note in corpus.notes),
    )
    documents = [np.arange(*ends) for ends in itertools.pairwise(first_d)]
    queries = [np.arange(*ends) for ends in itertools.pairwise(first_q)]
    federation = federation_of(whole, documents, queries, names)
    silos = tuple(
        replace(silo, name=corpus.name, generated=corpus.generated, citation=corpus.citation, notes=corpus.notes)
        for silo, corpus in zip(federation.silos, corpora, strict=True)
    )
    notes = list(federation.notes)
    if len({corpus.max_grade for corpus in corpora}) > 1:
        scales = ", ".join(f"{corpus.name} 0 to {corpus.max_grade}" for corpus in corpora)
        notes.append(f"The silos' grades have different scales: {scales}.")
    return replace(federation, silos=silos, notes=tuple(notes))


def split_queries(
    corpus: Corpus, seed: int, train: float = 0.6, vali: float = 0.2
) -> dict[str, Int64[np.ndarray, " _"]]:
    """A random split of a silo's judged queries into training, validation and test queries.

    Only queries with a relevant document of the silo's own count. Of three and more, each part gets one at least.

    Args:
        corpus: The silo.
        seed: Seed of the split.
        train: Share to train on, above 0.
        vali: Share to validate on, at least 0; the rest, above 0, is for testing.

    Returns:
        Numbers of queries, ascending, under ``train``, ``vali`` and ``test``.

    Raises:
        ConfigError: The shares are out of range.
    """
    if not (train > 0 and vali >= 0 and train + vali < 1):
        raise ConfigError(f"train must be above 0, vali at least 0, and together below 1; got {train} and {vali}.")
    queries = np.random.default_rng(seed).permutation(corpus.answerable_queries())
    n = len(queries)
    first, second = round(n * train), round(n * (train + vali))
    if n >= len(_PARTS):
        first = min(max(first, 1), n - 2)
        second = min(max(second, first + 1), n - 1)
    parts = np.split(queries, [first, second])
    return dict(zip(_PARTS, map(np.sort, parts), strict=True))


def _dealt(rng: np.random.Generator, n: int, silos: int) -> Int64[np.ndarray, " n"]:
    """Random silo of each of n things; sizes of silos differ by at most one."""
    return rng.permutation(np.arange(n) % silos)


def _dealt_queries(rng: np.random.Generator, corpus: Corpus, silos: int) -> Int64[np.ndarray, " queries"]:
    """Random silo of each query, evenly also among the queries with a relevant document."""
    answered = np.isin(np.arange(corpus.n_queries), corpus.answerable_queries())
    order = rng.permutation(corpus.n_queries)
    order = np.concatenate([order[answered[order]], order[~answered[order]]])
    at = np.empty(corpus.n_queries, np.int64)
    at[order] = np.arange(corpus.n_queries) % silos
    return at


def _by_topic(corpus: Corpus, silos: int, seed: int) -> Int64[np.ndarray, " documents"]:
    """Silo of each document, by k-means clusters."""
    require("sklearn", "Dividing documents by topic", "sklearn")
    from sklearn.cluster import KMeans
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.preprocessing import normalize

    # Counts of body and title together, as 64-bit numbers with the index type that the library knows.
    words = TfidfTransformer(sublinear_tf=True).fit_transform((corpus.counts[0] + corpus.counts[1]).astype(np.float64))
    dimensions = min(_DIMENSIONS, min(words.shape) - 1)
    if dimensions > 1:
        words = TruncatedSVD(dimensions, random_state=seed).fit_transform(words)
    means = KMeans(silos, n_init=_STARTS, random_state=seed)  # type: ignore[arg-type]
    return means.fit_predict(normalize(words)).astype(np.int64)


def _queries_to_relevant(
    rng: np.random.Generator, corpus: Corpus, at: Int64[np.ndarray, " documents"], silos: int
) -> Int64[np.ndarray, " queries"]:
    """Silo of each query: the one with most of its relevant documents, given the silo of each document."""
    pairs = corpus.grades > 0
    relevant = np.zeros((corpus.n_queries, silos), np.int64)
    np.add.at(relevant, (corpus.judged_queries[pairs], at[corpus.judged_documents[pairs]]), 1)
    held = np.zeros(silos, np.int64)
    chosen = np.empty(corpus.n_queries, np.int64)
    # Queries without a choice first, so that those with one can make up for unevenness.
    order = rng.permutation(corpus.n_queries)
    choices = (relevant == relevant.max(axis=1, keepdims=True)).sum(axis=1)
    for query in order[np.argsort(choices[order], kind="stable")]:
        best = np.flatnonzero(relevant[query] == relevant[query].max())
        chosen[query] = best[np.argmin(held[best])]
        held[chosen[query]] += 1
    return chosen


def _stack(corpora: Sequence[Corpus], places: Sequence[np.ndarray], field: int, n_terms: int) -> csr_array:
    """Counts of one field of all collections over the common vocabulary: int32 [documents, n_terms]."""
    from scipy import sparse

    parts = []
    for corpus, place in zip(corpora, places, strict=True):
        counts = corpus.counts[field]
        # Both vocabularies are in order, so the terms of a row stay in order.
        parts.append(
            sparse.csr_array((counts.data, place[counts.indices], counts.indptr), (corpus.n_documents, n_terms))
        )
    return sparse.csr_array(sparse.vstack(parts, format="csr"))
