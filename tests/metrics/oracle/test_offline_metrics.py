"""Offline metrics against formulas written out, plain Python over all orders, rax and ir-measures."""

import itertools
import math
from math import log2

import ir_measures
import numpy as np
import pytest
import rax

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.registry import references
from fedrank.metrics.offline import (
    OFFLINE,
    average_precision,
    err,
    map_jos,
    ndcg,
    offline_metric,
    precision,
    recall,
    reciprocal_rank,
)


# The measures once more, of labels in ranked order, as their definitions read.
def plain_ndcg(ranking, k):
    def dcg(labels):
        return sum((2**label - 1) / log2(1 + rank) for rank, label in enumerate(labels[:k], start=1))

    best = dcg(sorted(ranking, reverse=True))
    return dcg(ranking) / best if best else 0.0


def plain_rr(ranking, k):
    return next((1 / rank for rank, label in enumerate(ranking[:k], start=1) if label >= 1), 0.0)


def plain_ap(ranking, k):
    ranks = [rank for rank, label in enumerate(ranking, start=1) if label >= 1]
    precisions = [(i + 1) / rank for i, rank in enumerate(ranks) if k is None or rank <= k]
    return sum(precisions) / len(ranks) if ranks else 0.0


def plain_err(ranking, k):
    value, going = 0.0, 1.0
    for rank, label in enumerate(ranking[:k], start=1):
        satisfied = (2**label - 1) / 2**2
        value += going * satisfied / rank
        going *= 1 - satisfied
    return value


def plain_map_jos(ranking, k):
    assert k is None
    # The same labels keep the order that they have in the ranking.
    ideal = sorted(range(len(ranking)), key=lambda place: (-ranking[place], place))
    quotients = [(ideal.index(place) + 1) / (place + 1) for place in range(len(ranking))]
    return sum(quotients) / len(quotients) if quotients else 0.0


def err2(*args, **settings):
    return err(*args, max_label=2, **settings)


def plain_linear_ndcg(ranking, k):
    def dcg(labels):
        return sum(label / log2(1 + rank) for rank, label in enumerate(labels[:k], start=1))

    best = dcg(sorted(ranking, reverse=True))
    return dcg(ranking) / best if best else 0.0


def plain_precision(ranking, k):
    return sum(label >= 1 for label in ranking[:k]) / (k or len(ranking) or 1)


def plain_recall(ranking, k):
    return sum(label >= 1 for label in ranking[:k]) / (sum(label >= 1 for label in ranking) or 1)


def exp_ndcg(*args, **settings):
    return ndcg(*args, dcg="exp-log2", **settings)


PAIRS = {
    "nDCG": (exp_ndcg, plain_ndcg),
    "linear nDCG": (ndcg, plain_linear_ndcg),
    "RR": (reciprocal_rank, plain_rr),
    "AP": (average_precision, plain_ap),
    "ERR": (err2, plain_err),
}
LISTED = {**PAIRS, "P": (precision, plain_precision), "R": (recall, plain_recall)}
CUTOFFS = (None, 3)


def orders(scores, labels, where):
    """The labels in every order that sorts the scores, as often as permutations lead to it."""
    documents = [(s, y) for s, y, w in zip(scores, labels, where, strict=True) if w]
    for permutation in itertools.permutations(documents):
        yield [label for _, label in sorted(permutation, key=lambda document: -document[0])]


def tied_lists(count=24, documents=6, seed=5):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 3, (count, documents)).astype(np.float32)
    labels = rng.integers(0, 3, (count, documents)) * (rng.random((count, documents)) < 0.6)
    where = np.arange(documents) < rng.integers(0, documents + 1, (count, 1))
    scores[0], scores[1], where[:2] = 0.0, [2, 1, 1, 1, 0, 0], True
    labels[0], labels[1] = [0, 1, 0, 2, 0, 0], [0, 0, 2, 1, 1, 0]
    return scores, labels.astype(np.int32), where


def test_formulas_by_hand():
    # By falling score: labels 1, 0, 2, then 0; the best order is 2, 1, 0, 0.
    scores, labels = np.array([0.1, 0.9, 0.5, 0.7]), np.array([0, 1, 2, 0], np.int32)
    where = np.ones(4, bool)
    best = 3 / log2(2) + 1 / log2(3)
    np.testing.assert_allclose(exp_ndcg(scores, labels, where), (1 / log2(2) + 3 / log2(4)) / best, rtol=1e-6)
    np.testing.assert_allclose(exp_ndcg(scores, labels, where, k=2), 1 / log2(2) / best, rtol=1e-6)
    np.testing.assert_allclose(reciprocal_rank(scores, labels, where), 1.0)
    np.testing.assert_allclose(reciprocal_rank(scores, labels, where, rel=2), 1 / 3, rtol=1e-6)
    np.testing.assert_allclose(reciprocal_rank(scores, labels, where, rel=2, k=2), 0.0)
    np.testing.assert_allclose(average_precision(scores, labels, where), (1 / 1 + 2 / 3) / 2, rtol=1e-6)
    np.testing.assert_allclose(average_precision(scores, labels, where, k=2), (1 / 1) / 2, rtol=1e-6)
    np.testing.assert_allclose(average_precision(scores, labels, where, rel=2), 1 / 3, rtol=1e-6)
    np.testing.assert_allclose(err(scores, labels, where, max_label=2), 1 / 4 + 1 / 3 * 3 / 4 * 3 / 4, rtol=1e-6)
    np.testing.assert_allclose(err(scores, labels, where, max_label=4), 1 / 16 + 1 / 3 * 15 / 16 * 3 / 16, rtol=1e-6)


def test_fixed_ties_put_the_lower_index_first():
    for name in LISTED:
        for k in CUTOFFS:
            metric, plain = LISTED[name]
            scores, labels, where = tied_lists()
            expected = []
            for s, y, w in zip(scores, labels, where, strict=True):
                documents = [(-score, index) for index, score in enumerate(s) if w[index]]
                expected.append(plain([int(y[index]) for _, index in sorted(documents)], k))
            np.testing.assert_allclose(metric(scores, labels, where, k=k), expected, rtol=1e-6, atol=1e-7)


def test_expected_ties_are_the_mean_over_all_orders():
    for name in [name for name in LISTED if name != "ERR"]:
        for k in CUTOFFS:
            metric, plain = LISTED[name]
            scores, labels, where = tied_lists()
            expected = [
                np.mean([plain([int(label) for label in order], k) for order in orders(s, y, w)])
                for s, y, w in zip(scores, labels, where, strict=True)
            ]
            np.testing.assert_allclose(
                metric(scores, labels, where, k=k, ties="expected"), expected, rtol=2e-6, atol=1e-7
            )


def test_map_jos_is_ideal_rank_over_rank():
    scores, labels, where = tied_lists()
    expected = []
    for s, y, w in zip(scores, labels, where, strict=True):
        documents = [(-score, index) for index, score in enumerate(s) if w[index]]
        expected.append(plain_map_jos([int(y[index]) for _, index in sorted(documents)], None))
    assert min(expected) == 0 and max(expected) > 1.2
    np.testing.assert_allclose(map_jos(scores, labels, where), expected, rtol=1e-6)
    # By rank: labels 1, 0, 2, 0; sorted, the third comes first, the first second and the second third.
    by_hand = (2 / 1 + 3 / 2 + 1 / 3 + 4 / 4) / 4
    value = map_jos(np.array([0.1, 0.9, 0.5, 0.7]), np.array([0, 1, 2, 0], np.int32), np.ones(4, bool))
    np.testing.assert_allclose(value, by_hand, rtol=1e-6)


def test_map_jos_is_one_for_the_best_rankings_and_larger_for_all_others():
    labels = np.array([list(order) for order in set(itertools.permutations([2, 1, 1, 0, 0, 0]))], np.int32)
    scores = np.tile(-np.arange(6, dtype=np.float32), (len(labels), 1))
    values = np.asarray(map_jos(scores, labels, np.ones(labels.shape, bool)))
    best = (np.diff(labels, axis=-1) <= 0).all(axis=-1)
    assert best.sum() == 1 and len(labels) == 60
    np.testing.assert_allclose(values[best], 1.0, rtol=1e-6)
    assert values[~best].min() > 1.01
    assert (labels[values.argmax()] == [0, 0, 0, 1, 1, 2]).all()  # it is largest for the worst ranking


@pytest.mark.parametrize("topn", [None, 5])
def test_against_rax(topn):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(40, 9)).astype(np.float32)
    labels = rng.integers(0, 5, (40, 9)).astype(np.int32)
    labels[:5] = 0
    where = rng.random((40, 9)) < 0.7
    for ours, theirs in ((exp_ndcg, rax.ndcg_metric), (reciprocal_rank, rax.mrr_metric)):
        got = ours(scores, labels, where, k=topn)
        for i in range(40):  # one list at a time: the test run forbids the implicit broadcasting of a batch
            y = labels[i] if ours is exp_ndcg else (labels[i] >= 1).astype(np.int32)
            expected = theirs(scores[i], y, where=where[i], topn=topn, reduce_fn=None)
            np.testing.assert_allclose(got[i], expected, rtol=2e-6, atol=1e-7)


def test_against_ir_measures():
    rng = np.random.default_rng(1)
    queries, documents = 25, 14
    scores = rng.permuted(np.tile(np.arange(documents), (queries, 1)), axis=1).astype(np.float32)
    labels = (rng.integers(0, 5, (queries, documents)) * (rng.random((queries, documents)) < 0.5)).astype(np.int32)
    labels[:, 0] = 4  # every query is judged, so that both sides average over the same queries
    where = np.ones_like(labels, bool)
    run = [ir_measures.ScoredDoc(str(q), str(d), float(scores[q, d])) for q in range(queries) for d in range(documents)]
    qrels = [ir_measures.Qrel(str(q), str(d), int(labels[q, d])) for q in range(queries) for d in range(documents)]
    ours = {
        ir_measures.parse_measure("nDCG(dcg='exp-log2')@10"): exp_ndcg(scores, labels, where, k=10),
        ir_measures.parse_measure("ERR@10"): err(scores, labels, where, max_label=4, k=10),
        ir_measures.parse_measure("RR(rel=3)@5"): reciprocal_rank(scores, labels, where, k=5, rel=3),
        ir_measures.parse_measure("AP"): average_precision(scores, labels, where),
        ir_measures.parse_measure("AP(rel=2)@5"): average_precision(scores, labels, where, k=5, rel=2),
    }
    names = [
        "nDCG@10",
        "nDCG(dcg='exp-log2')@5",
        "P@5",
        "P(rel=2)@20",
        "R@5",
        "R(rel=3)@10",
        "RR@10",
        "AP@10",
        "ERR@20",
    ]
    ours |= {ir_measures.parse_measure(name): offline_metric(name)(scores, labels, where) for name in names}
    seen = 0
    for metric in ir_measures.iter_calc(list(ours), qrels, run):
        # gdeval prints five decimals.
        np.testing.assert_allclose(ours[metric.measure][int(metric.query_id)], metric.value, atol=6e-6)
        seen += 1
    assert seen == len(ours) * queries


@pytest.mark.parametrize("ties", ["fixed", "expected"])
@pytest.mark.parametrize("name", PAIRS)
def test_degenerate_lists(name, ties):
    if name == "ERR" and ties == "expected":
        with pytest.raises(ConfigError, match="several orders"):
            err2(np.zeros(2), np.ones(2, np.int32), np.ones(2, bool), ties=ties)
        return
    metric, _ = PAIRS[name]

    def value(scores, labels, where):
        lists = np.array(scores, np.float32), np.array(labels, np.int32), np.array(where, bool)
        return metric(*lists, ties=ties)

    assert value(np.zeros((3, 0), np.float32), np.zeros((3, 0)), np.zeros((3, 0))).tolist() == [0, 0, 0]
    assert value([1.0, 2.0], [1, 2], [False, False]) == 0  # all padding
    assert value([1.0, 2.0], [0, 0], [True, True]) == 0  # nothing relevant
    top = 0.75 if name == "ERR" else 1.0
    for scores in (
        [math.inf, 1.0, -math.inf],
        [3e38, -3e38, -math.inf],
        [1e-38, 0.0, -1e-38],
        [-math.inf, math.nan, math.inf],
    ):
        padding = [True, False, False]  # whatever stands on padding ranks after a real document
        assert value(scores, [2, 2, 2], padding) == pytest.approx(top)
    assert value([math.inf, 3e38, -math.inf], [2, 0, 0], [True] * 3) == pytest.approx(top)
    # A score of minus infinity is still a document, and ranks before padding.
    assert value([-math.inf, 1.0, 2.0], [2, 0, 0], [True, False, False]) == pytest.approx(top)


def test_negative_zero_ties_with_zero():
    scores, labels = np.array([-0.0, 0.0]), np.array([1, 0], np.int32)
    assert float(reciprocal_rank(scores, labels, np.ones(2, bool))) == 1.0
    assert float(reciprocal_rank(scores, labels, np.ones(2, bool), ties="expected")) == 0.75


@pytest.mark.parametrize("name", LISTED)
def test_batches_and_single_lists_agree(name):
    metric, _ = LISTED[name]
    scores, labels, where = tied_lists()
    batch = metric(scores, labels, where, k=3)
    each = [metric(*one, k=3) for one in zip(scores, labels, where, strict=True)]
    np.testing.assert_allclose(each, batch, rtol=1e-6)
    cube = [x.reshape(4, 6, -1) for x in (scores, labels, where)]
    np.testing.assert_allclose(metric(*cube, k=3), batch.reshape(4, 6), rtol=1e-6)


def test_scores_are_compared_in_single_precision():
    assert float(reciprocal_rank(np.array([1.0, 1.0 + 1e-12]), np.array([0, 1]), np.ones(2, bool))) == 0.5


def test_lists_without_scores_stand_in_ranked_order():
    scores, labels, where = tied_lists()
    order = np.array([sorted(range(6), key=lambda i, q=q: (not where[q, i], -scores[q, i], i)) for q in range(24)])
    ranked, shown = (np.take_along_axis(one, order, axis=-1) for one in (labels, where))
    for metric, _ in LISTED.values():
        np.testing.assert_array_equal(metric(None, ranked, shown, k=4), metric(scores, labels, where, k=4))


def test_names():
    scores, labels, where = tied_lists()
    for name, expected in {
        "nDCG@2": ndcg(scores, labels, where, k=2),
        "RR(rel=2)@3": reciprocal_rank(scores, labels, where, k=3, rel=2),
        "ERR(max_label=2)@5": err(scores, labels, where, k=5, max_label=2),
        "AP": average_precision(scores, labels, where),
        "MAP-JOS": map_jos(scores, labels, where),
    }.items():
        np.testing.assert_array_equal(offline_metric(name)(scores, labels, where), expected)
    expected = ndcg(scores, labels, where, k=3, ties="expected")
    np.testing.assert_array_equal(offline_metric("nDCG@3")(scores, labels, where, ties="expected"), expected)


def test_wrong_names():
    for name, message in [
        ("nDGC@10", "Did you mean 'nDCG'"),
        ("nDCG@0", "names no offline metric"),
        ("nDCG at 10", "names no offline metric"),
        ("nDCG(dcg='log3')@10", "dcg must be one of"),
        ("nDCG(rel=2)@10", "nDCG has no such parameter"),
        ("MAP-JOS(rel=2)", "MAP-JOS has no such parameter"),
        ("MAP-JOS@10", "MAP-JOS has no cutoff"),
    ]:
        with pytest.raises(ConfigError, match=message):
            offline_metric(name)


def test_wrong_settings():
    lists = np.zeros(2), np.ones(2, np.int32), np.ones(2, bool)
    with pytest.raises(ConfigError, match="one of fixed, expected"):
        ndcg(*lists, ties="mean")
    with pytest.raises(ConfigError, match="at least 1"):
        ndcg(*lists, k=0)
    for settings in ({"k": 3}, {"ties": "expected"}):
        with pytest.raises(ConfigError, match="neither a cutoff nor"):
            map_jos(*lists, **settings)
    with pytest.raises(UnknownNameError):
        OFFLINE.get("MRR@")


def test_every_metric_has_a_reference():
    assert [entry.name for entry in OFFLINE] == ["nDCG", "RR", "ERR", "AP", "P", "R", "MAP", "MAP-JOS"]
    assert all(entry.citation in references() and entry.summary for entry in OFFLINE)
