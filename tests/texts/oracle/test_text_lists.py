"""Candidate lists against plain sets, and that their order tells nothing."""

import numpy as np
import pytest
from text_feature_worlds import PlainFeatures, drawn_texts, plain_corpus, texts_of

from fedrank.core.errors import ConfigError, DataError
from fedrank.texts.data.features import NAMES, CandidateList, own_lists, padded, search_list, statistics_of


def lists_of(texts, depth, negatives, seed=0, queries=None):
    corpus = plain_corpus(texts)
    queries = np.arange(corpus.n_queries) if queries is None else np.array(queries)
    return own_lists(corpus, queries, statistics_of([corpus], corpus.vocabulary), depth, negatives, seed)


def plain_best(texts, query, depth):
    """The first documents by BM25 of body and title, from a loop over the words."""
    documents = [(body.split(), title.split()) for body, title in zip(texts.bodies, texts.titles, strict=True)]
    plain = PlainFeatures(documents)
    columns = [NAMES.index("body BM25"), NAMES.index("title BM25")]
    scores = [sum(plain.of(texts.queries[query].split(), document)[c] for c in columns) for document in documents]
    return sorted(range(len(documents)), key=lambda number: (-round(scores[number], 9), number))[:depth]


def test_a_list_is_the_judged_the_best_and_some_others():
    texts = drawn_texts(documents=30)
    for one in lists_of(texts, depth=4, negatives=3):
        judged = {
            int(document): int(grade)
            for query, document, grade in zip(texts.judged_queries, texts.judged_documents, texts.grades, strict=True)
            if query == one.query
        }
        named = set(judged) | set(plain_best(texts, one.query, 4))
        members = one.documents.tolist()
        assert named <= set(members)
        assert len(members) == len(set(members)) == len(named) + 3
        assert one.labels.tolist() == [judged.get(number, 0) for number in members]
        assert one.documents.dtype == one.labels.dtype == np.int32


def test_lists_follow_the_seed_and_not_the_other_queries():
    texts = drawn_texts(documents=30)
    one, again = lists_of(texts, 3, 5, seed=4), lists_of(texts, 3, 5, seed=4, queries=[2, 0])
    for ours, same in ((one[2], again[0]), (one[0], again[1])):
        np.testing.assert_array_equal(ours.documents, same.documents)
    twice = lists_of(texts_of(["ant"] * 40, [""] * 40, ["ant", "ant"]), 0, 10)
    assert set(twice[0].documents) != set(twice[1].documents)  # the same words, lots of their own
    other = lists_of(texts, 3, 5, seed=5)
    assert any(set(ours.documents) != set(theirs.documents) for ours, theirs in zip(one, other, strict=True))


def test_the_order_of_a_list_tells_nothing_of_its_labels():
    texts = texts_of(["ant"] * 20, [""] * 20, ["ant"], [(0, number, 1) for number in range(5)])
    places = [np.flatnonzero(lists_of(texts, 0, 15, seed)[0].labels).mean() for seed in range(200)]
    # Five of twenty places at random have mean 9.5 and deviation 2.3; four standard errors of 200.
    assert abs(np.mean(places) - 9.5) < 4 * np.sqrt((400 - 1) / 12 / 5 * 15 / 19 / 200)
    # What is drawn by lot is drawn evenly: each of 15 others stands in a list of 5 with chance 1/3.
    drawn = np.bincount(np.concatenate([lists_of(texts, 0, 5, seed)[0].documents for seed in range(200)]), minlength=20)
    assert (drawn[:5] == 200).all() and drawn[5:].sum() == 1000
    assert ((drawn[5:] > 35) & (drawn[5:] < 100)).all()


def test_one_document_no_relevant_one_and_a_depth_beyond_the_collection():
    (one,) = lists_of(texts_of(["ant"], [""], ["ant bee"]), depth=10, negatives=10)
    assert one.documents.tolist() == [0] and one.labels.tolist() == [0]
    texts = drawn_texts()
    for one in lists_of(texts, depth=100, negatives=2):
        assert sorted(one.documents.tolist()) == list(range(12))
    assert not lists_of(texts, 3, 3, queries=[6])[0].labels.any()  # an empty query that nobody judged
    empty = lists_of(texts, 0, 0, queries=[1, 6])
    assert empty[0].documents.tolist() == [3] and empty[1].documents.tolist() == []


def test_a_search_puts_the_lower_number_first_among_equals():
    scores = np.array([1.0, 3.0, 0.0, 3.0, 1.0])
    assert search_list(scores, 3).tolist() == [1, 3, 0]
    assert search_list(scores, 9).tolist() == [1, 3, 0, 4, 2]
    many = np.random.default_rng(0).integers(0, 3, 200).astype(float)
    assert search_list(many, 150).tolist() == sorted(range(200), key=lambda number: (-many[number], number))[:150]
    assert search_list(scores, 0).tolist() == [] and search_list(scores, 3).dtype == np.int32


def test_padded_lists_hold_each_list_and_then_nothing():
    lists = (
        CandidateList(3, np.array([5, 1], np.int32), np.array([0, 2], np.int32)),
        CandidateList(4, np.array([], np.int32), np.array([], np.int32)),
        CandidateList(7, np.array([2, 0, 9], np.int32), np.array([1, 0, 1], np.int32)),
    )
    rng = np.random.default_rng(0)
    features = [rng.normal(size=(len(one.documents), 16)) for one in lists]
    x, labels, where = padded(lists, features)
    assert x.dtype == np.float32 and labels.dtype == np.int32 and x.shape == (3, 3, 16)
    np.testing.assert_array_equal(where, [[1, 1, 0], [0, 0, 0], [1, 1, 1]])
    np.testing.assert_array_equal(labels, [[0, 2, 0], [0, 0, 0], [1, 0, 1]])
    np.testing.assert_array_equal(x[where], np.concatenate(features).astype(np.float32))
    assert not x[~where].any()
    assert padded((), ())[0].shape == (0, 0, 16)


def test_wrong_settings_are_told():
    texts = drawn_texts()
    with pytest.raises(ConfigError, match="depth of a search must be at least 0, got -1"):
        lists_of(texts, -1, 0)
    with pytest.raises(ConfigError, match="at least 0, got -2"):
        lists_of(texts, 0, -2)
    with pytest.raises(DataError, match="has 7 queries, there is no number 7"):
        lists_of(texts, 1, 1, queries=[7])
    lists = lists_of(texts, 2, 0)
    with pytest.raises(DataError, match="got 0 for 7 lists"):
        padded(lists, [])
    with pytest.raises(DataError, match="must be"):
        padded(lists[:1], [np.zeros((1, 3))])
