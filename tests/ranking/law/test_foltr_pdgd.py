"""Laws of FPDGD: what its rounds are made of, what clipping and noise do, and what the server may look at."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pdgd_rounds import PARTIES, answers, everybody, parties, queries, tiny
from worlds import FEATURES

from fedrank.aggregation.robust import AGGREGATORS
from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.messages import PUBLIC_AXES
from fedrank.core.privacy_report import BASIC, Unit
from fedrank.core.protocol import Party
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.metrics.online import max_rr
from fedrank.ranking.data.partition import uniform
from fedrank.ranking.foltr_pdgd import ServerState
from fedrank.ranking.learners import PdgdDraws, pdgd_steps
from fedrank.ranking.mechanisms.weights import SumReply, WeightsReply
from fedrank.ranking.sessions.devices import draw_queries

AMOUNTS = (1, 2, 3, 4, 4, 3, 2, 1)
SUM = {"clip": 0.5, "secure_sum": True, "parties": PARTIES}
NOISY = {**SUM, "noise": "polya", "epsilon": 2.0}
VARIANTS = {
    "plain": {},
    "clipped": {"clip": 0.5},
    "sum": SUM,
    "noisy sum": NOISY,
}


@pytest.mark.parametrize("kernels", [True, False], ids=["kernel", "jax"])
def test_one_device_is_pdgd(kernels):
    """A round of one device without noise is steps of PDGD in sequence."""
    protocol = tiny(interactions=6, kernels=kernels)
    (exchange,) = protocol.exchanges
    everyone = parties(protocol, 1)
    (data, held), own = everyone.shared, jax.tree.map(lambda leaf: leaf[0], everyone.own)
    state = ServerState(jnp.uint32(2), jnp.asarray([0.5, -0.25, 0.0, 1.0, 0.125]))
    key = jax.random.key(5)
    draws = exchange.draw(key)
    after, reply = exchange.answer(exchange.ask(state), Party(everyone.shared, own), key)
    learnt = pdgd_steps(
        protocol.ranker, protocol.users, 0, data, state.weights, 0.1, draw_queries(held, own, draws.queries),
        jnp.ones(6, bool), PdgdDraws(draws.documents, draws.clicks),
    )  # fmt: skip
    told = exchange.tell(state, jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], reply), everybody(1))
    np.testing.assert_array_equal(told.weights, learnt.weights)
    assert int(told.round) == 3 and np.abs(told.weights - state.weights).max() > 1e-4
    np.testing.assert_allclose(after.own.ndcg, np.mean(learnt.sessions.ndcg), rtol=1e-6)
    metric = max_rr()
    np.testing.assert_allclose(
        after.own.reward, np.mean(metric.values[metric.index[np.asarray(learnt.sessions.patterns)]]), rtol=1e-6
    )


@pytest.mark.parametrize("settings", [{}, SUM], ids=["plain", "sum"])
def test_devices_that_are_alike_come_to_what_one_does(settings):
    exchange, state, replies = answers(tiny(**settings))
    few = 1 if settings == {} else 2  # a secure sum of one would be no secret
    one = jax.tree.map(lambda leaf: jnp.repeat(leaf[:1], few, axis=0), replies)
    same = jax.tree.map(lambda leaf: jnp.repeat(leaf[:1], PARTIES, axis=0), replies)
    np.testing.assert_allclose(
        exchange.tell(state, same, everybody()).weights, exchange.tell(state, one, everybody(few)).weights, rtol=1e-6
    )


@pytest.mark.parametrize("name", ["plain", "noisy sum"])
def test_who_is_not_heard_might_as_well_not_be_there(name):
    exchange, state, replies = answers(tiny(**VARIANTS[name]), amounts=AMOUNTS)
    arrived = jnp.asarray([True, False, True, True, False, False, True, True])
    there = jax.tree.map(lambda leaf: leaf[arrived], replies)
    garbled = jax.tree.map(lambda leaf: leaf.at[~arrived].set(7), replies)
    expected = exchange.tell(state, there, everybody(5)).weights
    for sent in (replies, garbled):
        np.testing.assert_allclose(exchange.tell(state, sent, arrived).weights, expected, rtol=1e-6, atol=1e-7)
    nobody = exchange.tell(state, replies, jnp.zeros(PARTIES, bool))
    np.testing.assert_array_equal(nobody.weights, state.weights)
    assert int(nobody.round) == 1


def test_the_mean_is_weighted_by_interactions():
    exchange, state, replies = answers(tiny(), amounts=AMOUNTS)
    amounts = np.array(AMOUNTS)
    np.testing.assert_array_equal(replies.interactions, amounts)
    expected = (amounts[:, None] * np.asarray(replies.weights, np.float64)).sum(axis=0) / amounts.sum()
    np.testing.assert_allclose(exchange.tell(state, replies, everybody()).weights, expected, rtol=1e-5, atol=1e-7)
    assert np.abs(np.diff(np.asarray(replies.weights), axis=0)).max() > 0.01


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("amounts", [(4,) * PARTIES, AMOUNTS], ids=["equal", "unequal"])
def test_a_secure_sum_comes_to_the_mean_but_for_its_grid(amounts, norm):
    start, settings = (0.5, -0.25, 0.0, 1.0, 0.125), {"clip": 0.75, "clip_norm": norm}
    exchange, state, plain = answers(tiny(**settings), amounts=amounts, start=start)
    secret_exchange, _, secret = answers(tiny(**{**SUM, **settings}), amounts=amounts, start=start)
    open_, hidden = (e.tell(state, r, everybody()).weights for e, r in ((exchange, plain), (secret_exchange, secret)))
    step = 2.0**-16 * 4 * PARTIES / sum(amounts)
    np.testing.assert_allclose(hidden, open_, atol=0.5 * step + 1e-6)
    assert not np.array_equal(hidden, open_)
    # Nothing but the sum modulo 2³²: vectors that differ and add up alike tell alike.
    masks = np.random.default_rng(0).integers(0, 2**32, (PARTIES, FEATURES), dtype=np.uint32)
    masks[-1] = -masks[:-1].sum(axis=0, dtype=np.uint32)
    masked = dataclasses.replace(secret, values=secret.values + jnp.asarray(masks))
    np.testing.assert_array_equal(secret_exchange.tell(state, masked, everybody()).weights, hidden)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_replies_keep_to_the_clip(norm):
    """From weights far outside: norms are at the bound, not above; integers too, and no two further apart than said."""
    settings, order = {"clip": 0.5, "clip_norm": norm}, int(norm[1])
    far = (5.0, -4.0, 3.0, 0.5, -0.1)
    plain = answers(tiny(**settings), start=far)[-1]
    lengths = np.linalg.norm(np.asarray(plain.weights, np.float64), order, axis=1)
    assert np.all(lengths <= 0.5) and np.all(lengths > 0.4999)
    protocol = tiny(**{**SUM, **settings})
    apart = tiny(**{**NOISY, **settings}).privacy.sensitivity  # what noise on these sums is scaled by
    secret = answers(protocol, start=far, amounts=AMOUNTS)[-1]
    steps = np.asarray(secret.values).astype(np.int32).astype(np.float64)
    assert np.all(np.abs(steps).sum(axis=1) <= apart / 2)
    parts = np.array(AMOUNTS) / 4
    np.testing.assert_allclose(np.linalg.norm(steps, order, axis=1) / 2**16, 0.5 * parts, rtol=1e-3)
    # What differs most: a vector at the bound and its opposite.
    worst = 2 * 0.5 * (1 if norm == "l1" else math.sqrt(FEATURES)) * 2**16
    assert worst <= apart <= worst + FEATURES
    within = tiny(**settings).exchanges[0].report(jnp.asarray([0.1, -0.1, 0.1, 0.0, 0.1]), jnp.int32(4))
    np.testing.assert_allclose(within.weights, [0.1, -0.1, 0.1, 0.0, 0.1], rtol=1e-6)


def laplace_variance(scale, discrete):
    alpha = math.exp(-1 / scale)
    return 2 * alpha / (1 - alpha) ** 2 if discrete else 2 * scale**2


def test_the_noise_of_a_sum_is_laplace_noise_of_the_scale():
    """All devices have learnt nothing, and have made unequal numbers of interactions: what is left is the noise."""
    protocol = tiny(**NOISY)
    (exchange,) = protocol.exchanges
    amounts = np.array(AMOUNTS)
    keys = jax.random.split(jax.random.key(8), (1000, PARTIES))

    @jax.jit
    @jax.vmap
    def told(keys):
        def one(key, amount):
            return exchange.report(jnp.zeros(FEATURES), amount, exchange.draw(key).noise)

        replies = jax.vmap(one)(keys, jnp.asarray(amounts, jnp.int32))
        return exchange.tell(ServerState(jnp.uint32(0), jnp.zeros(FEATURES)), replies, everybody()).weights

    sums = np.asarray(told(keys), np.float64).ravel() * amounts.sum() / 4  # Σ of the shares, in units of the weights
    scale = 2 * 0.5 / 2.0  # twice the clip over ε
    steps = 2**16
    assert protocol.privacy.scale == pytest.approx(scale * steps, rel=1e-4)
    variance = laplace_variance(scale * steps, discrete=True) / steps**2
    # 5,000 values of kurtosis 6: the variance's standard error is √(5/5,000) = 3.2 %; four of them.
    assert np.mean(sums**2) == pytest.approx(variance, rel=0.13)
    assert abs(sums.mean()) < 4 * math.sqrt(variance / len(sums))
    # Half of Laplace's values are below t·log 2.
    assert np.mean(np.abs(sums) < scale * math.log(2)) == pytest.approx(0.5, abs=4 * 0.0071)


def test_the_account_is_of_what_is_sent():
    noisy = tiny(**NOISY)
    report = noisy.account(10, 1e-6)
    assert report.epsilon_round == pytest.approx(2.0, rel=1e-6) and report.epsilon_round <= 2.0
    assert report.details["secure_sum"] and report.epsilon(Unit.USER, basis=BASIC) == pytest.approx(20)
    assert tiny(**SUM).account(10, 1e-6).epsilon_round == math.inf
    # A norm that noise is not made for takes √n times as much of it.
    l2 = tiny(**{**NOISY, "clip_norm": "l2"})
    assert l2.privacy.scale / noisy.privacy.scale == pytest.approx(math.sqrt(FEATURES), rel=1e-3)
    assert l2.account(1, 1e-6).epsilon_round == pytest.approx(2.0, rel=1e-6)


def test_shares_of_fewer_devices_are_larger():
    protocol = tiny(**{**NOISY, "absent": 0.25})
    assert protocol.privacy.enough == 6 and protocol.account(1, 1e-6).details["enough"] == 6
    assert protocol.privacy.scale == tiny(**NOISY).privacy.scale


def test_other_rules_take_the_place_of_the_mean():
    for rule in [name for name in AGGREGATORS.names() if name != "mean"]:
        _, state, replies = answers(tiny())
        (exchange,) = tiny(aggregate=rule, byzantine=2).exchanges
        told = exchange.tell(state, replies, everybody())
        expected = AGGREGATORS.get(rule)(replies.weights, jnp.ones(PARTIES), everybody(), 2)
        np.testing.assert_array_equal(told.weights, expected)
        assert not np.allclose(told.weights, np.mean(replies.weights, axis=0), atol=1e-6)


@pytest.mark.parametrize("name", ["plain", "noisy sum"])
def test_messages_over_the_wire(name):
    """Layouts without raw data; what comes over the wire tells the server what was sent."""
    exchange, state, replies = answers(tiny(**VARIANTS[name]), amounts=AMOUNTS)
    for layout in (exchange.request, exchange.reply):
        assert all(axis in PUBLIC_AXES for field in layout.fields for axis, _ in field.axes)
    assert exchange.reply.nbytes == 1 + 4 * FEATURES + 2
    assert exchange.reply.message is (SumReply if VARIANTS[name].get("secure_sum") else WeightsReply)
    received = []
    for party in range(PARTIES):
        one = jax.tree.map(lambda leaf, party=party: leaf[party], replies)
        received.append(exchange.reply.decode(exchange.reply.encode(one)))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(list(map(jnp.asarray, leaves))), *received)
    told, told_too = (exchange.tell(state, r, everybody()).weights for r in (replies, stacked))
    np.testing.assert_array_equal(told, told_too)
    assert np.abs(told - state.weights).max() > 0


@pytest.mark.parametrize("name", VARIANTS)
def test_a_real_devices_chance_is_the_operating_systems(name, monkeypatch):
    protocol = tiny(**VARIANTS[name])
    (exchange,) = protocol.exchanges
    everyone = parties(protocol)
    me = Party(everyone.shared, jax.tree.map(lambda leaf: leaf[0], everyone.own))
    first, second = exchange.draw_from_os(), exchange.draw_from_os()
    assert not np.array_equal(first.clicks, second.clicks)
    simulated = exchange.draw(jax.random.key(0))
    assert jax.tree.map(lambda a: (a.shape, a.dtype), first) == jax.tree.map(lambda a: (a.shape, a.dtype), simulated)
    _, reply = exchange.respond(exchange.ask(protocol.init(jax.random.key(0))), me, first)
    assert len(exchange.reply.encode(reply)) == exchange.reply.nbytes
    if name != "noisy sum":
        asked = []
        monkeypatch.setattr("os.urandom", lambda n: asked.append(n) or np.arange(n // 4, dtype=np.uint32).tobytes())
        words = np.concatenate([np.ravel(field) for field in exchange.draw_from_os() if field is not None])
        assert asked == [4 * len(words)] and sorted(words.tolist()) == list(range(len(words)))


@pytest.mark.parametrize("case", ["mlp", "noisy sum"])
def test_it_learns(case):
    """Users see better lists the longer it goes on, with a network as with noise."""
    count = 40
    settings = {"learning_rate": 0.3} if case == "mlp" else {**NOISY, "clip": 10.0, "epsilon": 20.0, "parties": count}
    protocol = tiny("mlp" if case == "mlp" else "linear", **settings)
    everyone = parties(protocol, count)
    simulation, keys = Simulator(protocol), run_keys((0, 1))
    states, own = simulation.start(keys, everyone)
    _, _, seen = simulation.advance(keys, states, everyone.shared, own, 0, 150)
    ndcg = np.asarray(seen["nDCG(dcg='exp-log2')@10"]).reshape(150, 2)
    # 1,600 and 4,800 interactions a run: the difference has a standard error of about 0.01.
    assert np.all(ndcg[-30:].mean(axis=0) > ndcg[:10].mean(axis=0) + 0.06)
    assert seen["MaxRR"].shape == seen["nDCG(dcg='exp-log2')@10"].shape


def test_how_it_starts():
    key = jax.random.key(1)
    np.testing.assert_array_equal(tiny().init(key).weights, np.zeros(FEATURES))
    network = tiny("mlp").init(key).weights
    assert np.all(network != 0) and 0.05 < np.std(network) < 0.2
    assert not np.array_equal(network, tiny("mlp").init(jax.random.key(2)).weights)


def test_settings_that_do_not_fit_are_refused():
    for settings, message in [
        ({"interactions": 0}, "interactions must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"clip": -1.0}, "clip must be positive"),
        ({"noise": "server", "epsilon": 1.0, "clip": 1.0}, "number of clients"),
        ({**NOISY, "epsilon": -1.0}, "an ε above 0"),
        ({**NOISY, "absent": 1.0}, r"absent in \[0, 1\)"),
        ({**NOISY, "clip": 50.0, "epsilon": 0.1}, "use a coarser grid"),
        ({"secure_sum": True, "clip": 1.0}, "needs the number of clients"),
        ({**SUM, "clip": 5.0, "parties": 100_000}, "Use fewer steps, a smaller clip or smaller cohorts"),
        ({**SUM, "grid": 1000}, "power of two"),
        ({**SUM, "aggregate": "median"}, "single replies, which a secure sum hides"),
        ({"aggregate": "krum", "byzantine": 3, "parties": 8}, "needs at least 9 parties, got 8"),
        ({"metric": max_rr(5)}, "looks at 5 ranks"),
    ]:
        with pytest.raises(ConfigError, match=message):
            tiny(**settings)


def test_devices_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match=r"kernels = True takes data as queries\.blocks\(\), got PaddedQueries"):
        tiny().devices(queries().padded(), uniform(queries().n_queries, 2))
    with pytest.raises(UnknownNameError, match="Did you mean 'median'"):
        tiny(aggregate="medain")
    with pytest.raises(ConfigError, match="needs at least 9 parties, got 8"):
        parties(tiny(aggregate="krum", byzantine=3))
    with pytest.raises(ConfigError, match="shared by 8 devices or more, there are 5"):
        parties(tiny(**NOISY), 5)
    with pytest.raises(ConfigError, match=r"beyond the 2\*\*31"):
        parties(tiny(**{**SUM, "clip": 10.0}), 4000)


def test_the_server_clips_what_a_device_did_not():
    protocol = tiny(clip=0.5)
    (exchange,) = protocol.exchanges
    state = protocol.init(jax.random.key(0))
    weights = np.zeros((2, protocol.ranker.size), np.float32)
    weights[0, 0], weights[1, 0] = 100.0, -0.25  # of L1 norms 100 and a quarter
    told = exchange.tell(state, WeightsReply(jnp.asarray(weights), jnp.int32([4, 4])), everybody(2))
    np.testing.assert_allclose(told.weights[0], (0.5 - 0.25) / 2, atol=1e-6)


@pytest.mark.parametrize("name", ["sum", "noisy sum"])
def test_a_sum_of_too_few_devices_moves_nothing(name):
    """Noise is shared by at least so many devices; without noise a sum of one would show that one's weights."""
    protocol = tiny(**VARIANTS[name])
    least = protocol.privacy.enough
    exchange, start, replies = answers(protocol, start=np.full(protocol.ranker.size, 0.0625, np.float32))
    for heard in (least - 1, least):
        told = exchange.tell(start, replies, jnp.arange(PARTIES) < heard)
        assert bool((told.weights == start.weights).all()) == (heard < least)
