"""A trial of the plan: intervals that hold at all looks, decisions, residuals, and where a model says nothing."""

from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from fedrank.core.protocol import Party
from fedrank.engine.settings import from_dict
from fedrank.privacy.calibration import replacement_sensitivity
from fedrank.slates.build import experiment_of
from fedrank.slates.sums import trial as trials
from fedrank.slates.sums.learner import STEPS
from fedrank.slates.sums.stays import StayRounds
from fedrank.slates.world.policies import BASELINES
from fedrank.slates.world.satisfaction import Scene, User, preset


def test_the_interval_is_left_with_the_probability_of_a_brownian_motion():
    """P(sup |B| < c) on [0, 1] is a known series (Feller II, section X.5): 1 − α and hardly more."""
    for alpha in (0.05, 0.01, 0.2):
        c = trials.half_width(1.0, 1.0, alpha)
        inside = sum((-1) ** k * (ndtr((2 * k + 1) * c) - ndtr((2 * k - 1) * c)) for k in range(-20, 21))
        assert 1 - alpha <= inside < 1 - alpha + 2e-3
    assert trials.half_width(50.0, 0.25) == pytest.approx(c_of(0.05) * np.sqrt(200.0) / 50.0)
    assert trials.half_width(0.0, 0.5) == np.inf


def c_of(alpha):
    return float(ndtri(1 - alpha / 4))


def sums_of(rng, gain, counts, noise):
    """Noisy sums of one look, of stays whose engagement is normal with a deviation of 0.38 of the typical one."""
    sums = np.zeros(trials.NUMBERS)
    for arm, n in enumerate(counts):
        y = np.clip(rng.normal(gain * (arm == trials.PLAN), 0.38, n), -1, 1)
        sums[3 * arm : 3 * arm + 3] = n / 4, y.sum(), (y**2).sum() / 4
    return sums + rng.normal(0, noise, trials.NUMBERS) * (noise > 0)


@pytest.mark.parametrize("noise", [0.0, 5.0])
def test_intervals_hold_at_all_looks_together(noise):
    """Of 1,500 trials of 20 looks without a gain at most one in twenty ever excludes it, and as many adopt a plan."""
    rng, missed, adopted, trialled = np.random.default_rng(7), 0, 0, 1500
    for _ in range(trialled):
        evidence, out = np.zeros(trials.EVIDENCE, np.float32), False
        for look in range(20):
            counts = rng.multinomial(300, trials.SHARES[int(evidence[-1])])
            evidence = trials.add_evidence(
                evidence, sums_of(rng, 0.0, counts, noise), 1.0, noise, (look + 1) / 20, look + 1
            )
            told = trials.verdict_of(evidence, (look + 1) / 20, noise, look + 1)
            out = out or 0 <= told[2] < abs(told[1])
            adopted += evidence[-1] == trials.ADOPTED and look == 19
        missed += out
    # Three standard errors above 5 %.
    assert missed / trialled < 0.05 + 3 * np.sqrt(0.05 * 0.95 / trialled)
    assert adopted / trialled < 0.05


@pytest.mark.parametrize(("gain", "decision"), [(0.2, trials.ADOPTED), (-0.2, trials.FALLEN_BACK)])
def test_a_gain_of_ten_percent_is_found_and_told_without_bias(gain, decision):
    rng, told = np.random.default_rng(3), []
    for _ in range(100):
        evidence = np.zeros(trials.EVIDENCE, np.float32)
        for look in range(4):
            counts = rng.multinomial(500, trials.SHARES[int(evidence[-1])])
            evidence = trials.add_evidence(
                evidence, sums_of(rng, gain, counts, 4.0), 1.0, 4.0, (look + 1) / 4, look + 1
            )
        assert evidence[-1] == decision
        told.append(trials.verdict_of(evidence, 1.0, 4.0, 4)[1])
    assert np.mean(told) == pytest.approx(gain, abs=float(0.4 * np.std(told)))


def test_no_vector_is_longer_than_the_clip_and_arms_are_apart():
    rng = np.random.default_rng(0)
    tally = rng.normal(0, 1, (500, trials.TALLY)) * 10.0 ** rng.integers(-3, 8, (500, 1))
    tally[0] = np.nan
    tally[:, -1] = 61
    arm = rng.integers(0, 3, 500)
    vector = trials.vector_of(tally, arm, np.full(500, 900.0))
    assert np.isfinite(vector).all() and np.linalg.norm(vector, axis=1).max() <= trials.CLIP
    blocks = vector[:, :9].reshape(500, 3, 3)
    np.testing.assert_array_equal(blocks.any(axis=2), np.arange(3) == arm[:, None])
    assert not vector[arm != trials.FALLBACK, 9:].any()


def test_scores_are_covariances_of_residuals_and_probes():
    rng, fade = np.random.default_rng(1), 0.8
    e, z, clicked = rng.normal(size=61), rng.uniform(-1, 1, 61), rng.random(61) < 0.8
    tally, past, probes = np.zeros(trials.TALLY, np.float32), 0.0, []
    for residual, item, there in zip(e, z, clicked, strict=True):
        tally = trials.add_click(tally, 5.0 * there, residual, item, fade)
        probes.append((item**2, past))
        past = fade * past + item**2 * there
    g, kept = np.array(probes)[clicked], e[clicked]
    centred = g - g.mean(axis=0)
    score = centred.T @ kept / np.sqrt((centred**2).sum(axis=0))
    found = trials.vector_of(tally, np.asarray(trials.FALLBACK), np.asarray(300.0))
    np.testing.assert_allclose(found[9:], 0.46 * score / 4, atol=1e-4)
    assert found[3:6] == pytest.approx([0.25, 5 * clicked.sum() / 300 - 1, 0.25 * found[4] ** 2], rel=1e-5)


def test_arms_and_random_slates_have_their_probabilities():
    for decision in range(3):
        arms = trials.arm_of(np.arange(40_000), np.full(40_000, float(decision)))
        expected = trials.SHARES[decision] * 40_000
        np.testing.assert_allclose(np.bincount(arms, minlength=3), expected, atol=4.5 * np.sqrt(expected.max()))
    slates = trials.random_slate(np.random.default_rng(5).random(30_000, np.float32), 7, 3)
    assert (np.diff(np.sort(slates, axis=1), axis=1) > 0).all()
    for slot in range(3):
        observed = np.bincount(slates[:, slot], minlength=7)
        assert ((observed - 30_000 / 7) ** 2 / (30_000 / 7)).sum() < 27.9  # χ² of 6 degrees, 1 in 10,000


def decisions(seeds=(31, 32), **settings):
    """Verdicts and states of a run with a trial."""
    settings = {"protocol": "planned-slates", "rounds": 1700 * 61, **settings}
    protocol: Any = experiment_of(from_dict(settings).resolved()).protocol
    simulator = StayRounds(protocol)
    keys = simulator.keys(seeds)
    states, own = simulator.begin(keys, Party(None, None))
    states, own, _ = simulator.advance(keys, states, None, own, 0, settings["rounds"])
    return [
        trials.verdict_json(protocol.verdict(type(states[0])(*(leaf[run] for leaf in states[0])))) for run in (0, 1)
    ], own


def test_what_engages_is_adopted_and_what_a_model_cannot_say_is_not():
    """In RecSim's world chocolate brings a tenth more; where a third kind of item is best, the model misses it."""
    slates = {"explorers": 200, "trial": 1500}
    good, own = decisions(slates=slates)
    assert [one["serves"] for one in good] == ["plan", "plan"]
    assert all(one["over_fallback"]["low"] < 0.1 < one["over_fallback"]["high"] + 0.02 for one in good)
    assert max(abs(score) for one in good for score in one["residuals"]) < 4
    bad, own = decisions(slates=slates, world={"preset": "tension", "departure": "third-kind"})
    assert [one["serves"] for one in bad] == ["fallback", "fallback"]
    assert all(abs(one["residuals"][0]) > 4 for one in bad)
    assert (own.verdict[..., 0] == trials.FALLEN_BACK).all()


def test_a_model_that_says_no_more_than_its_noise_is_not_handed_out():
    """Of 20 explorers with ε = 2 the weight of an item is within three of its standard errors of 0 or barely beyond."""
    settings = {
        "rounds": 20 * 61,
        "world": {"preset": "tension"},
        "sharing": {"epsilon": 0.5},
        "privacy": {"delta": 1e-5},
    }
    none, _ = models(**settings, slates={"explorers": 20})
    some, _ = models(**settings, slates={"explorers": 20, "evidence": 0.0})
    assert not none.any() and some.any(axis=1).all()
    clear, _ = models(rounds=200 * 61, world={"preset": "tension"}, slates={"explorers": 200})
    assert clear.any(axis=1).all()


def models(**settings):
    protocol: Any = experiment_of(from_dict({"protocol": "planned-slates", **settings}).resolved()).protocol
    simulator = StayRounds(protocol)
    keys = simulator.keys([1, 2, 3])
    states, own = simulator.begin(keys, Party(None, None))
    states, own, _ = simulator.advance(keys, states, None, own, 0, settings["rounds"])
    return simulator.models(states), own


def test_kale_then_chocolate_turns_seven_rounds_before_the_end():
    world = preset("tension", candidates=5, slate=2)
    documents = np.random.default_rng(0).random((2, 5)).astype(np.float32)
    policy = BASELINES.get("kale-then-choc")(world)
    for left, best in ((16, -1), (14, 1), (1, 1)):
        user = User(np.zeros((), np.float32), np.asarray(left, np.int32))
        slates = policy.act((), Scene(user, documents, np.full(2, 0.5, np.float32)), np.zeros(2, np.uint32))
        expected = np.argsort(-best * documents, axis=1)[:, :2]
        np.testing.assert_array_equal(np.sort(slates), np.sort(expected))


def test_who_leaves_early_counts_with_the_engagement_there_was():
    """A plan whose users engage more a round and leave after half of them is worse, and falls back."""
    rng = np.random.default_rng(5)
    tally = np.ones((800, trials.TALLY))
    arm = np.repeat([trials.PLAN, trials.FALLBACK], 400)
    tally[:, 0] = np.where(arm == trials.PLAN, 0.5 * 1.2, 1.0) * 900 * rng.lognormal(0, 0.1, 800)
    vectors = trials.vector_of(tally, arm, np.full(800, 900.0))
    assert vectors[arm == trials.PLAN, 1].mean() == pytest.approx(-0.4, abs=0.02)
    evidence = trials.add_evidence(np.zeros(trials.EVIDENCE), vectors.sum(axis=0), 1.0, 0.0, 1.0, 1)
    gain, half = trials.verdict_of(evidence, 1.0, 0.0, 1)[1:3]
    assert evidence[-1] == trials.FALLEN_BACK and abs(gain + 0.4) < half < 0.05


@pytest.mark.parametrize(("departure", "visits"), [("few", 0.05), ("late", 1.0)])
def test_only_users_who_visit_a_platform_are_stays_of_a_trial(departure, visits):
    """Sums over stays, counted again from the engagement of every round: who is there always clicks something."""
    settings = {"protocol": "planned-slates", "rounds": 500 * 61, "world": {"departure": departure}}
    settings["slates"] = {"feedback": "all", "explorers": 100, "trial": 400, "looks": 1, "evidence": 0.0}
    protocol: Any = experiment_of(from_dict(settings).resolved()).protocol
    simulator = StayRounds(protocol)
    keys = simulator.keys([5])
    states, own = simulator.begin(keys, Party(None, None))
    states, own, seen = simulator.advance(keys, states, None, own, 0, settings["rounds"])
    stays = seen["world"]["engagement"][:, 0].reshape(500, 61, 2).sum(axis=1)[100:]
    there, arm = stays > 0, trials.arm_of(np.arange(100, 500), np.zeros(400))
    assert there[:, 0].all() and there[:, 1].mean() == pytest.approx(visits, abs=0.03)
    y = np.clip(stays / protocol.learner.typical_stay(states[0].model[0]) - 1, -1, 1)
    blocks = states[0].evidence[0, 4:13].reshape(3, 3)
    for place in range(3):
        mine = y[there & (arm == place)[:, None]]
        expected = [len(mine) / 4, mine.sum(), (mine**2).sum() / 4]
        np.testing.assert_allclose(blocks[place], expected, atol=len(mine) * 2 * trials.CLIP / STEPS)


def test_stays_that_are_all_cut_alike_tell_nothing():
    vectors = trials.vector_of(np.full((400, trials.TALLY), 1e6), np.repeat([0, 1], 200), np.full(400, 900.0))
    evidence = trials.add_evidence(np.zeros(trials.EVIDENCE), vectors.sum(axis=0), 1.0, 0.0, 1.0, 1)
    assert np.isfinite(evidence).all() and evidence[-1] == trials.FALLEN_BACK


def test_one_message_a_platform_has_its_share_whichever_it_is():
    """Of a stay at two platforms one message each: releases and sums of a trial have noise of the same share of ρ."""
    settings = {"protocol": "planned-slates", "sharing": {"epsilon": 2.0}, "privacy": {"delta": 1e-5}}
    of: Any = experiment_of(from_dict(settings).resolved()).protocol
    per_unit = of.trial_sigma / replacement_sensitivity(1.0, "l2", trials.NUMBERS, "l2", STEPS)
    assert per_unit == pytest.approx(of.sigma / of.sensitivity, rel=0.02)


def test_fixed_rules_are_tested_on_as_many_users_as_the_plan():
    """200 explorers and 4,000 stays of a trial, of however many users a run has; what learns all along has all."""
    planned, learnt = (
        experiment_of(from_dict({"protocol": name, "rounds": 5000 * 61}).resolved()).protocol
        for name in ("planned-slates", "vertical-slate")
    )
    assert [planned.count_learnt_from(users) for users in (5000, 30)] == [4200, 30]
    assert learnt.count_learnt_from(5000) == 5000
