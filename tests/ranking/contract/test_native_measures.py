"""Scores and measures with NumPy and in JAX: the same rankings, values within rounding."""

import jax.numpy as jnp
import numpy as np
import pytest
from worlds import FEATURES

from fedrank.metrics.online import REWARDS
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.data.queries import PaddedQueries
from fedrank.ranking.evaluate import _Measures, _values, breakers, known, measure_queries, ranking, rankings, row_scores
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer

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
    ours = ranking(scores, where, breakers(bits[0] if shuffled else None, where.shape))
    for model in range(2):
        theirs = np.asarray(rankings(scores[model], jnp.asarray(where), bits[0] if shuffled else None))
        for query in range(QUERIES):
            shown = where[query].sum()
            np.testing.assert_array_equal(ours[model, query, :shown], theirs[query, :shown])


@pytest.mark.parametrize("shuffles", [0, 2])
def test_measures_are_the_same(shuffles):
    scores, labels, where, bits = lists(1)
    bits = bits if shuffles else None
    asked = _Measures(REWARDS.get("MaxRR")(10), USERS, ("nDCG(dcg='exp-log2')@10", "RR@3", "nDCG", "P@5", "R@2"))
    padded = PaddedQueries(jnp.zeros((*where.shape, 0)), jnp.asarray(labels), jnp.asarray(where.sum(1), jnp.int32))
    theirs = _values(asked, jnp.asarray(scores), padded, None if bits is None else jnp.asarray(bits))
    ours = measure_queries(asked.metric, asked.users, asked.measures, scores, labels, where, bits)
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        np.testing.assert_allclose(values, theirs[name], rtol=1e-5, atol=1e-6, err_msg=name)
        assert np.unique(values).size > 3


def test_other_measures_are_left_to_jax():
    assert known(("nDCG(dcg='exp-log2')@10", "RR", "nDCG(dcg='exp-log2')@1"))
    assert (
        not known(("nDCG(dcg='exp-log2')@10", "AP@10"))
        and not known(("RR(rel=2)@10",))
        and not known(("nDCG(dcg='exp-log2')@0",))
    )


@pytest.mark.parametrize("ranker", [Linear(FEATURES), TwoLayer(FEATURES, 3)])
def test_scores_are_the_same_whatever_else_is_scored(ranker):
    random = np.random.default_rng(0)
    weights, features = (random.normal(size=s).astype(np.float32) for s in (ranker.size, (50, FEATURES)))
    hidden = ranker.kernel_shape()[1]
    ours = row_scores(weights, features, hidden)
    np.testing.assert_allclose(ours, ranker.scores(weights, features), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(row_scores(weights, features[7:8], hidden), ours[7:8])
