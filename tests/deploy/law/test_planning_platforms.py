"""Platforms that plan, and their coordinator: a simulator's numbers, whoever is killed when; what is counted once."""

import threading
import warnings

import jax
import numpy as np
import pytest
from planning_worlds import Application, Direct, coordinator_in, explore, platform_in, question, simulated
from platform_worlds import same

from fedrank.core.errors import ConfigError, FedrankWarning
from fedrank.deploy.platforms.client import visits
from fedrank.deploy.platforms.service import ledger_of
from fedrank.deploy.platforms.terms import NotYetError, RefusedError, Terms
from fedrank.engine.settings import from_dict
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.slates.build import PLATFORMS

ROUNDS, STAY, EXPLORERS = 15, 3, 3
LAST = STAY * EXPLORERS - 1
SHOW, RELEASE, PLAN = range(3)
SETTINGS = {
    "protocol": "planned-slates",
    "rounds": ROUNDS,
    "seed": 5,
    "world": {"preset": "tension", "candidates": 4, "slate": 2, "time_budget": 2 * STAY},
    "slates": {"explorers": EXPLORERS, "hold": 0.5},
    "evaluation": {"every": 5},
}


@pytest.fixture(scope="module")
def agreed():
    return Terms.of(from_dict(SETTINGS))


def lived_through(folder, agreed, *, reborn=None, lost=lambda attempt: False):
    """All rounds with their users, the coordinator at its time; platforms, coordinator, peers, rounds."""
    holder = {index: platform_in(folder, agreed, index) for index in range(2)}
    peers = [Direct(holder, index, lost) for index in range(2)]
    told = []

    def before(number):
        if number == LAST + 1 and not told:
            with coordinator_in(folder, agreed, peers) as coordinator:
                coordinator.run(told.append)
                told.append(coordinator)

    clients = [Application(holder, index, reborn, before) for index in range(2)]
    rounds = list(visits(agreed, clients, ROUNDS, seeded=True))
    return holder, told[-1], peers, rounds


@pytest.mark.minutes
@pytest.mark.parametrize("how", ["whole", "killed at every step, replies lost"])
def test_processes_learn_and_show_what_a_simulator_does(tmp_path, agreed, how):
    more = {}
    if how != "whole":
        more = {"reborn": lambda index: platform_in(tmp_path, agreed, index), "lost": lambda attempt: attempt % 2}
    holder, coordinator, peers, rounds = lived_through(tmp_path, agreed, **more)
    state, own, seen = simulated(agreed, ROUNDS)
    np.testing.assert_allclose(coordinator.state.model, state.model, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose([one.engagement for one in rounds], seen["world"]["engagement"][:, 0], rtol=1e-5)
    for index in range(2):
        mine = holder[index]._own
        np.testing.assert_array_equal(mine.sums, own.sums[index])
        np.testing.assert_allclose(mine.learnt.table, own.learnt.table[index], rtol=1e-5)
        np.testing.assert_allclose(mine.view.known, own.view.known[index], rtol=1e-5, atol=1e-6)
    for peer in peers:  # a repeated request was answered with the same bytes
        for place in (RELEASE, PLAN):
            assert len({reply for at, reply in peer.attempts if at == place}) <= 1
    again = coordinator_in(tmp_path, agreed, peers)
    assert again.done and np.array_equal(again.state.model, coordinator.state.model)
    ledger = ledger_of(again)
    # Five sums of four bytes of each, and two who have done so; both are told four weights. A byte begins a message.
    assert ledger.bytes_from("parties") == 2 * (1 + 20 + 1) and ledger.bytes_from("server") == 2 * (1 + 4 + 1 + 16)
    crossed = seen["crossed"][:, 0].sum(axis=0)
    np.testing.assert_array_equal(again.message_counts[0][1][1:], crossed[1:])
    assert [first for first, _ in again.message_counts] == [LAST // 5 * 5]


@pytest.mark.minutes
def test_users_that_take_jax_are_served_as_a_simulator_serves_them(tmp_path):
    agreed = Terms.of(from_dict({**SETTINGS, "world": {**SETTINGS["world"], "choice": "cascade"}}))
    assert not agreed.native
    _, coordinator, _, rounds = lived_through(tmp_path, agreed)
    simulator, keys = Simulator(agreed.protocol), run_keys([agreed.config.seed])
    own_keys = jax.vmap(lambda key: jax.random.fold_in(key, PLATFORMS))(keys)
    states, own = simulator.start(keys, agreed.protocol.parties(own_keys), per_run=True)
    states, _, seen = simulator.advance(keys, states, None, own, 0, ROUNDS)
    np.testing.assert_allclose(coordinator.state.model, simulator.models(states)[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose([one.engagement for one in rounds], seen["world"]["engagement"][:, 0], rtol=1e-5)


def test_a_hundredth_of_fedslates_bytes(agreed):
    """For as many users; FedSlate learns every third round of a run, and is asked in every one."""
    ours = ledger_bytes(agreed.exchanges, 2, {RELEASE: 2, PLAN: 2})
    other = Terms.of(from_dict({**SETTINGS, "protocol": "vertical-slate", "rounds": 12_200, "slates": {}}))
    least = 12_200 * ledger_bytes(other.exchanges, 2, {0: 2, 1: 2})  # acting alone
    assert 100 * ours < least


def ledger_bytes(exchanges, platforms, asked):
    return sum(count * (exchanges[p].request.nbytes + exchanges[p].reply.nbytes) for p, count in asked.items())


@pytest.mark.minutes
def test_noise_is_drawn_once_whatever_is_lost(tmp_path):
    private = Terms.of(from_dict({**SETTINGS, "sharing": {"epsilon": 1.0}}))
    platform = platform_in(tmp_path, private, seeded=False)
    body = question(private, RELEASE, round=LAST)
    with pytest.raises(NotYetError):
        platform.answer(LAST, RELEASE, body)
    explore(platform, LAST + 1)
    first = platform.answer(LAST, RELEASE, body)
    assert platform.answer(LAST, RELEASE, body) == first
    again = platform_in(tmp_path, private, seeded=False)
    assert again.answer(LAST, RELEASE, body) == first, "and after a kill"
    other = platform_in(elsewhere(tmp_path), private, seeded=False)
    explore(other, LAST + 1)
    assert other.answer(LAST, RELEASE, body) != first, "another's noise is another"
    released = private.exchanges[RELEASE].reply.decode(first).sums
    assert not np.array_equal(released, again._own.sums)


def elsewhere(folder):
    (folder / "other").mkdir()
    return folder / "other"


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_a_stay_counts_once_and_only_if_it_was_whole(tmp_path, agreed, index):
    """At a platform without feedback too."""
    s = agreed.protocol
    counted = platform_in(tmp_path, agreed, index)
    explore(counted, STAY)
    whole = np.asarray(counted._own.sums)
    assert whole.any() and np.linalg.norm(whole) <= 2**14
    explore(counted, 2, STAY, lambda number: False, 1e30)
    np.testing.assert_array_equal(counted._own.sums, whole, "who stays longer adds nothing more")
    explore(counted, 1, STAY + 2, lambda number: True)
    explore(counted, 1, STAY + 3, lambda number: True)
    np.testing.assert_array_equal(counted._own.sums, whole, "who leaves before the end adds nothing")
    assert counted.round <= s.release_round


@pytest.mark.slow
@pytest.mark.slow
def test_users_who_take_turns_are_said_to_give_nothing(tmp_path, agreed):
    """Two users who alternate: every visit is a newcomer's, no stay is whole, and every sum is 0."""
    platform = platform_in(tmp_path, agreed)
    explore(platform, LAST + 1, newcomer=lambda number: True)
    assert (platform.stays, platform.cut_short) == (0, LAST)
    with pytest.warns(FedrankWarning, match="one user after another"):
        reply = platform.answer(LAST, RELEASE, question(agreed, RELEASE, round=LAST))
    assert not np.any(np.asarray(agreed.exchanges[RELEASE].reply.decode(reply).sums))
    again = platform_in(tmp_path, agreed)  # after a restart
    assert (again.stays, again.cut_short) == (0, LAST)


@pytest.mark.slow
def test_whole_stays_are_counted_and_nothing_is_said(tmp_path, agreed):
    platform = platform_in(tmp_path, agreed)
    explore(platform, LAST + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        platform.answer(LAST, RELEASE, question(agreed, RELEASE, round=LAST))
    assert (platform.stays, platform.cut_short) == (EXPLORERS, 0)


def test_without_a_plan_a_platform_goes_on_exploring_and_counts_nothing_more(tmp_path, agreed):
    platform = platform_in(tmp_path, agreed)
    explore(platform, LAST + 1)
    sums = np.asarray(platform._own.sums)
    for number in range(LAST + 1, LAST + 1 + STAY):
        platform.visit(number, [0.1, 0.9, 0.5, 0.3], 0.5, number == LAST + 1)
        with pytest.raises(NotYetError):
            platform.slate(number)
        slate = platform.recommend_alone(number)
        assert sorted(slate) in ([0, 3], [1, 2]), "of one taste"
        platform.outcome(number, 0, 10.0)
    assert platform.alone == STAY
    np.testing.assert_array_equal(platform._own.sums, sums)
    body = question(agreed, RELEASE, round=LAST)
    layout = agreed.exchanges[RELEASE].reply
    np.testing.assert_array_equal(layout.decode(platform.answer(LAST, RELEASE, body)).sums, sums)
    platform.visit(LAST + 1 + STAY, [0.1, 0.9, 0.5, 0.3], 0.5, True)
    platform.answer(LAST, PLAN, question(agreed, PLAN, weights=np.array([1.0, 0.5, 0.1, 0.1], np.float32)))
    assert platform.has_planned and len(platform.slate(LAST + 1 + STAY)) == 2, "who waits gets the plan's"


@pytest.mark.slow
def test_requests_that_make_no_sense_change_nothing(tmp_path, agreed):
    platform = platform_in(tmp_path, agreed)
    explore(platform, LAST + 1)
    good = question(agreed, RELEASE, round=LAST)
    weights = question(agreed, PLAN, weights=np.ones(4, np.float32))
    for number, place, body, why in (
        (LAST, SHOW, good, "not-found"),
        (LAST, 7, good, "not-found"),
        (LAST, RELEASE, good[:-1], "malformed"),
        (LAST, RELEASE, weights, "malformed"),
        (LAST - 1, RELEASE, question(agreed, RELEASE, round=LAST - 1), "not-due"),
        (LAST, RELEASE, question(agreed, RELEASE, round=LAST - 1), "out-of-range"),
        (LAST - 1, PLAN, weights, "not-due"),
    ):
        with pytest.raises(RefusedError, match=why):
            platform.answer(number, place, body)
    platform.answer(LAST, RELEASE, good)
    huge = question(agreed, PLAN, weights=np.full(4, 3e38, np.float32))
    with pytest.raises(RefusedError, match="not-finite"):
        platform.answer(LAST, PLAN, huge)
    platform.answer(LAST, PLAN, weights)
    with pytest.raises(RefusedError, match="conflict"):
        platform.answer(LAST, PLAN, question(agreed, PLAN, weights=np.zeros(4, np.float32)))
    for said in ((LAST + 1, 0, 0.0), (LAST + 1, 5, 1.0), (LAST + 1, None, 1.0)):
        with pytest.raises(RefusedError, match="out-of-range"):
            platform.outcome(*said)
    with pytest.raises(RefusedError, match="stale-round"):
        platform.visit(LAST - 1, [0.1] * 4, 0.5, True)
    with pytest.raises(RefusedError, match="out-of-range"):
        platform.visit(2**40, [0.1] * 4, 0.5, True)


@pytest.mark.slow
def test_a_platform_that_does_not_come_is_left_out_and_told_later(tmp_path):
    both = Terms.of(from_dict({**SETTINGS, "slates": {**SETTINGS["slates"], "feedback": "all"}}))
    holder = {0: platform_in(tmp_path, both, 0), 1: platform_in(tmp_path, both, 1)}
    explore(holder[0], LAST + 1)
    stop, steps = threading.Event(), []
    peers = [Direct(holder, index) for index in range(2)]

    def step(one):
        steps.append((one.what, one.platform))
        if one.what == "plan":
            stop.set()

    with coordinator_in(tmp_path, both, peers, patience=0.1, stop=stop) as coordinator:
        coordinator.run(step)
    assert steps == [("sums", 0), ("plan", 0)] and coordinator.heard.tolist() == [True, False]
    alone = both.exchanges[RELEASE].reply.decode(coordinator.sums[0]).sums
    layout = both.exchanges[RELEASE].reply
    assert same(layout, coordinator.sums[0], layout.encode(layout.message(alone)))
    explore(holder[1], LAST + 1)
    holder[1].answer(LAST, RELEASE, question(both, RELEASE, round=LAST))
    with coordinator_in(tmp_path, both, peers, patience=0.1) as again:
        again.run()
    assert again.done and not again.heard[1] and holder[1].has_planned
    np.testing.assert_array_equal(holder[1]._own.model, coordinator.state.model)


@pytest.mark.slow
def test_without_the_sums_of_a_platform_with_feedback_there_is_no_model(tmp_path, agreed):
    """What a platform without feedback sends starts no clock, however soon it comes."""
    holder = {0: platform_in(tmp_path, agreed, 0), 1: platform_in(tmp_path, agreed, 1)}
    explore(holder[1], LAST + 1)
    peers, stop = [Direct(holder, index) for index in range(2)], threading.Event()

    def step(one):
        assert (one.what, one.platform) == ("sums", 1)
        threading.Timer(0.5, stop.set).start()

    with coordinator_in(tmp_path, agreed, peers, patience=0.01, stop=stop) as coordinator:
        coordinator.run(step)
    assert not coordinator.informed_platforms and not np.any(coordinator.state.model)
    explore(holder[0], LAST + 1)
    with coordinator_in(tmp_path, agreed, peers, patience=0.01) as again:
        again.run()
    assert again.done and again.heard.all() and np.all(again.state.model[2:] != 0)


@pytest.mark.slow
def test_sums_of_more_users_than_there_were_are_not_heard(tmp_path, agreed):
    stop, attempts = threading.Event(), []
    layout = agreed.exchanges[RELEASE].reply

    class Liar(Direct):
        def exchange(self, number, place, body, patience):
            attempts.append(place)
            if len(attempts) == 3:
                stop.set()
            return layout.encode(layout.message(np.array([2**14 * EXPLORERS, 2**13, 0, 0, 0], np.int32)))

    with coordinator_in(tmp_path, agreed, [Liar({}, 0), Liar({}, 1)], stop=stop) as coordinator:
        coordinator.run()
    assert not coordinator.sums and set(attempts) == {RELEASE} and not coordinator.informed_platforms


def test_other_protocols_have_no_terms():
    with pytest.raises(ConfigError, match="nothing to coordinate"):
        Terms.of(from_dict({"protocol": "slateq"}))
