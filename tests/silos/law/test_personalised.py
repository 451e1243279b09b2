"""What holds of every method that MAB-FL is compared with: closed forms, what crosses, silos that are not heard."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from silo_worlds import bandit_of, fields_of, for_all, word

from fedrank.core.errors import ConfigError
from fedrank.core.messages import PUBLIC_AXES
from fedrank.core.streams import run_words
from fedrank.silos.averaging import FedAvg, FineTuned
from fedrank.silos.config import Network
from fedrank.silos.data.splits import Rows, SiloArrays
from fedrank.silos.local_sgd import LocalSgd
from fedrank.silos.network import TabularNetwork
from fedrank.silos.party import some_of
from fedrank_zoo.fedper import FedPer
from fedrank_zoo.leave_one_out import Dropping, LeaveOneOut
from fedrank_zoo.local_only import LocalOnly

FEATURES, ROWS = 2, 4
SGD = LocalSgd(TabularNetwork(FEATURES, (2,)), epochs=2, batch=2, learning_rate=0.2)
PLAIN = LocalSgd(TabularNetwork(FEATURES, (), norm="none"), epochs=1, batch=4, learning_rate=0.2)
P = SGD.network.size

METHODS = {
    "fedavg": FedAvg(SGD, 3, ROWS),
    "fedper": FedPer(SGD, 3, ROWS),
    "fedavg-finetune": FineTuned(SGD, 3, ROWS),
    "local-only": LocalOnly(SGD, 3, ROWS),
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


def silo(protocol, number=0, **how):
    return some_of(protocol.parties(world(protocol.silos, **how)), [number])


@cache
def reply_of(protocol, exchange):
    """One that a silo gives: fields [1, ...]."""
    return exchange.answer(for_all(exchange.ask(protocol.init(word(0))), 1), silo(protocol), run_words([0]))[1]


def replies_of(protocol, exchange, seed=1):
    """Such as could have come: [silos, ...]."""
    rng = np.random.default_rng(seed)

    def made(leaf):
        shape = (protocol.silos, *leaf.shape[1:])
        if np.issubdtype(leaf.dtype, np.integer):
            return rng.integers(0, 2, shape).astype(leaf.dtype)
        return rng.uniform(0, 0.3, shape).astype(leaf.dtype)

    return fields_of(reply_of(protocol, exchange), made)


@pytest.mark.parametrize("name", METHODS)
def test_messages_are_as_their_layouts_say_and_have_no_axis_of_rows(name):
    protocol = METHODS[name]
    assert protocol.name == name
    state, kinds = protocol.init(word(0)), {}
    for exchange in protocol.exchanges:
        for layout, message in ((exchange.request, exchange.ask(state)), (exchange.reply, None)):
            message = fields_of(reply_of(protocol, exchange), lambda leaf: leaf[0]) if message is None else message
            assert type(message) is layout.message
            assert kinds.setdefault(layout.kind, layout.name) == layout.name
            for field in layout.fields:
                leaf = getattr(message, field.name)
                assert leaf.shape == field.shape and leaf.dtype == {"u4": np.uint32, "f4": np.float32}[field.dtype]
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
    assert sizes("fedavg-finetune") == sizes("fedavg")
    assert sizes("fedper")[1] == (5 + 4 * (P - head), 5 + 4 * (P - head))
    assert sizes("leave-one-out")[2] == (1 + 16 * P, 1 + 4 + 16)


def test_of_a_silo_that_trains_alone_nothing_crosses():
    for exchange in METHODS["local-only"].exchanges:
        assert exchange.silent
        assert exchange.request.fields == exchange.reply.fields == ()
    assert METHODS["local-only"].weights(METHODS["local-only"].init(word(0))).size == 0


@pytest.mark.parametrize("name", ["fedavg", "leave-one-out"])  # the others are told as FedAvg is
def test_who_is_not_heard_or_sends_nonsense_does_not_matter_and_without_anybody_the_model_stays(name):
    protocol = METHODS[name]
    state = protocol.init(word(0))
    nobody = heard = nonsense = state
    present = np.array([True, False, True])
    for exchange in protocol.exchanges:
        replies = replies_of(protocol, exchange)
        broken = fields_of(replies, np.copy)
        for leaf in vars(broken).values():
            leaf[1] = np.nan if leaf.dtype == np.float32 else 0
        nobody = exchange.tell(nobody, replies, np.zeros(3, bool))
        heard = exchange.tell(heard, replies, present)
        # A silo that judges and sends NaN has no opinion; its rows count for as little as its model.
        nonsense = exchange.tell(nonsense, broken, np.ones(3, bool))
    np.testing.assert_array_equal(protocol.weights(nobody), protocol.weights(state))
    assert np.any(np.asarray(protocol.weights(heard)) != np.asarray(protocol.weights(state)))
    np.testing.assert_array_equal(protocol.weights(nonsense), protocol.weights(heard))
    assert int(nobody.round) == int(heard.round) == 1


def test_the_opening_is_that_of_the_bandit():
    bandit = bandit_of(PLAIN, 3, ROWS, rule="fixed", arms="everyone", alone=False)
    ours = FedAvg(PLAIN, 3, ROWS)
    words, replies = PLAIN.draw(run_words([1]), PLAIN.rng_shape(ROWS)), []
    for protocol in (bandit, ours):
        me, state, reply = silo(protocol, 1), protocol.init(word(5)), None
        for exchange in protocol.exchanges[:2]:
            me, reply = exchange.respond(for_all(exchange.ask(state), 1), me, words)
        replies.append(reply)
    theirs, mine = replies
    np.testing.assert_array_equal(theirs.weights, mine.weights)
    np.testing.assert_array_equal(theirs.rows, mine.rows)


@pytest.mark.parametrize("protocol", [METHODS["fedper"], FedAvg(SGD, 3, ROWS, network=Network(crossing="local"))])
def test_what_never_crosses_stays_as_the_silo_has_it(protocol):
    me = silo(protocol)
    kept = np.setdiff1d(np.arange(P), protocol.shared_positions)
    local = np.arange(P, dtype=np.float32)[None]
    me = me._replace(own=me.own._replace(model=local))
    state = protocol.init(word(0))
    last = protocol.personal_model(state.weights[None], me)[0]
    np.testing.assert_array_equal(last[kept], kept)
    np.testing.assert_array_equal(last[protocol.shared_positions], state.weights)


def test_where_auc_is_undefined_the_best_model_is_the_last():
    protocol = FedAvg(PLAIN, 2, ROWS)
    state = protocol.init(word(0))
    me = silo(protocol, one_class=True)
    ours = protocol.models(state, me)
    np.testing.assert_array_equal(ours["last"][0], state.weights)
    np.testing.assert_array_equal(ours["best"], ours["last"])


@pytest.mark.parametrize("silos", [1, 2])
def test_of_two_silos_none_is_dropped_and_of_one_nothing_can_be_left_out(silos):
    protocol = LeaveOneOut(PLAIN, silos, ROWS, personal=Dropping(evidence=1.01))
    state = protocol.init(word(0))
    for _ in range(3):
        for exchange in protocol.exchanges[1:]:
            replies = replies_of(protocol, exchange)
            if exchange.name == "judge-all":  # without the first it is better
                replies = replace(replies, models=np.eye(silos + 1, dtype=np.float32)[[1] * silos])
            state = exchange.tell(state, replies, np.ones(silos, bool))
    assert state.active.all()
    if silos == 1:
        assert np.isnan(state.increments).all()
    else:
        np.testing.assert_array_equal(state.increments, [1, 0])
        np.testing.assert_array_equal(state.weights, state.models[1])


def test_of_a_dropped_silo_nothing_is_asked_and_the_poisoner_does_not_decide_alone():
    protocol = LeaveOneOut(PLAIN, 4, ROWS, personal=Dropping(evidence=3.0))
    state = protocol.init(word(0))
    _, train, judge = protocol.exchanges
    honest = np.tile(np.array([0.5, 0.6, 0.5, 0.5, 0.5], np.float32), (4, 1))
    honest[0] = [0.9, 0.1, 0.9, 0.9, 0.9]  # silo 0 harms, and says that it does not
    rounds = 0
    while bool(state.active[0]):
        np.testing.assert_array_equal(train.asked(state, 4), [True] * 4)
        state = train.tell(state, replies_of(protocol, train), np.ones(4, bool))
        replies = replace(replies_of(protocol, judge), models=honest)
        state, rounds = judge.tell(state, replies, np.ones(4, bool)), rounds + 1
        np.testing.assert_allclose(state.weights, state.models[1])
        assert rounds < 10
    np.testing.assert_array_equal(judge.asked(state, 4), [False, True, True, True])
    np.testing.assert_array_equal(protocol.watch(state)["active"], [False, True, True, True])


def test_an_e_value_of_one_or_less_is_refused():
    with pytest.raises(ConfigError, match="evidence"):
        LeaveOneOut(SGD, 3, ROWS, personal=Dropping(evidence=1.0))
