"""What holds of every method that MAB-FL is compared with: closed forms, what crosses, silos that are not heard."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.core.messages import PUBLIC_AXES
from fedrank.core.protocol import Party
from fedrank.silos.bandit_fedavg import BanditFedAvg
from fedrank.silos.bandits import rules
from fedrank.silos.data.rows import Rows
from fedrank.silos.data.splits import SiloArrays
from fedrank.silos.fedfomo import FedFomo
from fedrank.silos.ifca import Ifca
from fedrank.silos.leave_one_out import LeaveOneOut
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import TabularNetwork
from fedrank.silos.personalised import Apfl, Ditto, FedAvg, FineTuned, LocalOnly

FEATURES, ROWS = 2, 4
SGD = LocalSgd(TabularNetwork(FEATURES, (2,)), epochs=2, batch=2, learning_rate=0.2)
PLAIN = LocalSgd(TabularNetwork(FEATURES, (), norm="none"), epochs=1, batch=4, learning_rate=0.2)
P = SGD.network.size

METHODS = {
    "fedavg": FedAvg(SGD, 3, ROWS),
    "fedper": FedAvg(SGD, 3, ROWS, crossing="head-local"),
    "fedbn": FedAvg(SGD, 3, ROWS, crossing="local"),
    "fedavg-finetune": FineTuned(SGD, 3, ROWS),
    "ditto": Ditto(SGD, 3, ROWS),
    "apfl": Apfl(SGD, 3, ROWS),
    "local-only": LocalOnly(SGD, 3, ROWS),
    "fedfomo": FedFomo(SGD, 3, ROWS),
    "fedfomo of 1": FedFomo(SGD, 3, ROWS, downloads=1),
    "ifca": Ifca(SGD, 3, ROWS),
    "leave-one-out": LeaveOneOut(SGD, 3, ROWS),
}


def world(silos=3, one_class=False, seed=0):
    rng = np.random.default_rng(seed)

    def part():
        x = rng.normal(size=(1, silos, ROWS, FEATURES)).astype(np.float32)
        y = (x[..., 0] > 0).astype(np.float32)
        y[..., 0], y[..., 1] = 0, not one_class
        return Rows(x, np.zeros_like(y) if one_class else y, np.full((1, silos), ROWS, np.int32))

    return SiloArrays(part(), part(), part())


@cache
def silo(protocol, number=0, **how):
    with jax.ensure_compile_time_eval():  # it is kept, so it must not belong to a trace
        parties = protocol.parties(world(protocol.silos, **how))
        return Party(parties.shared, jax.tree.map(lambda leaf: leaf[number], parties.own))


@cache
def shapes(protocol, exchange):
    def reply(key):
        return exchange.answer(exchange.ask(protocol.init(key)), silo(protocol), key)[1]

    return jax.eval_shape(reply, jax.random.key(0))


def replies_of(protocol, exchange, seed=1):
    """Such as could have come: [silos, ...]."""
    rng = np.random.default_rng(seed)

    def made(leaf):
        shape = (protocol.silos, *leaf.shape)
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return jnp.asarray(rng.integers(0, 2, shape), leaf.dtype)
        return jnp.asarray(rng.uniform(0, 0.3, shape), leaf.dtype)

    return jax.tree.map(made, shapes(protocol, exchange))


@pytest.mark.parametrize("name", METHODS)
def test_messages_are_as_their_layouts_say_and_have_no_axis_of_rows(name):
    protocol = METHODS[name]
    assert protocol.name == name.removesuffix(" of 1")
    state, kinds = protocol.init(jax.random.key(0)), {}
    for exchange in protocol.exchanges:
        for layout, message in ((exchange.request, exchange.ask(state)), (exchange.reply, None)):
            message = shapes(protocol, exchange) if message is None else message
            assert type(message) is layout.message
            assert kinds.setdefault(layout.kind, layout.name) == layout.name
            for field in layout.fields:
                leaf = getattr(message, field.name)
                assert leaf.shape == field.shape and leaf.dtype == {"u4": jnp.uint32, "f4": jnp.float32}[field.dtype]
                assert all(axis in PUBLIC_AXES for axis, _ in field.axes)
        layout, request = exchange.request, exchange.ask(state)
        assert len(layout.encode(request)) == layout.nbytes


def sizes(name):
    return [(e.request.nbytes, e.reply.nbytes) for e in METHODS[name].exchanges]


def test_bytes_of_a_round_by_hand():
    trains, head = 2 * FEATURES + 2 + 2 * 2 + 2 * 2 + 2, 2 * 2 + 2  # layer and bias, γ and β, layer and bias
    statistics = 2 * 2
    assert trains + statistics == P
    ready = 1 + 4
    assert sizes("fedavg") == [(5 + 4 * P, ready), (5 + 4 * P, 5 + 4 * P)]
    assert sizes("fedavg-finetune") == sizes("ditto") == sizes("apfl") == sizes("fedavg")
    assert sizes("fedper")[1] == (5 + 4 * (P - head), 5 + 4 * (P - head))
    assert sizes("fedbn")[1] == (5 + 4 * (P - 8), 5 + 4 * (P - 8))
    assert sizes("ifca") == [(5 + 8 * P, ready), (5 + 8 * P, 9 + 4 * P)]
    assert sizes("fedfomo") == [(5 + 4 * P, 5 + 4 * P), (5 + 12 + 12 * P, 5 + 4 * P + 12)]
    assert sizes("fedfomo of 1") == [(5 + 4 * P, 5 + 4 * P), *[(5 + 4 + 4 * P, 5 + 4 * P + 4)] * 3]
    assert sizes("leave-one-out")[2] == (1 + 16 * P, 1 + 4 + 16)


def test_of_a_silo_that_trains_alone_nothing_crosses():
    for exchange in METHODS["local-only"].exchanges:
        assert exchange.silent
        assert exchange.request.fields == exchange.reply.fields == ()
    assert METHODS["local-only"].weights(METHODS["local-only"].init(jax.random.key(0))).size == 0


@pytest.mark.parametrize("name", ["fedavg", "fedfomo", "ifca", "leave-one-out"])  # the others are told as FedAvg is
def test_who_is_not_heard_or_sends_nonsense_does_not_matter_and_without_anybody_the_model_stays(name):
    protocol = METHODS[name]
    state = protocol.init(jax.random.key(0))
    nobody = heard = nonsense = state
    present = jnp.array([True, False, True])
    for exchange in protocol.exchanges:
        replies = replies_of(protocol, exchange)
        broken = jax.tree.map(
            lambda leaf: leaf.at[1].set(jnp.nan) if leaf.dtype == jnp.float32 else leaf.at[1].set(0), replies
        )
        tell = jax.jit(exchange.tell)
        nobody = tell(nobody, replies, jnp.zeros(3, bool))
        heard = tell(heard, replies, present)
        # A silo that judges and sends NaN has no opinion; its rows count for as little as its model.
        nonsense = tell(nonsense, broken, jnp.ones(3, bool))
    np.testing.assert_array_equal(protocol.weights(nobody), protocol.weights(state))
    assert np.any(np.asarray(protocol.weights(heard)) != np.asarray(protocol.weights(state)))
    np.testing.assert_array_equal(protocol.weights(nonsense), protocol.weights(heard))
    assert int(nobody.round) == int(heard.round) == 1


def test_the_opening_is_that_of_the_bandit():
    bandit = BanditFedAvg(PLAIN, 3, ROWS, rule=rules.make_rule("fixed", fixed=0), arms="everyone", alone=False)
    ours = FedAvg(PLAIN, 3, ROWS)
    words = jax.random.bits(jax.random.key(1), PLAIN.rng_shape(ROWS), jnp.uint32)

    @jax.jit
    def first_rounds(key):
        outcomes = []
        for protocol in (bandit, ours):
            me, state, reply = silo(protocol, 1), protocol.init(key), None
            for exchange in protocol.exchanges[:2]:
                me, reply = exchange.respond(exchange.ask(state), me, words)
            outcomes.append(reply)
        return outcomes

    theirs, mine = first_rounds(jax.random.key(5))
    np.testing.assert_array_equal(theirs.weights, mine.weights)
    np.testing.assert_array_equal(theirs.rows, mine.rows)


def test_closed_forms_of_ditto_and_apfl():
    words = jax.random.bits(jax.random.key(1), SGD.rng_shape(ROWS), jnp.uint32)
    theta, v = SGD.network.initial(jax.random.key(2)), SGD.network.initial(jax.random.key(3))
    ditto, apfl = Ditto(SGD, 3, ROWS, pull=0.0), Apfl(SGD, 3, ROWS, adaptive=False)

    def with_v(protocol, share=0.0):
        me = silo(protocol)
        return me._replace(own=me.own._replace(personal=v, model=theta, share=share))

    @jax.jit
    def trained(share):
        alone = SGD.train(v, Rows(*(leaf[0, 0] for leaf in silo(ditto).shared.train)), words)
        own = apfl.local_update(theta, with_v(apfl, share), words)
        used = apfl.personal_model(theta, with_v(apfl)._replace(own=own))
        return alone, ditto.local_update(theta, with_v(ditto), jnp.concatenate([words, words])), own, used

    alone, pulled, _, used = trained(jnp.float32(1.0))
    np.testing.assert_allclose(pulled.personal, alone, rtol=1e-5, atol=1e-6)  # λ = 0
    np.testing.assert_allclose(used, alone, rtol=1e-5, atol=1e-6)  # α = 1
    _, _, own, used = trained(jnp.float32(0.0))
    np.testing.assert_allclose(own.model, pulled.model, rtol=1e-5, atol=1e-6)  # w is what FedAvg's silo trains
    np.testing.assert_array_equal(own.personal[: SGD.network.trainable], v[: SGD.network.trainable])
    np.testing.assert_array_equal(used, theta)


@pytest.mark.parametrize("name", ["fedper", "fedbn"])
def test_what_never_crosses_stays_as_the_silo_has_it(name):
    protocol = METHODS[name]
    me = silo(protocol)
    kept = np.setdiff1d(np.arange(P), protocol.crosses)
    local = jnp.arange(P, dtype=jnp.float32)
    me = me._replace(own=me.own._replace(model=local))
    state = protocol.init(jax.random.key(0))
    last = np.asarray(jax.jit(protocol.personal_model)(state.weights, me))
    np.testing.assert_array_equal(last[kept], kept)
    np.testing.assert_array_equal(last[protocol.crosses], state.weights)


def test_where_auc_is_undefined_the_best_model_is_the_last():
    protocol = FedAvg(PLAIN, 2, ROWS)
    state = protocol.init(jax.random.key(0))
    me = silo(protocol, one_class=True)
    ours = jax.jit(protocol.models)(state, me)
    np.testing.assert_array_equal(ours["last"], state.weights)
    np.testing.assert_array_equal(ours["best"], ours["last"])


def test_one_silo_averages_with_nobody():
    for protocol in (FedAvg(PLAIN, 1, ROWS), Ifca(PLAIN, 1, ROWS, clusters=1), FedFomo(PLAIN, 1, ROWS)):
        exchange = protocol.exchanges[-1]
        replies = replies_of(protocol, exchange)
        if "cluster" in vars(replies):
            replies = replace(replies, cluster=jnp.zeros(1, jnp.uint32))
        after = jax.jit(exchange.tell)(protocol.init(jax.random.key(0)), replies, jnp.ones(1, bool))
        np.testing.assert_allclose(np.asarray(protocol.weights(after)).reshape(1, -1), replies.weights, rtol=1e-6)


@pytest.mark.parametrize("silos", [1, 2])
def test_of_two_silos_none_is_dropped_and_of_one_nothing_can_be_left_out(silos):
    protocol = LeaveOneOut(PLAIN, silos, ROWS, evidence=1.01)
    state = protocol.init(jax.random.key(0))
    tells = [jax.jit(exchange.tell) for exchange in protocol.exchanges[1:]]
    for _ in range(3):
        for exchange, tell in zip(protocol.exchanges[1:], tells, strict=True):
            replies = replies_of(protocol, exchange)
            if exchange.name == "judge-all":  # without the first it is better
                replies = replace(replies, models=jnp.asarray(np.eye(silos + 1)[[1] * silos], jnp.float32))
            state = tell(state, replies, jnp.ones(silos, bool))
    assert bool(jnp.all(state.active))
    if silos == 1:
        assert bool(jnp.all(jnp.isnan(state.increments)))
    else:
        np.testing.assert_array_equal(state.increments, [1, 0])
        np.testing.assert_array_equal(state.weights, state.models[1])


def test_of_a_dropped_silo_nothing_is_asked_and_the_poisoner_does_not_decide_alone():
    protocol = LeaveOneOut(PLAIN, 4, ROWS, evidence=3.0)
    state = protocol.init(jax.random.key(0))
    _, train, judge = protocol.exchanges
    honest = np.tile(np.array([0.5, 0.6, 0.5, 0.5, 0.5], np.float32), (4, 1))
    honest[0] = [0.9, 0.1, 0.9, 0.9, 0.9]  # silo 0 harms, and says that it does not
    rounds, tells = 0, (jax.jit(train.tell), jax.jit(judge.tell))
    while bool(state.active[0]):
        np.testing.assert_array_equal(train.asked(state, 4), [True] * 4)
        state = tells[0](state, replies_of(protocol, train), jnp.ones(4, bool))
        replies = replace(replies_of(protocol, judge), models=jnp.asarray(honest))
        state, rounds = tells[1](state, replies, jnp.ones(4, bool)), rounds + 1
        np.testing.assert_allclose(state.weights, state.models[1])
        assert rounds < 10
    np.testing.assert_array_equal(judge.asked(state, 4), [False, True, True, True])
    np.testing.assert_array_equal(protocol.watch(state)["active"], [False, True, True, True])


def test_a_fedfomo_silo_is_sent_other_silos_models_and_those_it_likes_first():
    protocol = FedFomo(PLAIN, 5, ROWS, downloads=2, epsilon=0.0)
    liked = jnp.zeros((5, 5)).at[0, 3].set(0.5).at[0, 2].set(0.2).at[4, 0].set(0.1)
    draw = jax.jit(lambda key: protocol.choose_models(protocol.init(key)._replace(affinity=liked)).chosen)
    chosen = np.stack([draw(jax.random.key(seed)) for seed in range(20)])
    np.testing.assert_array_equal(chosen[:, 0], np.tile([3, 2], (20, 1)))
    assert np.all(chosen[:, 4, 0] == 0) and set(chosen[:, 4, 1].tolist()) == {1, 2, 3}
    assert np.all(chosen != np.arange(5)[None, :, None]) and np.all(chosen[..., 0] != chosen[..., 1])


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        (Ditto, {"pull": -1.0}, "pull"),
        (Apfl, {"share": 1.5}, "share"),
        (FedFomo, {"downloads": 3}, "downloads"),
        (FedFomo, {"epsilon": 2.0}, "epsilon"),
        (Ifca, {"clusters": 0}, "clusters"),
        (LeaveOneOut, {"evidence": 1.0}, "evidence"),
        (LeaveOneOut, {"by": "luck"}, "by"),
    ],
)
def test_settings_out_of_range_are_refused(method, settings, words):
    with pytest.raises(ConfigError, match=words):
        method(SGD, 3, ROWS, **settings)
