"""Platforms and their coordinator: who is not heard does no harm, and moments that are learnt from correspond."""

import math
import threading

import jax
import numpy as np
import pytest
from platform_worlds import (
    BATCH,
    BATCHES,
    COMPARE_A,
    COMPARE_B,
    LOOK,
    RECOMMEND,
    ROUNDS,
    SETTINGS,
    STEP_A,
    TARGETS,
    answering,
    as_simulated,
    coordinated,
    response,
    same,
    served,
    terms,
)

from fedrank.core.ledger import Ledger
from fedrank.deploy.http.client import ClientResponse
from fedrank.deploy.platforms.client import PlatformClient, visits
from fedrank.deploy.platforms.folder import PlatformFolder, pack_tree
from fedrank.deploy.platforms.platform import Platform
from fedrank.deploy.platforms.rounds import Silence
from fedrank.deploy.platforms.service import Asking, coordinate
from fedrank.deploy.platforms.terms import RefusedError


# -- the whole thing -----------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_two_platforms_and_a_coordinator_over_http_go_through_rounds_and_count_every_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(Platform, "warm", lambda self: None)
    agreed, lived, seen, rounds = terms(), [], [], 4
    with served(tmp_path / "a", agreed, 0) as a, served(tmp_path / "b", agreed, 1) as b:
        clients = [PlatformClient.of_folder(home.path) for home in (a, b)]
        users = threading.Thread(target=lambda: lived.extend(visits(agreed, clients, rounds)))
        users.start()
        asking = Asking([str(a.path), str(b.path)], patience=math.inf)
        coordinate(PlatformFolder(tmp_path / "c"), agreed, asking, rounds, seen.append, seeded=True)
        users.join()
    assert [one.learnt for one in seen] == [None, None, None, True] and all(one.heard.all() for one in seen)
    assert all((one.engagement > 0).all() for one in lived) and [one.over for one in lived] == [
        False,
        False,
        True,
        False,
    ]
    got: dict = {}
    for entry in Ledger.read(tmp_path / "c" / "ledger.jsonl"):
        key = entry.exchange, entry.message
        got[key] = got.get(key, 0) + entry.bytes
    n, b, head, word, pair = 4 * 3, BATCH, 1, 4, 8  # bytes of N values, B, and of parts of messages
    assert got == {
        ("look", "RoundStart"): 8 * (head + word),
        ("look", "LocalValues"): 8 * (head + n),
        ("recommend", "SharedValues"): 8 * (head + word + n),
        ("recommend", "Done"): 8 * head,
        ("batch", "BatchAges"): 2 * (head + word + 4 * b),
        ("batch", "BatchValues"): 2 * (head + 2 * b * n),
        ("targets", "NextValues"): head + b * n,
        ("targets", "Targets"): head + 4 * b + pair,
        ("compare", "LossInputs"): 2 * (head + b * n + 4 * b + pair),
        ("compare", "LossGradient"): 2 * (head + b * n),
        ("step", "ValueGradient"): 2 * (head + b * n),
        ("step", "NewValues"): head + b * n,
        ("step", "Done"): head,
    }


@pytest.mark.slow
def test_two_platforms_over_http_say_what_the_protocols_functions_say_in_a_plain_loop(tmp_path, monkeypatch):
    agreed, crossed = terms(slates={**SETTINGS["slates"], "burn_in": 3}), {}
    answer = Platform.answer

    def recorded(self, number, place, body):
        reply = answer(self, number, place, body)
        crossed[number, place, self.index] = body, reply
        return reply

    monkeypatch.setattr(Platform, "answer", recorded)
    lived, rounds = [], []
    with served(tmp_path / "a", agreed, 0) as a, served(tmp_path / "b", agreed, 1) as b:
        clients = [PlatformClient.of_folder(home.path) for home in (a, b)]
        users = threading.Thread(target=lambda: lived.extend(visits(agreed, clients, ROUNDS, seeded=True)))
        users.start()
        asking = Asking([str(a.path), str(b.path)], patience=math.inf)
        home = PlatformFolder(tmp_path / "c")
        coordinator = coordinate(home, agreed, asking, ROUNDS, rounds.append, seeded=True)
        users.join()
    expected, state, own, engagement = as_simulated(agreed, ROUNDS)
    assert crossed.keys() == expected.keys()
    for key, (sent, reply) in expected.items():
        exchange, got = agreed.exchanges[key[1]], crossed[key]
        assert same(exchange.request, got[0], sent) and same(exchange.reply, got[1], reply), key
    alike = sum(crossed[key] == expected[key] for key in expected)
    assert alike > len(expected) / 2, "and most to the last bit; what a user engages is rounded as it is compiled"
    assert [seen.learnt for seen in rounds] == [None, None, None, True, None, True, None, True]
    assert all(seen.heard.all() for seen in rounds)
    for name in ("weights", "target", "values", "targets", "gradient"):
        got, wanted = (np.asarray(getattr(one, name)) for one in (coordinator.state, state))
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5, err_msg=name)
    assert int(coordinator.state.round) == ROUNDS
    np.testing.assert_allclose([seen.engagement for seen in lived], engagement, rtol=1e-5)
    assert [seen.over for seen in lived] == [False, False, True] * 2 + [False, False]
    for index in range(2):
        mine = jax.tree.map(lambda leaf, index=index: leaf[index], own)
        again = a_platform_of(tmp_path / "ab"[index], agreed, index)
        again._end_rounds(ROUNDS)  # what it would do before the next question
        for name in ("weights", "target", "choice", "slate", "mean"):
            got, wanted = np.asarray(getattr(again._own, name)), np.asarray(getattr(mine, name))
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5, err_msg=name)
        # The newest moment's end is not known before the next user comes.
        kept, lives = jax.tree.map(np.asarray, again._own.replay), jax.tree.map(np.asarray, mine.replay)
        for name in ("items", "slate", "item", "slot", "engagement", "over", "user"):
            np.testing.assert_allclose(getattr(kept, name), getattr(lives, name), rtol=1e-5, atol=1e-6, err_msg=name)
    sizes = {}
    for (_, place, _), (sent, reply) in expected.items():
        for sender, data in (("server", sent), ("parties", reply)):
            key = agreed.exchanges[place].name, sender
            sizes[key] = sizes.get(key, 0) + len(data)
    got = {}
    for entry in Ledger.read(tmp_path / "c" / "ledger.jsonl"):
        got[entry.exchange, entry.sender] = got.get((entry.exchange, entry.sender), 0) + entry.bytes
    assert got == sizes


def a_platform_of(folder, agreed, index):
    return Platform(agreed, index, PlatformFolder(folder).open_store(f"platform {index}", agreed, True), seeded=True)


# -- the coordinator -----------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_coordinator_that_is_killed_in_a_round_asks_again_and_everything_is_as_if_it_had_not_been(tmp_path):
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    whole, _ = coordinated(tmp_path / "whole")
    with whole:
        list(whole.run(ROUNDS))
    cut, peers = coordinated(tmp_path / "cut")
    with cut:
        list(cut.run(3))

        def dies(number, place):
            if (number, place) == (3, COMPARE_B):
                raise KeyboardInterrupt
            return False

        peers[1].away = dies
        with pytest.raises(KeyboardInterrupt):
            list(cut.run(ROUNDS))
        assert cut.done == 3
    assert (3, STEP_A) in peers[0].asked
    for one in peers:
        one.platform._store.close()
    cut._store.close()
    cut, peers = coordinated(tmp_path / "cut")
    with cut:
        assert cut.done == 3
        list(cut.run(ROUNDS))
    assert pack_tree(cut.state) == pack_tree(whole.state)
    assert [counts.tolist() for _, counts in cut.message_counts] == [
        counts.tolist() for _, counts in whole.message_counts
    ]


def test_who_is_not_heard_counts_as_nothing_and_is_asked_nothing_more_in_the_round(tmp_path):
    coordinator, (a, b) = coordinated(tmp_path)
    b.away = lambda number, place: (number, place) == (5, LOOK)
    with coordinator:
        seen = list(coordinator.run(6))
    assert [one.heard.tolist() for one in seen] == [[True, True]] * 5 + [[True, False]]
    assert not np.asarray(coordinator.state.values[1]).any() and np.asarray(coordinator.state.values[0]).any()
    assert [place for number, place in b.asked if number == 5] == []
    assert [place for number, place in a.asked if number == 5] == [LOOK, RECOMMEND, BATCHES, TARGETS, COMPARE_A, STEP_A]


def test_without_a_target_nobody_learns(tmp_path):
    coordinator, (a, b) = coordinated(tmp_path)
    a.deaf = lambda number, place: place == TARGETS
    with coordinator:
        before = pack_tree(coordinator.state.weights)
        assert list(coordinator.run(4))[-1].learnt is False
    assert pack_tree(coordinator.state.weights) == before
    assert {place for _, place in b.asked} == {LOOK, RECOMMEND, BATCHES}


def test_a_round_in_which_nobody_is_heard_is_none(tmp_path):
    coordinator, peers = coordinated(tmp_path)
    with coordinator:
        list(coordinator.run(1))
        for one in peers:
            one.away = lambda number, place: True
        assert coordinator.round() is None and coordinator.done == 1
        for one in peers:
            one.away = lambda number, place: False
        assert [one.number for one in coordinator.run(2)] == [1]


def test_batches_are_of_moments_that_every_platform_has(tmp_path):
    coordinator, (a, b) = coordinated(tmp_path, of=terms(slates={**SETTINGS["slates"], "burn_in": 3}))
    lost = {1, 8, 17}
    b.away = lambda number, place: number in lost
    batches = []
    answer = a.platform.answer

    def kept(number, place, body):
        if place == BATCHES:
            batches.append((number, a.platform.terms.exchanges[BATCHES].request.decode(body).ages))
        return answer(number, place, body)

    a.platform.answer = kept
    with coordinator:
        seen = list(coordinator.run(30))
    assert sum(bool(one.learnt) for one in seen) >= 8
    moments = {(number, number - int(age)) for number, ages in batches for age in ages}
    for number, moment in moments:
        assert moment not in lost, (number, moment)
        assert moment + 1 not in lost - {number}, "what its target looks at is not known"
        assert moment + 1 <= number
    assert len({moment for _, moment in moments}) > 8


def test_a_coordinator_joins_platforms_that_have_gone_on_alone(tmp_path):
    coordinator, peers = coordinated(tmp_path)
    with coordinator:
        list(coordinator.run(2))
        for one in peers:
            one.exchange(1, BATCHES, b"", 0.0)  # its users act
            for number in range(2, 5):
                one.platform.visit(number, [0.2, 0.4, 0.6], 0.5, False)
                one.platform.recommend_alone(number)
                one.platform.outcome(number)
        assert [one.number for one in coordinator.run(7)] == [5, 6]
        assert [one.platform.missing(6) for one in peers] == [[(6, 6)]] * 2, "but for the round that goes on"


# -- a platform that does what it should not -----------------------------------------------------------------------
def test_a_visit_of_a_round_that_cannot_be_is_refused_and_changes_nothing(tmp_path):
    coordinator, (one, other) = coordinated(tmp_path)
    with coordinator:
        list(coordinator.run(2))
        one.exchange(1, BATCHES, b"", 0.0)
        before = one.platform.about()
        for number in (2**32 - 1, 2**31 - 1, 2**31 - 2, before["round"] + 1_000_001, -1):
            with pytest.raises(RefusedError, match="out-of-range"):
                one.platform.visit(number, [0.2, 0.4, 0.6], 0.5, False)
        assert one.platform.about() == before and other.platform.about()["round"] == before["round"]


@pytest.mark.parametrize("claim", [3, 1000, 2**31 - 2, 2**32 - 1, 10**30])
def test_one_platform_that_says_it_is_far_ahead_does_not_take_the_others_along(tmp_path, claim):
    coordinator, peers = coordinated(tmp_path)
    with coordinator:
        list(coordinator.run(2))
        peers[0].exchange = lambda *_: Silence("stale-round", claim)
        seen = list(coordinator.run(5))
        assert [one.number for one in seen] == [2, 3, 4]
        assert all(one.heard.tolist() == [False, True] for one in seen)


def test_platforms_that_are_both_ahead_are_joined_at_the_first_round_of_either(tmp_path):
    coordinator, peers = coordinated(tmp_path)
    with coordinator:
        list(coordinator.run(2))
        peers[1].exchange(1, BATCHES, b"", 0.0)
        for number in range(2, 5):
            peers[1].platform.visit(number, [0.2, 0.4, 0.6], 0.5, False)
            peers[1].platform.recommend_alone(number)
            peers[1].platform.outcome(number)
        peers[0].exchange = lambda *_: Silence("stale-round", 10**9)
        assert [one.number for one in coordinator.run(6)] == [5]


@pytest.mark.parametrize(
    "reply",
    [
        lambda: ClientResponse(200, b"short"),
        lambda: response(401, {}, "unauthorised"),
        lambda: response(422, {}, "out-of-range"),
        lambda: response(500, {}),
    ],
    ids=["wrong length", "unauthorised", "out of range", "500"],
)
def test_a_platform_that_was_right_once_is_silent_when_it_is_wrong_and_stops_nobody(reply):
    peer = answering([reply()])
    assert isinstance(peer.exchange(0, LOOK, b"", 0.0), Silence)
    assert isinstance(peer.exchange(1, LOOK, b"", 0.0), Silence)


@pytest.mark.parametrize("said", [{"missing": 3}, {"missing": [[1, "x"]]}, {"missing": [[1e999, 2]]}, {}, [1]])
def test_what_makes_no_sense_about_missing_rounds_is_silence(said):
    assert isinstance(answering([response(200, said)]).missing(5, 0.0), Silence)
