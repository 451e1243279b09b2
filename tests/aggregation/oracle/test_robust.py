"""Robust aggregation against its definitions, spelled out in NumPy for whoever is heard."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedrank.aggregation import differences as es
from fedrank.aggregation.robust import AGGREGATORS, check, fewest, krum_scores
from fedrank.core.errors import ConfigError, UnknownNameError

PARTIES, SIZE = 9, 4
COMPILED = {entry.name: jax.jit(entry.obj, static_argnums=3) for entry in AGGREGATORS}


def aggregate(name, vectors, arrived=None, byzantine=1, weights=None):
    vectors = np.asarray(vectors, np.float32)
    arrived = np.ones(len(vectors), bool) if arrived is None else np.asarray(arrived, bool)
    weights = np.ones(len(vectors)) if weights is None else weights
    arguments = (jnp.asarray(vectors), jnp.asarray(weights, jnp.float32), jnp.asarray(arrived))
    return np.asarray(COMPILED[name](*arguments, byzantine))


def vectors_of(seed, parties=PARTIES):
    return np.random.default_rng(seed).normal(size=(parties, SIZE)).astype(np.float32)


def scores_by_definition(vectors, byzantine):
    """The least sum of squared distances to any k − f − 2 others, over all choices of so many."""
    k = len(vectors)
    squared = ((vectors[:, None].astype(float) - vectors[None].astype(float)) ** 2).sum(-1)
    neighbours = min(max(k - byzantine - 2, 1), k - 1)
    return np.array(
        [
            min(
                sum(squared[i, j] for j in chosen)
                for chosen in itertools.combinations([j for j in range(k) if j != i], neighbours)
            )
            for i in range(k)
        ]
    )


def by_definition(name, vectors, byzantine, weights):
    k = len(vectors)
    if name == "mean":
        return np.average(vectors, axis=0, weights=weights)
    if name == "median":
        return np.median(vectors, axis=0)
    if name == "trimmed-mean":
        return stats.trim_mean(vectors, min(byzantine, (k - 1) // 2) / k, axis=0)
    best = np.argsort(scores_by_definition(vectors, byzantine), kind="stable")
    return vectors[best[: 1 if name == "krum" else max(k - byzantine, 1)]].mean(axis=0)


@pytest.mark.parametrize("name", AGGREGATORS.names())
@given(st.integers(0, 10_000), st.integers(0, 3), st.lists(st.booleans(), min_size=PARTIES, max_size=PARTIES))
@settings(max_examples=30, deadline=None)
def test_definition_among_those_who_arrived(name, seed, byzantine, arrived):
    vectors, weights = vectors_of(seed), np.random.default_rng(seed + 1).uniform(0.1, 2, PARTIES)
    got = aggregate(name, vectors, arrived, byzantine, weights)
    if not any(arrived):
        assert not got.any()
    else:
        expected = by_definition(name, vectors[arrived], byzantine, weights[arrived])
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_who_is_absent_does_not_matter():
    """The call without a party's row is the same, whatever stood in it."""
    for name in AGGREGATORS.names():
        vectors, arrived = vectors_of(1), np.array([1, 1, 0, 1, 1, 1, 0, 1, 1], bool)
        expected = aggregate(name, vectors[arrived])
        for anything in (0.0, 1e6, np.nan, np.inf):
            vectors[~arrived] = anything
            np.testing.assert_allclose(aggregate(name, vectors, arrived), expected, rtol=1e-6)


def test_five_points_on_a_line():
    """0, 1, 2, 10, 11 and one attacker: two neighbours each, scores 5, 2, 5, 65, 82."""
    for name, expected in [
        ("mean", 4.8),
        ("krum", 1.0),
        ("multi-krum", 3.25),
        ("trimmed-mean", 13 / 3),
        ("median", 2.0),
    ]:
        points = np.array([[0.0], [1.0], [2.0], [10.0], [11.0]])
        assert aggregate(name, points) == pytest.approx([expected])
        scores = program(krum_scores, 1)(jnp.asarray(points, jnp.float32), jnp.ones(5, bool))
        assert scores.tolist() == [5.0, 2.0, 5.0, 65.0, 82.0]


def test_order_of_parties_does_not_matter():
    for name in AGGREGATORS.names():
        vectors, order = vectors_of(2), np.random.default_rng(0).permutation(PARTIES)
        np.testing.assert_allclose(aggregate(name, vectors[order]), aggregate(name, vectors), rtol=1e-6, atol=1e-7)


def test_one_outlier():
    for lie in [1e6, 3e38]:
        for name in AGGREGATORS.names():
            vectors = vectors_of(3)
            honest = np.abs(vectors[1:]).max()
            vectors[0] = lie
            got = aggregate(name, vectors)
            if name == "mean":
                np.testing.assert_allclose(got, lie / PARTIES, rtol=1e-4)
            else:
                assert np.abs(got).max() <= honest


@pytest.mark.parametrize("name", ["median", "trimmed-mean"])
@given(st.integers(0, 10_000), st.integers(0, 4))
@settings(max_examples=40, deadline=None)
def test_coordinates_stay_among_the_honest(name, seed, byzantine):
    """With at most f attackers of 2f + 1 or more, every coordinate lies between two honest values."""
    random = np.random.default_rng(seed)
    vectors = vectors_of(seed)
    honest = vectors[byzantine:].copy()
    vectors[:byzantine] = random.normal(size=(byzantine, SIZE)) * 10.0 ** random.integers(-3, 9, (byzantine, 1))
    got = aggregate(name, random.permutation(vectors), byzantine=byzantine)
    assert (got >= honest.min(0) - 1e-6).all() and (got <= honest.max(0) + 1e-6).all()


@pytest.mark.parametrize("name", AGGREGATORS.names())
def test_alone_and_nobody(name):
    alone = np.array([[3.0, -1.0, 0.5, 2.0]])
    for byzantine in (0, 2):
        np.testing.assert_array_equal(aggregate(name, alone, byzantine=byzantine)[None], alone)
    assert not aggregate(name, alone, [False]).any()


def test_only_the_mean_looks_at_weights():
    for name in AGGREGATORS.names():
        vectors, weights = vectors_of(4), np.arange(PARTIES)
        same = np.array_equal(aggregate(name, vectors), aggregate(name, vectors, weights=weights))
        assert same == (name != "mean")


def test_mean_of_no_weight_is_zero():
    assert not aggregate("mean", vectors_of(0), weights=np.zeros(PARTIES)).any()


def test_what_is_not_finite_is_left_out():
    for name in AGGREGATORS.names():
        vectors = vectors_of(5)
        expected = aggregate(name, vectors[2:])
        vectors[0, 1], vectors[1, 2] = np.nan, -np.inf
        np.testing.assert_allclose(aggregate(name, vectors), expected, rtol=1e-6, atol=1e-7)


def test_of_equal_scores_the_lowest_party_wins():
    """Each of three points has its nearest neighbour at distance 1."""
    assert aggregate("krum", [[0.0], [1.0], [2.0]], byzantine=0) == [0.0]
    assert aggregate("krum", [[2.0], [1.0], [0.0]], byzantine=0) == [2.0]
    # Two pairs, all scores alike; two of four are taken.
    assert aggregate("multi-krum", [[9.0], [0.0], [1.0], [8.0]], byzantine=2) == [4.5]
    # Whoever was not heard comes last, even where squares overflow.
    assert aggregate("krum", [[0.0], [3e38], [-3e38]], [False, True, True], byzantine=0) == np.float32(3e38)


def test_close_vectors_far_from_zero_keep_their_digits():
    """Inner products of such vectors cancel to noise: 1e3² · 2⁻²⁴ is as large as their squared distances."""
    vectors = 1e3 + vectors_of(6) * 0.1
    scores = program(krum_scores, 2)(jnp.asarray(vectors), jnp.ones(PARTIES, bool))
    np.testing.assert_allclose(scores, scores_by_definition(vectors, 2), rtol=1e-5)


@pytest.mark.parametrize("name", AGGREGATORS.names())
def test_runs_are_mapped(name):
    """A map over runs with other vectors and other arrivals is as good as a loop."""
    vectors = np.stack([vectors_of(seed) for seed in range(3)])
    arrived = np.random.default_rng(0).random((3, PARTIES)) < 0.8
    rule = AGGREGATORS.get(name)
    mapped = jax.jit(jax.vmap(lambda v, a: rule(v, jnp.ones(PARTIES), a, 1)))(vectors, arrived)
    for run in range(3):
        np.testing.assert_allclose(mapped[run], aggregate(name, vectors[run], arrived[run]), rtol=1e-6, atol=1e-7)


def test_too_few_parties_are_refused():
    for name, byzantine, least in [
        ("mean", 5, 1),
        ("krum", 2, 7),
        ("multi-krum", 0, 3),
        ("trimmed-mean", 2, 5),
        ("median", 3, 7),
    ]:
        assert fewest(name, byzantine) == least
        check(name, least, byzantine)
        with pytest.raises(ConfigError, match=f"at least {least} parties, got {least - 1}"):
            check(name, least - 1, byzantine)


def test_unknown_rules_and_negative_numbers_are_refused():
    with pytest.raises(UnknownNameError, match="'krum'"):
        check("kurm", 10, 1)
    with pytest.raises(ConfigError, match="at least 0, got -1"):
        check("median", 10, -1)


# Differences of evolution strategies


def heard(seed, parties=11):
    random = np.random.default_rng(seed)
    return random.uniform(-1, 1, parties).astype(np.float32), random.random(parties) < 0.7


@functools.cache
def program(function, *setting):
    """One program: much quicker to compile than its operations one by one."""
    return jax.jit(lambda *arrays: function(*arrays, *setting))


def apply(function, d, arrived, *setting):
    return np.asarray(program(function, *setting)(jnp.asarray(d, jnp.float32), jnp.asarray(arrived)))


def test_coefficients():
    for seed in range(4):
        d, arrived = heard(seed)
        n = arrived.sum()
        np.testing.assert_allclose(apply(es.mean, d, arrived), np.where(arrived, d, 0) / n, rtol=1e-6)
        np.testing.assert_allclose(
            apply(es.clip, d, arrived, 0.3), np.where(arrived, np.clip(d, -0.3, 0.3), 0) / n, rtol=1e-6
        )
        for quantile in (0.1, 0.5, 0.75, 1.0):
            bound = np.quantile(np.abs(d[arrived]), quantile, method="inverted_cdf")
            np.testing.assert_allclose(
                apply(es.clip_at_quantile, d, arrived, quantile),
                np.where(arrived, np.clip(d, -bound, bound), 0) / n,
                rtol=1e-6,
            )


def test_a_whole_number_of_messages_is_not_rounded_up():
    for quantile in [0.05, 0.3, 0.5, 0.9, 0.95]:
        for parties in [1, 4, 10, 100, 1000, 20_000]:
            sizes = np.arange(1, parties + 1, dtype=np.float32)
            largest = apply(es.clip_at_quantile, sizes, np.ones(parties, bool), quantile).max() * parties
            expected = next(i for i in range(1, parties + 1) if 100 * i >= round(100 * quantile) * parties)
            assert largest == pytest.approx(expected, rel=1e-6)


def test_nobody_heard_gives_nothing():
    for function in [es.mean, es.clip, es.clip_at_quantile, es.group_means]:
        setting = () if function is es.mean else (1,)
        assert not apply(function, np.ones(5), np.zeros(5, bool), *setting).any()


def test_groups_are_dealt_to_those_who_arrived():
    for groups in [1, 2, 3, 7]:
        d, arrived = heard(5)
        present = np.flatnonzero(arrived)
        expected = np.zeros((groups, len(d)))
        for group in range(groups):
            members = present[group::groups]
            expected[group, members] = d[members] / max(len(members), 1)
        np.testing.assert_allclose(apply(es.group_means, d, arrived, groups), expected, rtol=1e-6)


def test_median_of_means_leaves_empty_groups_out():
    gradients = np.array([[1.0, 5.0], [3.0, -1.0], [0.0, 0.0]], np.float32)
    assert es.median_of_means(jnp.asarray(gradients)).tolist() == [1.0, 0.0]
    some = jnp.array([True, True, False])
    assert es.median_of_means(jnp.asarray(gradients), some).tolist() == [2.0, 2.0]
    assert es.median_of_means(jnp.asarray(gradients), jnp.zeros(3, bool)).tolist() == [0.0, 0.0]


def test_median_of_means_holds_against_fewer_attackers_than_half_the_groups():
    random = np.random.default_rng(0)
    v, d = random.normal(size=(35, 3)), random.uniform(-1, 1, 35)
    honest = apply(es.group_means, d, np.ones(35, bool), 7) @ v
    d[[3, 10, 18]] = 1e6  # party 10 shares the group of party 3: two of seven groups are spoilt
    lied = apply(es.group_means, d, np.ones(35, bool), 7) @ v
    got = es.median_of_means(jnp.asarray(lied, jnp.float32))
    assert (got >= honest.min(0) - 1e-6).all() and (got <= honest.max(0) + 1e-6).all()
    assert np.abs(lied.mean(0)).max() > 1e3


def test_range():
    plus, minus = np.array([0, 10, 11, 5, -1, 5]), np.array([10, 0, 0, 11, 3, -1])
    fits = es.in_range(jnp.asarray(plus), jnp.asarray(minus), 10)
    assert fits.tolist() == [True, True, False, False, False, False]
    assert es.in_range(jnp.asarray(plus), None, 10).tolist() == [True, True, False, True, False, True]


def test_settings_out_of_range_are_refused():
    for function, setting in [
        (es.clip, 0.0),
        (es.clip, float("nan")),
        (es.clip_at_quantile, 0.0),
        (es.clip_at_quantile, 1.1),
        (es.group_means, 0),
        (es.group_means, 6),
    ]:
        with pytest.raises(ConfigError, match="got"):
            apply(function, np.ones(5), np.ones(5, bool), setting)


def test_every_defence_has_a_name():
    assert es.ES_DEFENCES.names() == ["mean", "clip", "clip-quantile", "median-of-means"]
