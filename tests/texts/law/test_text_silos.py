"""Cutting, joining and dealing out text collections, and what generated ones promise."""

from functools import cache

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_worlds import generate_federation

from fedrank.core.errors import ConfigError, DataError, UnknownNameError
from fedrank.data import load
from fedrank.texts.data.corpus import Corpus, corpus_of, tokenise
from fedrank.texts.data.generate import generate_texts
from fedrank.texts.data.silos import CUTS, Federation, cut, federation_of, join_collections, split_queries


@cache
def collection(seed: int = 0) -> Corpus:
    return corpus_of(generate_texts(seed, documents=120, queries=24, topics=4, words=500, length=30))


def counted(corpus: Corpus, document: int, field: int) -> dict[str, int]:
    row = corpus.counts[field].toarray()[document]
    return {corpus.vocabulary[term]: int(row[term]) for term in np.flatnonzero(row)}


def judged(corpus: Corpus) -> dict[tuple[str, str], int]:
    rows = zip(corpus.judged_queries, corpus.judged_documents, corpus.grades, strict=True)
    return {(corpus.query_ids[q], corpus.document_ids[d]): int(grade) for q, d, grade in rows}


def words_of(corpus: Corpus, query: int) -> list[str]:
    return [corpus.vocabulary[term] for term in corpus.queries[query]]


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_a_part_has_its_own_words_and_judgements_and_nothing_else(data):
    whole = collection()
    documents = np.array(data.draw(st.lists(st.integers(0, 119), min_size=1, max_size=9, unique=True)))
    queries = np.array(data.draw(st.lists(st.integers(0, 23), min_size=1, max_size=4, unique=True)))
    part = whole.select(documents, queries, "part")
    assert part.document_ids == tuple(whole.document_ids[d] for d in documents)
    for field in (0, 1):
        for place, number in enumerate(documents):
            assert counted(part, place, field) == counted(whole, int(number), field)
    assert [words_of(part, q) for q in range(len(queries))] == [words_of(whole, int(q)) for q in queries]
    there = {word for d in range(len(documents)) for field in (0, 1) for word in counted(part, d, field)}
    assert list(part.vocabulary) == sorted(there | {word for q in range(len(queries)) for word in words_of(part, q)})
    own = set(part.query_ids), set(part.document_ids)
    assert judged(part) == {pair: g for pair, g in judged(whole).items() if pair[0] in own[0] and pair[1] in own[1]}
    np.testing.assert_array_equal(part.lengths, whole.lengths[documents])
    np.testing.assert_array_equal(part.distinct, whole.distinct[documents])


def test_a_cut_gives_every_document_and_query_to_one_silo():
    for silos in [2, 5]:
        for how in CUTS:
            whole = collection()
            federation = cut(whole, silos, how, seed=3)
            assert federation.n_silos == silos and federation.names[0] == "silo-1" and federation.generated
            np.testing.assert_array_equal(np.sort(np.concatenate(federation.documents)), np.arange(whole.n_documents))
            np.testing.assert_array_equal(np.sort(np.concatenate(federation.queries)), np.arange(whole.n_queries))
            for silo, documents in zip(federation.silos, federation.documents, strict=True):
                assert silo.document_ids == tuple(whole.document_ids[d] for d in documents)
            # What is relevant at home, and what is not counted as foreign, are the same pairs.
            home = sum(int((silo.grades > 0).sum()) for silo in federation.silos)
            assert federation.foreign_share() == pytest.approx(1 - home / (whole.grades > 0).sum())
            again = cut(whole, silos, how, seed=3)
            assert all(np.array_equal(a, b) for a, b in zip(federation.documents, again.documents, strict=True))


def test_a_random_cut_is_even_and_makes_most_relevant_documents_foreign():
    whole = collection()
    shares = [cut(whole, 4, seed=seed).foreign_share() for seed in range(5)]
    assert 0.68 < np.mean(shares) < 0.82  # 3/4 of them, were the silos infinitely large
    federation = cut(whole, 4, seed=0)
    assert {len(d) for d in federation.documents} == {30} and {len(q) for q in federation.queries} == {6}
    assert not np.array_equal(federation.documents[0], cut(whole, 4, seed=1).documents[0])


def test_a_cut_by_topic_puts_a_query_where_most_of_its_relevant_documents_are():
    whole = collection()
    federation = cut(whole, 3, "topic", seed=0)
    for silo, queries in enumerate(federation.queries):
        for query in queries:
            relevant = np.flatnonzero(whole.labels(int(query)))
            held = [np.isin(relevant, documents).sum() for documents in federation.documents]
            assert held[silo] == max(held)
    assert federation.foreign_share() < cut(whole, 3, "random", seed=0).foreign_share() - 0.2


def test_queries_without_relevant_documents_are_dealt_out_too():
    whole = collection()
    none = np.zeros(0, np.int32)
    names = {name: getattr(whole, name) for name in whole.__dataclass_fields__}
    unjudged = Corpus(**{**names, "judged_queries": none, "judged_documents": none, "grades": none})
    for how in CUTS:
        federation = cut(unjudged, 4, how)
        assert [len(queries) for queries in federation.queries] == [6] * 4
        assert np.isnan(federation.foreign_share()) and "No query of silo-4" in federation.notes[-2]


def test_a_cut_that_cannot_be_is_refused():
    whole = collection()
    with pytest.raises(ConfigError, match="silos must be at least 2"):
        cut(whole, 1)
    with pytest.raises(UnknownNameError, match="Did you mean 'topic'"):
        cut(whole, 2, "topics")
    with pytest.raises(DataError, match="too few for 25 silos"):
        cut(whole, 25)
    with pytest.raises(DataError, match=r"silo-2 of 'generated' would have no query"):
        federation_of(whole, [np.arange(3), np.arange(3, 6)], [np.arange(2), np.zeros(0, int)])
    with pytest.raises(DataError, match="a document of 'generated' lies at two silos"):
        federation_of(whole, [np.arange(3), np.arange(2, 6)], [np.arange(2), np.arange(2, 3)])
    with pytest.raises(DataError, match="number 120, but there are 120"):
        whole.select(np.array([120]), np.array([0]), "x")
    with pytest.raises(DataError, match="different numbers from 0"):
        whole.select(np.array([1, 1]), np.array([0]), "x")


def test_joined_collections_stay_what_they_were():
    first, second = collection(0), collection(1)
    names = {name: getattr(second, name) for name in second.__dataclass_fields__}
    other = Corpus(**{**names, "name": "other", "grades": np.minimum(second.grades, 1)})
    federation = join_collections([first, other])
    assert federation.names == ("generated", "other") and federation.foreign_share() == 0
    assert federation.whole.name == "generated+other"
    assert federation.whole.document_ids[120] == "other/d1" and federation.whole.query_ids[24] == "other/q1"
    assert federation.whole.labels(24)[120:].tolist() == other.labels(0).tolist()
    assert not federation.whole.labels(24)[:120].any()
    for silo, corpus in zip(federation.silos, (first, other), strict=True):
        assert silo.vocabulary == corpus.vocabulary and silo.name == corpus.name
        for field in (0, 1):
            assert (silo.counts[field] != corpus.counts[field]).nnz == 0
        assert all(np.array_equal(a, b) for a, b in zip(silo.queries, corpus.queries, strict=True))
        np.testing.assert_array_equal(silo.grades, corpus.grades)
    assert federation.notes[-1] == "The silos' grades have different scales: generated 0 to 2, other 0 to 1."
    with pytest.raises(DataError, match="two at least with different names"):
        join_collections([first, second])


@settings(max_examples=30)
@given(
    st.integers(1, 24),
    st.integers(0, 5),
    st.sampled_from([(0.6, 0.2), (0.01, 0.01), (0.98, 0.01), (0.5, 0.0)]),
)
def test_judged_queries_are_dealt_out_completely_and_no_part_is_empty(n, seed, shares):
    silo = collection().select(np.arange(120), np.arange(n), "silo")
    parts = split_queries(silo, seed, *shares)
    assert list(parts) == ["train", "vali", "test"]
    np.testing.assert_array_equal(np.sort(np.concatenate(list(parts.values()))), silo.answerable_queries())
    assert n < 3 or all(len(part) for part in parts.values())
    again = split_queries(silo, seed, *shares)
    assert all(np.array_equal(parts[name], again[name]) for name in parts)


def test_queries_without_a_relevant_own_document_are_not_dealt_out():
    whole = collection()
    relevant = np.flatnonzero(whole.labels(0))
    silo = whole.select(np.setdiff1d(np.arange(120), relevant), np.array([0, 1, 2, 3]), "silo")
    assert 0 not in np.concatenate(list(split_queries(silo, 0, 0.4, 0.3).values()))
    for shares in ((0.0, 0.2), (0.8, 0.2), (0.5, -0.1)):
        with pytest.raises(ConfigError, match="together below 1"):
            split_queries(silo, 0, *shares)


def test_generated_texts_repeat_with_their_seed_and_say_that_they_are():
    first, again, other = load("generated", "texts"), load("generated", "texts"), load("generated", "texts", seed=1)
    assert first.bodies == again.bodies and first.queries == again.queries and first.bodies != other.bodies
    np.testing.assert_array_equal(first.grades, again.grades)
    assert first.generated and "not a real collection" in first.notes[0]
    assert (first.n_documents, first.n_queries, first.n_judged) == (600, 120, 120)
    assert first.topics is not None and first.topics.shape == (600,) and set(first.grades.tolist()) == {1, 2}
    # The tokeniser neither changes nor drops a word of them.
    assert [" ".join(words) for words in tokenise(first.bodies[:50])] == list(first.bodies[:50])


def test_generated_word_frequencies_fall_off_as_zipf_says():
    corpus = corpus_of(generate_texts(0))
    frequency = np.sort(np.asarray(corpus.counts[0].sum(axis=0)).ravel())[::-1][:300]
    slope = np.polyfit(np.log(np.arange(1, 301)), np.log(frequency), 1)[0]
    assert -1.3 < slope < -0.7


def dcg_share(corpus: Corpus) -> tuple[float, float]:
    """nDCG(dcg='exp-log2')@10 of bm25s and of a random order, mean over the queries."""
    vocabulary = np.array(corpus.vocabulary)
    counts = (corpus.counts[0] + corpus.counts[1]).tocsr()
    words = [
        np.repeat(vocabulary[row.indices], row.data).tolist() for row in (counts[[d]] for d in range(counts.shape[0]))
    ]
    index = bm25s.BM25()
    index.index(words, show_progress=False)
    rng = np.random.default_rng(0)
    discount = 1 / np.log2(np.arange(2, 12))
    found = []
    for query in corpus.answerable_queries():
        gains = 2.0 ** corpus.labels(int(query)) - 1
        best = np.sort(gains)[::-1][:10] @ discount
        ranked = np.argsort(-index.get_scores(words_of(corpus, int(query))), kind="stable")
        found.append([gains[order[:10]] @ discount / best for order in (ranked, rng.permutation(len(gains)))])
    bm25, chance = np.mean(found, axis=0)
    return float(bm25), float(chance)


def test_bm25_helps_on_generated_texts_and_is_far_from_perfect():
    bm25, chance = dcg_share(corpus_of(generate_texts(0)))
    assert 0.4 < bm25 < 0.75 and chance < 0.1


def test_generated_silos_differ_as_much_as_they_are_told_to():
    even = generate_federation(4, heterogeneity=0.0)
    own = generate_federation(4, heterogeneity=1.0)
    for federation in (even, own):
        assert isinstance(federation, Federation) and federation.generated
        assert [len(d) for d in federation.documents] == [150] * 4 and [len(q) for q in federation.queries] == [30] * 4
    assert 0.65 < even.foreign_share() < 0.85 and own.foreign_share() < 0.45


def test_a_generated_silo_of_poor_quality_shows_less_of_what_its_documents_are_about():
    texts = generate_federation(2, documents=60, queries=10, heterogeneity=0.0, quality=[1.0, 0.0])
    # Without anything that is about a topic, only the words that everybody uses are left: fewer different ones.
    distinct = [silo.distinct[:, 0].sum() / silo.lengths[:, 0].sum() for silo in texts.silos]
    assert distinct[1] < distinct[0]
    assert dcg_share(texts.silos[1])[0] < dcg_share(texts.silos[0])[0]


def test_settings_out_of_range_are_refused():
    for given_settings, message in [
        ({"documents": 10}, "documents of a generated collection must be at least 20"),
        ({"topics": 1}, "topics of a generated collection must be at least 2"),
        ({"words": 10}, "words of a generated collection must be at least 500"),
    ]:
        with pytest.raises(ConfigError, match=message):
            generate_texts(**given_settings)
