"""PDGD against the paper's equations, written out: all rankings and all clicks of a few documents, in 60 digits."""

import itertools
from decimal import Decimal, getcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.learners import (
    PdgdDraws,
    document_bits,
    fill_document_bits,
    fill_pair_weights,
    fill_relative,
    pair_weights,
    pdgd_gradient,
    pdgd_steps,
    sample_ranking,
)
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer

getcontext().prec = 60

#: Scores of four documents: like each other, spread, equal, and so far apart that e^s is no floating-point number.
SCORES = {
    "close": [0.3, -0.5, 0.9, 0.1],
    "spread": [4.0, -7.0, 0.0, 1.5],
    "equal": [0.25, 0.25, 0.25, 0.25],
    "huge": [0.0, -900.0, 2500.0, -899.0],
    "huge ties": [-5000.0, -5000.0, 3000.0, 3000.0],
}
USER = CascadeUser("some", (0.2, 0.6, 0.9), (0.1, 0.5, 0.6), depth=3)


def exact(scores):
    return [Decimal(float(np.float32(s))).exp() for s in scores]


def probability(e, shown):
    """Plackett–Luce probability of the first ranks, of all documents."""
    left, p = sum(e), Decimal(1)
    for document in shown:
        p *= e[document] / left
        left = sum(x for d, x in enumerate(e) if d not in shown[: shown.index(document) + 1])
    return p


def preferences(shown, clicked):
    """Pairs of documents (preferred, other): observed are all above a click, and one below the last."""
    if not any(clicked):
        return []
    last = max(rank for rank, c in enumerate(clicked) if c)
    observed = [rank for rank in range(len(shown)) if rank <= last + 1]
    return [(shown[i], shown[j]) for i in observed if clicked[i] for j in observed if not clicked[j]]


def expected_weights(scores, shown, clicked):
    """Each document's weight: Σ ρ · e^k e^l / (e^k + e^l)² over its pairs, with both probabilities in full."""
    e, weights = exact(scores), [Decimal(0)] * len(scores)
    for k, l in preferences(shown, clicked):
        swapped = [l if d == k else k if d == l else d for d in shown]
        p, p_swapped = probability(e, shown), probability(e, swapped)
        weight = p_swapped / (p + p_swapped) * e[k] * e[l] / (e[k] + e[l]) ** 2
        weights[k] += weight
        weights[l] -= weight
    return np.array([float(w) for w in weights])


def all_sessions(documents, depth):
    """Every list that can be shown, with every click pattern."""
    for shown in itertools.permutations(range(documents), min(depth, documents)):
        for clicked in itertools.product((0, 1), repeat=len(shown)):
            yield list(shown), clicked


def bits(clicked):
    return sum(c << rank for rank, c in enumerate(clicked))


def click_probability(user, labels, clicked):
    """A cascade user reads from the top and may stop after a click."""
    reading, p = 1.0, 0.0
    for rank, (label, c) in enumerate(zip(labels, clicked, strict=True)):
        if c:
            reading *= user.click[label]
            if not any(clicked[rank + 1 :]):
                p += reading * user.stop[label]
            reading *= 1 - user.stop[label]
        else:
            reading *= 1 - user.click[label]
    return p + reading


def kernel_weights(scores, shown, pattern, depth=10):
    """The CPU kernel's weights of the documents at the shown ranks."""
    scores, n = np.asarray(scores, np.float32), len(shown)
    top = np.zeros(depth, np.int32)
    top[:n] = shown
    observed = min(pattern.bit_length() + 1, n)
    rest, relative, out = np.empty(len(scores)), np.empty((depth, depth)), np.zeros(depth)
    fill_relative(scores, len(scores), scores.max(), top, n, observed, rest, relative)
    fill_pair_weights(scores, top, observed, pattern, relative, out)
    return out[:n]


@pytest.mark.parametrize("depth", [3, 4])
@pytest.mark.parametrize("name", SCORES)
def test_every_ranking_and_every_pattern(name, depth):
    scores, where = jnp.asarray(SCORES[name], jnp.float32), jnp.ones(4, bool)
    sessions = list(all_sessions(4, depth))
    expected = np.array([expected_weights(SCORES[name], *session)[session[0]] for session in sessions])
    rankings, patterns = (jnp.asarray(a, jnp.int32) for a in zip(*((s, bits(c)) for s, c in sessions), strict=True))
    found = jax.jit(jax.vmap(lambda r, p: pair_weights(scores, where, r, p)))(rankings, patterns)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-7)
    kernel = [kernel_weights(SCORES[name], s, bits(c)) if any(c) else np.zeros(depth) for s, c in sessions]
    np.testing.assert_allclose(kernel, expected, rtol=1e-9, atol=1e-15)
    assert np.abs(expected).max() > 0.05 and len(sessions) == (192 if depth == 3 else 384)


def test_documents_that_are_not_shown_count():
    """The same list and clicks, with and without a strong document beyond the last rank: other odds, another weight."""
    alone, beside = (kernel_weights(s, [0, 1], 0b10)[1] for s in ([0.0, 1.0], [0.0, 1.0, 3.0]))
    e = np.exp(1.0)
    assert alone == pytest.approx(1 / (1 + 1 / e) * e / (1 + e) ** 2)
    odds = (1 + np.exp(3.0)) / (e + np.exp(3.0))
    assert beside == pytest.approx(1 / (1 + odds) * e / (1 + e) ** 2)


def numpy_two_layer(weights, features, hidden):
    f = features.shape[1]
    into, bias, out = weights[: hidden * f].reshape(hidden, f), weights[hidden * f : -hidden], weights[-hidden:]
    return np.maximum(features @ into.T + bias, 0) @ out


@pytest.mark.parametrize("where", ["jax", "kernel"])
def test_the_two_layer_gradient_against_differences(where):
    """∇ Σ cₖ s(dₖ), by central differences of a network written in NumPy."""
    random = np.random.default_rng(3)
    ranker = TwoLayer(4, hidden=3)
    features, weights = random.normal(size=(5, 4)).astype(np.float32), random.normal(size=ranker.size)
    weights = weights.astype(np.float32).astype(np.float64)
    scores = numpy_two_layer(weights, features, 3)
    shown, clicked = [3, 0, 4, 1], (0, 1, 1, 0)
    coefficients = expected_weights(scores, shown, clicked)
    expected = np.empty(ranker.size)
    for j in range(ranker.size):
        step = np.zeros(ranker.size)
        step[j] = 1e-5
        up, down = (numpy_two_layer(weights + sign * step, features, 3) @ coefficients for sign in (1, -1))
        expected[j] = (up - down) / 2e-5
    if where == "jax":
        found = pdgd_gradient(
            ranker, jnp.asarray(weights, jnp.float32), jnp.asarray(features), jnp.ones(5, bool),
            jnp.asarray(shown, jnp.int32), jnp.int32(bits(clicked)),
        )  # fmt: skip
    else:
        from fedrank.ranking.learners import add_gradient

        found, ranked = np.zeros(ranker.size, np.float32), coefficients[shown]
        block = np.zeros((4, 8), np.float32)
        block[:, :5] = features.T
        add_gradient(
            block.ravel(), 8, weights.astype(np.float32), 4, 3, np.array(shown, np.int32), ranked, 4,
            np.empty(4, np.float32), found,
        )  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(expected).max() > 0.05


def words(parties, seed=0, depth=10):
    random = np.random.default_rng(seed)
    pair, clicks = (random.integers(0, 2**32, (parties, 1, n), dtype=np.uint32) for n in (2, depth))
    return PdgdDraws(jnp.asarray(pair), jnp.asarray(clicks))


@pytest.mark.parametrize("layout", ["kernel", "jax"])
def test_the_mean_of_many_steps_is_the_expected_gradient(layout):
    """Four documents, three shown: Σ over lists and clicks of their probability times their gradient."""
    features = np.array([[1.0, 0.0, 0.5], [0.25, 1.0, 0.0], [0.0, 0.5, 1.0], [0.75, 0.25, 0.25]])
    labels, weights = [0, 2, 1, 1], np.array([0.8, -0.4, 0.3])
    scores = features @ weights
    expected = np.zeros(3)
    for shown, clicked in all_sessions(4, 3):
        chance = float(probability(exact(scores), shown)) * click_probability(USER, [labels[d] for d in shown], clicked)
        expected += chance * expected_weights(scores, shown, clicked) @ features
    queries = QuerySet(features, np.array(labels), np.array([0, 4]), np.array(["q"]))
    data, n = queries.blocks() if layout == "kernel" else queries.padded(), 100_000
    start = jnp.asarray(weights, jnp.float32)

    def one(w):
        zero, yes = jnp.zeros(1, jnp.int32), jnp.ones(1, bool)
        return pdgd_steps(Linear(3), (USER,), jnp.int32(0), data, start, 1.0, zero, yes, w).weights - start

    steps = np.asarray(jax.jit(jax.vmap(one))(words(n, depth=3)), np.float64)
    error = steps.std(axis=0) / np.sqrt(n)
    assert np.all(np.abs(steps.mean(axis=0) - expected) < 4 * error)
    assert np.all(np.abs(expected) > 10 * error)  # the test can tell it from zero, and from other signs


@pytest.mark.parametrize("name", ["close", "spread"])
def test_documents_that_are_clicked_alike_are_preferred_alike(name):
    """All labels equal: the expected gradient is zero, whatever the scores. Without ρ it is not."""
    scores, where = jnp.asarray(SCORES[name], jnp.float32), jnp.ones(4, bool)
    ours, naive = np.zeros(4), np.zeros(4)
    gradients = jax.jit(lambda r, p: jnp.zeros(4).at[r].add(pair_weights(scores, where, r, p)))
    for shown, clicked in all_sessions(4, 3):
        chance = float(probability(exact(SCORES[name]), shown)) * click_probability(USER, [1, 1, 1], clicked)
        ours += chance * np.asarray(gradients(jnp.asarray(shown, jnp.int32), jnp.int32(bits(clicked))))
        for k, l in preferences(shown, clicked):
            e = np.exp([SCORES[name][k], SCORES[name][l]])
            weight = chance * 0.5 * e[0] * e[1] / e.sum() ** 2
            naive[k] += weight
            naive[l] -= weight
    assert np.abs(ours).max() < 1e-6
    assert np.abs(naive).max() > 1e-3


def test_rankings_come_with_plackett_luce_probabilities():
    scores, n = jnp.asarray([0.5, -1.0, 1.2, 0.0, 9.0], jnp.float32), 50_000
    where = jnp.asarray([True, True, True, True, False])  # the best score of all is padding
    random = jnp.asarray(np.random.default_rng(1).integers(0, 2**32, (n, 5), dtype=np.uint32))
    ranking = np.asarray(jax.jit(jax.vmap(lambda w: sample_ranking(scores, where, w, 3)))(random))
    found = {}
    for row in ranking.tolist():
        found[tuple(row)] = found.get(tuple(row), 0) + 1
    lists = list(itertools.permutations(range(4), 3))
    expected = np.array([float(probability(exact(scores[:4]), list(shown))) for shown in lists]) * n
    counts = np.array([found.get(shown, 0) for shown in lists])
    assert counts.sum() == n  # padding is never shown above a document
    assert ((counts - expected) ** 2 / expected).sum() < 49.7  # chi-square, 23 degrees of freedom, p = 0.001


def test_words_of_documents():
    """The first block of Threefry-2x32-20 with key 0 and counter 0, from the known answers of Random123."""
    known = [0x6B200159, 0x99BA4EFE]
    assert document_bits(jnp.uint32(0), jnp.uint32(0), 2).tolist() == known
    from fedrank.core.rng import threefry_2x32

    key = tuple(np.array([k], np.uint32) for k in (123, 4_000_000_000))
    blocks = np.stack(threefry_2x32(key, (np.arange(61, dtype=np.uint32), np.zeros(61, np.uint32))), axis=1).ravel()
    for documents in (1, 2, 7, 121):
        out = np.empty(documents, np.uint32)
        fill_document_bits(key[0][0], key[1][0], out)
        np.testing.assert_array_equal(out, blocks[:documents])
        np.testing.assert_array_equal(document_bits(*map(jnp.asarray, key), documents)[0], blocks[:documents])
