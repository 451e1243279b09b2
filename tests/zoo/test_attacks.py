"""Attacks against the formulas of the papers, written once more in NumPy; the honest are never touched."""

import math
from dataclasses import replace
from functools import cache, partial
from unittest.mock import create_autospec

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate
from scipy import stats as distributions
from worlds import FEATURES, tiny_protocol

from fedrank.aggregation.robust import AGGREGATORS
from fedrank.core.errors import ConfigError
from fedrank.core.messages import Array, Layout, f4, field, message
from fedrank.core.protocol import Exchange, Protocol
from fedrank.core.rng import perturbation
from fedrank.engine.attackers import ATTACKS, InvertedMetric, draw_attackers
from fedrank.metrics.online import max_rr
from fedrank.ranking.clicks.cascade import cascade, inverted_user
from fedrank.ranking.on_device import PlainReply, Reply, Request
from fedrank_zoo.value_attacks import RandomMetric, TargetedSeeds
from fedrank_zoo.weight_attacks import FangKrum, FangTrimmedMean, Lie, ScaledInverse

N, SIZE = 12, 6
ON_VALUES = ("random-metric", "inverted-metric", "targeted-seeds")
ON_WEIGHTS = ("lie", "fang-trimmed-mean", "fang-krum", "scaled-inverse")


@message(kind=1)
class Weights:
    """A question and an answer of federated averaging."""

    weights: Array = field(f4["parameters"], "a model")


LAYOUT = Layout(Weights, parameters=SIZE)

#: Of federated averaging, an attack looks at what a reply is and at nothing else.
AVERAGING = create_autospec(
    Protocol, instance=True, exchanges=(create_autospec(Exchange, instance=True, request=LAYOUT, reply=LAYOUT),)
)


def es_messages(antithetic=True, parties=N, features=FEATURES, **settings):
    protocol = tiny_protocol(antithetic=antithetic, **settings)
    random = np.random.default_rng(1)
    largest = protocol.per_half * protocol.metric.largest
    plus, minus = jnp.asarray(random.integers(0, largest + 1, (2, parties)), jnp.int32)
    seeds = jnp.asarray(random.integers(0, 2**32, parties), jnp.uint32)
    request = Request(jnp.uint32(3), jnp.asarray(random.normal(size=features), jnp.float32))
    return protocol, request, Reply(seeds, plus, minus) if antithetic else PlainReply(seeds, plus)


def weight_messages(seed=0, parties=N, spread=0.1):
    random = np.random.default_rng(seed)
    start = random.normal(size=SIZE).astype(np.float32)
    replies = start + random.normal(0.05, spread, (parties, SIZE)).astype(np.float32)
    return AVERAGING, Weights(jnp.asarray(start)), Weights(jnp.asarray(replies))


@cache  # one protocol, one compilation
def messages(name):
    return es_messages() if name in ON_VALUES else weight_messages()


@partial(jax.jit, static_argnums=(0, 1))
def jitted(attack, protocol, key, request, replies, attacking):
    return attack.tamper(key, request, replies, attacking, protocol)


def tamper(attack, protocol, request, replies, attacking, seed=0):
    return jitted(attack, protocol, jax.random.key(seed), request, replies, jnp.asarray(attacking))


def mask(*attacking):
    return np.isin(np.arange(N), attacking)


def test_every_attack_is_registered():
    assert sorted(ATTACKS.names()) == sorted(ON_VALUES + ON_WEIGHTS)


def test_attacks_know_what_they_work_on():
    for name in ON_VALUES + ON_WEIGHTS:
        attack = ATTACKS.get(name)
        assert (
            attack.works_on(tiny_protocol()) == attack.works_on(tiny_protocol(antithetic=False)) == (name in ON_VALUES)
        )
        assert attack.works_on(AVERAGING) == (name in ON_WEIGHTS)


@pytest.mark.parametrize("name", ON_VALUES + ON_WEIGHTS)
@pytest.mark.parametrize("attacking", [(), (5,), (0, 3, 11), tuple(range(N))])
def test_only_attackers_change_replies_and_what_they_send_can_be_sent(name, attacking):
    protocol, request, replies = messages(name)
    sent = tamper(ATTACKS.get(name)(), protocol, request, replies, mask(*attacking))
    honest = ~mask(*attacking)
    for before, after in zip(jax.tree.leaves(replies), jax.tree.leaves(sent), strict=True):
        assert before.dtype == after.dtype and before.shape == after.shape
        assert np.asarray(before)[honest].tobytes() == np.asarray(after)[honest].tobytes()
    for party in range(N):
        protocol.exchanges[0].reply.encode(jax.tree.map(lambda leaf, party=party: leaf[party], sent))


@pytest.mark.parametrize("name", ON_VALUES + ON_WEIGHTS)
def test_runs_are_mapped(name):
    protocol, request, replies = messages(name)
    attack, attacking = ATTACKS.get(name)(), jnp.asarray(mask(1, 4, 5, 9))
    keys = jax.vmap(jax.random.key)(jnp.arange(3))
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), (request, replies))
    mapped = jax.jit(jax.vmap(lambda k, q, r: attack.tamper(k, q, r, attacking, protocol)))(keys, *batch)
    for run in range(3):
        alone = jitted(attack, protocol, keys[run], request, replies, attacking)
        for one, all_ in zip(jax.tree.leaves(alone), jax.tree.leaves(mapped), strict=True):
            np.testing.assert_allclose(all_[run], one, rtol=1e-5, atol=1e-6)


# Seeds and bounded sums


def test_random_values_are_uniform():
    """20,000 false values on 0 .. largest: mean and variance of the discrete uniform within 5 standard errors."""
    protocol, request, replies = es_messages(parties=20_000)
    largest = protocol.per_half * protocol.metric.largest
    sent = tamper(RandomMetric(), protocol, request, replies, np.ones(20_000, bool))
    for sums in (sent.plus, sent.minus):
        share = np.asarray(sums) / largest
        assert 0 <= share.min() < 0.001 and 0.999 < share.max() <= 1
        assert abs(share.mean() - 0.5) < 5 / math.sqrt(12 * 20_000)
        assert abs(share.var() - 1 / 12) < 5 * math.sqrt((1 / 80 - 1 / 144) / 20_000)
    assert abs(np.corrcoef(sent.plus, sent.minus)[0, 1]) < 5 / math.sqrt(20_000)


def test_random_values_reach_both_ends():
    """One interaction with the first rank alone: a sum is 0 or 1."""
    _, request, replies = es_messages(parties=2000)
    protocol = tiny_protocol()
    protocol = replace(protocol, user=cascade("navigational", depth=1), metric=max_rr(1), interactions=2)
    sent = tamper(RandomMetric(), protocol, request, replies, np.ones(2000, bool))
    assert set(np.unique(sent.plus)) == {0, 1} and abs(np.mean(sent.plus) - 0.5) < 5 * 0.5 / math.sqrt(2000)


@pytest.mark.parametrize("antithetic", [True, False])
def test_inverted_values(antithetic):
    protocol, request, replies = es_messages(antithetic)
    largest = protocol.per_half * protocol.metric.scale  # MaxRR of 1 in all interactions
    sent = tamper(InvertedMetric(), protocol, request, replies, mask(2, 7))
    for party in (2, 7):
        assert sent.plus[party] == largest - replies.plus[party]
        if antithetic:
            assert sent.plus[party] - sent.minus[party] == replies.minus[party] - replies.plus[party]
    assert (sent.seed == replies.seed).all()


def expected_largest_cosine(n, searched):
    """E of the largest of S cosines: a random direction's cosine t has density ∝ (1 − t²)^((n − 3)/2)."""
    cosine = distributions.beta((n - 1) / 2, (n - 1) / 2, loc=-1, scale=2)
    below, _ = integrate.quad(lambda t: cosine.cdf(t) ** searched, -1, 1, limit=200)
    return 1 - below  # E = upper end − ∫ F^S


@pytest.mark.parametrize("searched", [1, 8, 64])
def test_seeds_are_as_good_as_a_search_can_make_them(searched):
    parties, features = 400, 46
    protocol, request, replies = es_messages(parties=parties, features=features)
    attack = TargetedSeeds(searched)
    sent = tamper(attack, protocol, request, replies, np.ones(parties, bool))
    v = np.stack([perturbation(seed, features) for seed in sent.seed.tolist()])
    target = perturbation(attack.target_seed, features)
    cosines = v @ target / np.linalg.norm(v, axis=1) / np.linalg.norm(target)
    assert abs(cosines.mean() - expected_largest_cosine(features, searched)) < 5 * cosines.std() / math.sqrt(parties)
    assert len(np.unique(sent.seed)) == parties
    largest = protocol.per_half * protocol.metric.largest
    assert (sent.plus == largest).all() and (sent.minus == 0).all()


def test_reverse_target_points_back():
    protocol, request, replies = es_messages(parties=100)
    sent = tamper(TargetedSeeds(32, "reverse"), protocol, request, replies, np.ones(100, bool))
    inner = [perturbation(seed, FEATURES) @ np.asarray(request.weights) for seed in sent.seed.tolist()]
    assert max(inner) < 0
    nowhere = Request(request.round, jnp.zeros(FEATURES))
    sent = tamper(TargetedSeeds(4, "reverse"), protocol, nowhere, replies, np.ones(100, bool))
    assert len(np.unique(sent.seed)) == 100


def test_targeted_seeds_without_halves():
    protocol, request, replies = es_messages(antithetic=False)
    sent = tamper(TargetedSeeds(4), protocol, request, replies, mask(3))
    assert sent.plus[3] == protocol.per_half * protocol.metric.largest and sent.seed[3] != replies.seed[3]


# Weights


def test_a_little_is_enough():
    for attacking in [(1, 4), (0, 3, 5, 7), tuple(range(5)), tuple(range(8))]:
        protocol, request, replies = weight_messages()
        own = np.asarray(replies.weights, float)[list(attacking)]
        s = N // 2 + 1 - len(attacking)
        z = distributions.norm.ppf(min((N - len(attacking) - s) / (N - len(attacking)), 1 - 1e-6))
        sent = tamper(Lie(), protocol, request, replies, mask(*attacking))
        np.testing.assert_allclose(
            np.asarray(sent.weights)[list(attacking)], [own.mean(0) - z * own.std(0)] * len(attacking), atol=2e-5
        )
        sent = tamper(Lie(z=1.5), protocol, request, replies, mask(*attacking))
        np.testing.assert_allclose(sent.weights[attacking[0]], own.mean(0) - 1.5 * own.std(0), atol=1e-6)


def test_shift_of_a_little():
    """n = 50, m = 24: s = 2 and z = Φ⁻¹(24/26)."""
    shift = Lie().shift(jnp.asarray(draw_attackers(50, 0.48, seed=0)))
    assert float(shift) == pytest.approx(distributions.norm.ppf(24 / 26), rel=1e-5)


def test_one_who_lies_a_little_sends_the_truth():
    protocol, request, replies = weight_messages()
    sent = tamper(Lie(), protocol, request, replies, mask(6))
    np.testing.assert_array_equal(sent.weights, replies.weights)


def test_fang_against_the_trimmed_mean():
    """Each number of each attacker lies 3 to 4 standard deviations on the far side of their mean, and all over it."""
    protocol, request, replies = weight_messages(spread=0.3)
    attacking = [0, 2, 3, 8, 10]
    own, start = np.asarray(replies.weights, float)[attacking], np.asarray(request.weights, float)
    away = []
    for seed in range(40):
        sent = tamper(FangTrimmedMean(), protocol, request, replies, mask(*attacking), seed)
        moved = (np.asarray(sent.weights, float)[attacking] - own.mean(0)) / own.std(0)
        away.append(moved * -np.where(own.mean(0) > start, 1, -1))
    assert {1, -1} == set(np.where(own.mean(0) > start, 1, -1)), "both directions are tested"
    away = np.array(away)
    assert away.min() >= 3 - 1e-4 and away.max() <= 4 + 1e-4
    assert abs(away.mean() - 3.5) < 5 / math.sqrt(12 * away.size)
    assert away.std(axis=1).min() > 0.01, "attackers draw by themselves"


def krum_picks_first(vectors, byzantine):
    squared = ((vectors[:, None] - vectors[None]) ** 2).sum(-1)
    k = len(vectors)
    neighbours = min(max(k - byzantine - 2, 1), k - 1)
    scores = np.sort(squared + np.diag([np.inf] * k), axis=1)[:, :neighbours].sum(1)
    return np.argmin(scores) == 0 or np.isclose(scores[0], scores.min(), rtol=1e-6)


def fang_step(start, own, threshold):
    """λ by the paper's procedure: copies are laid side by side and Krum is played."""
    c, n = own.shape
    direction = np.where(own.mean(0) > start, 1.0, -1.0)
    neighbours = max(c - 2, 1)
    squared = ((own[:, None] - own[None]) ** 2).sum(-1) + np.diag([np.inf] * c)
    least = np.sort(squared, axis=1)[:, : min(neighbours, c - 1)].sum(1).min()
    bound = (math.sqrt(least / neighbours) + np.linalg.norm(own - start, axis=1).max()) / math.sqrt(n)
    for copies in range(1, c + 1):
        step = bound
        while step >= threshold:
            crafted = start - step * direction
            if krum_picks_first(np.concatenate([[crafted] * copies, own]), copies):
                return step, copies
            step /= 2
    raise AssertionError("as many copies as attackers always suffice")


def test_fang_against_krum():
    found = set()
    for seed in range(30):
        c, threshold = seed % 6 + 1, (1e-5, 0.02)[seed % 2]
        protocol, request, replies = weight_messages(seed, spread=(0.02, 0.3)[seed % 4 // 2])
        own, start = np.asarray(replies.weights, float)[:c], np.asarray(request.weights, float)
        step, copies = fang_step(start, own, threshold)
        found.add(copies)
        sent = np.asarray(tamper(FangKrum(0.05, threshold), protocol, request, replies, np.arange(N) < c).weights)
        crafted = start - step * np.where(own.mean(0) > start, 1.0, -1.0)
        np.testing.assert_allclose(sent[0], crafted, rtol=1e-4, atol=1e-5)
        apart = np.linalg.norm(sent[1:c] - sent[0], axis=1)
        assert (apart <= 0.05 + 1e-5).all() and (c == 1 or apart.min() > 0)
    assert len(found) > 1, "the search for more copies is tested"


def test_no_step_beyond_the_bound_is_picked():
    """What the bound is for: with one copy, no larger λ passes Krum."""
    for seed in range(20):
        c = 3 + seed % 5
        _, request, replies = weight_messages(seed, spread=(0.02, 0.3)[seed % 2])
        own, start = np.asarray(replies.weights, float)[:c], np.asarray(request.weights, float)
        direction = np.where(own.mean(0) > start, 1.0, -1.0)
        squared = ((own[:, None] - own[None]) ** 2).sum(-1) + np.diag([np.inf] * c)
        least = np.sort(squared, axis=1)[:, : c - 2].sum(1).min()
        bound = (math.sqrt(least / (c - 2)) + np.linalg.norm(own - start, axis=1).max()) / math.sqrt(SIZE)
        for factor in (1.001, 1.1, 2, 10):
            crafted = start - factor * bound * direction
            assert not krum_picks_first(np.concatenate([[crafted], own]), 1)


def test_fang_makes_krum_go_back():
    """Against the server's own Krum and the spread of updates that noise brings: it picks a lie, which goes back."""
    krum, backwards = AGGREGATORS.get("krum"), 0
    for seed in range(10):
        protocol, request, replies = weight_messages(seed, spread=0.3)
        attacking = mask(1, 2, 6, 8)
        sent = tamper(FangKrum(), protocol, request, replies, attacking)
        model = np.asarray(krum(sent.weights, jnp.ones(N), jnp.ones(N, bool), 4))
        picked = [party for party in range(N) if (model == np.asarray(sent.weights[party])).all()]
        going = np.sign(np.asarray(replies.weights)[attacking].mean(0) - np.asarray(request.weights))
        backwards += attacking[picked[0]] and ((model - np.asarray(request.weights)) * going < 0).all()
    assert backwards >= 8


def test_search_ends_where_weights_are_no_numbers():
    for wrong in (np.nan, np.inf):
        own = jnp.full((3, 2), wrong, jnp.float32)
        FangKrum().step(jnp.zeros(2), own, jnp.ones(3, bool)).block_until_ready()


def test_scaled_inverse():
    protocol, request, replies = weight_messages()
    start, honest = (np.asarray(m.weights, float) for m in (request, replies))
    sent = np.asarray(tamper(ScaledInverse(noise=0.0), protocol, request, replies, np.ones(N, bool)).weights)
    factors = (sent - start) / (honest - start)
    np.testing.assert_allclose(factors, np.broadcast_to(factors[:, :1], factors.shape), rtol=1e-3)
    assert -4.001 <= factors.min() < -2.8 and -3.2 < factors.max() <= -1.999
    noise = []
    for seed in range(200):
        noisy = np.asarray(tamper(ScaledInverse(0.5), protocol, request, replies, np.ones(N, bool), seed).weights)
        calm = np.asarray(tamper(ScaledInverse(0.0), protocol, request, replies, np.ones(N, bool), seed).weights)
        noise.append((noisy - calm) / np.sqrt(((honest - start) ** 2).mean(1, keepdims=True)))
    size = np.size(noise)
    assert abs(np.mean(noise)) < 5 * 0.5 / math.sqrt(size)
    assert np.std(noise) == pytest.approx(0.5, rel=5 / math.sqrt(2 * size))


# Who attacks, and with which clicks


def test_number_of_attackers():
    for parties, share, number in [(10, 0, 0), (10, 0.05, 1), (10, 0.39, 3), (100, 0.29, 29)]:
        attacking = draw_attackers(parties, share, seed=4)
        assert attacking.dtype == bool and attacking.shape == (parties,) and attacking.sum() == number
        assert (attacking == draw_attackers(parties, share, seed=4)).all()
        assert draw_attackers(parties, 1, 0).all()


def test_everyone_attacks_equally_often():
    often = sum(draw_attackers(10, 0.3, seed).astype(int) for seed in range(2000))
    assert np.abs(often - 600).max() < 5 * math.sqrt(2000 * 0.3 * 0.7)


def test_inverted_user():
    """P(click) of the poisoned perfect user is 1, 0.5, 0; the others' is turned round as well, and only that."""
    assert inverted_user(cascade("perfect")).click == (1.0, 0.5, 0.0)
    user = inverted_user(cascade("navigational", grades=5, depth=7))
    assert user.click == (0.95, 0.7, 0.5, 0.3, 0.05)
    assert user.stop == (0.2, 0.3, 0.5, 0.7, 0.9) and user.depth == 7 and user.name == "inverted navigational"
    assert inverted_user(inverted_user(cascade("informational"))).click == cascade("informational").click


def test_settings_out_of_range_are_refused():
    for make in [
        lambda: draw_attackers(0, 0.1, 0),
        lambda: draw_attackers(5, 1.1, 0),
        lambda: draw_attackers(5, -0.1, 0),
        lambda: TargetedSeeds(0),
        lambda: TargetedSeeds(target="up"),
        lambda: TargetedSeeds(target_seed=-1),
        lambda: FangKrum(radius=-1.0),
        lambda: FangKrum(threshold=0.0),
        lambda: ScaledInverse(-1.0),
    ]:
        with pytest.raises(ConfigError, match="got"):
            make()
