"""Dueling bandits on the CPU and in JAX: the same lists, clicks and steps from the same draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import FEATURES, tiny_queries

from fedrank.core.errors import ConfigError
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer
from fedrank_zoo.dueling.kernel import fill_ranks
from fedrank_zoo.dueling.steps import DuelDraws, dueling_steps

RANKERS = {"linear": Linear(FEATURES), "two-layer": TwoLayer(FEATURES, 3)}
USERS = (cascade("informational"), cascade("perfect"))


def chance(shape, interactions, candidates, seed=0):
    random = np.random.default_rng(seed)
    words = random.integers(0, 2**32, (*shape, interactions, candidates + 30), dtype=np.uint32)
    return DuelDraws(words[..., :candidates], *np.split(words[..., candidates:], 3, axis=-1))


def both(queries, ranker, weights, candidates, parties=64, interactions=6, radius=1.0):
    """What two runs of parties learn, with the kernel and in JAX; each run has weights of its own."""
    random = np.random.default_rng(3)
    about = random.integers(0, queries.n_queries, (2, parties, interactions)).astype(np.int32)
    active = random.random((2, parties, interactions)) < 0.8
    words = chance((2, parties), interactions, candidates)
    which = np.arange(parties, dtype=np.int32) % 2
    out = []
    for data in (queries.blocks(), queries.padded()):

        def one(weights, step, which, about, active, words, data=data):
            return dueling_steps(ranker, USERS, which, data, weights, step, radius, candidates, about, active, words)

        over_parties = jax.vmap(one, in_axes=(None, None, 0, 0, 0, 0))
        over_runs = jax.jit(jax.vmap(over_parties, in_axes=(0, 0, None, 0, 0, 0)))
        steps = jnp.asarray([0.1, 0.3], jnp.float32)
        out.append(jax.tree.map(np.asarray, over_runs(weights, steps, which, about, active, words)))
    for learnt in out:  # what does not take place is not seen
        assert (learnt.sessions.patterns[~active] == 0).all() and (learnt.sessions.ndcg[~active] == 0).all()
    return out


def start(ranker):
    """Weights of two runs, in eighths: products with eighths are exact, and coarse enough that many are equal."""
    return jnp.asarray(np.random.default_rng(1).integers(-2, 3, (2, ranker.size)) / 8, jnp.float32)


@pytest.mark.parametrize("candidates", [1, 3])
@pytest.mark.parametrize("name", RANKERS)
def test_equal_draws_lead_to_equal_lists_clicks_and_steps(name, candidates):
    ranker = RANKERS[name]
    kernel, reference = both(tiny_queries(), ranker, start(ranker), candidates)
    np.testing.assert_array_equal(kernel.sessions.patterns, reference.sessions.patterns)
    np.testing.assert_allclose(kernel.sessions.ndcg, reference.sessions.ndcg, rtol=1e-6)
    np.testing.assert_allclose(kernel.weights, reference.weights, atol=3e-6)
    moved = np.abs(kernel.weights - np.asarray(start(ranker))[:, None]).max(-1) > 0.05
    assert moved.mean() > 0.4 and len(np.unique(kernel.sessions.patterns)) > 20  # something happened


@pytest.mark.parametrize("name", RANKERS)
def test_candidates_that_tie_with_the_current_ranker_win_nothing(name):
    """Radius 0: all rankers are the same, with many equal scores; nobody has more credit than the current one."""
    ranker = RANKERS[name]
    learnt = both(tiny_queries(), ranker, start(ranker), 3, radius=0.0)
    np.testing.assert_array_equal(learnt[0].sessions.patterns, learnt[1].sessions.patterns)
    for one in learnt:
        np.testing.assert_array_equal(one.weights, np.broadcast_to(start(ranker)[:, None], one.weights.shape))


def test_practically_equal_on_real_numbers():
    base, ranker = tiny_queries(longest=40), Linear(FEATURES)
    noisy = base.features + np.random.default_rng(2).normal(size=base.features.shape) * 0.05
    queries = QuerySet(noisy, base.labels, base.offsets, base.qids)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(2, ranker.size)), jnp.float32)
    kernel, reference = both(queries, ranker, weights, 3, parties=300)
    # A score or a sum that is rounded the other way may change a list, and all that follows for this party.
    assert np.isclose(kernel.weights, reference.weights, atol=1e-5).all(-1).mean() > 0.99


def test_ranks_are_counted_as_a_stable_sort_orders():
    random = np.random.default_rng(0)
    for length in (1, 2, 7, 16, 33):
        scores = (random.integers(-3, 4, 40) / 2).astype(np.float32)
        scores[random.random(40) < 0.2] = np.nan
        scores[random.random(40) < 0.1] = -0.0
        falling = np.where(np.isnan(scores), np.inf, -scores)[:length]
        ranks, ranking = np.full(40, -1, np.int32), np.full(40, -1, np.int32)
        fill_ranks(scores, np.int32(length), ranks, ranking)
        np.testing.assert_array_equal(ranking[:length], np.argsort(falling, kind="stable"))
        np.testing.assert_array_equal(ranks[ranking[:length]], np.arange(length))


@pytest.mark.parametrize("candidates", [0, 2])
def test_each_candidate_needs_a_direction(candidates):
    queries = tiny_queries()
    for data in (queries.blocks(), queries.padded()):
        with pytest.raises(ConfigError, match="candidates"):
            dueling_steps(
                Linear(FEATURES), USERS, jnp.int32(0), data, jnp.zeros(FEATURES), 0.1, 1.0, candidates,
                jnp.zeros(1, jnp.int32), jnp.ones(1, bool), chance((), 1, min(candidates, 1)),
            )  # fmt: skip
