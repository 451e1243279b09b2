"""The CPU kernel and the JAX reference: the same clicks from the same draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import FEATURES, tiny_queries

from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer
from fedrank.ranking.sessions.devices import run_interleaved, run_sessions
from fedrank.ranking.sessions.kernel import fill_best, fill_scores, fill_scores_of, fill_top
from fedrank.ranking.sessions.reference import Interactions, Perturbed

RANKERS = {"linear": Linear(FEATURES), "two-layer": TwoLayer(FEATURES, 3), "even": TwoLayer(FEATURES, 2)}


def both(queries, ranker, center, steps, ties, parties=64, each=3, seed=0):
    random = np.random.default_rng(seed)
    shape = (parties, len(steps), each)
    seeds = random.integers(0, 2**32, parties, dtype=np.uint32)
    chosen = random.integers(0, queries.n_queries, shape).astype(np.int32)
    clicks = random.integers(0, 2**32, (*shape, 10), dtype=np.uint32)
    tie_bits = random.integers(0, 2**32, shape, dtype=np.uint32)
    users, which = (cascade("informational"), cascade("perfect")), np.arange(parties, dtype=np.int32) % 2
    out = []
    for data in (queries.blocks(), queries.padded()):

        def one(which, seed, chosen, clicks, tie_bits, data=data):
            return run_sessions(
                Perturbed(ranker, users, which, data, center, seed), steps, Interactions(chosen, clicks, tie_bits), ties
            )

        out.append(jax.jit(jax.vmap(one))(which, seeds, chosen, clicks, tie_bits))
    return out


@pytest.mark.parametrize("ties", ["fixed", "random"])
@pytest.mark.parametrize("name", RANKERS)
def test_exactly_equal_where_arithmetic_is_exact(name, ties):
    # Eighths times eighths are exact in single precision, and coarse enough that many scores are equal.
    ranker = RANKERS[name]
    center = jnp.asarray(np.random.default_rng(1).integers(-2, 3, ranker.size) / 8, jnp.float32)
    kernel, reference = both(tiny_queries(), ranker, center, (0.0, 0.0), ties)
    np.testing.assert_array_equal(kernel.patterns, reference.patterns)
    np.testing.assert_allclose(kernel.ndcg, reference.ndcg, rtol=1e-6)
    assert len(np.unique(kernel.patterns)) > 20  # something happened


def test_practically_equal_on_real_numbers():
    for name in RANKERS:
        ranker, base = RANKERS[name], tiny_queries()
        noisy = base.features + np.random.default_rng(2).normal(size=base.features.shape) * 0.05
        queries = QuerySet(noisy, base.labels, base.offsets, base.qids)
        center = jnp.asarray(np.random.default_rng(1).normal(size=ranker.size), jnp.float32)
        kernel, reference = both(queries, ranker, center, (0.5, -0.5), "fixed", parties=2000)
        assert (kernel.patterns == reference.patterns).mean() >= 0.999
        assert np.isclose(kernel.ndcg, reference.ndcg, rtol=1e-6).mean() >= 0.999


def test_random_ties_shuffle_and_fixed_ties_do_not():
    # All scores equal: with fixed ties every session of the longest query shows the same ten documents.
    queries = tiny_queries()
    center = jnp.zeros(FEATURES, jnp.float32)
    user = cascade("perfect")  # clicks label 2 always and label 0 never: the pattern tells the ranking
    labels = np.array([2] + [0] * 13)
    one = QuerySet(queries.features[:14], labels, np.array([0, 14]), np.array(["q"]))
    n = 4000
    words = jnp.zeros((1, n, 10), jnp.uint32)
    ties = jnp.asarray(np.random.default_rng(0).integers(0, 2**32, (1, n), dtype=np.uint32))
    for data in (one.blocks(), one.padded()):
        chosen = jnp.zeros((1, n), jnp.int32)
        model = Perturbed(Linear(FEATURES), (user,), jnp.int32(0), data, center, jnp.uint32(0))
        fixed, _ = run_sessions(model, (0.0,), Interactions(chosen, words, ties), "fixed")
        assert set(np.asarray(fixed).ravel().tolist()) == {1}
        random, _ = run_sessions(model, (0.0,), Interactions(chosen, words, ties), "random")
        # The document is at each of ten shown ranks with probability 1/14, and not shown with 4/14.
        counts = np.bincount(np.asarray(random).ravel(), minlength=513)
        expected = np.array([4 / 14] + [1 / 14] * 10) * n
        found = np.array([counts[0]] + [counts[1 << r] for r in range(10)])
        assert ((found - expected) ** 2 / expected).sum() < 29.6  # chi-square, 10 degrees of freedom, p = 0.001


def test_scores_that_are_not_numbers_rank_last():
    x = np.array([[1, 0], [0, 1], [0, 0.5]])
    queries = QuerySet(x, np.array([0, 2, 2]), np.array([0, 3]), np.array(["q"]))
    center = jnp.asarray([np.inf, 1], jnp.float32)  # 0·∞ is not a number: documents 1 and 2
    user = cascade("perfect")
    for data in (queries.blocks(), queries.padded()):
        lists = jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1, 10), jnp.uint32), jnp.zeros((1, 1), jnp.uint32)
        model = Perturbed(Linear(2), (user,), jnp.int32(0), data, center, jnp.uint32(0))
        pattern, _ = run_sessions(model, (0.0,), Interactions(*lists), "fixed")
        assert int(pattern[0, 0]) == 0b110


def both_interleaved(queries, ranker, center, step, ties, parties=64, each=3, seed=0):
    random = np.random.default_rng(seed)
    shape = (parties, each)
    seeds = random.integers(0, 2**32, parties, dtype=np.uint32)
    chosen = random.integers(0, queries.n_queries, shape).astype(np.int32)
    clicks = random.integers(0, 2**32, (*shape, 10), dtype=np.uint32)
    tie_bits, toss = random.integers(0, 2**32, (2, *shape), dtype=np.uint32)
    users, which = (cascade("informational"), cascade("perfect")), np.arange(parties, dtype=np.int32) % 2
    out = []
    for data in (queries.blocks(), queries.padded()):

        def one(which, seed, chosen, clicks, tie_bits, toss, data=data):
            model, lists = (
                Perturbed(ranker, users, which, data, center, seed),
                Interactions(chosen, clicks, tie_bits, toss),
            )
            return run_interleaved(model, step, lists, ties)

        out.append(jax.jit(jax.vmap(one))(which, seeds, chosen, clicks, tie_bits, toss))
    return out


@pytest.mark.parametrize("ties", ["fixed", "random"])
def test_interleaved_lists_are_equal(ties):
    """Scores are exact in single precision: the seed's perturbation is too small to matter but where they are equal."""
    ranker, base = RANKERS["linear"], tiny_queries()
    center = jnp.asarray(np.random.default_rng(1).integers(-2, 3, ranker.size) / 8, jnp.float32)
    kernel, reference = both_interleaved(base, ranker, center, 0.5, ties, parties=500)
    same = (kernel.credited == reference.credited).all(axis=1)
    assert same.mean() > 0.995 and (kernel.shown.patterns == reference.shown.patterns).mean() > 0.995
    assert np.isclose(kernel.shown.ndcg, reference.shown.ndcg, rtol=1e-6).mean() > 0.995
    plus, minus = np.asarray(kernel.credited).swapaxes(0, 1)
    assert ((plus | minus) == kernel.shown.patterns).all()  # every click is somebody's
    assert (plus != minus).mean() > 0.2


def test_interleaved_with_itself_is_the_list_itself():
    ranker, base = RANKERS["two-layer"], tiny_queries()
    center = jnp.asarray(np.random.default_rng(1).normal(size=ranker.size), jnp.float32)
    for found in both_interleaved(base, ranker, center, 0.0, "fixed"):
        plus, minus = np.asarray(found.credited).swapaxes(0, 1)
        assert (plus == minus).all() and (plus == found.shown.patterns).all()


@pytest.mark.parametrize("random_ties", [False, True], ids=["fixed ties", "random ties"])
def test_vector_instructions_find_what_keeping_the_best_finds(random_ties):
    random, depth = np.random.default_rng(0), 10
    for length in (1, 3, 8, 9, 10, 11, 16, 17, 29, 32, 42, 47, 64, 79, 90, 97, 100, 400):
        width = -(-length // 8) * 8
        for grades in (2, 5, 10**6, 0):  # all but a few scores are equal, some are, none is
            scores = np.full((2, width + 3), 7, np.float32)  # what lies beyond the documents is of no account
            scores[1, :length] = random.integers(0, grades or 10**6, length) - 1
            if not grades:  # the best are in 9 of the 16 groups, so that more than 16 are put in order
                scores[1, :length] += 10**6 * (np.arange(length) % 16 < 9)
            scores[1, random.integers(0, length)] = random.choice([np.nan, np.inf, -np.inf, -0.0])
            tie = np.uint32(random.integers(2**32))
            top, best = np.full((2, depth + 1), -1, np.int32)
            rest = np.zeros(depth, np.float32), np.zeros(depth, np.uint32)
            shown = fill_top(scores[1].copy(), length, tie, random_ties, top[:depth], *rest)
            assert fill_best(scores, 1, length, width, tie, random_ties, best, *rest) == shown
            np.testing.assert_array_equal(top[:shown], best[:shown])


def test_the_best_are_those_of_a_sort_where_the_last_eight_documents_are_the_best():
    """A group's best counts once: the last eight documents are in one group, as all others are."""
    for length in [25, 29, 32, 47, 48, 64, 79]:
        random, width = np.random.default_rng(0), -(-length // 8) * 8
        for _ in range(20):
            scores = np.zeros((1, width), np.float32)
            scores[0, :length] = random.normal(size=length)
            scores[0, width - 8 : length] += 5
            best, rest = np.full(11, -1, np.int32), (np.zeros(10, np.float32), np.zeros(10, np.uint32))
            expected = np.argsort(-scores[0, :length], kind="stable")[:10]
            assert fill_best(scores.copy(), 0, length, width, np.uint32(0), False, best, *rest) == 10
            np.testing.assert_array_equal(best[:10], expected)


def test_rankers_together_score_as_each_alone():
    for hidden in [0, 1, 3, 14]:
        random, features, rankers = np.random.default_rng(0), 7, 14
        size = hidden * (features + 2) if hidden else features
        weights = random.normal(size=(rankers, size)).astype(np.float32)
        for width in (8, 16, 40):
            block = random.normal(size=features * width).astype(np.float32)
            scores, alone = np.zeros((rankers, width), np.float32), np.zeros((rankers, width), np.float32)
            fill_scores_of(block, width, weights, rankers, features, hidden, scores)
            for r in range(rankers):
                fill_scores(block, width, weights[r], features, hidden, alone[r])
            x = block.reshape(features, width).astype(np.float64)
            if hidden:
                into, bias, out = np.split(
                    weights.astype(np.float64), [hidden * features, hidden * (features + 1)], axis=1
                )
                inner = np.einsum("rhf,fd->rhd", into.reshape(rankers, hidden, features), x) + bias[:, :, None]
                exact = np.einsum("rh,rhd->rd", out, np.maximum(inner, 0))
            else:
                exact = weights.astype(np.float64) @ x
            np.testing.assert_allclose(scores, exact, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(scores, alone)  # so that chunks change nothing
