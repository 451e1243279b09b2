"""Probabilistic multileaving against brute force over all assignments of rankers to ranks."""

import functools
import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.rankers.linear import Linear
from fedrank_zoo.dueling.multileaving import assignment, credit, document_weights, multileave
from fedrank_zoo.dueling.steps import DuelDraws, direction, dueling_steps

#: Rankings of 2 to 4 documents by 2 or 3 rankers, and how many ranks are shown.
WORLDS = {
    "two documents": ([(0, 1), (1, 0)], 2),
    "interleaving": ([(0, 1, 2, 3), (3, 1, 0, 2)], 4),
    "cut": ([(0, 1, 2, 3), (1, 0, 3, 2)], 2),
    "three rankers": ([(0, 1, 2), (2, 1, 0), (0, 2, 1)], 3),
    "three, four documents": ([(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)], 3),
    "all alike": ([(0, 1, 2)] * 3, 3),
}


def joint(rankings, depth):
    """{list: {assignment: P(assignment and list)}}, from the definition, in fractions."""
    documents, out = len(rankings[0]), {}
    for shown in itertools.permutations(range(documents), depth):
        for chosen in itertools.product(range(len(rankings)), repeat=depth):
            p = Fraction(1)
            for i, (document, ranker) in enumerate(zip(shown, chosen, strict=True)):
                left = {
                    d: Fraction(1, (rankings[ranker].index(d) + 1) ** 3) for d in set(range(documents)) - {*shown[:i]}
                }
                p *= Fraction(1, len(rankings)) * left[document] / sum(left.values())
            out.setdefault(shown, {})[chosen] = p
    assert sum(sum(of.values()) for of in out.values()) == 1
    return out


def padded(rankings, padding=0):
    """Rankings as arrays, with so many places of padding behind."""
    documents = len(rankings[0])
    behind = tuple(range(documents, documents + padding))
    return jnp.asarray([(*r, *behind) for r in rankings], jnp.int32), jnp.arange(documents + padding) < documents


@pytest.mark.parametrize("name", WORLDS)
def test_lists_are_drawn_as_often_as_all_assignments_together_make_them(name):
    rankings, depth = WORLDS[name]
    array, where = padded(rankings, padding=2)
    weights = document_weights(array, where)
    n = 60_000
    assign, pick = np.random.default_rng(0).integers(0, 2**32, (2, n, depth), dtype=np.uint32)
    draw = jax.jit(jax.vmap(lambda a, p: multileave(array, weights, where, a, p)))
    lists, counts = np.unique(np.asarray(draw(assign, pick)), axis=0, return_counts=True)
    found = dict(zip(map(tuple, lists.tolist()), counts, strict=True))
    expected = {shown: float(sum(of.values())) * n for shown, of in joint(rankings, depth).items()}
    assert set(found) <= set(expected)
    chi2 = sum((found.get(shown, 0) - e) ** 2 / e for shown, e in expected.items())
    freedom = len(expected) - 1  # mean of the statistic; its variance is twice that
    assert chi2 < freedom + 4 * (2 * freedom) ** 0.5 + 4


@pytest.mark.parametrize("name", WORLDS)
def test_credit_is_the_expectation_over_all_assignments_that_make_the_list(name):
    rankings, depth = WORLDS[name]
    array, where = padded(rankings, padding=1)
    weights = document_weights(array, where)
    found, found_credit = jax.jit(assignment), jax.jit(credit)
    for shown, of in joint(rankings, depth).items():
        whole = sum(of.values())
        bayes = [
            [float(sum(p for chosen, p in of.items() if chosen[i] == l) / whole) for i in range(depth)]
            for l in range(len(rankings))
        ]
        assigned = found(weights, where, jnp.asarray(shown, jnp.int32))
        np.testing.assert_allclose(assigned, bayes, rtol=2e-6)
        for clicks in itertools.product([False, True], repeat=depth):
            # The number of clicks that a ranker brought, over the assignments given the list.
            brought = [
                sum(p * sum(c and a == l for c, a in zip(clicks, chosen, strict=True)) for chosen, p in of.items())
                for l in range(len(rankings))
            ]
            share = [float(b / whole) for b in brought]
            np.testing.assert_allclose(found_credit(assigned, jnp.asarray(clicks)), share, rtol=4e-6, atol=1e-7)


def test_clicks_that_do_not_depend_on_documents_prefer_no_ranker():
    """At every rank, each ranker's mean share over all lists is 1/L: whatever is clicked there, nobody is favoured."""
    for name in WORLDS:
        rankings, depth = WORLDS[name]
        array, where = padded(rankings)
        weights = document_weights(array, where)
        found = jax.jit(assignment)
        mean = sum(
            float(sum(of.values())) * np.asarray(found(weights, where, jnp.asarray(shown, jnp.int32)), float)
            for shown, of in joint(rankings, depth).items()
        )
        np.testing.assert_allclose(mean, 1 / len(rankings), rtol=1e-5)


def test_fewer_documents_than_ranks():
    array, where = padded([(1, 0), (0, 1)], padding=3)
    weights = document_weights(array, where)
    words = np.random.default_rng(1).integers(0, 2**32, (200, 2, 4), dtype=np.uint32)
    lists = np.asarray(jax.vmap(lambda w: multileave(array, weights, where, w[0], w[1]))(words))
    assert {tuple(row) for row in lists[:, :2].tolist()} == {(0, 1), (1, 0)}
    assert (lists[:, 2:] >= 2).all()  # padding, which nobody sees or clicks
    assigned = np.asarray(assignment(weights, where, jnp.asarray(lists[0])))
    # First: 1 and 1/8 of 9/8 each. Then one document is left, and all rankers are equally likely.
    first = [1 / 9, 8 / 9] if lists[0, 0] == 0 else [8 / 9, 1 / 9]
    np.testing.assert_allclose(assigned, [[first[0], 0.5, 0, 0], [first[1], 0.5, 0, 0]], rtol=1e-6)


def test_the_smallest_and_the_largest_words_draw_documents_that_are_left():
    rankings = np.stack([np.random.default_rng(s).permutation(60) for s in range(3)])
    array, where = padded([tuple(r) for r in rankings.tolist()], padding=4)
    weights = document_weights(array, where)
    for word in (0, 2**32 - 1):
        full = jnp.full(16, word, jnp.uint32)
        shown = np.asarray(multileave(array, weights, where, full, full)).tolist()
        assert len(set(shown)) == 16 and max(shown) < 60
        # The first ranker's best documents in order, or the last ranker's worst.
        assert shown == (rankings[0][:16] if word == 0 else rankings[2][::-1][:16]).tolist()


def test_directions_are_uniform_on_the_sphere():
    n, size = 20_000, 5
    seeds = np.random.default_rng(2).integers(0, 2**32, n, dtype=np.uint32)
    u = np.asarray(jax.vmap(lambda seed: direction(seed, size))(seeds), float)
    np.testing.assert_allclose(np.linalg.norm(u, axis=1), 1, rtol=1e-6)
    # Uniform on the sphere in five dimensions: mean 0, E u² = 1/5, E u⁴ = 3/35, E uᵢ²uⱼ² = 1/35 (all to 5 errors).
    assert np.abs(u.mean(0)).max() < 5 * (1 / size / n) ** 0.5
    np.testing.assert_allclose((u**2).mean(0), 1 / 5, atol=5 * ((3 / 35 - 1 / 25) / n) ** 0.5)
    np.testing.assert_allclose((u[:, 0] ** 2 * u[:, 1] ** 2).mean(), 1 / 35, atol=5 * (1 / 35 / n) ** 0.5)


# A user who clicks the relevant document and nothing else.
PERFECT = CascadeUser("perfect", (0.0, 1.0), (0.0, 0.0), depth=2)
X = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])
WEIGHTS = np.array([0.3, -0.3, 0.2], np.float32)  # the first document ranks first
#: Two documents of which the second is relevant, none, both; and one document alone.
SECOND, NONE, BOTH, ALONE = range(4)
QUERIES = QuerySet(
    np.concatenate([X, X, X, X[:1]]), np.array([0, 1, 0, 0, 1, 1, 1]), np.array([0, 2, 4, 6, 7]), np.array(list("snba"))
)
LAYOUTS = {"padded": QUERIES.padded(), "blocks": QUERIES.blocks()}


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def learnt_from(data, candidates, radius, query, words):
    def one(words):
        return dueling_steps(
            Linear(3), (PERFECT,), jnp.int32(0), LAYOUTS[data], jnp.asarray(WEIGHTS), 0.01, radius, candidates,
            query[None], jnp.ones(1, bool), words,
        )  # fmt: skip

    return jax.vmap(one)(words)


def duel(data, query, candidates, count=500, radius=1.0):
    """The weights after one interaction, ``count`` times with new chance; the directions tried; the clicks."""
    words = np.random.default_rng(0).integers(0, 2**32, (count, 1, candidates + 6), dtype=np.uint32)
    cut = DuelDraws(words[..., :candidates], *np.split(words[..., candidates:], 3, axis=-1))
    learnt = learnt_from(data, candidates, radius, jnp.int32(query), cut)
    u = jax.vmap(jax.vmap(lambda s: direction(s, 3)))(cut.directions[:, 0])
    return np.asarray(learnt.weights), np.asarray(u), np.asarray(learnt.sessions.patterns)[:, 0]


@pytest.mark.parametrize("data", LAYOUTS)
def test_a_step_is_taken_along_the_direction_of_a_better_ranking(data):
    """The current ranker puts the relevant document last.

    A click at the first rank tells for the candidate exactly if it ranks the relevant document first: P(l | d) is 8/9
    for whoever does. At the second rank nobody is preferred, since one document was left.
    """
    learnt, u, patterns = duel(data, SECOND, 1)
    better = (WEIGHTS + u[:, 0]) @ (X[1] - X[0]) > 0
    first = patterns == 1  # clicked at the first rank
    moved = better & first
    assert 30 < moved.sum() < 470 and (better & ~first).any() and (~better & first).any()
    expected = WEIGHTS + np.where(moved[:, None], 0.01 * u[:, 0], 0)
    np.testing.assert_allclose(learnt, expected, atol=1e-7)


@pytest.mark.parametrize("data", LAYOUTS)
def test_the_step_of_several_candidates_is_the_mean_of_the_winners(data):
    learnt, u, patterns = duel(data, SECOND, 3)
    wins = ((WEIGHTS + u) @ (X[1] - X[0]) > 0) & (patterns == 1)[:, None]
    assert {0, 1, 2, 3} == set(wins.sum(1).tolist())
    mean = (wins[..., None] * u).sum(1) / np.maximum(wins.sum(1), 1)[:, None]
    np.testing.assert_allclose(learnt, WEIGHTS + 0.01 * mean, atol=1e-7)


@pytest.mark.parametrize("data", LAYOUTS)
def test_without_a_preference_the_weights_stay(data):
    """No click; one document, whoever ranks it; all documents clicked, by candidates that are the current ranker."""
    for query, radius, pattern in ((NONE, 1.0, 0), (ALONE, 1.0, 1), (BOTH, 0.0, 3)):
        learnt, _, patterns = duel(data, query, 3, radius=radius)
        assert set(patterns.tolist()) == {pattern}
        np.testing.assert_array_equal(learnt, np.broadcast_to(WEIGHTS, learnt.shape))
