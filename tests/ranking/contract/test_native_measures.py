"""Scores and measures with NumPy, and their definitions in JAX: the same rankings, values within rounding."""

import numpy as np
import pytest
from worlds import FEATURES

from fedrank.metrics.offline import offline_metric
from fedrank.metrics.online import REWARDS
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.evaluate import expected_values, measure_queries, ranking, row_scores
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer
from fedrank.ranking.sessions.reference import rank, tie_breakers

QUERIES, DOCUMENTS = 30, 13
USERS = (cascade("navigational"), cascade("informational"))


def lists(seed=0):
    """Scores [2, q, d] with many equal ones, some not numbers, both zeros; labels, where, two shuffles."""
    random = np.random.default_rng(seed)
    lengths = np.concatenate([[1, DOCUMENTS], random.integers(1, DOCUMENTS + 1, QUERIES - 2)])
    where = np.arange(DOCUMENTS) < lengths[:, None]
    scores = (random.integers(-3, 4, (2, QUERIES, DOCUMENTS)) / 2).astype(np.float32)
    scores[random.random(scores.shape) < 0.05] = np.nan
    scores[random.random(scores.shape) < 0.05] = -0.0
    scores[random.random(scores.shape) < 0.03] = -np.inf
    labels = np.where(where & (random.random(where.shape) < 0.4), random.integers(1, 3, where.shape), 0)
    bits = random.integers(0, 2**32, (2, QUERIES), dtype=np.uint32)
    return scores, labels.astype(np.int32), where, bits


@pytest.mark.parametrize("shuffled", [False, True])
def test_rankings_are_the_same(shuffled):
    scores, _, where, bits = lists()
    breakers = tie_breakers(bits[0], DOCUMENTS, shuffled)
    ours = ranking(scores, where, breakers)
    theirs = np.asarray(rank(scores, np.broadcast_to(where, scores.shape), np.broadcast_to(breakers, scores.shape), 99))
    shown = np.broadcast_to(where, scores.shape)
    np.testing.assert_array_equal(ours[shown], theirs[shown])


@pytest.mark.parametrize("shuffles", [0, 2])
def test_measures_are_the_same(shuffles):
    """Those that need no compiler and others, against the definitions with the shuffled order as scores."""
    scores, labels, where, bits = lists(1)
    names = ("nDCG(dcg='exp-log2')@10", "RR@3", "nDCG", "P@5", "R@2", "AP@4", "RR(rel=2)@10")
    reward = REWARDS.get("MaxRR")(10)
    ours = measure_queries(reward, USERS, names, scores, labels, where, bits if shuffles else None)
    orders = [ranking(scores, where, tie_breakers(bits[n], DOCUMENTS, shuffles > 0)) for n in range(shuffles or 1)]
    for user in USERS:
        first = [
            [np.take_along_axis(np.broadcast_to(a, o.shape), o, -1)[..., :10] for a in (labels, where)] for o in orders
        ]
        each = [[expected_values(user, reward, *lists) for lists in zip(*order, strict=True)] for order in first]
        found = ours[f"expected MaxRR ({user.name})"]
        np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-5, atol=1e-6)
    for name in names:
        metric = offline_metric(name)
        each = [[metric(-np.argsort(one, -1).astype(np.float32), labels, where) for one in order] for order in orders]
        np.testing.assert_allclose(ours[name], np.mean(each, axis=0), rtol=1e-5, atol=1e-6, err_msg=name)
        assert np.unique(ours[name]).size > 3


@pytest.mark.parametrize("ranker", [Linear(FEATURES), TwoLayer(FEATURES, 3)])
def test_scores_are_the_same_whatever_else_is_scored(ranker):
    random = np.random.default_rng(0)
    weights, features = (random.normal(size=s).astype(np.float32) for s in (ranker.size, (50, FEATURES)))
    hidden = ranker.kernel_shape()[1]
    ours = row_scores(weights, features, hidden)
    np.testing.assert_allclose(ours, ranker.scores(weights, features), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(row_scores(weights, features[7:8], hidden), ours[7:8])
