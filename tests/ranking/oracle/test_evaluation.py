"""Exact expectations and offline measures of whole models, against plain loops and long simulations."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from worlds import FEATURES, tiny_queries

from fedrank.metrics.online import click_dcg, max_rr
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.data.splits import Splits
from fedrank.ranking.evaluate import Evaluator, expected_values
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.sessions.devices import run_sessions
from fedrank.ranking.sessions.reference import Interactions, Perturbed

USER = cascade("navigational")


def expected_max_rr(labels, user):
    """Σ over ranks of P(first click there)/rank: nobody stops before the first click."""
    total, none_yet = 0.0, 1.0
    for rank, label in enumerate(labels[:10], 1):
        total += none_yet * user.click[label] / rank
        none_yet *= 1 - user.click[label]
    return total


def expected_click_dcg(labels, user):
    """By recursion over what happens at each rank."""

    def value(rank):
        if rank == min(len(labels), 10):
            return 0.0
        click, stop = user.click[labels[rank]], user.stop[labels[rank]]
        return click / np.log2(rank + 2) + (1 - click * stop) * value(rank + 1)

    return value(0)


def test_expected_rewards_of_all_short_lists():
    lists = np.array(list(itertools.product(range(3), repeat=4)), np.int32)
    where = np.ones(lists.shape, bool)
    for name in ("perfect", "navigational", "informational"):
        user = cascade(name)
        for metric, formula, tolerance in ((max_rr(), expected_max_rr, 1e-6), (click_dcg(), expected_click_dcg, 1e-4)):
            found = expected_values(user, metric, lists, where)
            np.testing.assert_allclose(found, [formula(labels, user) for labels in lists], atol=tolerance)


def ranked_labels(queries, weights):
    for first, last in itertools.pairwise(queries.offsets):
        order = np.argsort(-(queries.features[first:last] @ weights), kind="stable")
        yield queries.labels[first:last][order]


def ndcg(labels, k=10):
    def dcg(values):
        return sum((2.0**v - 1) / np.log2(i + 2) for i, v in enumerate(values[:k]))

    return dcg(labels) / dcg(sorted(labels, reverse=True)) if max(labels) else 0.0


def test_evaluator_against_loops():
    splits = Splits(tiny_queries(0), None, tiny_queries(1), "tiny")
    weights = np.random.default_rng(0).integers(-4, 5, (2, FEATURES)).astype(np.float32) / 8
    scores = Evaluator(splits, Linear(FEATURES), max_rr(), (USER,), ("nDCG(dcg='exp-log2')@10",))(weights)
    for model, found in zip(weights, scores, strict=True):
        table = {(score.split, score.measure): score.value for score in found}
        for split, queries in splits.parts().items():
            lists = [labels.tolist() for labels in ranked_labels(queries, model)]
            judged = [labels for labels in lists if max(labels)]
            assert len(judged) < len(lists)  # so that the two conventions differ
            expected = {
                "expected MaxRR (navigational)": np.mean([expected_max_rr(labels, USER) for labels in lists]),
                "nDCG(dcg='exp-log2')@10": np.mean([ndcg(labels) for labels in lists]),
                "nDCG(dcg='exp-log2')@10 (judged)": np.mean([ndcg(labels) for labels in judged]),
            }
            for measure, value in expected.items():
                assert abs(table[split, measure] - value) < 1e-5, (split, measure)


def test_buckets_change_nothing(monkeypatch):
    splits = Splits(tiny_queries(0), None, None, "tiny")
    weights = np.random.default_rng(0).normal(size=(1, FEATURES)).astype(np.float32)
    arguments = (splits, Linear(FEATURES), max_rr(), (USER,), ("nDCG(dcg='exp-log2')@10",))
    whole = Evaluator(*arguments)(weights)
    monkeypatch.setattr("fedrank.ranking.evaluate._ONE_ARRAY", 0)
    monkeypatch.setattr("fedrank.ranking.evaluate._SMALLEST", 4)
    for a, b in zip(whole[0], Evaluator(*arguments)(weights)[0], strict=True):
        assert (a.split, a.measure) == (b.split, b.measure) and abs(a.value - b.value) < 1e-6


def test_shuffled_ties_average_over_orders():
    """A ranker without an opinion: every order is equally likely, so nDCG tends to its mean over all orders."""
    splits = Splits(tiny_queries(3, queries=4, longest=4), None, None, "tiny")
    weights = np.zeros((1, FEATURES), np.float32)
    found = Evaluator(splits, Linear(FEATURES), max_rr(), (USER,), ("nDCG(dcg='exp-log2')@10",), tie_orders=3000)(
        weights
    )[0]
    table = {score.measure: score.value for score in found}
    queries = splits.train
    for measure, formula in (
        ("nDCG(dcg='exp-log2')@10", ndcg),
        ("expected MaxRR (navigational)", lambda x: expected_max_rr(x, USER)),
    ):
        means = [
            np.mean([formula(list(order)) for order in itertools.permutations(queries.labels[a:b].tolist())])
            for a, b in itertools.pairwise(queries.offsets)
        ]
        assert abs(table[measure] - np.mean(means)) < 0.02


def test_expectation_is_the_mean_of_simulated_sessions():
    queries, n = tiny_queries(), 20_000
    weights = jnp.asarray([0.5, 0.5, 0, 0, 0], jnp.float32)
    words = jax.random.bits(jax.random.key(0), (1, n, 10), jnp.uint32)
    for number, labels in enumerate(list(ranked_labels(queries, np.asarray(weights)))[:4]):
        model = Perturbed(Linear(FEATURES), (USER,), jnp.int32(0), queries.blocks(), weights, jnp.uint32(0))
        lists = Interactions(jnp.full((1, n), number, jnp.int32), words, jnp.zeros((1, n), jnp.uint32))
        patterns, _ = run_sessions(model, (0.0,), lists)
        rewards = max_rr().values[max_rr().index[np.asarray(patterns)[0]]]
        exact = expected_max_rr(labels, USER)
        assert abs(rewards.mean() - exact) < 4.5 * rewards.std() / np.sqrt(n) + 1e-9
