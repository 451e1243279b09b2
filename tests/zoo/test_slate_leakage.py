"""What messages of FedSlate tell: exact recoveries on recorded runs, attackers on records whose answer is known."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.messages import Array, f4, field, message
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party, Protocol
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.slates.fedslate.state import Transition
from fedrank_zoo.slate_attacks.leak import accuracy
from fedrank_zoo.slate_attacks.leakage import (
    Records,
    Wiretap,
    clicked_items,
    coordinator_engagement,
    coordinator_targets,
    evidence,
    others_targets,
    platform_accuracy,
    record,
    without_level,
)
from fedrank_zoo.slate_attacks.settings import SlateAttack
from fedrank_zoo.slate_attacks.suite import attack_slates, leakage_protocol, leaks, noisy_targets

TINY = SlateAttack(candidates=4, slate=2, time_budget=8, local_widths=(4,), federated_widths=(4,), batch=4)


@functools.cache
def recorded(mode):
    """Two runs of 60 rounds: 15 users of 4 rounds."""
    return record(leakage_protocol(mode, 60, TINY), [0, 1], 60, 20)


def truth(records, platform=0):
    return records.engagement(platform)[np.arange(records.seeds)[None, :, None], records.transitions]


# -- what is exact ------------------------------------------------------------------------------------------------


#: Two programs to compile; one is left to those who wait.
BOTH = ["team", pytest.param("published", marks=pytest.mark.slow)]


@pytest.mark.parametrize("mode", BOTH)
def test_the_coordinator_knows_every_click_of_whoever_has_feedback(mode):
    records = recorded(mode)
    for platform in np.flatnonzero(records.protocol.feedback):
        items = records.secrets.item[np.arange(2)[None, :, None], platform, records.transitions]
        assert np.array_equal(clicked_items(records.gradient[:, :, platform]), items)


@pytest.mark.parametrize("mode", BOTH)
def test_the_coordinator_recovers_engagement_to_the_last_digits_if_it_knows_the_candidates(mode):
    records = recorded(mode)  # of centred engagement, given the mean of all users
    for platform in np.flatnonzero(records.protocol.feedback).tolist():
        np.testing.assert_allclose(coordinator_engagement(records, platform), truth(records, platform), atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("mode", BOTH)
def test_gradients_alone_tell_targets_exactly_where_the_error_is_below_1_and_bound_them_elsewhere(mode):
    records = recorded(mode)
    found, exact = coordinator_targets(records, 0)
    told = records.told[:, :, 0]
    np.testing.assert_allclose(found[exact], told[exact], atol=1e-5)
    at = clicked_items(records.gradient[:, :, 0])[..., None]
    value = np.take_along_axis(records.compared[:, :, 0], at, -1)[..., 0]
    assert np.array_equal(exact, np.abs(value - told) < 1 - 1e-5)
    assert np.all((found - value)[~exact] * (told - found)[~exact] > -1e-5)  # the truth lies beyond the bound
    assert exact.any() and not exact.all()


@pytest.mark.slow
def test_published_targets_are_engagement_and_at_most_nine_tenths_more():
    records = recorded("published")
    assert np.abs(records.told[:, :, 1] - truth(records)).max() <= 0.9 + 1e-5
    assert np.array_equal(records.told[:, :, 1], records.targets[:, :, 0])  # B is told what A said
    # B has no feedback: its gradient is spread over the slate that it would show, and tells no click.
    assert np.all((records.gradient[:, :, 1] != 0).sum(-1) <= 2) and np.all(records.secrets.item[:, 1] == -1)


def test_of_two_platforms_a_mean_of_targets_hides_nothing():
    records = recorded("team")
    np.testing.assert_allclose(others_targets(records, 1), records.targets[:, :, 0], atol=1e-5)
    np.testing.assert_allclose(others_targets(records, 0), records.targets[:, :, 1], atol=1e-5)


def test_values_from_batches_of_different_level_are_found_but_for_one_number():
    rng = np.random.default_rng(1)
    x = rng.lognormal(2, 1, 30)
    moments = np.stack([rng.choice(30, 6, replace=False) for _ in range(25)])
    found = without_level(x[moments] - rng.normal(0, 5, (25, 1)), moments)
    np.testing.assert_allclose(found - found[0, 0], x[moments] - x[moments[0, 0]], atol=1e-6)


# -- attackers, where the answer is known -------------------------------------------------------------------------


def made_up(spread, feedback=(True, False), rounds=1200):
    """Records without a run: B is told engagement of variance 225, and normal noise of the given spread on it."""
    protocol = leakage_protocol("published", rounds, TINY)
    settings = dataclasses.replace(protocol.slates, sees=feedback)
    rng = np.random.default_rng(3)
    engagement = rng.gamma(1.0, 15.0, (1, 2, rounds)).astype(np.float32)
    engagement[:, 1] = 0
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    moments = rng.permuted(np.tile(np.arange(rounds - 1)[:-3], 4)).reshape(-1, 1, 4)
    batches = len(moments)
    told = np.zeros((batches, 1, 2, 4), np.float32)
    told[:, 0, 1] = engagement[0, 0][moments[:, 0]] + spread * normal(batches, 4)
    zeros = jnp.zeros
    secrets = Transition(
        user=normal(1, 2, rounds, settings.user_features),
        items=normal(1, 2, rounds, 4, 2),
        slate=zeros((1, 2, rounds, 2)),
        item=zeros((1, 2, rounds)),
        slot=zeros((1, 2, rounds)),
        engagement=engagement,
        over=np.zeros((1, 2, rounds), np.float32),
    )
    return Records(
        protocol=dataclasses.replace(protocol, slates=settings),
        secrets=secrets,
        local=normal(rounds, 1, 2, 4),
        shared=normal(rounds, 1, 2, 4),
        transitions=moments,
        following=normal(batches, 1, 2, 4, 4),
        targets=told if feedback[1] else 0 * told,
        told=told,
        compared=normal(batches, 1, 2, 4, 4),
        gradient=normal(batches, 1, 2, 4, 4),
        choice=np.zeros((batches, 1, 2, 2), np.float32),
    )


def explained(variance):
    """R² of the best linear guess of engagement from engagement and independent noise of this variance."""
    return 225 / (225 + variance)


@pytest.mark.parametrize("spread", [0.0, 15.0])
def test_a_fitted_platform_explains_what_noise_leaves_of_targets_averaged_over_batches(spread):
    found = evidence(made_up(spread), 0, 1, 0)
    measured = platform_accuracy(found, 4)
    best = explained(spread**2 / 4)  # every moment is learnt from four times
    assert measured["linear"].r2 == pytest.approx(best, abs=0.05)
    assert best - 0.1 < measured["non-linear"].r2 < best + 0.05  # 96 hinges more, fitted on 600 moments
    assert measured["targets"].rank > 0.8
    assert abs(measured["own"].r2) < 0.05  # nothing of its own tells anything
    assert measured["linear"].blind == pytest.approx(2 * 15 / math.e, rel=0.1)  # mean deviation of an exponential


def test_a_platform_that_learns_from_its_own_targets_is_told_nothing():
    records = made_up(0.0, feedback=(True, True))
    assert not np.any(others_targets(records, 1))
    measured = platform_accuracy(evidence(records, 0, 1, 0), 4)
    # What it is told is its own, and here that is A's engagement: newest(told) would show it if it were looked at.
    assert math.isnan(measured["targets"].rank) and abs(measured["linear"].r2) < 0.05


def test_noise_that_is_drawn_for_every_batch_averages_out_and_noise_that_is_kept_does_not():
    once, always = noisy_targets(made_up(0.0), epsilon=8.0)
    variance = 2 * (100 / 8.0) ** 2
    # Engagement above 100 is cut first, once in 800 times.
    assert once.measures["r2"].mean == pytest.approx(explained(variance), abs=0.07)
    assert always.measures["r2"].mean == pytest.approx(explained(variance / 4), abs=0.07)


def test_accuracy_is_what_other_libraries_say():
    from scipy.stats import spearmanr
    from sklearn.metrics import mean_absolute_error, r2_score

    rng = np.random.default_rng(0)
    truth, guess = rng.lognormal(size=50), rng.lognormal(size=50)
    found = accuracy(truth, guess)
    assert found.r2 == pytest.approx(r2_score(truth, guess)) and found.error == pytest.approx(
        mean_absolute_error(truth, guess)
    )
    assert found.rank == pytest.approx(spearmanr(truth, guess).statistic)
    assert found.blind == pytest.approx(np.abs(truth - truth.mean()).mean())
    assert accuracy(truth, truth * 1.009).exact == 1.0 and accuracy(truth, truth * 1.011).exact == 0.0
    assert math.isnan(accuracy(np.ones(3), guess[:3]).r2)


# -- the report ---------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_the_report_of_runs_has_every_attacker_and_no_interval_of_two_runs():
    found = {(leak.attacker, leak.secret, leak.means): leak for leak in leaks(recorded("team"), "team")}
    clicks = found["coordinator", "clicks", "where the gradient is not 0"]
    assert clicks.measures["exact"].mean == 1.0 and clicks.measures["blind"].mean < 1
    known = found["coordinator", "engagement", "targets, candidates known"]
    assert known.measures["r2"].mean > 1 - 1e-6 and "R² = 1.000" in known.words
    assert {who for who, _, _ in found} == {"coordinator", "platform A", "platform B"}
    assert math.isnan(known.measures["r2"].low) and math.isnan(known.measures["r2"].high)


@pytest.mark.slow  # three more programs to compile
def test_the_suite_tells_modes_that_leak_from_one_that_does_not():
    modes = ("corrected", "extended", "noisy-values", "noisy-targets")
    found = attack_slates(dataclasses.replace(TINY, modes=modes, seeds=2, episodes=60))
    by = {(leak.mode, leak.means): leak.measures for leak in found if leak.attacker == "platform B"}
    linear = "all messages, linear, fitted on other users"
    assert by["corrected", linear]["r2"].mean > 0.9
    (known,) = (leak for leak in found if leak.mode.startswith("noisy-values") and leak.means.endswith("s known"))
    assert known.measures["r2"].mean > 0.999  # noise on values is the coordinator's own knowledge
    assert by["extended", linear]["r2"].mean < 0.1
    assert by["noisy-targets, ε = 1, noise drawn once", linear]["r2"].mean < 0.2
    assert len(found) == 3 * 10 + 2 * 2


def test_what_cannot_be_recorded_or_attacked_is_refused():
    protocol = leakage_protocol("team", 60, TINY)
    with pytest.raises(ConfigError, match="nothing is forgotten"):
        record(protocol, [0], 64)
    with pytest.raises(ConfigError, match="divisor"):
        record(protocol, [0], 60, 7)
    with pytest.raises(UnknownNameError, match="mode of slates"):
        SlateAttack(("secret",))
    with pytest.raises(ConfigError, match="4 users"):
        SlateAttack(episodes=3)
    with pytest.raises(ConfigError, match="platforms must be at least 2"):
        SlateAttack(platforms=1)


# -- the wiretap --------------------------------------------------------------------------------------------------


@message(kind=0)
class Number:
    value: Array = field(f4, "a number")


@dataclasses.dataclass(frozen=True)
class Add(Exchange, request=Number, reply=Number):
    """Everybody adds the server's number to its own, with chance; the server adds up."""

    personal: bool = False
    name = "add"

    def due(self, number):
        return True if not self.personal else number % 2 == 1

    def asked(self, state, parties):
        return jnp.arange(parties) != 1 if self.personal else None

    def max_asked(self, parties):
        return parties - 1 if self.personal else parties

    def ask(self, state):
        return Number(state + 10 * jnp.arange(3.0) if self.personal else state)

    def draw(self, key):
        return jax.random.uniform(key)

    def draw_from_os(self):
        return jnp.float32(0)

    def respond(self, request, party: Party, draws):
        return party._replace(own=party.own + draws), Number(party.own + request.value + draws)

    def tell(self, state, replies, arrived):
        return 0.01 * jnp.sum(jnp.where(arrived, replies.value, 0.0))


@dataclasses.dataclass(frozen=True)
class Adding(Protocol):
    name = "adding"
    exchanges = (Add(), Add(personal=True))

    def init(self, key):
        return jnp.float32(1)

    def weights(self, state):
        return state

    def account(self, rounds, delta):
        return PrivacyReport.none(rounds, "Everything.")


@pytest.mark.slow
def test_a_wiretap_changes_nothing_and_keeps_requests_beside_replies():
    keys, own = run_keys([0, 1]), jnp.arange(3.0)
    ends, seen = [], {}
    for protocol in (Adding(), Wiretap(Adding())):
        simulator = Simulator(protocol, record=True)
        states, mine = simulator.start(keys, Party(None, own))
        *end, seen = simulator.advance(keys, states, None, mine, 0, 4)
        ends.append(end)
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b)), *ends)))
    everybody, some = seen["replies"]
    assert np.all(everybody.request.value[0] == 1)  # the first state, to all
    assert np.all(np.asarray(everybody.reply.value[0]) >= 1 + np.arange(3))
    asked = np.asarray(some.request.value)
    assert not asked[0].any() and not asked[1, :, 1].any()  # not due; not asked
    np.testing.assert_allclose(asked[1, :, 2] - asked[1, :, 0], 20, rtol=1e-5)
