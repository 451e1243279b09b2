"""Several releases, a clip that others find, and secure sums of platforms as deployed: a simulator's numbers.

Platforms are killed before every request and before every call of their application, replies are lost, and the
coordinator is another one after each model.
"""

import threading

import numpy as np
import pytest
from planning_worlds import Application, Direct, coordinator_in, explore, platform_in, question, seeded, simulated
from scipy import stats

from fedrank.core.errors import RunError
from fedrank.core.messages import Layout
from fedrank.deploy.http.guard import RefusedError
from fedrank.deploy.platforms.client import visits
from fedrank.deploy.platforms.folder import NotYetError, Terms
from fedrank.deploy.platforms.planning_platform import schedule, sum_steps, sum_terms
from fedrank.deploy.platforms.rounds import Silence
from fedrank.engine.settings import from_dict
from fedrank.privacy.secure_sum.messages import Invitation
from fedrank.privacy.secure_sum.server import Server

K, STAY, ROUNDS = 3, 3, 21
BOUND, CLIP, RELEASE, PLAN = range(1, 5)
SETTINGS = {
    "protocol": "planned-slates",
    "rounds": ROUNDS,
    "seed": 5,
    "world": {"preset": "tension", "candidates": 4, "slate": 2, "platforms": K, "time_budget": K * STAY},
    "slates": {
        "feedback": "all",
        "explorers": 4,
        "evidence": 0.0,
        "releases": 2,
        "hold": 0.5,
        "differ": False,
    },
    "sharing": {"bounders": 2, "epsilon": 500.0},
    "evaluation": {"every": 5},
}


def terms(**sharing):
    return Terms.of(from_dict({**SETTINGS, "sharing": {**SETTINGS["sharing"], **sharing}}))


class Flaky(Direct):
    """A platform that is killed before every request, and whose every second reply is lost."""

    def __init__(self, holder, index, reborn, early):
        super().__init__(holder, index)
        self.reborn, self.early = reborn, early

    def exchange(self, number, place, body, patience):
        return self._said(lambda platform: platform.answer(number, place, body), (number, place, body))

    def sum_step(self, number, place, step, body, patience, expected):
        def ask(platform):
            reply = platform.sum_step(number, place, step, body)
            assert len(reply) == expected
            return reply

        return self._said(ask, (number, place, step, body))

    def _said(self, ask, asked):
        self.holder[self.index] = self.reborn(self.index)
        try:
            reply = ask(self.holder[self.index])
        except RefusedError as error:
            if isinstance(error, NotYetError):
                self.early.set()
            return Silence(error.reason)
        self.attempts.append((asked, reply))
        return Silence("away") if len(self.attempts) % 2 else reply


def lived_through(folder, agreed, patience=60.0):
    """All rounds; at each end of some users another coordinator, until a platform says that it is too early."""
    holder = {index: platform_in(folder, agreed, index) for index in range(K)}

    def reborn(index):
        return platform_in(folder, agreed, index)

    early, coordinators = threading.Event(), []
    peers = [Flaky(holder, index, reborn, early) for index in range(K)]
    ends, begun = {(due.round + 1) // STAY for due in schedule(agreed)}, set()

    def before(number):
        if number in ends - begun:
            begun.add(number)
            early.clear()
            with coordinator_in(folder, agreed, peers, patience, early) as coordinator:
                coordinator.run()
            coordinators.append(coordinator)

    clients = [Application(holder, index, reborn, before) for index in range(K)]
    rounds = list(visits(seeded(agreed), clients, ROUNDS // STAY))
    return holder, coordinators, peers, rounds


@pytest.mark.minutes
@pytest.mark.parametrize("secret", [False, True])
def test_processes_learn_and_show_what_a_simulator_does(tmp_path, secret):
    agreed = terms(secure_sum=secret)
    expected, own, seen = simulated(agreed, ROUNDS)
    holder, coordinators, peers, rounds = lived_through(tmp_path, agreed)
    last = coordinators[-1]
    assert last.done and len(coordinators) == 3
    np.testing.assert_allclose(last.state.model, expected.model, rtol=2e-5)
    assert float(last.state.clip) == float(expected.clip) != agreed.protocol.learner.clip
    engagement = np.asarray(seen["world"]["engagement"])[:, 0]
    np.testing.assert_allclose([one.engagement for one in rounds], engagement, rtol=1e-5)
    for index in range(K):
        mine = holder[index]._own
        np.testing.assert_allclose(mine.learnt.table, own.learnt.table[index], rtol=1e-4)
        assert float(mine.clip) == float(own.clip[index])
        replies = {}
        for asked, reply in peers[index].attempts:  # a repeated request was answered with the same bytes
            assert replies.setdefault(asked, reply) == reply
    ledger, crossed = last.ledger(), np.asarray(seen["crossed"])[:, 0].sum(axis=0)
    assert crossed[1:].tolist() == [[K, K], [K, K], [2 * K, 2 * K], [2 * K, 2 * K]]
    if not secret:
        for exchange, counts in zip(agreed.exchanges[1:], crossed[1:].tolist(), strict=True):
            rows = [row for row in ledger if row.exchange == exchange.name]
            sent = [sum(row.messages for row in rows if row.sender == sender) for sender in ("server", "parties")]
            assert sent == counts
        return
    exchanges = agreed.exchanges
    for sender, side in (("parties", "reply"), ("server", "request")):
        told = sum(getattr(exchanges[p], side).nbytes * K * n for p, n in ((CLIP, 1), (PLAN, 2)))
        each = {p: sum(getattr(step, side).nbytes for step in sum_steps(agreed, p)) for p in (BOUND, RELEASE)}
        sums = K * (each[BOUND] + 2 * each[RELEASE])
        # A simulator's ledger has the question of the plain exchange (5 bytes), which a secure sum does not need, and
        # the vector without session and sender (20 bytes).
        assert ledger.bytes_from(sender) == told + sums


@pytest.mark.slow
def test_users_after_an_end_count_in_the_next_sums_however_late_the_coordinator_asks(tmp_path):
    """Without noise, so that sums add up: those of two releases, asked for in the end; and without a clip."""
    plain = Terms.of(from_dict({**SETTINGS, "sharing": {}}))
    once = Terms.of(from_dict({**SETTINGS, "sharing": {}, "slates": {**SETTINGS["slates"], "releases": 1}}))
    late, whole = platform_in(tmp_path, plain), platform_in(_other(tmp_path), once)
    ends = [due.round for due in schedule(plain) if due.collects]
    assert ends == [2 * STAY - 1, 4 * STAY - 1]
    for platform in (late, whole):
        explore(platform, 5)
    release, sums = 1, []
    for number in ends:
        reply = late.answer(number, release, question(plain, release, round=number))
        assert late.answer(number, release, question(plain, release, round=number)) == reply
        sums.append(plain.exchanges[release].reply.decode(reply).sums)
    reply = whole.answer(ends[-1], release, question(once, release, round=ends[-1]))
    assert np.any(sums[0]) and np.any(sums[1])
    np.testing.assert_array_equal(np.add(*sums), once.exchanges[release].reply.decode(reply).sums)
    found = terms()
    lost = platform_in(_other(tmp_path, "lost"), found)
    explore(lost, 6)
    assert not np.any(lost._own.sums), "without the clip nothing is counted"
    with pytest.raises(RefusedError, match="early-round"):
        lost.answer(4 * STAY - 1, PLAN, question(found, PLAN, weights=np.ones(2 + K, np.float32)))


def _other(folder, name="other"):
    (folder / name).mkdir()
    return folder / name


@pytest.fixture(scope="module")
def secret():
    """A federation of three whose only sums are made in secret, after one user."""
    slates = {**SETTINGS["slates"], "releases": 1, "explorers": 1}
    return Terms.of(from_dict({**SETTINGS, "sharing": {"secure_sum": True}, "slates": slates}))


@pytest.mark.slow
def test_one_platforms_message_is_uniform_and_the_total_is_that_of_the_vectors(tmp_path, secret):
    """χ² of all bytes of 60 masked vectors of the same sums; masks do not repeat, whatever was asked before."""
    platforms = [platform_in(tmp_path, secret, index) for index in range(K)]
    number, release = STAY - 1, 1
    for platform in platforms:
        with pytest.raises(NotYetError):
            platform.sum_step(number, release, 0, invitation(Server(sum_terms(secret, release))))
        explore(platform, 1)
    masked = []
    for _ in range(20):
        server, total = Server(sum_terms(secret, release)), None
        asked = dict.fromkeys(range(K), server.invitation())
        for step, then in enumerate((server.rosters, server.deliveries, server.unmask_requests, server.total)):
            _, request, reply = sum_steps(secret, release)[step]
            said = [
                reply.decode(platforms[k].sum_step(number, release, step, request.encode(asked[k]))) for k in range(K)
            ]
            masked += [np.asarray(one.vector, np.uint32) for one in said] if step == 2 else []
            asked = total = then(said)
        expected = sum(np.asarray(platform._own.sums, np.int64) for platform in platforms)
        np.testing.assert_array_equal(total.astype(np.int32), expected)
        assert np.any(expected)
    assert len({one.tobytes() for one in masked}) == len(masked)
    counts = np.bincount(np.concatenate(masked).view(np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-4
    with pytest.raises(RefusedError, match="not-found"):  # unmasked it leaves under no name
        platforms[0].answer(number, release, question(secret, release, round=number))


def invitation(server):
    return Layout(Invitation).encode(server.invitation())


@pytest.mark.slow
def test_a_step_out_of_turn_stops_the_sum_and_the_next_one_begins_anew(tmp_path, secret):
    platform, number, release = platform_in(tmp_path, secret), STAY - 1, 1
    explore(platform, 1)
    steps = sum_steps(secret, release)
    first = invitation(Server(sum_terms(secret, release)))
    said = platform.sum_step(number, release, 0, first)
    assert platform_in(tmp_path, secret).sum_step(number, release, 0, first) == said
    layout = steps[3].request
    unmask = layout.encode(layout.message(np.zeros(16, np.uint8), np.ones(K - 1, np.uint8)))
    for step, body, why in (
        (4, first, "not-found"),
        (1, first, "malformed"),
        (3, unmask, "sum-stopped"),
        (3, unmask, "sum-stopped"),
    ):
        with pytest.raises(RefusedError, match=why):
            platform.sum_step(number, release, step, body)
    with pytest.raises(RefusedError, match="not-due"):
        platform.sum_step(number + 1, release, 0, first)
    with pytest.raises(RefusedError, match="not-found"):
        platform.sum_step(number, PLAN, 0, first)
    again = invitation(Server(sum_terms(secret, release)))
    assert platform.sum_step(number, release, 0, again) != said


@pytest.mark.slow
def test_a_platform_that_stays_away_is_named_and_nothing_is_unmasked(tmp_path, secret):
    holder = {index: platform_in(tmp_path, secret, index) for index in range(K)}
    for index in range(K):
        explore(holder[index], 1)

    gone = {}

    class Away(Flaky):
        def _said(self, ask, asked):
            if len(asked) == 4 and self.index == 2 and asked[2] >= gone["from"]:
                return Silence("away")
            return ask(holder[self.index])

    peers = [Away(holder, index, None, None) for index in range(K)]
    for step in (0, 2):  # never there, or gone when vectors are asked for
        gone["from"] = step
        with (
            coordinator_in(tmp_path, secret, peers, patience=0.3) as coordinator,
            pytest.raises(RunError, match=r"all 3 platforms with feedback, and of platform 2 nothing .* --wait"),
        ):
            coordinator.run()
        assert not np.any(coordinator.state.model) and not coordinator._over
    gone["from"] = 9
    with coordinator_in(tmp_path, secret, peers, patience=60.0) as coordinator:
        coordinator.run()
    assert coordinator.done and np.any(coordinator.state.model)
    ledger = coordinator.ledger()
    assert ledger.bytes_from("parties") > sum(step.reply.nbytes for step in sum_steps(secret, 1)) * K


@pytest.mark.slow
def test_who_stays_longer_than_agreed_is_in_one_bin_of_norms_once(tmp_path):
    platform = platform_in(tmp_path, terms(epsilon=2.0))
    explore(platform, 1, rounds=STAY + 2)
    assert np.asarray(platform._own.norms).sum() == 1
