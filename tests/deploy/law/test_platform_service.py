"""A platform and its two faces: what is asked twice is done once, and what makes no sense changes nothing."""

import http.client
import json
import sqlite3
import threading

import numpy as np
import pytest
from platform_worlds import (
    BATCH,
    BATCHES,
    COMPARE_A,
    COMPARE_B,
    LOOK,
    MEMORY,
    RECOMMEND,
    SETTINGS,
    STEP_A,
    TARGETS,
    a_platform,
    question,
    served,
    terms,
)

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.platforms import rounds as peer_module
from fedrank.deploy.platforms import service
from fedrank.deploy.platforms.client import PlatformClient
from fedrank.deploy.platforms.folder import KeyValueStore, PlatformFolder, pack_tree
from fedrank.deploy.platforms.platform import Platform
from fedrank.deploy.platforms.service import Asking, coordinate
from fedrank.deploy.platforms.terms import NotYetError, RefusedError, Terms
from fedrank.engine.settings import from_dict

NAN = np.float32(np.nan).tobytes()


# -- one platform --------------------------------------------------------------------------------------------------


def lived_through(platform, rounds, again=lambda platform: platform):
    """A platform after some rounds without learning; ``again`` makes another of it after every step."""
    for number in rounds:
        platform.visit(number, [0.1, 0.5, 0.9], 0.4, number % 3 == 0)
        platform = again(platform)
        platform.answer(number, LOOK, question(platform, LOOK, round=np.uint32(number)))
        platform = again(platform)
        values = np.float32([0.3, 0.1, 0.2])
        platform.answer(number, RECOMMEND, question(platform, RECOMMEND, round=np.uint32(number), values=values))
        platform = again(platform)
        platform.outcome(number, 1, 12.0 + number)
        platform = again(platform)
    return platform


def learns(platform, number, again=lambda platform: platform):
    """Replies of a platform to the learning exchanges of a round, as bytes."""
    b, n = BATCH, 3
    some = np.random.default_rng(number).normal(size=(b, n)).astype(np.float32)
    asked = {
        BATCHES: {"round": np.uint32(number + 1), "ages": np.uint32([1, 2])},
        TARGETS: {"values": some},
        COMPARE_A: {"values": some, "targets": some[:, 0], "choice": np.zeros(2, np.float32)},
        STEP_A: {"gradient": some},
    }
    replies = []
    for place, values in asked.items():
        replies.append(platform.answer(number, place, question(platform, place, **values)))
        platform = again(platform)
        assert platform.answer(number, place, question(platform, place, **values)) == replies[-1], "asked again"
    return platform, replies


def test_a_platform_that_is_killed_after_every_step_is_the_same_as_one_that_is_not(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()

    def killed(platform):
        platform._store.close()
        return a_platform(tmp_path / "other")

    one, replies = learns(lived_through(a_platform(tmp_path / "one"), range(4)), 3)
    other, others = learns(lived_through(a_platform(tmp_path / "other"), range(4), killed), 3, killed)
    assert replies == others
    one, other = lived_through(one, range(4, 8)), lived_through(other, range(4, 8), killed)
    one, replies = learns(one, 7)
    other, others = learns(other, 7, killed)
    assert replies == others
    assert pack_tree(one._own) == pack_tree(other._own) and one.about() == other.about()


def test_chance_from_the_system_is_drawn_once_for_a_question(tmp_path):
    noisy = terms(sharing={"clip": 1.0, "epsilon": 1.0})
    platform = a_platform(tmp_path, seeded=False, of=noisy)
    platform.visit(0, [0.1, 0.5, 0.9], 0.4, True)
    asked = question(platform, LOOK, round=np.uint32(0))
    first = platform.answer(0, LOOK, asked)
    assert platform.answer(0, LOOK, asked) == first
    platform._store.close()
    assert a_platform(tmp_path, seeded=False, of=noisy).answer(0, LOOK, asked) == first
    others = set()
    for place in range(3):
        (tmp_path / str(place)).mkdir()
        other = a_platform(tmp_path / str(place), seeded=False, of=noisy)
        other.visit(0, [0.1, 0.5, 0.9], 0.4, True)
        others.add(other.answer(0, LOOK, asked))
    assert len(others) == 3, "with noise of about 200 steps on each value, others are other"


@pytest.fixture
def shown(tmp_path):
    """A platform that has lived through rounds 0 … 3 and whose user of round 4 waits."""
    platform = lived_through(a_platform(tmp_path), range(4))
    platform.visit(4, [0.1, 0.5, 0.9], 0.4, False)
    return platform


def refusal_of(act):
    with pytest.raises(RefusedError) as caught:
        act()
    return caught.value.reason


def test_what_is_no_question_of_this_round_is_refused_and_changes_nothing(shown):
    ask = lambda number, place, body: refusal_of(lambda: shown.answer(number, place, body))  # noqa: E731
    look, before = question(shown, LOOK, round=np.uint32(4)), pack_tree(shown._own)
    values = np.float32([1, 2, 3])
    recommend = question(shown, RECOMMEND, round=np.uint32(4), values=values)
    assert ask(4, LOOK, look + b"\0") == ask(4, LOOK, look[:-1]) == ask(4, LOOK, b"") == "malformed"
    assert ask(4, LOOK, bytes([look[0] + 1]) + look[1:]) == "malformed", "another kind"
    assert ask(4, LOOK, bytes([look[0] + 32]) + look[1:]) == "malformed", "another version"
    assert ask(4, RECOMMEND, recommend[:-4] + NAN) == "out-of-range"
    assert ask(4, LOOK, question(shown, LOOK, round=np.uint32(5))) == "out-of-range", "says another round inside"
    assert ask(4, COMPARE_B, b"") == ask(4, 99, b"") == ask(4, 8, b"") == "not-found", "of B; none; silent"
    assert ask(1, LOOK, question(shown, LOOK, round=np.uint32(1))) == "stale-round"
    assert ask(4, BATCHES, question(shown, BATCHES, round=np.uint32(5), ages=np.uint32([1, 2]))) == "not-due"
    assert ask(5, LOOK, question(shown, LOOK, round=np.uint32(5))) == "early-round"
    assert pack_tree(shown._own) == before and shown.about()["stage"] == "there"


def test_moments_that_a_platform_does_not_have_are_refused(shown):
    def ask(*ages):
        body = question(shown, BATCHES, round=np.uint32(4), ages=np.uint32(ages))
        return refusal_of(lambda: shown.answer(3, BATCHES, body))

    assert ask(0, 1) == "out-of-range", "the newest has no next state"
    assert ask(1, 4) == "out-of-range", "there were four rounds, the oldest of age 3"
    assert ask(1, 2**32 - 1) == "out-of-range"
    targets = question(shown, TARGETS, values=np.zeros((BATCH, 3), np.float32))
    assert refusal_of(lambda: shown.answer(3, TARGETS, targets)) == "out-of-order", "no batch has been agreed on"


def test_a_round_that_was_not_lived_through_is_missing_and_never_learnt_from(tmp_path):
    platform = lived_through(a_platform(tmp_path), (0, 1, 2, 5, 6, 7))
    assert platform.missing(7) == [(3, 4)]

    def ask(*ages):
        body = question(platform, BATCHES, round=np.uint32(8), ages=np.uint32(ages))
        return platform.answer(7, BATCHES, body)

    assert refusal_of(lambda: ask(1, 3)) == "missing-transitions", "round 4"
    assert refusal_of(lambda: ask(1, 5)) == "missing-transitions", "round 2, whose next state is of round 3"
    assert len(ask(1, 2)) > 0
    assert platform.missing(10) == [(4, 4), (8, 10)], "what is older than the memory is not asked for"


def test_what_an_application_says_again_holds_and_something_else_is_a_conflict(shown):
    shown.visit(4, [0.1, 0.5, 0.9], 0.4, False)
    assert refusal_of(lambda: shown.visit(4, [0.1, 0.5, 0.8], 0.4, False)) == "conflict"
    assert refusal_of(lambda: shown.visit(3, [0.1, 0.5, 0.9], 0.4, False)) == "stale-round"
    with pytest.raises(NotYetError):
        shown.slate(4)
    with pytest.raises(NotYetError):
        shown.outcome(4, 0, 1.0)
    recommend = question(shown, RECOMMEND, round=np.uint32(4), values=np.float32([1, 3, 2]))
    shown.answer(4, RECOMMEND, recommend)
    other = question(shown, RECOMMEND, round=np.uint32(4), values=np.float32([3, 1, 2]))
    assert refusal_of(lambda: shown.answer(4, RECOMMEND, other)) == "conflict"
    slate = shown.slate(4)
    assert sorted(set(slate)) == sorted(slate) and len(slate) == 2
    assert refusal_of(lambda: shown.outcome(4, 2, 1.0)) == "out-of-range"
    shown.outcome(4, 0, 1.0)
    shown.outcome(4, 0, 1.0)
    assert refusal_of(lambda: shown.outcome(4, 1, 1.0)) == "conflict"
    assert float(shown._own.replay.engagement[4 % MEMORY]) == pytest.approx(1.0 / 15.0)
    assert int(shown._own.replay.item[4 % MEMORY]) == slate[0]


def test_the_end_of_a_stay_is_written_into_the_moment_before_once_another_user_comes(shown):
    overs = np.asarray(shown._own.replay.over)
    # Users of rounds 0 and 3 were new: round 2 was somebody's last, and that of round 4 had been there.
    assert overs[:4].tolist() == [0.0, 0.0, 1.0, 0.0]


def test_a_slate_without_federated_values_is_a_platforms_own_and_late_ones_are_not_taken(shown):
    slate = shown.recommend_alone(4)
    late = question(shown, RECOMMEND, round=np.uint32(4), values=np.float32([1, 3, 2]))
    assert refusal_of(lambda: shown.answer(4, RECOMMEND, late)) == "stale-round"
    assert shown.slate(4) == slate and shown.about()["alone"] == 1
    shown.outcome(4)
    assert shown.missing(4) == [], "it is a moment like others"


def test_a_file_of_something_else_is_refused(tmp_path):
    KeyValueStore(tmp_path / "x.db", "platform 0 of terms abc").close()
    with pytest.raises(RunError, match="belongs to platform 0 of terms abc, and not to platform 1"):
        KeyValueStore(tmp_path / "x.db", "platform 1 of terms abc")
    (tmp_path / "y.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(RunError, match=r"y\.db: cannot be used"):
        KeyValueStore(tmp_path / "y.db", "anything")


def test_a_platforms_state_knows_its_terms_its_number_and_its_seed(tmp_path):
    home = PlatformFolder(tmp_path)
    home.open_store("platform 0", terms(), True).close()
    home.open_store("platform 0", terms(), True).close()
    others = {"platform 1": terms(), "platform 0": terms(world={**SETTINGS["world"], "time_budget": 8})}
    for name, agreed in [*others.items(), ("platform 0", terms(seed=4))]:
        with pytest.raises(RunError, match="belongs to platform 0"):
            home.open_store(name, agreed, True)
    with pytest.raises(RunError, match="belongs to platform 0"):
        home.open_store("platform 0", terms(), False)
    home.open_store("coordinator", terms(seed=4), False).close()
    home.open_store("coordinator", terms(seed=5), False).close()  # nothing was drawn from either


def test_what_is_written_together_is_there_together(tmp_path):
    shelf = KeyValueStore(tmp_path / "x.db", "a")
    shelf.put({"one": b"1", "two": b"2"})
    with pytest.raises((RunError, sqlite3.Error)):
        shelf.put({"one": b"3", "two": None}, ["one"])
    assert shelf.get("one") == b"1" and dict(shelf.below("t")) == {"wo": b"2"}


def test_settings_that_cannot_be_deployed_are_refused_in_words():
    with pytest.raises(ConfigError, match="tell each other nothing"):
        terms(protocol="slateq", slates={"batch": 2, "memory": 6, "burn_in": 3})
    with pytest.raises(ConfigError, match="no platforms"):
        Terms.of(from_dict({"protocol": "foltr-es"}))
    assert terms().fingerprint == terms().fingerprint != terms(world={"candidates": 4}).fingerprint


# -- over HTTP -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "PATIENCE", 0.05)
        patch.setattr(Platform, "warm", lambda self: None)
        with served(tmp_path_factory.mktemp("http") / "a", terms(), 0, patience=0.1) as home:
            yield home


def said(home, asker, method, path, body=None, token=None):
    """Status, reason and body of a request's answer."""
    host, _, port = home.url(asker).removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    try:
        headers = {"Authorization": f"Bearer {token or home.token(asker)}"}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        data = response.read()
        reason = json.loads(data).get("error") if response.status >= 400 else None
        return response.status, reason, data
    finally:
        connection.close()


def test_each_face_is_for_its_own_token_and_the_applications_is_of_this_machine(home):
    assert home.url("application").startswith("http://127.0.0.1:")
    assert said(home, "coordinator", "GET", "/v1/platform")[0] == 200
    assert said(home, "application", "GET", "/v1/state")[0] == 200
    for asker, other, path in (
        ("coordinator", "application", "/v1/platform"),
        ("application", "coordinator", "/v1/state"),
    ):
        assert said(home, asker, "GET", path, token=home.token(other))[:2] == (401, "unauthorised")
        assert (home.path / f"{asker}.token").stat().st_mode & 0o77 == 0
    assert said(home, "coordinator", "PUT", "/v1/visit/0", b"{}")[0] == 404, "no user comes from outside"
    assert said(home, "application", "POST", "/v1/exchange/0/0", b"")[0] == 404
    assert (home.path / "platform.db").stat().st_mode & 0o77 == 0


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "malformed"),
        (b"[]", "malformed"),
        (b"[" * 900, "malformed"),
        (b'{"candidates": [1, 2, 3], "observed": 0.5}', "malformed"),
        (b'{"candidates": [1, 2], "observed": 0.5, "newcomer": true}', "malformed"),
        (b'{"candidates": [1, 2, NaN], "observed": 0.5, "newcomer": true}', "out-of-range"),
        (b'{"candidates": [1, 2, 1e39], "observed": 0.5, "newcomer": true}', "out-of-range"),
        (b'{"candidates": [1, 2, true], "observed": 0.5, "newcomer": true}', "out-of-range"),
        (b'{"candidates": [1, 2, 3], "observed": "x", "newcomer": true}', "out-of-range"),
        (b'{"candidates": [1, 2, 3], "observed": 0.5, "newcomer": 1}', "out-of-range"),
        (b'{"candidates": [1, 2, 3], "observed": 1' + b"0" * 400 + b', "newcomer": true}', "out-of-range"),
        (b"x" * 2000, "too-large"),
    ],
)
def test_a_visit_that_makes_no_sense_is_refused(home, body, reason):
    assert said(home, "application", "PUT", "/v1/visit/7", body)[1] == reason
    assert json.loads(said(home, "application", "GET", "/v1/state")[2])["round"] != 7


def test_who_asks_too_early_is_told_so_and_a_user_does_not_wait_for_ever(home):
    turn = question(a_platform(home.path.parent), LOOK, round=np.uint32(50))
    assert said(home, "coordinator", "POST", "/v1/exchange/50/0", turn)[:2] == (409, "early-round")
    assert said(home, "coordinator", "POST", "/v1/exchange/050/0", turn)[1] == "malformed"
    assert said(home, "coordinator", "POST", "/v1/exchange/50", turn)[1] == "malformed"
    assert said(home, "coordinator", "POST", "/v1/exchange/50/0", turn * 1000)[1] == "too-large"
    client = PlatformClient.of_folder(home.path, patience=5.0)
    client.visit(50, [0.1, 0.5, 0.9], 0.5, True)
    assert said(home, "coordinator", "POST", "/v1/exchange/50/0", turn)[0] == 200
    assert len(client.slate(50)) == 2, "nobody coordinates"
    assert client.state()["alone"] == 1
    client.outcome(50, 0, 3.0)
    missing = json.loads(said(home, "coordinator", "GET", "/v1/missing/50")[2])["missing"]
    assert missing == [[50 - MEMORY + 1, 49]]
    with pytest.raises(RunError, match="conflict"):
        client.outcome(50, 1, 3.0)
    client.close()


def test_a_coordinator_with_other_settings_or_another_order_is_told_so(home, tmp_path):
    url, own = home.url("coordinator"), home.path / "coordinator.token"
    other = terms(world={"candidates": 4, "slate": 2})
    for agreed, platforms, what in ((other, [url, url], "terms"), (terms(), [url, url], "platform = 0")):
        with pytest.raises(RunError, match=what):
            coordinate(
                PlatformFolder(tmp_path / what[:3]), agreed, Asking(platforms, [own], 1.0), 1, print, seeded=True
            )
    with pytest.raises(RunError, match="unauthorised"):
        wrong = home.path / "application.token"
        coordinate(PlatformFolder(tmp_path / "w"), terms(), Asking([url, url], [wrong], 0.1), 1, print, seeded=True)


def test_two_processes_do_not_serve_one_folder(home):
    with pytest.raises(RunError, match="another process"), served(home.path, terms(), 0):
        pass


def test_a_platform_that_is_away_is_given_up_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(peer_module, "_PAUSE", 0.001)
    import socket

    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    token = tmp_path / "token"
    token.write_text("x" * 20)
    link = Asking([f"http://127.0.0.1:{port}"], [token]).clients()[0]
    peer = peer_module.Peer(terms(), 0, link, stop=threading.Event())
    assert peer.exchange(0, LOOK, b"", 0.02).reason == "away"
