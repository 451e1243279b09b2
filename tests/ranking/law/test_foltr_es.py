"""Laws of the protocol: what must hold whatever the data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import FEATURES, tiny_parties, tiny_protocol, tiny_queries

from fedrank.core.protocol import Party
from fedrank.core.rng import party_key, perturbation
from fedrank.privacy.piecewise import Piecewise
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.on_device import PlainReply, Reply

MESSAGES = 40_000


def messages(protocol, queries, count, key=0):
    """Replies of ``count`` devices to the first request, and their perturbations."""
    parties = tiny_parties(protocol, count, queries)
    (exchange,) = protocol.exchanges
    request = exchange.ask(protocol.init(jax.random.key(0)))

    @jax.jit
    def ask(own, numbers):
        def one(own, number):
            return exchange.answer(request, Party(parties.shared, own), party_key(jax.random.key(key), 0, number))[1]

        return jax.vmap(one)(own, numbers)

    return jax.tree.map(np.asarray, ask(parties.own, jnp.arange(count, dtype=jnp.uint32)))


def all_labels_equal(features=46):
    base = tiny_queries(features=features, queries=40)
    return QuerySet(base.features, np.ones(base.n_documents), base.offsets, base.qids)


def mean_squared_t(noise, difference):
    """Mean over coordinates of the squared t statistic of corr(noise_j, difference): 1 without correlation."""
    n = len(difference)
    r = (noise - noise.mean(0)).T @ (difference - difference.mean()) / (n * noise.std(0) * difference.std())
    return float(np.mean(n * r**2 / (1 - r**2)))


def test_noise_and_reward_are_unrelated_where_the_ranking_cannot_matter():
    """All labels equal: the true gradient is zero, so is every correlation. The stream's fault would show here."""
    from dataclasses import replace

    from fedrank.ranking.rankers.linear import Linear

    protocol = replace(tiny_protocol(), ranker=Linear(46))
    reply = messages(protocol, all_labels_equal(), MESSAGES)
    noise = np.stack([perturbation(int(s), 46) for s in reply.seed])
    # 46 squared t statistics: their mean is 1 ± 0.21; five standard errors.
    assert mean_squared_t(noise, (reply.plus - reply.minus).astype(float)) < 2.05


@pytest.mark.parametrize(
    ("settings", "nbytes"),
    [
        ({"p": 0.5}, 9),
        ({"p": 1.0, "mechanism": "piecewise", "piecewise": Piecewise(1.0), "interleaved": True}, 6),
        ({"p": 1.0, "interleaved": True, "interactions": 1}, 9),
    ],
)
def test_a_real_devices_chance_is_the_operating_systems(settings, nbytes, monkeypatch):
    """The same answer with words of the operating system, each word used once."""
    protocol = tiny_protocol(**settings)
    (exchange,) = protocol.exchanges
    parties = tiny_parties(protocol, 1)
    me = Party(parties.shared, jax.tree.map(lambda leaf: leaf[0], parties.own))
    request = exchange.ask(protocol.init(jax.random.key(0)))
    first, second = exchange.draw_from_os(), exchange.draw_from_os()
    assert int(first.seed) != int(second.seed)
    assert not np.array_equal(first.privacy, second.privacy)
    _, reply = exchange.respond(request, me, first)
    assert len(exchange.reply.encode(reply)) == nbytes and int(reply.seed) == int(first.seed)
    # os.urandom is asked for as many bytes as there are words, and no word serves two purposes.
    asked = []
    monkeypatch.setattr("os.urandom", lambda n: asked.append(n) or np.arange(n // 4, dtype=np.uint32).tobytes())
    drawn = exchange.draw_from_os()
    fields = {name: field for name, field in drawn._asdict().items() if name != "noise" and field is not None}
    words = np.concatenate([np.ravel(field) for field in fields.values()])
    assert asked == [4 * len(words)] and sorted(words.tolist()) == list(range(len(words)))


def test_seeds_of_devices_and_rounds_differ():
    protocol = tiny_protocol()
    first, second = (messages(protocol, tiny_queries(), 2000, key).seed for key in (0, 1))
    assert len(np.unique(first)) > 1998  # a chance collision of 32-bit numbers is rare, not impossible
    assert not np.intersect1d(first, second).size > 2


def heard(parties):
    return jnp.ones(parties, bool)


def test_a_round_climbs():
    """The mean gradient points to where the reward grows: feature 0 and 1 make labels, the others do not."""
    protocol = tiny_protocol(sigma=0.3)
    (exchange,) = protocol.exchanges
    state = protocol.init(jax.random.key(0))
    reply = messages(protocol, tiny_queries(queries=60), MESSAGES)
    weights = np.asarray(
        exchange.tell(state, Reply(*map(jnp.asarray, (reply.seed, reply.plus, reply.minus))), heard(MESSAGES)).weights
    )
    assert weights[0] > 0 and weights[1] > 0


def gradients(protocol, replies, size):
    """Each message's own gradient estimate, from the paper's equation (6)."""
    noise = np.stack([perturbation(int(s), size) for s in replies.seed]).astype(float)
    unit = protocol.per_half * protocol.metric.scale
    if protocol.shown.halves == 2:
        return noise * ((replies.plus - replies.minus) / (2 * protocol.sigma * unit))[:, None]
    return noise * (replies.plus / (protocol.sigma * unit))[:, None]


def test_antithetic_halves_lower_the_variance():
    variance = {}
    for antithetic in (True, False):
        protocol = tiny_protocol(antithetic=antithetic, sigma=0.1)
        found = gradients(protocol, messages(protocol, tiny_queries(), 4000), FEATURES)
        variance[antithetic] = found.var(axis=0).mean()
    # Equal budget of interactions. E|m|² against Var(m⁺ − m⁻)/4: with MaxRR around a half, at least a factor of two.
    assert variance[True] < variance[False] / 2


@pytest.mark.parametrize("antithetic", [True, False])
def test_tell_is_one_adam_step_up_the_mean_gradient(antithetic):
    protocol = tiny_protocol(antithetic=antithetic)
    (exchange,) = protocol.exchanges
    state = protocol.init(jax.random.key(0))
    random = np.random.default_rng(0)
    seeds = random.integers(0, 2**32, 50, dtype=np.uint32)
    m, v, weights = np.zeros(FEATURES), np.zeros(FEATURES), np.zeros(FEATURES)
    for t in (1, 2, 3):
        plus, minus = random.integers(0, 5041, (2, 50))
        if antithetic:
            replies = Reply(*map(jnp.asarray, (seeds, plus.astype(np.int32), minus.astype(np.int32))))
            plain = Reply(seeds, plus, minus)
        else:
            replies = PlainReply(jnp.asarray(seeds), jnp.asarray(plus.astype(np.int32)))
            plain = PlainReply(seeds, plus)
        state = exchange.tell(state, replies, heard(50))
        # Kingma & Ba 2015, Algorithm 1, uphill.
        g = gradients(protocol, plain, FEATURES).mean(axis=0)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        weights += 1e-3 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(state.weights, weights, rtol=1e-4, atol=1e-8)
    assert int(state.round) == 3


def test_curves_are_of_the_observed_metric():
    """A coarse reward is what is sent; what users experience is measured with the fine one."""
    from fedrank.metrics.online import discretise, max_rr

    protocol = tiny_protocol(metric=discretise(max_rr(), 2), observed=max_rr())
    parties = tiny_parties(protocol, 1)
    me = Party(parties.shared, jax.tree.map(lambda leaf: leaf[0], parties.own))
    (exchange,) = protocol.exchanges
    seen = set()
    for number in range(12):
        answered, _ = exchange.answer(exchange.ask(protocol.init(jax.random.key(0))), me, jax.random.key(number))
        seen.add(round(float(protocol.experience(answered)["MaxRR"]), 4))
    assert seen - {0.0, 0.25, 0.5, 0.75, 1.0}  # means of four values that are not all 0 or 1


def test_rewards_that_are_all_equal_move_nothing():
    protocol = tiny_protocol()
    (exchange,) = protocol.exchanges
    same = jnp.full(9, 1260, jnp.int32)
    state = exchange.tell(
        protocol.init(jax.random.key(0)), Reply(jnp.arange(9, dtype=jnp.uint32), same, same), heard(9)
    )
    np.testing.assert_array_equal(state.weights, np.zeros(FEATURES))


def test_what_is_sent_is_the_truth_as_often_as_p_says():
    """One query, one document that is always clicked: the truth is 1, so every other value is a lie."""
    from dataclasses import replace

    from fedrank.ranking.clicks.cascade import CascadeUser

    queries = QuerySet(np.ones((1, FEATURES)), np.array([2]), np.array([0, 1]), np.array(["q"]))
    always = CascadeUser("always", (1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
    protocol = replace(tiny_protocol(p=0.4, interactions=2), user=always)
    reply = messages(protocol, queries, 10_000)
    sent = np.concatenate([reply.plus, reply.minus])
    values, counts = np.unique(sent, return_counts=True)
    assert values.tolist() == sorted([0, *(2520 // r for r in range(1, 11))])
    expected = np.full(11, 0.6 / 10 * len(sent))
    expected[-1] = 0.4 * len(sent)
    assert ((counts - expected) ** 2 / expected).sum() < 29.6  # chi-square, 10 degrees of freedom, p = 0.001


def test_a_devices_share_is_all_it_asks_about():
    """Queries with one document each; only one of them is ever clicked."""
    from fedrank.ranking.data.partition import Shares

    queries = QuerySet(np.ones((4, FEATURES)), np.array([0, 2, 0, 0]), np.arange(5), np.array(list("abcd")))
    from dataclasses import replace

    from fedrank.ranking.clicks.cascade import CascadeUser

    protocol = replace(tiny_protocol(), user=CascadeUser("strict", (0.0, 0.0, 1.0), (0.0, 0.0, 0.0)))
    shares = Shares(*(np.asarray(a, np.int32) for a in ([0, 1, 2, 3], [0, 1, 2], [1, 1, 2])))
    parties = protocol.devices(queries.blocks(), shares)
    (exchange,) = protocol.exchanges
    request = exchange.ask(protocol.init(jax.random.key(0)))
    for device, sums in enumerate((0, 5040, 0)):
        me = Party(parties.shared, jax.tree.map(lambda leaf, d=device: leaf[d], parties.own))
        after, reply = exchange.answer(request, me, jax.random.key(device))
        assert int(reply.plus) == int(reply.minus) == sums
        assert float(after.own.reward) == sums / 5040


def test_a_round_in_which_nobody_was_heard_changes_nothing_but_its_number():
    protocol = tiny_protocol()
    (exchange,) = protocol.exchanges
    replies = jax.tree.map(jnp.asarray, messages(protocol, tiny_queries(), 20))
    everybody = jnp.ones(20, bool)
    moved = exchange.tell(protocol.init(jax.random.key(0)), replies, everybody)
    assert np.abs(moved.weights).max() > 0  # Adam has momentum now
    silent = exchange.tell(moved, replies, ~everybody)
    assert int(silent.round) == int(moved.round) + 1
    np.testing.assert_array_equal(silent.weights, moved.weights)
    for before, after in zip(jax.tree.leaves(moved.optimiser), jax.tree.leaves(silent.optimiser), strict=True):
        np.testing.assert_array_equal(before, after)


def test_interactions_that_did_not_take_place_add_nothing():
    protocol = tiny_protocol(interactions=4)
    (exchange,) = protocol.exchanges
    draws = exchange.draw(jax.random.key(1))
    patterns = jnp.ones((2, 2), jnp.int32)  # a click on the first result of every list: the largest reward
    largest = protocol.metric.largest
    for active, expected in (((True, False), 1), ((False, False), 0), ((True, True), 2)):
        reply = exchange.report(draws, patterns, jnp.broadcast_to(jnp.array(active), (2, 2)))
        assert (int(reply.plus), int(reply.minus)) == (expected * largest, expected * largest)
