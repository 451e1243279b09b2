"""Sessions of a platform: a simulator's numbers one after the other, anybody's in any order, whoever is killed when."""

import contextlib
import dataclasses
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planning_worlds import Application, Direct, coordinator_in, explore, platform_in, question, seeded, simulated

import fedrank
from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.http.guard import RefusedError
from fedrank.deploy.platforms.client import PlatformClient, visits
from fedrank.deploy.platforms.folder import MOST_CALLS, NotYetError, PlatformFolder, Terms
from fedrank.deploy.platforms.planning_platform import REMEMBERED, PlanningPlatform
from fedrank.deploy.platforms.service import ListenAt, platform_servers
from fedrank.engine.settings import from_dict, read_config
from fedrank_zoo.reproduce.study import load_file

ROUNDS, STAY, EXPLORERS = 16, 4, 2
LAST = STAY * EXPLORERS - 1
SHOW, RELEASE, PLAN = range(3)
SETTINGS = {
    "protocol": "planned-slates",
    "rounds": ROUNDS,
    "seed": 5,
    "world": {"preset": "tension", "candidates": 4, "slate": 2, "time_budget": 2 * STAY},
    "slates": {"explorers": EXPLORERS, "hold": 0.5, "evidence": 0.0},
    "evaluation": {"every": 5},
}
FOUR = [0.1, 0.9, 0.5, 0.3]
WEIGHTS = np.array([1.0, 0.5, 0.1, 0.1], np.float32)


@pytest.fixture(scope="module")
def agreed():
    return Terms.of(from_dict(SETTINGS))


@pytest.mark.parametrize("how", ["whole", "killed at every call, replies lost"])
def test_one_after_the_other_they_are_a_simulators(tmp_path, agreed, how):
    more, lost = {}, lambda attempt: False
    if how != "whole":
        more, lost = {"reborn": lambda index: platform_in(tmp_path, agreed, index)}, lambda attempt: attempt % 2
    holder = {index: platform_in(tmp_path, agreed, index) for index in range(2)}
    peers, told = [Direct(holder, index, lost) for index in range(2)], []

    def before(users):
        if users == EXPLORERS and not told:
            told.append(None)
            with coordinator_in(tmp_path, agreed, peers) as coordinator:
                coordinator.run()
            told[0] = coordinator

    clients = [Application(holder, index, before=before, **more) for index in range(2)]
    rounds = list(visits(seeded(agreed), clients, ROUNDS // STAY))
    state, own, seen = simulated(agreed, ROUNDS)
    np.testing.assert_array_equal(told[0].state.model, state.model)
    np.testing.assert_array_equal([one.engagement for one in rounds], seen["world"]["engagement"][:, 0])
    for index in range(2):
        np.testing.assert_array_equal(holder[index]._own.sums, own.sums[index])
        np.testing.assert_array_equal(holder[index]._own.learnt.table, own.learnt.table[index])
    for peer in peers:  # a repeated request was answered with the same bytes
        assert all(len({reply for at, reply in peer.attempts if at == place}) <= 1 for place in (RELEASE, PLAN))
    ledger = coordinator_in(tmp_path, agreed, peers).ledger()
    # Five sums of four bytes of each, and two who have done so; both are told four weights. A byte begins a message.
    assert ledger.bytes_from("parties") == 2 * (1 + 20 + 1) and ledger.bytes_from("server") == 2 * (1 + 4 + 1 + 16)


def test_who_alternate_are_stays_of_their_own(tmp_path, agreed):
    """Two users by turns add what they add one after the other; seeds follow who came first."""
    apart, mixed = platform_in(_in(tmp_path, "a"), agreed), platform_in(_in(tmp_path, "b"), agreed)
    for name in "xy":
        apart.begin(name), mixed.begin(name)
    for platform, order in (
        (apart, [(r, n) for n in "xy" for r in range(3)]),
        (mixed, [(r, n) for r in range(3) for n in "xy"]),
    ):
        for number, name in order:
            platform.slate(name, [FOUR[(number + i) % 4] for i in range(4)], observed=0.5)
            platform.outcome(name, number % 2, 5.0 + number)
        platform.end("x"), platform.end("y")
    np.testing.assert_array_equal(apart._own.sums, mixed._own.sums)
    assert np.any(apart._own.sums) and mixed.stays == 2


def _in(folder, name):
    (folder / name).mkdir()
    return folder / name


def test_candidates_are_any_number_by_features_or_by_id(tmp_path, agreed):
    platform = platform_in(tmp_path, agreed)
    values = np.random.default_rng(0).random(1000)
    platform.register({f"é{i}": value for i, value in enumerate(values)})
    platform.begin("s")
    shown = platform.slate("s", values.tolist())
    again = platform_in(tmp_path, agreed)  # after a restart
    assert again.slate("s", values.tolist()) == shown == again.slate("s", items=[f"é{i}" for i in range(1000)])
    assert sorted(values[shown]) in (sorted(values)[:2], sorted(values)[-2:]), "of one taste"
    assert len(again.slate("s", [0.5, 0.1])) == 2 and again.state()["items"] == 1000


def test_no_engagement_is_a_value_and_an_outcome_counts_once(tmp_path, agreed):
    platform = platform_in(tmp_path, agreed)
    platform.begin("s")
    platform.slate("s", FOUR)
    platform.outcome("s", 0, 0.0)
    stay = platform._sessions["s"].stay.copy()
    platform.outcome("s", 0, 0.0)
    np.testing.assert_array_equal(platform._sessions["s"].stay, stay)
    assert np.isfinite(stay).all() and np.any(stay)
    with pytest.raises(RefusedError, match="out-of-order"):
        platform.outcome("s", 1, 3.0)


def test_a_stay_ends_by_word_by_silence_or_when_it_is_whole_and_counts_once(tmp_path, agreed):
    platform = platform_in(tmp_path, agreed)
    explore(platform, 1)
    whole = np.asarray(platform._own.sums)
    longer = platform_in(_in(tmp_path, "longer"), agreed)
    explore(longer, 1, rounds=STAY + 3)
    np.testing.assert_array_equal(longer._own.sums[0], whole[0])
    assert longer.stays == 1
    silent = platform_in(_in(tmp_path, "silent"), agreed)
    silent.begin("s", now=100.0)
    for number in range(2):
        silent.slate("s", FOUR, observed=0.6, now=100.0)
        silent.outcome("s", 0, 20.0, now=100.0)
        assert silent.stays == 0, number
    silent.begin("t", now=100.0 + silent.silence + 2)
    assert silent.stays == 1 and "s" not in silent._sessions and np.any(silent._own.sums)
    silent.end("t")
    assert silent.cut_short == 1, "no round is too few"


def test_a_silent_stay_ends_whatever_is_asked_next_and_one_that_begins_again_is_heard(tmp_path, agreed):
    platform = platform_in(tmp_path, agreed)
    for name in "st":
        platform.begin(name, now=100.0)
    platform.begin("t", now=1500.0)
    platform.slate("t", FOUR, now=100.0 + platform.silence + 10)
    assert platform._sessions.keys() == {"t"}
    with pytest.raises(NotYetError):
        platform.answer(LAST, RELEASE, question(agreed, RELEASE, round=LAST))
    assert not platform._sessions, "the clock's time is much later"


def test_half_a_stay_counts_as_if_it_had_gone_on(tmp_path):
    """Twice the same two rounds are one whole stay twice as long, where the past is nothing: fade and trace are 0."""
    given = {
        **SETTINGS,
        "slates": {"explorers": 1, "observed": False, "differ": False, "evidence": 0.0},
        "sharing": {"clip": 1e4},
    }
    agreed = Terms.of(from_dict(given))
    half = platform_in(tmp_path, agreed)
    half.begin("s")
    half.slate("s", FOUR)
    half.outcome("s", 0, 20.0)
    one = half._sessions["s"].stay.copy()
    half.end("s")
    np.testing.assert_allclose(half._own.sums, STAY * one / 1e4 * 2**14, atol=1)


def test_noise_is_drawn_once_whatever_is_lost(tmp_path):
    private = Terms.of(from_dict({**SETTINGS, "sharing": {"epsilon": 1.0}}))
    platform, body = platform_in(tmp_path, private, seeded=False), question(private, RELEASE, round=LAST)
    with pytest.raises(NotYetError):
        platform.answer(LAST, RELEASE, body)
    explore(platform, EXPLORERS)
    first = platform.answer(LAST, RELEASE, body)
    assert platform_in(tmp_path, private, seeded=False).answer(LAST, RELEASE, body) == first, "and after a kill"
    other = platform_in(_in(tmp_path, "other"), private, seeded=False)
    explore(other, EXPLORERS)
    assert other.answer(LAST, RELEASE, body) != first, "another's noise is another"


def test_a_log_that_is_sent_again_counts_no_stay_twice(tmp_path, agreed):
    platform = platform_in(tmp_path, agreed)
    log: list[dict] = [{"call": "begin", "session": "s"}]
    for _ in range(STAY):
        log.append({"call": "slate", "session": "s", "candidates": FOUR, "observed": 0.6})
        log.append({"call": "outcome", "session": "s", "slot": 0, "engagement": 20.0})
    log.append({"call": "end", "session": "s"})
    assert not any("error" in answer for answer in platform.batch(log))
    again = platform_in(tmp_path, agreed)  # after a restart
    assert again.batch(log)[0]["error"] == "ended"
    assert (again.stays, again.begun) == (1, 1)
    np.testing.assert_array_equal(again._own.sums, platform._own.sums)
    later = time.time() + REMEMBERED + 10
    again.begin("s", now=later)
    assert again.begun == 2 and not again._store.below("ended/")


def test_a_batch_is_sent_once_and_other_calls_until_they_are_answered(monkeypatch):
    client, sent = PlatformClient("http://127.0.0.1:9", "t" * 32, patience=0.3), []

    def ask(method, path, body, limit):
        sent.append(path)
        raise TimeoutError("timed out")

    monkeypatch.setattr(client._client, "ask", ask)
    for call in (lambda: client.batch([{"call": "end", "session": "s"}]), lambda: client.end("s")):
        with pytest.raises(RunError, match="timed out"):
            call()
    assert sent.count("/v1/batch") == 1 < sent.count("/v1/end")


@pytest.mark.parametrize("drawn", [True, False])
def test_slates_are_shown_after_as_many_sessions_as_32_bits_can_count(tmp_path, agreed, drawn):
    platform = platform_in(tmp_path, agreed, seeded=drawn)
    platform.begun = 2**31 // STAY
    explore(platform, 2)
    assert platform.stays == 2
    again = platform_in(tmp_path, agreed, seeded=drawn)
    np.testing.assert_array_equal(again._own.learnt.lists, platform._own.learnt.lists)


def test_without_a_plan_slates_explore_on_and_with_it_they_are_its(tmp_path, agreed):
    platform = platform_in(tmp_path, agreed)
    explore(platform, EXPLORERS)
    sums = np.asarray(platform._own.sums)
    platform.begin("s")
    assert sorted(platform.slate("s", FOUR)) in ([0, 3], [1, 2]), "of one taste"
    platform.outcome("s", 0, 20.0)
    platform.end("s")
    np.testing.assert_array_equal(platform._own.sums, sums)
    platform.answer(LAST, PLAN, question(agreed, PLAN, weights=WEIGHTS))
    platform.begin("t")
    assert platform.has_planned and len(platform.slate("t", np.linspace(0, 1, 50))) == 2


def test_what_was_not_agreed_is_refused_with_what_was(tmp_path, agreed):
    platform = platform_in(tmp_path, agreed)
    platform.begin("s")
    for call, why, words in (
        (lambda: platform.slate("nobody", FOUR), "not-found", "session"),
        (lambda: platform.slate("s"), "malformed", "candidates or items"),
        (lambda: platform.slate("s", [0.1]), "malformed", "2 to"),
        (lambda: platform.slate("s", [[0.1, 0.2]] * 3), "malformed", "1 finite"),
        (lambda: platform.slate("s", [0.1, np.nan]), "out-of-range", "finite"),
        (lambda: platform.slate("s", items=["a", "b"]), "not-found", "registered"),
        (lambda: platform.slate("s", FOUR, observed=np.inf), "out-of-range", "finite"),
        (lambda: platform.outcome("s", 0, 1.0), "out-of-order", "slate"),
        (lambda: platform.outcome("s", 2, 1.0), "out-of-range", "0..1"),
        (lambda: platform.outcome("s", 0, -1.0), "out-of-range", "at least 0"),
        (lambda: platform.outcome("s", None, 1.0), "out-of-range", "slot"),
        (lambda: platform.begin(""), "malformed", "characters"),
        (lambda: platform.register({"": 0.5}), "malformed", "characters"),
        (lambda: platform.begin("\ud800"), "malformed", "characters"),
        (lambda: platform.register({"\ud800": 0.5}), "malformed", "characters"),
    ):
        with pytest.raises(RefusedError, match=why) as refused:
            call()
        assert words in refused.value.more["expected"]
    release = question(agreed, RELEASE, round=LAST)
    for number, place, body, why in (
        (LAST, SHOW, release, "not-found"),
        (LAST, RELEASE, release[:-1], "malformed"),
        (LAST - 1, RELEASE, question(agreed, RELEASE, round=LAST - 1), "not-due"),
        (LAST, RELEASE, question(agreed, RELEASE, round=LAST - 1), "out-of-range"),
    ):
        with pytest.raises(RefusedError, match=why):
            platform.answer(number, place, body)
    explore(platform, EXPLORERS)
    with pytest.raises(RefusedError, match="not-finite"):
        platform.answer(LAST, PLAN, question(agreed, PLAN, weights=np.full(4, 3e38, np.float32)))
    with pytest.raises(RunError, match=r"0\.\.1"):
        PlanningPlatform(agreed, 2, platform._store)
    for protocol in ("slateq", "vertical-slate", "foltr-es"):
        with pytest.raises(ConfigError):
            Terms.of(from_dict({"protocol": protocol}))


@pytest.mark.parametrize("bad", [1e39, pytest.param(10**400, id="10**400"), -1e39, 1e38, -0.01, 1.01])
def test_a_number_beyond_what_was_agreed_is_refused_and_costs_no_other_call(tmp_path, bad):
    quiet = Terms.of(from_dict({**SETTINGS, "world": {**SETTINGS["world"], "observation_noise": 0.0}}))
    platform = platform_in(tmp_path, quiet)
    platform.begin("s")
    calls = [
        {"call": "slate", "session": "s", "candidates": FOUR, "observed": bad},
        {"call": "slate", "session": "s", "candidates": [*FOUR, bad]},
        {"call": "register", "items": {"a": bad}},
        {"call": "slate", "session": "s", "candidates": FOUR, "observed": 1.0},
    ]
    *refused, last = platform.batch(calls)
    assert all({"error", "expected"} <= answer.keys() for answer in refused)
    assert len(last["slate"]) == 2 and platform.state()["items"] == 0


def test_an_observation_may_be_off_by_ten_standard_deviations_of_its_noise(tmp_path, agreed):
    platform = platform_in(tmp_path, agreed)  # 0.1
    platform.begin("s")
    for observed in (-1.0, 2.0):
        assert len(platform.slate("s", FOUR, observed=observed)) == 2
    for observed in (-1.01, 2.01):
        with pytest.raises(RefusedError, match="out-of-range"):
            platform.slate("s", FOUR, observed=observed)


def test_several_features_are_at_most_a_hundred_in_size(tmp_path):
    platform = platform_in(tmp_path, Terms.of(from_dict({**SETTINGS, "world": {**SETTINGS["world"], "features": 2}})))
    platform.register({"a": [100.0, -100.0]})
    for bad in (101.0, 1e38, 10**400):
        with pytest.raises(RefusedError):
            platform.register({"a": [0.0, bad]})


def test_a_platform_that_does_not_come_is_left_out_and_told_later(tmp_path):
    both = Terms.of(from_dict({**SETTINGS, "slates": {**SETTINGS["slates"], "feedback": "all"}}))
    holder = {0: platform_in(tmp_path, both, 0), 1: platform_in(tmp_path, both, 1)}
    explore(holder[0], EXPLORERS)
    stop, steps, peers = threading.Event(), [], [Direct(holder, index) for index in range(2)]

    def step(one):
        steps.append((one.what, one.platform))
        if one.what == "improve":
            stop.set()

    with coordinator_in(tmp_path, both, peers, patience=0.1, stop=stop) as coordinator:
        coordinator.run(step)
    assert steps == [("release", 0), ("improve", 0)] and list(coordinator._replies[0]) == [0]
    explore(holder[1], EXPLORERS)
    with coordinator_in(tmp_path, both, peers, patience=0.1) as again:
        again.run()
    assert again.done and 1 not in again._replies[0] and holder[1].has_planned


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
    assert not coordinator._replies[0] and not coordinator.informed_platforms


@pytest.mark.parametrize("registered", [True, False])
def test_a_platform_whose_items_are_not_as_agreed_takes_no_part(tmp_path, registered):
    given = {**SETTINGS, "world": {**SETTINGS["world"], "features": 2, "candidates": 50}}
    agreed = Terms.of(from_dict(given))
    platform, items = platform_in(tmp_path, agreed), np.random.default_rng(3).uniform(0, 1, (100, 2))
    if registered:
        platform.register({f"{place}": row.tolist() for place, row in enumerate(items)})
        with pytest.raises(RefusedError, match="unlike-agreed"):
            platform.begin("s")
        platform.register({f"{place}": row.tolist() for place, row in enumerate(2 * items - 1)})
        platform.begin("s")
    for user in range(EXPLORERS):
        platform.begin(f"{user}")
        for _ in range(STAY):
            platform.slate(f"{user}", 2 * items - 1 if registered else items)
            platform.outcome(f"{user}", 0, 10.0)
    again, body = platform_in(tmp_path, agreed), question(agreed, RELEASE, round=LAST)
    if registered:
        assert again.answer(LAST, RELEASE, body)
        return
    with pytest.raises(RefusedError, match="unlike-agreed") as refused:
        again.answer(LAST, RELEASE, body)
    assert refused.value.more["found"] == again.state()["unlike"]


def test_items_of_several_features_are_served_by_what_the_model_says_of_them(tmp_path):
    given = {**SETTINGS, "world": {**SETTINGS["world"], "features": 3}}
    agreed = Terms.of(from_dict(given))
    platform, rng = platform_in(tmp_path, agreed), np.random.default_rng(3)
    platform.register({"a": [0.1, 0.2, 0.3]})
    explored = rng.uniform(-1, 1, (30, 3))
    for user in range(EXPLORERS):
        platform.begin(f"{user}")
        for _ in range(STAY):
            platform.slate(f"{user}", explored, observed=0.5)
            platform.outcome(f"{user}", 0, 10.0)
    reply = platform.answer(LAST, RELEASE, question(agreed, RELEASE, round=LAST))
    assert len(agreed.exchanges[RELEASE].reply.decode(reply).sums) == 7 + 3 + 4
    # The second feature engages, nothing costs, all are chosen alike: the best slate has the highest second features.
    weights = np.array([1, 0, 0.5, 0, 1, 0, 0, 0, 0, 0, 0, 0], np.float32)
    platform.answer(LAST, PLAN, question(agreed, PLAN, weights=weights))
    platform.begin("s")
    best = np.argsort(-explored[:, 1])[:2]
    assert sorted(platform.slate("s", explored)) == sorted(best.tolist())


@contextlib.contextmanager
def _client_of_service(folder, agreed, **options):
    home, ready, running = PlatformFolder(folder), threading.Event(), []

    def run():
        with platform_servers(home, seeded(agreed), 0, ListenAt(**options)) as servers:
            running.append(servers)
            servers.run(lambda urls: (home.write_urls(dict(coordinator=urls[0], application=urls[1])), ready.set()))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(30)
    client = PlatformClient.of_folder(folder)
    try:
        yield client
    finally:
        client.close()
        running[0].stop()
        thread.join()


def test_a_silent_stay_ends_while_nothing_is_asked(tmp_path, agreed):
    with _client_of_service(tmp_path / "p", agreed, silence=0.2) as client:
        client.begin("s")
        end = time.monotonic() + 20
        while client.state()["here"] and time.monotonic() < end:
            time.sleep(0.05)
        assert client.state()["here"] == 0 and client.state()["cut_short"] == 1


def test_over_http_a_team_begins_shows_counts_and_ends(tmp_path, agreed):
    with _client_of_service(tmp_path / "p", agreed) as client:
        client.register({"a/b": 0.1, "c d": 0.9, "é": 0.5})
        client.begin("user/1 é")
        shown = client.slate("user/1 é", items=["a/b", "c d", "é"], observed=0.4)
        assert len(shown) == 2 == len(client.slate("user/1 é", candidates=[0.1, 0.9, 0.5, 0.2]))
        client.outcome("user/1 é", 1, 0.0)
        assert client.state()["begun"] == 1 == client.state()["here"]
        with pytest.raises(RunError, match="registered items"):
            client.slate("user/1 é", items=["no such"] * 3)
        calls = [{"call": "begin", "session": "z"}, {"call": "slate", "session": "z", "candidates": FOUR}]
        calls += [
            {"call": "outcome", "session": "z", "slot": 0, "engagement": 2.0},
            {"call": "format"},
            {"call": "end"},
        ]
        first, second, third, *wrong = client.batch(calls)
        assert first == third == {} and len(second["slate"]) == 2
        assert [one["error"] for one in wrong] == ["not-found", "malformed"]
        many = [{"call": "slate", "session": "z", "items": ["é" * 200] * 2}] * MOST_CALLS
        assert len(json.dumps(client.batch(many))) > 1 << 20, "more than another answer may have"
        with pytest.raises(RunError, match="calls"):
            client.batch([*many, {}])
        client.end("user/1 é")
        assert client.state()["here"] == 1
        for body in (b"[1]", b"{", b'{"now": 1}', b'{"session": "z", "candidates": {}}', b'{"session": 1}', b"{}"):
            answer = client._client.ask("POST", "/v1/slate", body)
            assert answer.status == 400 and answer.json()["expected"], body


TRIAL = {
    **SETTINGS,
    "rounds": (EXPLORERS + 90) * STAY,
    "slates": {**SETTINGS["slates"], "trial": 80, "looks": 2, "feedback": "all"},
}


@pytest.mark.parametrize("private", [False, True])
def test_a_trial_of_sessions_is_a_simulators(tmp_path, private):
    """Arms, sums, noise and verdicts of both looks; a coordinator is asked after each of them."""
    sharing = {"sharing": {"epsilon": 50.0}, "privacy": {"delta": 1e-5}} if private else {}
    agreed = Terms.of(from_dict({**TRIAL, **sharing}))
    holder = {index: platform_in(tmp_path, agreed, index) for index in range(2)}
    peers, ends = [Direct(holder, index) for index in range(2)], [EXPLORERS + 80, EXPLORERS + 40, EXPLORERS]

    def before(users):
        if ends and users == ends[-1]:
            ends.pop()
            stop, informed = threading.Event(), []

            def told(step):
                informed.extend([step.platform] * (step.what in ("improve", "verdict")))
                if ends and len(informed) == 2:  # the next sums are of users who have not come
                    stop.set()

            with coordinator_in(tmp_path, agreed, peers, stop=stop) as coordinator:
                coordinator.run(told)

    clients = [Application(holder, index, before=before if not index else None) for index in range(2)]
    rounds = list(visits(seeded(agreed), clients, TRIAL["rounds"] // STAY))
    state, own, seen = simulated(agreed, TRIAL["rounds"])
    np.testing.assert_array_equal([one.engagement for one in rounds], seen["world"]["engagement"][:, 0])
    coordinator = coordinator_in(tmp_path, agreed, peers)
    np.testing.assert_array_equal(coordinator.state.evidence, state.evidence)
    for index in range(2):
        np.testing.assert_array_equal(holder[index]._own.verdict, own.verdict[index])
    assert coordinator.done and holder[0].state()["trial"]["serves"] in ("plan", "fallback")
    counts = np.asarray(state.evidence)[4:13].reshape(3, 3)[:, 0] * 4
    assert counts.sum() == pytest.approx(160, abs=30 if private else 0.1)


def test_in_the_fallback_the_slate_is_that_of_the_application(tmp_path):
    agreed = Terms.of(from_dict(TRIAL))
    platform = platform_in(tmp_path, agreed, seeded=False)
    explore(platform, EXPLORERS)
    platform.answer(LAST, PLAN, question(agreed, PLAN, weights=WEIGHTS))
    shown = {}
    for number in range(40):
        name = f"t {number}"
        platform.begin(name)
        shown.setdefault(int(platform._sessions[name].arm), []).append(platform.slate(name, FOUR, present=[2, 3]))
    assert shown[1] == [[2, 3]] * len(shown[1]) and {tuple(one) for one in shown[0]} != {(2, 3)}
    assert len(shown[0]) > 8 and len(shown[1]) > 8
    for bad in ([0], [0, 0], [0, 4], ["a", 1], [True, 2]):
        with pytest.raises(RefusedError, match="malformed"):
            platform.slate("t 0", FOUR, present=bad)


def test_the_benchmark_of_sessions_makes_a_platform_that_plans(tmp_path):
    """Its explorer is shown items as they are agreed: the platform sends its sums, and takes the model."""
    program = load_file(Path(__file__).resolve().parents[3] / "benchmarks" / "platform_sessions.py")
    (tmp_path / "run.toml").write_text(program.CONFIG.format(features=8, explorers=1))
    terms, home = Terms.of(read_config(tmp_path / "run.toml")), PlatformFolder(tmp_path / "a")
    program.plan(terms, home, np.random.default_rng(0))
    store = home.open_store("platform 0", terms)
    state = PlanningPlatform(terms, 0, store).state()
    store.close()
    assert state["planned"] and state["stays"] == 1 and not state["unlike"]


def test_platforms_that_start_from_a_model_plan_at_once_as_in_a_simulation(tmp_path):
    """No user is explored: the file's plan is tested on the first who come; another file is other terms."""
    found = fedrank.train(folder=tmp_path / "run", **{**SETTINGS, "seeds": 1})
    model: Any = fedrank.load(found.path)
    trial = {**SETTINGS, "slates": {"trial": ROUNDS // STAY - 1, "looks": 1}}
    agreed, other = (
        Terms.of(from_dict({**trial, "start_from": str(one.save(tmp_path / f"{number}.safetensors"))}))
        for number, one in enumerate((model, dataclasses.replace(model, model=model.model + np.float32(1))))
    )
    assert agreed.fingerprint != other.fingerprint
    holder = {index: platform_in(tmp_path, agreed, index) for index in range(2)}
    assert all(platform.state()["planned"] for platform in holder.values())
    clients, peers = ([kind(holder, index) for index in range(2)] for kind in (Application, Direct))
    rounds = list(visits(seeded(agreed), clients, ROUNDS // STAY - 1))
    with coordinator_in(tmp_path, agreed, peers) as coordinator:
        coordinator.run()
    rounds += visits(seeded(agreed), clients, ROUNDS // STAY)  # the last one by the verdict
    state, _, seen = simulated(agreed, ROUNDS)
    np.testing.assert_array_equal([one.engagement for one in rounds], seen["world"]["engagement"][:, 0])
    np.testing.assert_array_equal(coordinator.state.evidence, state.evidence)
    np.testing.assert_array_equal(coordinator.state.model, model.model)
    assert coordinator.done and coordinator.informed_platforms == {0, 1}
    assert {entry.exchange for entry in coordinator.ledger().entries} == {"trial", "verdict"}
