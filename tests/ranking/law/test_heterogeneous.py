"""Parties who differ: shares are shares, and differ in what they are said to differ in and nothing else."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import tiny_queries

from fedrank.core.errors import ConfigError
from fedrank.ranking.data import partition as h
from fedrank.ranking.data.partition import Shares
from fedrank.ranking.data.queries import QuerySet

QUERIES = 60


def topical_queries(seed=0, topics=3) -> QuerySet:
    """Queries whose documents lie around one of a few centres; one feature is huge and says nothing."""
    random = np.random.default_rng(seed)
    lengths = random.integers(2, 9, QUERIES)
    topic = np.repeat(np.arange(QUERIES) % topics, lengths)
    x = 4.0 * np.eye(topics)[topic] + random.normal(0, 0.5, (len(topic), topics))
    x = np.column_stack([x, 1e4 * random.normal(size=len(x)), np.ones(len(x))])
    y = random.integers(0, 3, len(x))
    return QuerySet(x, y, np.concatenate([[0], np.cumsum(lengths)]), np.array([f"q{i}" for i in range(QUERIES)]))


def held_by(shares: Shares) -> list[list[int]]:
    return [np.asarray(shares.of(party)).tolist() for party in range(shares.parties)]


def everything(shares: Shares) -> list[int]:
    return list(itertools.chain.from_iterable(held_by(shares)))


def check_shares(shares: Shares, parties: int, n_queries: int):
    assert shares.parties == parties and {a.dtype.name for a in vars(shares).values()} == {"int32"}
    for held in held_by(shares):
        assert len(held) == len(set(held)) >= 1 and all(0 <= query < n_queries for query in held)


def same(a: Shares, b: Shares) -> bool:
    return held_by(a) == held_by(b)


# By topic


def test_topic_shares_are_disjoint_and_hold_everything():
    for parties, topics in [(3, 3), (10, 3), (7, 1), (12, 5), (60, 4)]:
        shares = h.by_topic(topical_queries(), parties, topics)
        check_shares(shares, parties, QUERIES)
        assert sorted(everything(shares)) == list(range(QUERIES))


def test_topics_are_found():
    """Three true topics of 20 queries each: nine parties hold six or seven queries, all of one."""
    shares = h.by_topic(topical_queries(), parties=9, topics=3)
    assert [len({query % 3 for query in held}) for held in held_by(shares)] == [1] * 9
    assert sorted(np.asarray(shares.count).tolist()) == [6] * 3 + [7] * 6


def dealt_like(shares: Shares, seed: int) -> Shares:
    """Disjoint shares of the same sizes and queries, dealt out at random."""
    order = np.random.default_rng(seed).permutation(everything(shares))
    return h._shares(np.split(order, np.cumsum(np.asarray(shares.count))[:-1]))


def within(queries: QuerySet, shares: Shares) -> float:
    """Variance of standardised query means within shares, averaged over queries and features."""
    means = np.array([queries.features[a:b].mean(0) for a, b in itertools.pairwise(queries.offsets)])
    means = (means - means.mean(0)) / np.where(means.std(0) > 0, means.std(0), 1)
    return sum(len(held) * means[held].var(0).mean() for held in held_by(shares)) / len(everything(shares))


def test_topics_vary_less_within_a_share_than_random_shares():
    for seed in range(3):
        for queries in (topical_queries(seed), tiny_queries(seed, queries=QUERIES)):
            shares = h.by_topic(queries, parties=6, topics=3, seed=seed)
            random = [within(queries, dealt_like(shares, again)) for again in range(20)]
            assert within(queries, shares) < min(random)


def test_parties_go_where_the_queries_are():
    """40 queries of one topic, 10 of another: four of five parties."""
    x = np.concatenate([np.zeros(40), np.ones(10)]) + np.random.default_rng(0).normal(0, 0.01, 50)
    queries = QuerySet(x[:, None], np.zeros(50, int), np.arange(51), np.arange(50).astype(str))
    shares = h.by_topic(queries, parties=5, topics=2)
    assert np.asarray(shares.count).tolist() == [10] * 5
    assert sorted(min(held) >= 40 for held in held_by(shares)) == [False] * 4 + [True]


def test_more_parties_than_queries():
    shares = h.by_topic(topical_queries(), parties=200, topics=3)
    check_shares(shares, 200, QUERIES)
    assert set(everything(shares)) == set(range(QUERIES)) and (shares.count == 1).all()
    often = np.bincount(everything(shares))
    assert often.min() >= 3 and often.max() <= 4, "200 parties over 60 queries in three topics of 20"


def test_topics_repeat_with_their_seed():
    queries = topical_queries()
    assert same(h.by_topic(queries, 9, 3, seed=1), h.by_topic(queries, 9, 3, seed=1))
    assert not same(h.by_topic(queries, 9, 3, seed=1), h.by_topic(queries, 9, 3, seed=2))


# By label


def test_parties_see_their_labels_only():
    for parties in [1, 2, 3, 10]:
        for labels_each in [1, 2]:
            queries = topical_queries()
            cut, shares = h.by_labels(queries, parties, labels_each)
            check_shares(shares, parties, cut.n_queries)
            assert sorted(everything(shares)) == list(range(cut.n_queries)), "disjoint, and all are held"
            subsets = list(itertools.combinations(range(3), labels_each))
            assert cut.lengths.min() >= 2 and cut.generated == queries.generated
            row_of = {row.tobytes(): number for number, row in enumerate(queries.features)}
            owner = np.repeat(np.arange(QUERIES), queries.lengths)
            for party, held in enumerate(held_by(shares)):
                subset = subsets[party % len(subsets)]
                for query in held:
                    rows = [row_of[row.tobytes()] for row in cut.features[cut.offsets[query] : cut.offsets[query + 1]]]
                    source = owner[rows[0]]
                    expected = [row for row in np.flatnonzero(owner == source) if queries.labels[row] in subset]
                    assert rows == expected, "all of the query's documents with these labels, in order"
                    assert (
                        cut.labels[cut.offsets[query] : cut.offsets[query + 1]].tolist()
                        == queries.labels[rows].tolist()
                    )
                    assert cut.qids[query] == f"q{source} [{','.join(map(str, subset))}]"


def test_queries_with_one_document_left_are_left_out():
    y = np.array([0, 0, 1, 0, 1, 1, 1, 2, 2])
    queries = QuerySet(np.arange(9.0)[:, None], y, np.array([0, 3, 7, 9]), np.array(["a", "b", "c"]))
    cut, shares = h.by_labels(queries, parties=3, labels_each=1)
    assert cut.qids.tolist() == ["a [0]", "b [1]", "c [2]"]
    assert cut.features[:, 0].tolist() == [0, 1, 4, 5, 6, 7, 8] and held_by(shares) == [[0], [1], [2]]


def test_labels_that_do_not_occur_are_no_labels():
    queries = QuerySet(np.arange(4.0)[:, None], np.array([0, 4, 0, 4]), np.array([0, 4]), np.array(["a"]))
    cut, _ = h.by_labels(queries, parties=2, labels_each=1)
    assert cut.qids.tolist() == ["a [0]", "a [4]"]


def test_more_parties_than_queries_of_a_label():
    queries = topical_queries().select(range(4))
    cut, shares = h.by_labels(queries, parties=40, labels_each=2)
    check_shares(shares, 40, cut.n_queries)
    assert set(everything(shares)) == set(range(cut.n_queries))


def test_label_shares_repeat_with_their_seed():
    (_, first), (_, again), (_, other) = (h.by_labels(topical_queries(), 6, 1, seed) for seed in (1, 1, 2))
    assert same(first, again) and not same(first, other)


# Users and amounts


@given(st.integers(1, 50), st.integers(1, 8), st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_users_are_balanced(parties, kinds, seed):
    users = h.users_of_parties(parties, kinds, seed)
    often = np.bincount(users, minlength=kinds)
    assert users.dtype == np.int32 and len(often) == kinds and often.max() - often.min() <= 1
    assert (users == h.users_of_parties(parties, kinds, seed)).all()


def test_users_are_shuffled_and_say_nothing_about_amounts():
    """Over 2,000 seeds each party has each of two users half the time, and each pair of user and amount a quarter."""
    users = np.array([h.users_of_parties(4, 2, seed) for seed in range(2000)])
    busy = np.array([h.amounts(4, 2, (1, 2), seed=seed) == 2 for seed in range(2000)])
    assert np.abs(users.mean(0) - 0.5).max() < 5 * 0.5 / np.sqrt(2000)
    assert np.abs((users * busy).mean(0) - 0.25).max() < 5 * np.sqrt(3 / 16 / 2000)


@given(st.integers(1, 40), st.integers(1, 60), st.booleans(), st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_amounts_are_in_range(parties, most, even, seed):
    most *= 2 if even else 1
    made = h.amounts(parties, most, even=even, seed=seed)
    assert made.dtype == np.int32 and made.shape == (parties,)
    assert made.min() >= (2 if even else 1) and made.max() <= most
    assert not even or (made % 2 == 0).all()


def test_amounts_of_the_study():
    made = h.amounts(10, 9)
    assert sorted(made.tolist()) == [1, 1, 3, 3, 5, 5, 7, 7, 9, 9] and made.tolist() != sorted(made.tolist())
    # 10/9 · (1, 3, 5, 7, 9) = 1.1, 3.3, 5.6, 7.8, 10
    assert sorted(h.amounts(5, 10, even=True).tolist()) == [2, 4, 6, 8, 10]


ALIKE = QuerySet(np.ones((4, 2)), np.array([1, 1, 1, 1]), np.array([0, 2, 4]), np.array(["a", "b"]))
SPARSE = QuerySet(np.ones((3, 2)), np.array([0, 0, 1]), np.array([0, 3]), np.array(["a"]))


def test_refused():
    for make, what in [
        (lambda: h.by_topic(topical_queries(), parties=2, topics=3), "topics must be in 1..2"),
        (lambda: h.by_topic(topical_queries(), parties=2, topics=0), "got 0"),
        (lambda: h.by_topic(ALIKE, parties=3, topics=2), "1 queries with different documents, too few for 2"),
        (lambda: h.by_labels(ALIKE, 2, 1), "all documents have the label 1"),
        (lambda: h.by_labels(SPARSE, 2, 2), r"labels_each must be in 1..1, got 2: the data has the labels 0, 1"),
        (lambda: h.by_labels(SPARSE, 2, 0), "got 0"),
        (lambda: h.by_labels(SPARSE, 0, 1), "parties must be at least 1"),
        (lambda: h.by_labels(SPARSE, 2, 1), "no query has two documents with labels 1"),
        (lambda: h.users_of_parties(0, 2), "got 0 and 2"),
        (lambda: h.users_of_parties(2, 0), "got 2 and 0"),
        (lambda: h.amounts(3, 0), "at least 1, got 0"),
        (lambda: h.amounts(3, 5, even=True), "even and at least 2, got 5"),
        (lambda: h.amounts(3, 5, kinds=()), r"got \(\)"),
        (lambda: h.amounts(3, 5, kinds=(0, 1)), r"got \(0, 1\)"),
        (lambda: h.amounts(0, 5), "got 0"),
    ]:
        with pytest.raises(ConfigError, match=what):
            make()
