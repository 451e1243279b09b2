"""Position-based, user browsing and dynamic Bayesian users against sessions told one by one, and against sampling."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from click_patterns import sample_pattern

from fedrank.core.errors import ConfigError
from fedrank.metrics.online import max_rr
from fedrank.ranking.clicks.browsing import attraction, dynamic_bayesian, position_based, satisfaction, user_browsing
from fedrank.ranking.clicks.cascade import (
    USERS,
    CascadeUser,
    cascade,
    decision_tables,
    pattern_probabilities,
)
from fedrank.ranking.evaluate import expected_values
from fedrank.ranking.sessions.kernel import sample_clicks

NAMES = ("near-random", "position-based", "user-browsing", "simplified-dynamic-bayesian", "dynamic-bayesian")


def told(name, labels, grades):
    """P(pattern), each model's own story as its paper tells it, without what the package makes of it."""
    best, probabilities = 2 ** (grades - 1), np.zeros(2 ** len(labels))
    attracts = [0.1 + 0.9 * (2**y - 1) / (best - 1) for y in labels]

    def tell(rank, last, pattern, probability):
        if rank == len(labels):
            probabilities[pattern] += probability
            return
        clicked = pattern | 1 << rank
        if name == "position-based":
            p = attracts[rank] / (rank + 1)
            tell(rank + 1, rank, clicked, probability * p)
            tell(rank + 1, last, pattern, probability * (1 - p))
        elif name == "user-browsing":
            p = attracts[rank] * UBM[rank][rank - last - 1]
            tell(rank + 1, rank, clicked, probability * p)
            tell(rank + 1, last, pattern, probability * (1 - p))
        elif name == "near-random":
            p = {0: 0.4, 1: 0.5, 2: 0.6}[labels[rank]]
            probabilities[clicked] += probability * p / 2
            tell(rank + 1, rank, clicked, probability * p / 2)
            tell(rank + 1, last, pattern, probability * (1 - p))
        else:
            p, s = attracts[rank], (2 ** labels[rank] - 1) / best
            goes_on = 1.0 if name == "simplified-dynamic-bayesian" else 0.9
            probabilities[clicked] += probability * p * (s + (1 - s) * (1 - goes_on))
            tell(rank + 1, rank, clicked, probability * p * (1 - s) * goes_on)
            probabilities[pattern] += probability * (1 - p) * (1 - goes_on)
            tell(rank + 1, last, pattern, probability * (1 - p) * goes_on)

    tell(0, -1, 0, 1.0)
    return probabilities


# Dupret and Piwowarski's table as Ai et al. (2018) publish it, first four ranks.
UBM = [[1.0], [0.98, 1.0], [1.0, 0.62, 0.95], [1.0, 0.77, 0.42, 0.82]]


def shown(labels):
    return jnp.asarray(labels, jnp.int32), jnp.ones(np.shape(labels), bool)


def test_exact_probabilities():
    for name in NAMES:
        user = cascade(name, 3, 4)
        for labels in ([0, 1, 2, 0], [2, 2, 2, 2]):
            expected = told(name, labels, 3)
            got = pattern_probabilities(user, *map(np.asarray, shown(labels)))
            np.testing.assert_allclose(got, expected, atol=2e-7)
            assert expected.sum() == pytest.approx(1)


def test_sampled_frequencies():
    for name in NAMES:
        draws, labels = 60_000, np.array([1, 2, 0, 1], np.int32)
        words = np.random.default_rng(11).integers(0, 2**32, (draws, 4), dtype=np.uint32)
        user = cascade(name, 3, 4)
        patterns = np.asarray(sample_pattern(user, *shown(np.tile(labels, (draws, 1))), jnp.asarray(words)))
        expected = told(name, labels, 3) * draws
        observed = np.bincount(patterns, minlength=16)
        possible = expected > 0
        assert observed[~possible].sum() == 0
        chi_square = ((observed - expected)[possible] ** 2 / expected[possible]).sum()
        degrees = possible.sum() - 1
        assert chi_square < degrees + 5 * math.sqrt(2 * degrees)
        # The kernel decides as the reference does, draw by draw.
        click, leave = (table[0] for table in decision_tables((user,)))
        top = np.arange(4, dtype=np.int32)
        assert [sample_clicks(labels, top, 4, click, leave, w) for w in words[:2000]] == patterns[:2000].tolist()


def test_a_short_list_ends():
    user = dynamic_bayesian(3, 4)
    where = np.array([True, True, False, False])
    got = pattern_probabilities(user, np.array([1, 2, 0, 0]), where)
    np.testing.assert_allclose(got[:4], told("dynamic-bayesian", [1, 2], 3), atol=2e-7)
    assert not got[4:].any()


def test_more_than_ten_results():
    for name in ["navigational", "position-based", "dynamic-bayesian"]:
        depth, metric = 14, max_rr(14)
        labels = np.random.default_rng(4).integers(0, 3, depth).astype(np.int32)
        user, reached, expected = cascade(name, 3, depth), 1.0, 0.0
        for rank, label in enumerate(labels, start=1):  # the first click decides, so nothing after one matters
            looked = 1 / rank if name == "position-based" else 1.0
            expected += reached * looked * user.click[label] / rank
            reached *= (1 - looked * user.click[label]) * (1 - user.abandon)
        found = expected_values(user, metric, labels[None], np.ones((1, depth), bool))
        assert float(found[0]) == pytest.approx(expected, rel=1e-5)
        assert metric.values.tolist() == pytest.approx([0, *(1 / rank for rank in range(depth, 0, -1))])
        words = np.random.default_rng(5).integers(0, 2**32, (300, depth), dtype=np.uint32)
        patterns = sample_pattern(user, *shown(np.tile(labels, (300, 1))), jnp.asarray(words))
        click, leave = (table[0] for table in decision_tables((user,)))
        top = np.arange(depth, dtype=np.int32)
        assert [sample_clicks(labels, top, depth, click, leave, w) for w in words] == np.asarray(patterns).tolist()


def test_scales_of_labels():
    assert attraction(5) == pytest.approx([0.1, 0.16, 0.28, 0.52, 1.0])  # ε + (1 − ε)(2^y − 1)/15
    assert satisfaction(5) == pytest.approx([0, 1 / 16, 3 / 16, 7 / 16, 15 / 16])  # ERR's R
    assert position_based(3, 3, 2.0).examine[2] == pytest.approx((1 / 9,) * 3)
    assert [len(row) for row in user_browsing(3, 12).examine] == list(range(1, 13))
    assert user_browsing(3, 12).examine[11] == pytest.approx(
        (1.0, 1.0, 1.0, 0.96, 0.52, 0.36, 0.27, 0.18, 0.12, 0.12, 0.12, 0.43)
    )


def test_every_number_of_grades():
    for grades in [1, 2, 3, 4, 5]:
        for name in NAMES:
            assert USERS.get(name)(grades, 10).grades >= grades


def test_wrong_users():
    with pytest.raises(ConfigError, match="labels up to 31"):
        attraction(32)
    with pytest.raises(ConfigError, match="needs 2 rows"):
        CascadeUser("odd", (0.5,), (0.0,), 2, examine=((1.0,),))
    with pytest.raises(ConfigError, match=r"must be in \[0, 1\]"):
        CascadeUser("odd", (0.5,), (0.0,), 1, abandon=1.5)
