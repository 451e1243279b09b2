"""PDGD's CPU kernel and its JAX reference: the same clicks and the same weights from the same draws."""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import FEATURES, tiny_queries

from fedrank.core.errors import ConfigError
from fedrank.ranking.clicks.cascade import cascade
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.learners import PdgdDraws, pdgd_steps
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer

RANKERS = {"linear": Linear(FEATURES), "two-layer": TwoLayer(FEATURES, 3)}
USERS = (cascade("informational"), cascade("perfect"))
LAYOUTS = ("blocks", "padded")
PARTIES, K = 200, 5


@functools.cache
def queries():
    """Queries of 1 to 14 documents, some without a relevant one."""
    made = tiny_queries(queries=30)
    assert made.lengths.min() == 1 and not made.has_relevant.all()
    return made


def chance(shape=(PARTIES, K), seed=0, active=0.8):
    """Queries, which interactions take place, and words, for parties [..., K]."""
    random = np.random.default_rng(seed)
    words = PdgdDraws(
        *(jnp.asarray(random.integers(0, 2**32, (*shape, n), dtype=np.uint32)) for n in (2, USERS[0].depth))
    )
    about = jnp.asarray(random.integers(0, queries().n_queries, shape), jnp.int32)
    return about, jnp.asarray(random.random(shape) < active), words


def start(name, scale=0.5):
    return jnp.asarray(np.random.default_rng(9).normal(size=RANKERS[name].size) * scale, jnp.float32)


@functools.cache
def learner(name, layout, batch=False):
    """All parties' interactions: the informational user at even, the perfect user at odd numbers."""
    data = getattr(queries(), layout)()

    @jax.jit
    def learn(weights, about, active, words):
        def one(which, *drawn):
            return pdgd_steps(RANKERS[name], USERS, which, data, weights, 0.5, *drawn, batch=batch)

        return jax.vmap(one)(jnp.arange(about.shape[0], dtype=jnp.int32) % 2, about, active, words)

    return lambda *arguments: jax.tree.map(np.asarray, learn(*arguments))


@pytest.mark.parametrize("batch", [False, True], ids=["sequential", "batch"])
@pytest.mark.parametrize("name", RANKERS)
def test_kernel_and_reference_agree(name, batch):
    weights = start(name)
    kernel, reference = (learner(name, layout, batch)(weights, *chance()) for layout in LAYOUTS)
    same = (kernel.sessions.patterns == reference.sessions.patterns).all(axis=1)
    assert same.mean() > 0.98  # two nearly equal numbers of a race may change places
    np.testing.assert_allclose(kernel.weights[same], reference.weights[same], rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(kernel.sessions.ndcg[same], reference.sessions.ndcg[same], rtol=1e-6)
    assert np.abs(kernel.weights - np.asarray(weights)).max() > 0.1
    assert len(np.unique(kernel.sessions.patterns)) > 50


def test_scores_that_are_far_apart():
    """Differences of thousands: no document's e^s is a number next to another's, and nothing becomes NaN."""
    weights = start("linear", 3000.0)
    kernel, reference = (learner("linear", layout)(weights, *chance()) for layout in LAYOUTS)
    assert np.isfinite(kernel.weights).all() and np.isfinite(reference.weights).all()
    same = (kernel.sessions.patterns == reference.sessions.patterns).all(axis=1)
    assert same.mean() > 0.98
    moved, moved2 = (out.weights[same] - np.asarray(weights) for out in (kernel, reference))
    np.testing.assert_allclose(moved, moved2, atol=2e-3)  # in single precision, next to weights of thousands
    assert np.abs(moved).max() > 0.01


@pytest.mark.parametrize("layout", LAYOUTS)
def test_interactions_that_do_not_take_place_change_nothing(layout):
    learn, weights = learner("linear", layout), start("linear")
    about, active, words = chance()
    out = learn(weights, about, active, words)
    assert not out.sessions.patterns[~np.asarray(active)].any() and not out.sessions.ndcg[~np.asarray(active)].any()
    # Other queries and other words where nothing takes place.
    other, _, others = chance(seed=5)
    about = jnp.where(active, about, other)
    words = PdgdDraws(*(jnp.where(active[..., None], a, b) for a, b in zip(words, others, strict=True)))
    np.testing.assert_array_equal(out.weights, learn(weights, about, active, words).weights)
    none = learn(weights, about, jnp.zeros_like(active), words)
    np.testing.assert_array_equal(none.weights, np.broadcast_to(weights, none.weights.shape))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_a_preference_there_is_no_step(layout):
    """Perfect users, and queries with one document, without a relevant document, and with relevant documents only."""
    labels, offsets = np.array([2, *[0] * 5, *[2] * 5]), np.array([0, 1, 6, 11])
    features = np.random.default_rng(0).random((11, FEATURES))
    data = getattr(QuerySet(features, labels, offsets, np.array(list("abc"))), layout)()
    about = jnp.tile(jnp.arange(3, dtype=jnp.int32), (40, 1))
    _, active, words = chance((40, 3), active=1.1)

    @jax.jit
    @jax.vmap
    def learn(*drawn):
        return pdgd_steps(RANKERS["linear"], (cascade("perfect"),), 0, data, start("linear"), 0.5, *drawn)

    out = learn(about, active, words)
    np.testing.assert_array_equal(out.weights, np.broadcast_to(start("linear"), out.weights.shape))
    np.testing.assert_array_equal(out.sessions.patterns, np.tile([1, 0, 31], (40, 1)))
    np.testing.assert_allclose(out.sessions.ndcg, np.tile([1.0, 0.0, 1.0], (40, 1)), rtol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_batch_is_the_sum_of_its_steps_and_a_sequence_their_chain(layout):
    name, (about, active, words) = "two-layer", chance()
    weights = np.asarray(start(name))
    chain, batch = (learner(name, layout, b) for b in (False, True))

    def only(k):
        return about, active & (jnp.arange(K) == k)[None, :], words

    # Two parties, one of each user; their weights differ after the first step, so that each is chained by itself.
    for party in range(2):
        chained, total = weights, np.zeros_like(weights)
        for k in range(K):
            chained = chain(jnp.asarray(chained), *only(k)).weights[party]
            total += chain(jnp.asarray(weights), *only(k)).weights[party] - weights
        drawn = jnp.asarray(weights), about, active, words
        np.testing.assert_allclose(chain(*drawn).weights[party], chained, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(batch(*drawn).weights[party], weights + total, rtol=1e-5, atol=1e-6)
        assert np.abs(chained - weights - total).max() > 1e-3


def test_runs_and_parties_with_weights_and_rates_of_their_own():
    """Mapped over runs (weights and rates of their own) and parties (of one run all alike), as a simulator does."""
    about, active, words = chance((2, 30, K))
    weights, rates = jnp.stack([start("linear"), start("linear", 0.1)]), jnp.asarray([0.5, 0.25])
    data = queries().blocks()

    def run(weights, rate, *drawn):
        return jax.vmap(lambda *mine: pdgd_steps(RANKERS["linear"], USERS, 0, data, weights, rate, *mine))(*drawn)

    together = jax.jit(jax.vmap(run))(weights, rates, about, active, words)
    for number in range(2):
        alone = run(weights[number], rates[number], *jax.tree.map(lambda a, n=number: a[n], (about, active, words)))
        jax.tree.map(lambda a, b, n=number: np.testing.assert_array_equal(a[n], b), together, alone)
    assert np.abs(together.weights[0] - together.weights[1]).max() > 0.1


def test_the_kernel_says_what_it_cannot_compute():
    @dataclass(frozen=True)
    class Other(Linear):
        def kernel_shape(self):
            return None

    drawn = jax.tree.map(lambda a: a[0], chance((1, 1)))
    with pytest.raises(ConfigError, match=r"cannot compute Other; use queries\.padded"):
        pdgd_steps(Other(FEATURES), USERS, 0, queries().blocks(), jnp.zeros(FEATURES), 0.1, *drawn)
