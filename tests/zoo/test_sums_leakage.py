"""What sums over users tell: closed forms, attackers where the answer is known, audits that find too little noise."""

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import fedrank.slates.sums as sums_module
from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.privacy.audit import audit_mechanism
from fedrank.privacy.calibration import gaussian_epsilon
from fedrank.slates.audits import slate_bound, slate_sums, slate_trial
from fedrank.slates.sums import Release
from fedrank.slates.sums.learner import STEPS
from fedrank_zoo.slate_attacks.settings import SlateAttack
from fedrank_zoo.slate_attacks.suite import attack_slates
from fedrank_zoo.slate_attacks.sums import (
    ALL_KNOWN,
    ALONE,
    ENGAGEMENT,
    OWN,
    THERE,
    Views,
    advantage,
    attack_run,
    attack_trial,
    channel_r2,
    drawn,
    due,
    first_parties,
    gaussian_advantage,
    guess_accuracy,
    play_round,
    private_advantage,
    stays,
    sums_protocol,
)

#: Users of four rounds who choose one of two out of four items.
TINY = SlateAttack(("planned-slates",), candidates=4, slate=2, time_budget=8, targets=400)
B_ON_A, A_ON_B = ("platform B", ENGAGEMENT.format("platform A")), ("platform A", ENGAGEMENT.format("platform B"))


def with_settings(*more, **given):
    return dataclasses.replace(TINY, set=("slates.explorers=20", "privacy.delta=1e-5", *more), **given)


# -- closed forms -------------------------------------------------------------------------------------------------


def test_the_advantage_is_the_gaussian_mechanisms_delta_at_epsilon_0():
    """Balle and Wang 2018, Theorem 8: δ(ε) = Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ); at ε = 0 it is total variation."""
    for distance, sigma in ((1.0, 0.5), (3.0, 4.0), (0.1, 2.0)):
        expected = norm.cdf(distance / 2 / sigma) - norm.cdf(-distance / 2 / sigma)
        assert gaussian_advantage(np.array([distance]), sigma)[0] == pytest.approx(expected)
        # By an independent library: the ε of this mechanism at that δ is 0.
        assert gaussian_epsilon(sigma, expected * (1 - 1e-6), distance) == pytest.approx(0.0, abs=1e-4)
    assert gaussian_advantage(np.array([0.0, 5.0]), 0.0).tolist() == [0.0, 1.0]


def test_no_test_of_randomised_response_beats_the_bound_and_one_reaches_it():
    """The truth is said with probability e^ε / (1 + e^ε), else its opposite; with δ it is given away now and then."""
    for epsilon, delta in ((0.5, 0.0), (2.0, 0.0), (1.0, 0.1)):
        true = math.exp(epsilon) / (1 + math.exp(epsilon))
        assert private_advantage(epsilon, delta) == pytest.approx(delta + (1 - delta) * (2 * true - 1))


def test_the_ceiling_of_a_linear_channel_is_that_of_normal_distributions():
    """y = w·c + e with independent c of variances v: R² = Σ (w v)² / (v + σ²) / var(y)."""
    for sigma in [0.0, 2.0, 20.0]:
        rng = np.random.default_rng(1)
        w, v, rest = np.array([1.0, -2.0, 0.0]), np.array([4.0, 1.0, 9.0]), 3.0
        c = rng.normal(0, np.sqrt(v), (40_000, 3))
        y = c @ w + rng.normal(0, np.sqrt(rest), len(c))
        expected = np.sum((w * v) ** 2 / (v + sigma**2)) / (w**2 @ v + rest)
        assert channel_r2(c, y, sigma) == pytest.approx(expected, abs=0.01)
        # What is fitted by chance is taken off: with 60 users and 30 numbers that say nothing.
        chance = [channel_r2(rng.normal(size=(60, 30)), rng.normal(size=60), 0.0) for _ in range(30)]
        assert np.mean(chance) < 0.1
        assert channel_r2(np.zeros((5, 2)), rng.normal(size=5), sigma) == 0.0


# -- attackers, where the answer is known -------------------------------------------------------------------------


def made_up(sigma, others=0.0, rows=4000, seed=0):
    """Views of a channel with normal noise, and with normal sums of others; users are a standard deviation of 1."""
    rng = np.random.default_rng(seed)
    user, other, base = (rng.normal(size=(rows, 3)) * scale for scale in (1.0, 1.0, others))
    sent = [base + one + sigma * rng.normal(size=(rows, 3)) for one in (user, other)]
    return Views(sent[0], sent[1], base, base + user, base + other), user, other


@pytest.mark.parametrize("sigma", [0.5, 3.0])
def test_an_attacker_who_knows_all_others_reaches_the_closed_forms(sigma):
    views, user, other = made_up(sigma)
    best = gaussian_advantage(np.linalg.norm(user - other, axis=1), sigma).mean()
    assert advantage(views, known=True) == pytest.approx(best, abs=0.035)
    wanted = user @ [1.0, 1.0, 1.0]
    found = guess_accuracy(views.seen - views.base, wanted)
    assert found["r2"] == pytest.approx(1 / (1 + sigma**2), abs=0.05)
    assert found["blind"] == pytest.approx(math.sqrt(3 * 2 / math.pi), rel=0.05)  # of a normal distribution


def test_others_who_are_not_known_are_noise():
    views, user, other = made_up(1.0, others=3.0)
    # The others' sum and the noise together have a variance of 10; the spread that is seen has the user's as well.
    best = gaussian_advantage(np.linalg.norm(user - other, axis=1), math.sqrt(10)).mean()
    assert best - 0.06 < advantage(views, known=False) < best + 0.035
    assert advantage(made_up(0.0)[0], known=True) == 1.0
    assert advantage(Views(*(np.zeros((9, 0)),) * 5), known=True) == 0.0


# -- messages -----------------------------------------------------------------------------------------------------


def test_messages_are_those_of_the_protocol_and_show_what_users_added():
    protocol = sums_protocol("planned-slates", with_settings("slates.releases=2", "slates.differ=false"), 1.0)
    first, second = protocol.learner.release_rounds
    at = first_parties(protocol)
    assert [one.name for one in due(protocol, first)] == ["release", "improve"] and not due(protocol, first + 1)
    added = jnp.zeros((2, 5), jnp.int32).at[0].set(jnp.arange(5))
    noise = drawn(protocol, first, jax.random.key(0))
    after, (release, improve) = play_round(protocol, at, first, noise, sums=added)
    (sums,) = release.coordinator
    np.testing.assert_array_equal(sums[0], noise[0][0] + jnp.arange(5))
    assert not np.any(sums[1])  # B has no feedback: it is not asked
    np.testing.assert_array_equal(improve.platform(1)[0], after.state.model)
    # Who was in the first release is not in the second.
    still = jax.tree.map(jnp.zeros_like, drawn(protocol, second, jax.random.key(1)))
    _, (release, _) = play_round(protocol, after, second, still, sums=2 * added)
    np.testing.assert_array_equal(release.coordinator[0][0], 2 * jnp.arange(5))


@pytest.mark.slow
def test_what_users_add_and_engage_is_what_platforms_see():
    protocol = sums_protocol("planned-slates", with_settings("slates.feedback=all"))
    found = stays(protocol, first_parties(protocol), 0, jax.random.key(3), 50)
    assert found.sums.shape == (50, 2, 5) and np.all(np.linalg.norm(found.sums, axis=2) <= STEPS)
    assert len({row.tobytes() for row in found.sums[:, 0]}) == 50  # each is another user
    # The first number is the sum of the logarithm of engagement / 10 of four clicks, times 0.3, in steps of clip / 2¹⁴.
    expected = 4 * 0.3 * (found.logs - math.log(10)) / 20 * STEPS
    np.testing.assert_allclose(found.sums[:, :, 0], expected, atol=60)
    np.testing.assert_allclose(found.known[:, :, 2], found.logs)


# -- the suite ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def both():
    """Measures without noise and with ε = 2, where both platforms have feedback and a clip is found."""
    settings = with_settings("slates.feedback=all", "sharing.bounders=10", "slates.design=sent")
    return {one: attack_run(sums_protocol("planned-slates", settings, one), 0, 400) for one in (None, 2.0)}


@pytest.mark.slow
def test_sums_without_noise_tell_and_sums_with_noise_do_not(both):
    for attacker, secret in (B_ON_A, A_ON_B):
        assert both[None][attacker, secret, ALL_KNOWN]["r2"] > 0.8
        assert both[2.0][attacker, secret, ALL_KNOWN]["r2"] < 0.05
        coordinator = both[None]["coordinator", secret, ALL_KNOWN]
        assert coordinator["r2"] == pytest.approx(coordinator["ceiling"], abs=0.05) and coordinator["ceiling"] > 0.9
        assert both[2.0]["coordinator", secret, ALL_KNOWN]["ceiling"] < 0.05


@pytest.mark.slow
def test_who_was_there_is_told_no_better_than_gaussian_noise_allows(both):
    worst = "the same, stays as unlike as the clip allows"
    private, open_ = (both[one]["coordinator", THERE, worst] for one in (2.0, None))
    s = sums_protocol("planned-slates", with_settings("slates.feedback=all"), 2.0)
    exact = 2 * norm.cdf(math.sqrt(2) * 2 * STEPS / (2 * s.sigma)) - 1  # two platforms, each a clip to either side
    assert private["ceiling"] == pytest.approx(exact, rel=1e-3)
    assert private["advantage"] == pytest.approx(exact, abs=0.12)  # 800 tests
    assert exact < private["bound"] == pytest.approx(math.tanh(1.0), abs=1e-4)
    assert open_["advantage"] == 1.0 == open_["bound"]
    for of in ("", ", by whom the clip is found"):
        known = both[2.0]["coordinator", THERE + of, ALL_KNOWN]
        assert known["ceiling"] <= exact and known["advantage"] == pytest.approx(known["ceiling"], abs=0.13)


@pytest.mark.slow
def test_of_several_releases_the_suite_reads_all_and_a_blind_platforms_users_are_in_no_message():
    settings = with_settings("slates.releases=2", "slates.scale=12", modes=("planned-slates",), seeds=1)
    found = attack_slates(dataclasses.replace(settings, release_epsilons=(2.0,)))
    open_, private = (
        {(one.attacker, one.secret, one.means): one for one in found if one.mode.endswith(end)}
        for end in ("no noise", "ε = 2")
    )
    hidden, own = (open_[(*A_ON_B, means)].measures["r2"].mean for means in (ALL_KNOWN, OWN))
    assert hidden < own + 0.05
    for attacker in ("coordinator", "platform B"):
        assert open_[attacker, THERE, ALL_KNOWN].measures["advantage"].mean == 1.0
        assert private[attacker, THERE, ALL_KNOWN].measures["advantage"].mean < 0.2
    assert "nothing is promised" in open_["coordinator", THERE, ALONE].words
    assert "ε allows 0.762" in private["coordinator", THERE, ALONE].words


@pytest.mark.slow
def test_sums_of_a_trial_tell_without_noise_and_not_with_it():
    """The vectors have a count, engagement and its square: who knows all others reads engagement off the difference."""
    secret, there = (f"{one}, in a trial" for one in (ENGAGEMENT.format("platform A"), THERE))
    worst = "the same, stays as unlike as the clip allows"
    settings = with_settings("slates.trial=200", "slates.looks=2")
    open_, private = (
        attack_trial(sums_protocol("planned-slates", settings, one, trial=True), 0, 200) for one in (None, 2.0)
    )
    # Of four clicks engagement is far from normal, and beyond twice the typical stay's it is cut.
    assert open_["coordinator", secret, ALL_KNOWN]["r2"] > 0.25 > 0.2 > open_["coordinator", secret, ALONE]["r2"]
    for attacker in ("coordinator", "platform B"):
        assert open_[attacker, there, ALL_KNOWN]["advantage"] > 0.97
    s = sums_protocol("planned-slates", settings, 2.0, trial=True)
    exact = 2 * norm.cdf(2 * STEPS / (2 * s.trial_sigma)) - 1  # A alone sends: a clip to either side
    assert private["coordinator", there, worst]["ceiling"] == pytest.approx(exact, rel=1e-3)
    assert private["coordinator", there, worst]["advantage"] == pytest.approx(exact, abs=0.17)  # 400 tests
    assert private["coordinator", secret, ALL_KNOWN]["r2"] < 0.05 > private["platform B", secret, ALL_KNOWN]["r2"]


def test_what_cannot_be_attacked_is_refused_at_once():
    for settings, error, says in [
        ({"set": ("world.preset",)}, ConfigError, "--set must be NAME=VALUE"),
        ({"set": ("sharing.epsilon=2",)}, ConfigError, "--release-epsilons"),
        ({"set": ("slates.explorer=3",)}, UnknownNameError, "slates.explorer"),
        ({"set": ("sharing.clip=many",)}, ConfigError, "sharing.clip must be of type float"),
        ({"release_epsilons": (0.0,)}, ConfigError, "sharing.epsilon"),
        ({"targets": 3}, ConfigError, "targets must be at least 8"),
        ({"set": ("slates.explorers=3",), "modes": ("corrected",)}, ConfigError, "--set is for the modes"),
    ]:
        with pytest.raises(error, match=says):
            attack_slates(dataclasses.replace(TINY, **settings))


# -- audits -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "audit",
    [partial(slate_sums, delta=1e-5, numbers=3, releases=1), slate_sums, slate_bound, slate_trial],
    ids=["sums", "matrix-and-releases", "clip", "trial"],
)
def test_an_audit_shows_much_of_the_epsilon_and_no_more(audit):
    found = audit_mechanism(audit(4.0), 2000)
    assert 1.5 < found.shown <= found.promised == 4.0


@pytest.fixture
def halved(monkeypatch):
    right = sums_module.shared_gaussian_sigma
    monkeypatch.setattr(sums_module, "shared_gaussian_sigma", lambda *args: right(*args) / 2)


@pytest.mark.slow
def test_sums_with_half_the_noise_are_found_out(halved):
    assert audit_mechanism(slate_sums(4.0, 1e-5, numbers=3, releases=1), 2000).broken


@pytest.mark.slow
def test_counts_of_norms_with_half_the_noise_are_found_out(halved):
    assert audit_mechanism(slate_bound(4.0), 2000).broken


@pytest.mark.slow
def test_sums_of_a_trial_with_half_the_noise_are_found_out(halved):
    assert audit_mechanism(slate_trial(4.0), 2000).broken


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["the same noise in all coordinates", "a user counted again"])
def test_faults_of_a_release_are_found_out(monkeypatch, fault):
    if fault == "a user counted again":
        respond = Release.respond

        def again(self, request, party, draws):
            after, reply = respond(self, request, party, draws)
            return after._replace(own=party.own), reply

        monkeypatch.setattr(Release, "respond", again)
    else:
        draw = Release.draw_from_os
        monkeypatch.setattr(Release, "draw_from_os", lambda self: jnp.broadcast_to(draw(self)[:1], (self.numbers,)))
    assert audit_mechanism(slate_sums(4.0, numbers=2, releases=4), 3000).broken  # twice as far, as with half the noise


@pytest.mark.slow
def test_a_blind_platforms_sums_are_attacked_too():
    """By default B sends sums as well: who was there is told by two messages, of two clips apart each."""
    protocol = sums_protocol("planned-slates", with_settings(), 2.0)
    assert protocol.senders == (True, True) and protocol.feedback == (True, False)
    found = attack_run(protocol, 0, 400)["coordinator", THERE, "the same, stays as unlike as the clip allows"]
    exact = 2 * norm.cdf(math.sqrt(2) * 2 * STEPS / (2 * protocol.sigma)) - 1
    assert found["ceiling"] == pytest.approx(exact, rel=1e-3)
    assert found["advantage"] == pytest.approx(exact, abs=0.12)  # 800 tests
