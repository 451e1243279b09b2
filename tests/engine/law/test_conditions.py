"""Replies that are missing, late or an attacker's; and a server's model again from its log."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import FEATURES, tiny_parties, tiny_protocol

from fedrank.core.errors import ConfigError
from fedrank.core.messages import Array, field, message, u4
from fedrank.core.privacy_report import Unit
from fedrank.core.protocol import Exchange, Party, Protocol
from fedrank.core.rng import perturbation
from fedrank.engine.simulator import Conditions, Simulator, run_keys
from fedrank.ranking.on_device import Reply
from fedrank_zoo.reproduce.study import load_file

replay = load_file(Path(__file__).parents[3] / "reproductions" / "foltr_study_2021" / "unlearning.py").replay


@message(kind=1)
class Number:
    number: Array = field(u4, "a round")


class Heard(NamedTuple):
    round: Any
    count: Any
    lag: Any


@dataclass(frozen=True)
class WhatTime(Exchange, request=Number, reply=Number):
    """The server says which round it is, parties say it back."""

    name = "what-time"

    def ask(self, state):
        return Number(state.round)

    def draw(self, key):
        return jnp.uint32(0)

    def draw_from_os(self):
        return jnp.uint32(0)

    def respond(self, request, party, draws):
        return party, request

    def tell(self, state, replies, arrived):
        lag = jnp.sum(jnp.where(arrived, state.round - replies.number, 0))
        return Heard(state.round + 1, state.count + jnp.sum(arrived), state.lag + lag)


@dataclass(frozen=True)
class Clock(Protocol):
    name = "clock"

    @property
    def exchanges(self):
        return (WhatTime(),)

    def init(self, key):
        return Heard(jnp.int32(0), jnp.int32(0), jnp.int32(0))

    def weights(self, state):
        return state.count

    def account(self, rounds, delta):
        return None


def told(conditions, rounds, parties=500):
    simulator = Simulator(Clock(), conditions=conditions)
    keys = run_keys([0, 1])
    states, own = simulator.start(keys, Party(None, jnp.zeros(parties)))
    states, _, _ = simulator.advance(keys, states, None, own, 0, rounds)
    return simulator.server(states)


def test_so_many_drop_out():
    parties, rounds, p = 500, 20, 0.3
    count = np.asarray(told(Conditions(dropout=p), rounds).count)
    n = parties * rounds
    assert (np.abs(count - (1 - p) * n) < 4 * np.sqrt(n * p * (1 - p))).all()
    assert count[0] != count[1]


def test_stragglers_answer_the_question_of_so_many_rounds_ago():
    parties, delay, p = 500, 3, 0.4
    warm, more = told(Conditions(late=p, delay=delay), delay), told(Conditions(late=p, delay=delay), delay + 10)
    # Once the kept questions are from the run itself, a late reply lags by the delay.
    late = (np.asarray(more.lag) - np.asarray(warm.lag)) / delay
    n = 10 * parties
    assert (np.abs(late - p * n) < 4 * np.sqrt(n * p * (1 - p))).all()
    # Before, the oldest question there is is the first: in round r it lags by r.
    everybody = told(Conditions(late=1.0, delay=delay), delay)
    assert np.asarray(everybody.lag).tolist() == [parties * sum(range(delay))] * 2


def test_the_absent_are_never_heard():
    absent = tuple(i % 5 == 0 for i in range(500))
    assert np.asarray(told(Conditions(absent=absent), 4).count).tolist() == [4 * 400] * 2


def test_conditions_that_cannot_be_are_refused():
    for settings, says in [
        ({"dropout": 1.0}, "dropout"),
        ({"late": -0.1}, "late"),
        ({"late": 0.5}, "at least 1"),
        ({"delay": 9999}, "delay"),
    ]:
        with pytest.raises(ConfigError, match=says):
            Conditions(**settings)


def test_the_number_of_parties_must_fit():
    with pytest.raises(ConfigError, match="3 parties"):
        told(Conditions(absent=(True, False, True)), 1)


def recorded(protocol, conditions=None, rounds=4):
    parties = tiny_parties(protocol, 6)
    simulator = Simulator(protocol, conditions=conditions or Conditions(), record=True)
    keys = run_keys([0, 1])
    begun, own = simulator.start(keys, parties)
    states, _, seen = simulator.advance(keys, begun, parties.shared, own, 0, rounds)
    return begun, states, seen["replies"]


def test_the_log_gives_the_model_again():
    protocol = tiny_protocol(p=0.75)
    begun, states, log = recorded(protocol)
    again = replay(protocol, begun, log, np.ones(6, bool))
    np.testing.assert_allclose(again.weights, states.weights, rtol=1e-6)
    assert np.abs(states.weights).min() > 0


def test_replay_without_parties_is_training_without_them_for_one_round_and_no_longer():
    protocol = tiny_protocol(sigma=0.3, learning_rate=0.3)
    gone = np.array([True, True, False, False, False, False])
    begun, _, log = recorded(protocol)
    absent = Conditions(absent=tuple(gone.tolist()))
    first = jax.tree.map(lambda leaf: leaf[:1], log)
    once = replay(protocol, begun, first, ~gone)
    np.testing.assert_allclose(once.weights, recorded(protocol, absent, 1)[1].weights, rtol=1e-6)
    later = replay(protocol, begun, log, ~gone)
    assert np.abs(np.asarray(later.weights) - np.asarray(recorded(protocol, absent)[1].weights)).max() > 1e-3


@pytest.mark.parametrize("aggregate", ["mean", "clip-quantile", "median-of-means"])
def test_who_is_not_heard_does_not_matter(aggregate):
    protocol = tiny_protocol(aggregate=aggregate)
    (exchange,) = protocol.exchanges
    state = protocol.init(jax.random.key(0))
    random = np.random.default_rng(0)
    plus, minus = (jnp.asarray(random.integers(0, 5041, 8), jnp.int32) for _ in range(2))
    seeds = jnp.arange(8, dtype=jnp.uint32)
    arrived = np.array([True, True, False, True, False, True, True, True])
    with_noise = exchange.tell(state, Reply(seeds, plus, minus), jnp.asarray(arrived))
    only = exchange.tell(state, Reply(seeds[arrived], plus[arrived], minus[arrived]), jnp.ones(6, bool))
    np.testing.assert_allclose(with_noise.weights, only.weights, rtol=1e-5)
    nobody = exchange.tell(with_noise, Reply(seeds, plus, minus), jnp.zeros(8, bool))
    np.testing.assert_array_equal(nobody.weights, with_noise.weights)


def test_honest_groups_without_a_difference_are_groups():
    """Five honest messages, three of them with equal halves, against four attackers who agree."""
    protocol = tiny_protocol(aggregate="median-of-means", byzantine=4)
    (exchange,) = protocol.exchanges
    state = protocol.init(jax.random.key(0))
    plus = np.array([100, 200, 300, 2520, 0, 5040, 5040, 5040, 5040])
    minus = np.array([100, 200, 300, 1260, 1260, 0, 0, 0, 0])
    seeds = np.array([0, 1, 2, 3, 4, 9, 9, 9, 9], np.uint32)
    told = exchange.tell(state, Reply(*map(jnp.asarray, (seeds, plus, minus))), jnp.ones(9, bool))
    gradients = np.stack([perturbation(int(s), FEATURES) for s in seeds]) * (plus - minus)[:, None]
    median = np.median(gradients, axis=0)
    # Adam's first step is the sign of the gradient, times the step size.
    np.testing.assert_allclose(np.asarray(told.weights), 1e-3 * np.sign(median), rtol=1e-2, atol=1e-9)
    assert not np.array_equal(np.sign(median), np.sign(gradients[-1]))


def test_replay_knows_who_was_not_heard():
    protocol = tiny_protocol(sigma=0.3, learning_rate=0.3)
    parties = tiny_parties(protocol, 6)
    simulator = Simulator(protocol, conditions=Conditions(dropout=0.5), record=True)
    keys = run_keys([0, 1])
    begun, own = simulator.start(keys, parties)
    states, _, seen = simulator.advance(keys, begun, parties.shared, own, 0, 5)
    assert not np.asarray(seen["arrived"]).all()
    again = replay(protocol, begun, seen["replies"], seen["arrived"])
    np.testing.assert_allclose(again.weights, states.weights, rtol=1e-6)


def test_a_value_that_no_honest_device_can_have_is_not_counted():
    protocol = tiny_protocol()
    (exchange,) = protocol.exchanges
    state = protocol.init(jax.random.key(0))
    seeds = jnp.arange(3, dtype=jnp.uint32)
    honest = exchange.tell(state, Reply(seeds[:2], jnp.asarray([10, 20]), jnp.asarray([700, 100])), jnp.ones(2, bool))
    attacker = Reply(seeds, jnp.asarray([10, 20, 10**6]), jnp.asarray([700, 100, 0]))
    np.testing.assert_allclose(exchange.tell(state, attacker, jnp.ones(3, bool)).weights, honest.weights, rtol=1e-6)


def test_devices_report_as_many_interactions_as_they_had():
    """Amounts that differ: the sums of a device with half the interactions are those of its first halves."""
    protocol = tiny_protocol()
    (exchange,) = protocol.exchanges
    draws = exchange.draw(jax.random.key(3))
    patterns = jnp.asarray([[1, 2], [4, 8]], jnp.int32)  # first clicks at ranks 1 to 4
    half = exchange.report(draws, patterns, jnp.asarray([[True, False], [True, False]]))
    assert (int(half.plus), int(half.minus)) == (2520, 2520 // 3)
    whole = exchange.report(draws, patterns)
    assert (int(whole.plus), int(whole.minus)) == (2520 + 1260, 2520 // 3 + 2520 // 4)
    parties = tiny_parties(protocol, 3)
    few = parties.own._replace(amount=jnp.asarray([2, 4, 4], jnp.int32))
    request = exchange.ask(protocol.init(jax.random.key(0)))
    answer = jax.vmap(lambda own: exchange.answer(request, Party(parties.shared, own), jax.random.key(1))[1])
    replies = answer(few)
    assert FEATURES and int(replies.plus[0]) <= 2520 and int(replies.plus[1]) == int(replies.plus[2])


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_noise_on_the_sums_has_the_promised_spread(mechanism):
    protocol = tiny_protocol(mechanism=mechanism, epsilon=1.0)
    (exchange,) = protocol.exchanges
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = np.asarray(jax.vmap(lambda key: exchange.draw(key).noise)(keys), float)
    noise = protocol.privacy.noise
    # Discrete Laplace of scale t: variance 2α/(1 − α)², α = e^(−1/t).
    alpha = np.exp(-1 / noise.scale)
    variance = 2 * alpha / (1 - alpha) ** 2 if mechanism == "laplace" else noise.scale**2
    kurtosis = 6 if mechanism == "laplace" else 3
    assert abs(drawn.var() / variance - 1) < 4 * np.sqrt((kurtosis - 1) / drawn.size)
    # ε of one interaction: a value changes by up to 2,520 steps.
    if mechanism == "laplace":
        assert 2520 / noise.scale == pytest.approx(1.0)
    assert np.asarray(exchange.draw_from_os().noise).shape == (2,)
    report = protocol.account(10, 1e-6)
    if mechanism == "laplace":
        assert report.epsilon_round == pytest.approx(4.0)
    assert report.epsilon(Unit.INTERACTION) == 1.0
