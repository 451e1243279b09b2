"""Slates against every slate there is, against the linear programme, and against equation 8 written out."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.slates.fedslate.learner import huber
from fedrank.slates.world.best_slate import OPTIMISERS, TARGETS, best_value, exact, next_value, slate_value

NAMES = ("top-k", "greedy", "exact")
SMALL = 8


@functools.cache
def programs(n):
    """Slates of n items and what they are said to be worth, by every optimiser, for a batch of (v, q, v0)."""

    def one(v, q, v0):
        slates = [OPTIMISERS.get(name)(v, q, n, v0) for name in NAMES]
        return jnp.stack(slates), jnp.stack([slate_value(v, q, slate, v0) for slate in slates])

    return jax.jit(jax.vmap(one))


@functools.cache
def best_of_many(n):
    return jax.jit(lambda v, q, v0: best_value(v.T, q.T, n, v0))


def cases(candidates, rows=60, seed=0):
    """Scores, values and the score of no click: wide and narrow scores, values of either sign, ties, zeros.

    Whole numbers in a third of the rows, on which single precision makes no error before the division.
    """
    random = np.random.default_rng(seed)
    spread = random.choice([0.1, 1.0, 3.0], (rows, 1))
    v = np.exp(spread * random.normal(size=(rows, candidates)))
    q = random.normal(random.choice([-3.0, 0.0, 3.0], (rows, 1)), 1.0, (rows, candidates))
    v[::3] = random.integers(1, 4, v[::3].shape)
    q[::3] = random.integers(-2, 3, q[::3].shape)
    q[:2], v[2] = 0.0, 1.0
    v0 = random.choice([0.0, 1.0, 50.0], rows)
    return v.astype(np.float32), q.astype(np.float32), v0.astype(np.float32)


def worth(v, q, v0, slates):
    """Of slates [..., n], in double precision."""
    v, q = np.asarray(v, np.float64), np.asarray(q, np.float64)
    return (v * q)[slates].sum(-1) / (v0 + v[slates].sum(-1))


def every_slate(candidates, n):
    return np.array(list(itertools.combinations(range(candidates), n)))


def check_small(candidates, n):
    """All three optimisers on one shape."""
    v, q, v0 = cases(candidates, seed=10 * candidates + n)
    slates, said = (np.asarray(part) for part in programs(n)(v, q, v0))
    assert slates.dtype == np.int32 and slates.shape == (len(v), 3, n)
    assert np.isfinite(said).all()
    together = np.asarray(best_of_many(n)(v, q, v0))
    for row in range(len(v)):
        assert all(len(set(slate)) == n and set(slate) <= set(range(candidates)) for slate in slates[row].tolist())
        mine = np.array([worth(v[row], q[row], v0[row], slate) for slate in slates[row]])
        scale = 1e-5 * (1 + np.abs(q[row]).max())
        np.testing.assert_allclose(said[row], mine, atol=scale)
        best = worth(v[row], q[row], v0[row], every_slate(candidates, n)).max()
        assert mine[2] >= best - scale and mine.max() <= best + scale
        assert abs(together[row] - best) <= scale
        order = np.argsort(-(v[row] * q[row]), kind="stable")[:n]
        np.testing.assert_array_equal(slates[row, 0], order)
        check_greedy(v[row], q[row], v0[row], slates[row, 1], scale)


def check_greedy(v, q, v0, slate, tolerance):
    """Each pick is the arg max of equation 8, given those before it."""
    v, q = v.astype(np.float64), q.astype(np.float64)
    for place in range(len(slate)):
        before, rest = slate[:place], np.setdiff1d(np.arange(len(v)), slate[:place])
        gained, mass = (v[before] * q[before]).sum(), v[before].sum()
        ratio = [(v[i] * q[i] + gained) / (v[i] + v0 + mass) for i in rest]
        assert ratio[rest.tolist().index(slate[place])] >= max(ratio) - tolerance


def test_optimisers_agree_with_every_slate_there_is():
    check_small(SMALL, 3)


@pytest.mark.slow
@pytest.mark.parametrize(("candidates", "n"), [(many, n) for many in range(1, SMALL + 1) for n in range(1, many + 1)])
def test_optimisers_agree_with_every_slate_of_every_size(candidates, n):
    check_small(candidates, n)


@functools.cache
def large():
    """Thirty cases of N = 500, n = 10: (v, q, v0), and their exact slates.

    Scores in half of the rows fall with the value, over sixteen decades: that took Dinkelbach's method the most steps.
    """
    random = np.random.default_rng(2)
    q = random.normal(size=(30, 500)).astype(np.float32)
    spread = np.repeat([0.1, 1.0, 4.0], 10)[:, None]
    v = np.exp(np.where(np.arange(30)[:, None] % 2, -spread * q, spread * random.normal(size=q.shape)))
    v, v0 = v.astype(np.float32), random.choice([0.0, 1.0, 100.0], 30).astype(np.float32)
    return (v, q, v0), np.asarray(jax.jit(jax.vmap(lambda v, q, v0: exact(v, q, 10, v0)))(v, q, v0))


def test_the_exact_slate_is_the_vertex_of_the_linear_programme():
    """Charnes-Cooper: maximise Σ v q y with v0 t + Σ v y = 1, Σ y = n t, 0 ≤ y ≤ t (Ie et al. 2019)."""
    from scipy.optimize import linprog
    from scipy.sparse import eye_array, hstack

    (v, q, v0), slates = large()
    limits = hstack([eye_array(500), -np.ones((500, 1))])
    for row in (0, 1, 10, 11):
        equal = np.zeros((2, 501))
        equal[0, :500], equal[0, 500], equal[1, :500], equal[1, 500] = v[row], v0[row], 1.0, -10.0
        gain = np.append(v[row].astype(float) * q[row], 0.0)
        found = linprog(-gain, A_ub=limits, b_ub=np.zeros(500), A_eq=equal, b_eq=[1.0, 0.0], bounds=(0, None))
        assert found.status == 0
        assert worth(v[row], q[row], v0[row], slates[row]) == pytest.approx(-found.fun, rel=1e-5)


def test_large_exact_slates_carry_the_certificate_of_optimality():
    """λ is the greatest value if no slate has Σ v (q − λ) > λ v0; the largest such sum is of the n largest terms."""
    (v, q, v0), slates = large()
    for row in range(30):
        assert len(set(slates[row].tolist())) == 10
        value = worth(v[row], q[row], v0[row], slates[row])
        sums = np.sort(v[row].astype(float) * (q[row] - value))[-10:].sum()
        assert sums - value * v0[row] <= 1e-5 * (v0[row] + v[row][slates[row]].astype(float).sum())


@pytest.mark.slow
def test_large_greedy_slates_follow_equation_8_and_large_top_k_slates_are_sorted():
    v, q, v0 = large()[0]
    slates = np.asarray(programs(10)(v, q, v0)[0])
    for row in range(0, 30, 3):
        check_greedy(v[row], q[row], v0[row], slates[row, 1], 1e-5)
        np.testing.assert_array_equal(slates[row, 0], np.argsort(-(v[row] * q[row]), kind="stable")[:10])


def on_rows(v, q, v0):
    """Slates of three and values of a few rows of up to eight items, in the shapes that are compiled already."""
    padded = [np.ones((60, SMALL), np.float32), np.full((60, SMALL), -99, np.float32), np.zeros(60, np.float32)]
    for whole, part in zip(padded, (v, q, v0), strict=True):
        whole[(slice(len(part)), *(slice(k) for k in np.shape(part)[1:]))] = part
    return [np.asarray(part)[: len(v)] for part in programs(3)(*padded)]


@pytest.mark.parametrize(
    ("v", "q", "v0", "wanted"),
    [
        # top-k < greedy < exact
        ((4.0, 1.0, 4.0, 4.0, 2.0), (6.0, 0.0, 2.0, 3.0, 2.0), 1.0, (44 / 13, 18 / 5, 40 / 11)),
        # q alone decides where all scores are equal and there is no other choice
        ((2.0,) * 5, (1.0, -1.0, 5.0, 3.0, 6.0), 0.0, (14 / 3, 14 / 3, 14 / 3)),
    ],
)
def test_small_slates_are_worth_what_they_are_by_hand(v, q, v0, wanted):
    said = on_rows([v], [q], [v0])[1]
    np.testing.assert_allclose(said[0], wanted, rtol=1e-6)


def test_greedy_can_be_worse_than_top_k():
    said = on_rows([[2, 2, 1, 20]], [[3, 3, -2, 9]], [1.0])[1]
    np.testing.assert_allclose(said[0], (192 / 25, 23 / 3, 192 / 25), rtol=1e-6)


def test_of_equals_the_first_come_first():
    ones = np.ones((1, SMALL), np.float32)
    slates = on_rows(ones, ones, [1.0])[0]
    np.testing.assert_array_equal(slates[0], [[0, 1, 2]] * 3)


def test_items_are_different_whatever_a_diverged_network_says():
    for bad in [np.nan, np.inf, -np.inf]:
        v = np.ones((2, SMALL), np.float32)
        q = np.arange(2 * SMALL, dtype=np.float32).reshape(2, SMALL)
        q[0, 2:7], q[1] = bad, bad
        for slate in on_rows(v, q, [1.0, 1.0])[0].reshape(-1, 3).tolist():
            assert len(set(slate)) == 3 and set(slate) <= set(range(SMALL))


def test_scores_that_have_all_underflowed_make_slates_worth_nothing():
    zeros = np.zeros((1, SMALL), np.float32)
    slates, said = on_rows(zeros, zeros + 1, [0.0])
    np.testing.assert_array_equal(said, [[0.0] * 3])
    assert all(len(set(slate)) == 3 for slate in np.asarray(slates)[0].tolist())


def test_the_gradient_of_an_optimised_value_is_the_chance_of_each_click():
    v, q, v0 = (part[3] for part in cases(SMALL, seed=7))
    slates = on_rows(v[None], q[None], v0[None])[0][0]

    def value(q, name):
        return slate_value(jnp.asarray(v), q, OPTIMISERS.get(name)(jnp.asarray(v), q, 3, v0), v0)

    slopes = jax.jit(lambda q: [jax.grad(value)(q, name) for name in NAMES])(q)
    for slate, slope in zip(slates, slopes, strict=True):
        wanted = np.zeros(SMALL)
        wanted[slate] = v[slate] / (v0 + v[slate].sum())
        np.testing.assert_allclose(slope, wanted, rtol=1e-5)


def test_targets_are_the_values_of_their_slates_and_the_optimal_one_is_the_largest():
    v, q, v0 = cases(SMALL, seed=11)
    shown = np.random.default_rng(0).integers(0, SMALL, (len(v), 1), np.int32)

    def all_of(v, q, v0, shown):
        return jnp.stack([next_value(kind, v, q, v0, 1, shown) for kind in TARGETS])

    values = np.asarray(jax.jit(jax.vmap(all_of))(v, q, v0, shown))
    assert TARGETS == ("sarsa", "greedy", "top-k", "optimal")
    for row in range(len(v)):
        each = worth(v[row], q[row], v0[row], np.arange(SMALL)[:, None])
        largest = np.argmax(v[row] * q[row])
        scale = 1e-5 * (1 + np.abs(q[row]).max())
        wanted = [each[shown[row, 0]], each.max(), each[largest], each.max()]  # slates of one: greedy is optimal
        np.testing.assert_allclose(values[row], wanted, atol=scale)
    assert (values[:, 3] > values[:, 2] + 0.01).any() and (values[:, 3] > values[:, 0] + 0.01).any()


def test_unknown_targets_and_sarsa_without_a_slate_are_refused():
    ones = jnp.ones(3)
    with pytest.raises(UnknownNameError, match="optimal"):
        next_value("optimum", ones, ones, 0.0, 2)
    with pytest.raises(ConfigError, match="sarsa"):
        next_value("sarsa", ones, ones, 0.0, 2)


def test_the_loss_is_hubers():
    from scipy.special import huber as scipy_huber

    error = np.linspace(-6, 6, 49, dtype=np.float32)
    thresholds = (0.5, 1.0, 3.0)

    @jax.jit
    def run(error):
        return [jax.vmap(jax.value_and_grad(lambda e, t=t: huber(e, t)))(error) for t in thresholds]

    for threshold, (loss, slope) in zip(thresholds, run(error), strict=True):
        np.testing.assert_allclose(loss, scipy_huber(threshold, error), rtol=1e-6)
        np.testing.assert_allclose(slope, np.clip(error, -threshold, threshold), rtol=1e-6)
