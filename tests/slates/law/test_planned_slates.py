"""Planned slates: the statistics, their clip and noise, the plan, and what a run of them learns and sends."""

import dataclasses
import json
from itertools import permutations, product

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import fedrank
from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import Unit
from fedrank.engine.settings import from_dict
from fedrank.privacy.calibration import gaussian_epsilon
from fedrank.report.page import write_page
from fedrank.slates.config import Privacy
from fedrank.slates.planning.engagement import (
    OF_ENGAGEMENT,
    TRACE,
    Models,
    error_of_trace,
    features,
    fit_weights,
    inverse_design,
    models_at,
    of_satisfaction,
    outer_triangle,
    past_whitening,
    random_effects,
    visible_share,
    whitening,
    with_observed,
    with_trace,
)
from fedrank.slates.planning.learner import LISTS, PlanLearner, mean_click, others_ticks, plan, worth
from fedrank.slates.sums import SummedSlates, SumSharing
from fedrank.slates.sums.learner import BINS, STEPS, clip_of, clip_stay, norm_bin
from fedrank.slates.world.satisfaction import Satisfaction, Turn

#: Users of three rounds who choose one of two out of three.
SMALL = Satisfaction(candidates=3, slate=2, time_budget=6)
MODEL = np.array([0.1, 0.3, 0.25], np.float32)
OTHERS = np.array([0.1, -0.2, 0.25], np.float32)


def _learner(**given):
    return PlanLearner(**({"world": SMALL, "feedback": (True, False), "explorers": (4,), "observed": False} | given))


def _fitted(sums, rounds, whiten, design=()):
    rounds, design = jnp.float32(rounds), jnp.asarray(design, jnp.float32)
    return fit_weights(jnp.asarray(sums, jnp.float32), rounds, inverse_design(design, rounds, whiten), whiten)


def test_whitened_statistics_are_least_squares_where_the_design_is_the_datas():
    rng = np.random.default_rng(0)
    trace, item = rng.normal(size=400), rng.uniform(-1, 1, 400)
    f = np.asarray(features(jnp.asarray(trace), jnp.asarray(item)), np.float64)
    y = f @ [0.2, -0.4, 0.7] + rng.normal(size=400)
    whiten = np.linalg.inv(np.linalg.cholesky(f.T @ f / 400)).astype(np.float32)
    expected = np.linalg.lstsq(f, y, rcond=None)[0]
    found = _fitted(whiten @ (f.T @ y), 400, whiten)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_no_users_vector_is_longer_than_the_clip_and_its_direction_stays():
    for vector in (np.array([30.0, -40.0, 0.0]), np.array([1e9, 1e9, -1e9]), np.zeros(3), np.array([0.3, 0.4, 0.0])):
        steps = np.asarray(clip_stay(jnp.asarray(vector, jnp.float32), 5.0), np.int64)
        assert np.sum(steps**2) <= STEPS**2
        expected = vector * min(1.0, 5.0 / max(np.linalg.norm(vector), 1e-30)) / 5.0 * STEPS
        np.testing.assert_allclose(steps, expected, atol=1.3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e38])
def test_numbers_that_are_not_finite_do_not_get_past_the_clip(bad):
    for make in (np.asarray, jnp.asarray):
        stays = make(np.array([[bad, bad, 1.0], [0.0, 3.0, 4.0]], np.float32))
        steps = np.asarray(clip_stay(stays, make(np.array([5.0, 5.0], np.float32))))
        assert steps[0].tolist() == [0, 0, 0] and np.abs(steps[1] - np.array([0, 0.6, 0.8]) * STEPS).max() < 2
        assert np.asarray(norm_bin(stays, 5.0)).sum(axis=-1).tolist() == [1, 1]
        assert np.asarray(norm_bin(stays, 5.0))[0, 0] == (0 if bad == 1e38 else 1)


def test_the_design_is_what_tastes_and_the_choice_model_make_of_features():
    # Two candidates, one shown: the click is on the larger or the smaller of two uniform numbers, whose feature has
    # mean ±1/3 and mean square 1/3. Without a trace that fades, x' = −z of the round before.
    world = Satisfaction(candidates=2, slate=1, time_budget=122)
    inverse = np.linalg.inv(whitening(world, 0.0, 1.0).astype(np.float64))
    expected = np.diag([1.0, 1 / 3 / 4 * 60 / 61, 1 / 3])
    np.testing.assert_allclose(inverse @ inverse.T, expected, atol=0.02)


def test_the_traces_weight_follows_from_one_whitened_number():
    """So that what is known less well of the others does not touch it."""
    whiten = whitening(SMALL, 0.81, 0.2)
    inverse = np.linalg.inv(whiten.astype(np.float64))
    design = inverse @ inverse.T
    assert np.count_nonzero(np.abs(whiten[:, TRACE]) > 1e-6) == 1
    # Its square is the trace's place of the design's inverse, as for any least squares.
    assert np.sum(whiten[:, TRACE] ** 2) == pytest.approx(np.linalg.inv(design)[TRACE, TRACE], rel=1e-4)


def test_where_the_traces_weight_is_known_the_others_are_those_of_least_squares_beside_it():
    rng = np.random.default_rng(2)
    trace = rng.normal(size=500)
    f = np.asarray(features(jnp.asarray(trace), jnp.asarray(0.3 * trace + rng.uniform(-1, 1, 500))), np.float64)
    y = f @ [0.2, -0.4, 0.7] + rng.normal(size=500)
    whiten = np.linalg.inv(np.linalg.cholesky(f.T @ f / 500)).astype(np.float32)
    free = np.linalg.lstsq(f, y, rcond=None)[0]
    known = -0.35
    rest = np.linalg.lstsq(f[:, [0, 2]], y - known * f[:, 1], rcond=None)[0]
    inverse = inverse_design(jnp.zeros(0), jnp.float32(500), whiten)
    found = with_trace(jnp.asarray(free, jnp.float32), jnp.float32(known), inverse)
    np.testing.assert_allclose(found, [rest[0], known, rest[1]], atol=1e-4)


def test_a_plan_is_the_best_of_all_slates_round_by_round():
    # By brute force over all slates of two, in place of Dinkelbach's method, and at the grid's own nodes.
    fade = 0.0  # then every trace after a click is −z, wherever the user was
    lists = jnp.asarray(np.random.default_rng(1).random((LISTS, 3)), jnp.float32)
    typical = float(mean_click(SMALL, SMALL.appeal(lists), 2.0 * lists - 1.0))
    # The other platform's users mind otherwise what they clicked.
    found = np.asarray(
        plan(SMALL, fade, Models(jnp.asarray(MODEL), jnp.asarray(OTHERS)), lists, jnp.float32(typical), jnp.int32(0))
    )
    nodes = np.linspace(-1, 1, found.shape[1])

    def engagement(x, z, weights=MODEL):
        return np.exp(weights @ [1.0, x / 2, z])

    later = np.zeros(len(nodes))
    for left in (1, 2):
        np.testing.assert_allclose(found[left - 1], later, rtol=1e-4)
        values = []
        for x in nodes:
            total = 0.0
            for documents in np.asarray(lists, np.float64):
                z = 2 * documents - 1
                q = [
                    engagement(x, one) + engagement(-one, typical, OTHERS) + np.interp(-one, nodes, later) for one in z
                ]  # B acts once more even in the last round
                v = np.exp(1 - documents)
                total += max(
                    (v[i] * q[i] + v[j] * q[j]) / (v[i] + v[j]) for i, j in product(range(3), repeat=2) if i < j
                )
            values.append(total / LISTS)
        later = np.array(values)


def test_others_act_until_the_user_leaves():
    three = Satisfaction(candidates=3, slate=2, platforms=3, time_budget=9)
    ticks = [[float(others_ticks(three, jnp.int32(p), jnp.int32(left))) for left in (2, 1)] for p in range(3)]
    assert ticks == [[2, 2], [2, 1], [2, 0]]
    shuffled = dataclasses.replace(three, turns="shuffled")
    assert float(others_ticks(shuffled, jnp.int32(0), jnp.int32(1))) == 1


def test_without_a_click_a_round_is_worth_what_is_to_come():
    later = jnp.linspace(0.0, 1.0, 41)
    nothing = models_at(jnp.zeros(4), jnp.int32(0))
    values = worth(0.5, nothing, later, jnp.float32(2.0), jnp.zeros(1), jnp.float32(0), jnp.float32(0))
    # The trace fades to 1, half-way from the middle of ± 2 to its end.
    np.testing.assert_allclose(values, [1.75, 0.75], rtol=1e-6)


def _round(learner, own, item, engagement, over=False):
    turn, over = Turn(jnp.int32(0), jnp.int32(item), jnp.float32(engagement), jnp.float32(0.5)), jnp.bool_(over)
    view = learner.next_view(own, turn, own.view.observed, own.view.documents, over)
    return learner.record(own, turn, own.rounds, over)._replace(view=view)


def _there(learner, number):
    own = learner.first_state(None, number)
    documents = jnp.asarray([0.25, 0.5, 1.0])
    return own._replace(view=own.view._replace(documents=documents), slate=jnp.asarray([0, 2]))


def test_a_stay_is_counted_once_when_the_user_leaves_and_never_after_the_explorers():
    s = _learner(explorers=(1,), clip=1e3)
    own = _there(s, 0)
    own = _round(s, own, 2, 20.0)
    assert float(own.view.known) == -1.0 and int(own.view.left) == 2 and not own.sums.any()
    own = _round(s, own, -1, 0.0)  # nothing clicked: nothing learnt, and the trace fades
    assert float(own.view.known) == pytest.approx(-0.81)
    left = _round(s, own, 0, 5.0, over=True)
    f = np.array([[1, 0, 1.0], [1, -0.405, -0.5]])
    expected = OF_ENGAGEMENT * (s.whiten @ (f.T @ np.log([2.0, 0.5])))
    np.testing.assert_allclose(np.asarray(left.sums) * 1e3 / STEPS, expected, atol=0.07)
    assert float(left.view.known) == 0 and int(left.view.left) == 3 and not left.stay.any()
    after = left
    for over in (False, False, True):
        after = _round(s, after, 0, 50.0, over)
    np.testing.assert_array_equal(after.sums, left.sums)


@pytest.mark.parametrize("observed", [False, True])
def test_a_platform_without_feedback_uses_nothing_of_what_users_do(observed):
    s = _learner(observed=observed)
    own = _there(s, 1)
    one, other = (_round(s, own, item, engagement, True) for item, engagement in ((0, 3.0), (2, 300.0)))
    jax.tree.map(np.testing.assert_array_equal, one, other)
    # What it observes of satisfaction is all that it sends.
    assert not one.sums[:3].any() and one.sums[3:].any() == observed


def test_a_platform_without_feedback_sends_what_it_observes_against_what_it_expects():
    s = _learner(observed=True, explorers=(1,), clip=1e3)
    own, expected, traces = _there(s, 1), [0.7, 0.2, 0.45], []
    trace = 0.0
    for observed, over in zip(expected, (False, False, True), strict=True):
        own = own._replace(view=own.view._replace(observed=jnp.float32(observed)))
        own = _round(s, own, 0, 9.0, over)
        traces.append(trace)
        # Of candidates 0.25 and 1, a user clicks one with odds e^0.75 : 1.
        odds = np.exp([0.75, 0.0])
        trace = 0.81 * trace - odds @ [-0.5, 1.0] / odds.sum()
    past = np.stack([np.ones(3), np.array(traces) / 2], axis=1)
    whitened = np.array([1.0, 10.0]) * (past_whitening(s.whiten_expected) @ (past.T @ (np.array(expected) - 0.5)))
    np.testing.assert_allclose(np.asarray(own.sums)[3:] * 1e3 / STEPS, whitened, atol=0.07)
    silent = _learner(observed=True, differ=False)
    assert silent.senders == (True, False) and not _round(silent, _there(silent, 1), 0, 9.0, True).sums.any()


def test_epsilon_is_of_the_whole_stay_at_all_platforms():
    for feedback, given in (((True, False), {}), ((True, True), {}), ((True, False), {"observed": True})):
        s = SummedSlates(_learner(feedback=feedback, **given), SumSharing(epsilon=2.0), Privacy(delta=1e-5))
        report = s.account(rounds=10**6, delta=1e-6)
        assert report.epsilon(Unit.USER) == pytest.approx(2.0, rel=1e-3)
        # Continuous noise of the same σ, an independent account: as many releases as platforms that send.
        assert s.releases == (1 if feedback == (True, False) and not given else 2)
        exact = gaussian_epsilon(s.sigma / s.releases**0.5, 1e-5, s.sensitivity)
        assert 1.7 < exact <= 2.0


def test_a_design_that_was_met_is_the_one_of_least_squares():
    rng = np.random.default_rng(3)
    trace, item = rng.normal(size=5000), rng.uniform(-1, 1, 5000)
    f = np.asarray(features(jnp.asarray(trace), jnp.asarray(item)), np.float64)
    y = f @ [0.2, -0.4, 0.7] + rng.normal(size=5000)
    # Whitened by the design of others, whose items were half as far apart.
    other = np.asarray(features(jnp.asarray(trace), jnp.asarray(item / 2)), np.float64)
    whiten = np.linalg.inv(np.linalg.cholesky(other.T @ other / 5000)).astype(np.float32)
    white = f @ whiten.T
    design = np.asarray(jax.vmap(outer_triangle)(jnp.asarray(white)).sum(axis=0))
    right = np.linalg.solve(white.T @ white / 5000 + 0.02 * np.eye(3), white.T @ y / 5000)
    found = _fitted(white.T @ y, 5000, whiten, design)
    np.testing.assert_allclose(found, whiten.T @ right, atol=2e-3)
    wrong = _fitted(white.T @ y, 5000, whiten)
    assert abs(float(wrong[2]) - 0.7) > 0.3 > 5 * abs(float(found[2]) - 0.7)


def test_rounds_without_a_click_are_part_of_the_design_that_was_met():
    """As they are of the one that is expected: where both are the same, the sum of what was met is nothing."""
    s = _learner(explorers=(1,), clip=1e3, design="sent")
    own = _there(s, 0)
    for item, over in ((2, False), (-1, False), (0, True)):
        own = _round(s, own, item, 10.0 if item >= 0 else 0.0, over)
    f = s.whiten @ np.array([[1, 0, 1.0], [0, 0, 0], [1, -0.405, -0.5]]).T
    expected = 0.1 * (f @ f.T - 3 * np.eye(3))[np.triu_indices(3)]
    np.testing.assert_allclose(np.asarray(own.sums)[3:] * 1e3 / STEPS, expected, atol=0.2)
    blind = _there(s, 1)
    assert not np.any(_round(s, blind, -1, 0.0, True).sums)


def test_noise_that_is_observed_in_place_of_satisfaction_shortens_no_vector():
    np.testing.assert_allclose(of_satisfaction(0.1), [1, 10], rtol=1e-6)
    np.testing.assert_array_equal(of_satisfaction(0.0), of_satisfaction(0.1))
    np.testing.assert_allclose(of_satisfaction(10.0) * 10.0, of_satisfaction(0.1) * 0.1, rtol=1e-6)


def test_the_error_of_the_traces_weight_is_that_of_least_squares():
    rng = np.random.default_rng(5)
    trace, item = 2 * rng.normal(size=300), rng.uniform(-1, 1, 300)
    f = np.asarray(features(jnp.asarray(trace), jnp.asarray(item)), np.float64)
    whiten = np.linalg.inv(np.linalg.cholesky(f.T @ f / 300)).astype(np.float32)
    exact = 1.5 * np.sqrt(np.linalg.inv(f.T @ f)[1, 1])
    assert float(error_of_trace(jnp.float32(300), whiten, 1.5, jnp.zeros(3))) == pytest.approx(exact, rel=1e-4)
    # Noise on whitened sums, drawn: its part of the weight.
    noise = np.array([80.0, 40.0, 20.0])
    drawn = np.array([np.asarray(_fitted(noise * rng.normal(size=3), 300, whiten)) for _ in range(2000)])
    alone = float(error_of_trace(jnp.float32(300), whiten, 1e-9, jnp.asarray(noise, jnp.float32)))
    assert np.std(drawn[:, 1]) == pytest.approx(alone, rel=0.06)


def test_the_clip_is_the_end_of_the_bin_that_half_of_the_users_are_below():
    norms = np.geomspace(0.3, 80, 50)
    counts = sum(norm_bin(jnp.asarray([norm, 0.0, 0.0]), 10.0) for norm in norms)
    assert int(counts.sum()) == 50
    clip = float(clip_of(counts.astype(jnp.float32), 10.0))
    assert np.log2(clip / 10) % 1 == 0 and np.mean(norms <= clip) >= 0.5 > np.mean(norms <= clip / 2)
    ends = [int(np.argmax(norm_bin(jnp.asarray([norm]), 10.0))) for norm in (0.0, 1e-9, 1e9)]
    assert ends == [0, 0, BINS - 1]


def test_users_by_whom_the_clip_is_found_add_nothing_to_the_sums():
    s = _learner(bounders=1, explorers=(1,))
    assert s.bound_round == 2 and s.release_rounds == (5,)
    own = _there(s, 0)
    for over in (False, False, True):
        own = _round(s, own, 2, 20.0, over)
    assert int(own.norms.sum()) == 1 and not own.sums.any()
    for over in (False, False, True):
        own = _round(s, own, 2, 20.0, over)
    assert int(own.norms.sum()) == 1 and own.sums.any()


def test_settings_that_make_no_sense_are_refused():
    for settings, says in [
        ({"rounds": 60}, "rounds must be at least 61"),
        ({"rounds": 122, "slates": {"explorers": 3}}, "to the 2 users of this run, got 3"),
        ({"slates": {"hold": 0.0}}, "slates.hold"),
        ({"sharing": {"epsilon": 0.0}}, "sharing.epsilon"),
        ({"learning_rate": 0.1}, "learning_rate"),
        ({"slates": {"discount": 0.9}}, "discount"),
    ]:
        with pytest.raises(ConfigError, match=says):
            from_dict({"protocol": "planned-slates"} | settings).resolved()


@pytest.mark.slow
def test_a_run_sends_its_sums_once_and_says_what_it_promises(tmp_path):
    settings = {
        "rounds": 12, "seeds": 2, "world": {"candidates": 4, "slate": 2, "time_budget": 6},
        "slates": {"explorers": 2, "evidence": 0.0},
        "sharing": {"epsilon": 1.0}, "evaluation": {"every": 3, "episodes": 3, "baselines": ["random"]},
    }  # fmt: skip
    folder = fedrank.run("planned-slates", folder=tmp_path / "run", **settings).path
    ledger = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    sums = [line for line in ledger if line["message"] == "Statistics"]
    assert [(line["messages"], line["bytes"], line["round"]) for line in sums] == [(2, 42, 3)]
    assert json.loads((folder / "privacy.json").read_text())["promises"][1]["epsilon"] == pytest.approx(1.0, rel=1e-3)
    assert set(pl.read_parquet(folder / "metrics.parquet")["split"]) == {"online", "test"}
    page = write_page(folder).read_text(encoding="utf-8")
    assert "Statistics" in page and "SharedModel" in page


@pytest.mark.minutes
@pytest.mark.parametrize(("epsilon", "below"), [(None, 0), (2.0, 3)])
def test_two_hundred_users_are_enough_where_greed_costs(tmp_path, epsilon, below):
    """In each of many seeds, with noise in nearly all: few seeds miss that users may be served chocolate."""
    settings = {
        "rounds": 12200, "seeds": 48, "seed": 50, "world": {"preset": "tension"},
        "evaluation": {"every": 12200, "episodes": 32, "baselines": ["random", "optimum"]},
        "sharing": {} if epsilon is None else {"epsilon": epsilon},
    }  # fmt: skip
    folder = fedrank.run("planned-slates", folder=tmp_path / "run", **settings).path
    last = pl.read_parquet(folder / "metrics.parquet").filter(
        (pl.col("split") == "test") & (pl.col("measure") == "engagement") & (pl.col("round") == 12200)
    )
    ours = last.sort("seed")["value"].to_numpy()
    policies = json.loads((folder / "baselines.json").read_text())["baselines"]
    random, optimum = (np.array(one["runs"]).sum(axis=1) for one in policies)
    assert np.sum(ours <= random) <= below
    assert np.mean((ours - random) / (optimum - random)) > 0.7


def test_what_satisfaction_says_is_weighted_by_precision():
    # Engagement proportional to exp(4 · satisfaction), and satisfaction 0.5 + 0.01 · trace / 2: both say 0.04.
    satisfaction, said = jnp.asarray([0.0, 0.01]), (jnp.float32(0.01), jnp.float32(2.0))
    same, precision = with_observed(jnp.float32(0.04), jnp.float32(0.03**-2), satisfaction, *said)
    assert float(same) == pytest.approx(0.04, rel=1e-5)
    assert float(precision) == pytest.approx(1 / 0.03**2 + 1 / 0.04**2, rel=1e-5)
    found, _ = with_observed(jnp.float32(0.14), jnp.float32(0.03**-2), satisfaction, *said)
    assert float(found) == pytest.approx(np.average([0.14, 0.04], weights=[1 / 0.03**2, 1 / 0.04**2]), rel=1e-5)
    # A platform that sees no engagement.
    alone, precision = with_observed(jnp.float32(0.0), jnp.float32(0.0), satisfaction, *said)
    assert float(alone) == pytest.approx(0.04, rel=1e-5) and float(precision) == pytest.approx(0.04**-2, rel=1e-5)


def test_what_is_no_satisfaction_says_nothing():
    """Observed on average 0, 1, or below 0: engagement alone counts."""
    for mean in [-0.5, 0.5, -0.7]:
        given = jnp.float32(0.04), jnp.float32(0.03**-2), jnp.asarray([mean, 0.3]), jnp.float32(0.01), jnp.float32(2.0)
        found, precision = with_observed(*given)
        assert float(found) == pytest.approx(0.04, rel=1e-6) and float(precision) == pytest.approx(0.03**-2, rel=1e-6)


def _sums(s, weights, satisfaction, rounds):
    """What platforms send whose users' logarithms of engagement and whose satisfaction have these weights exactly."""
    out = []
    for sees, mine, seen in zip(s.feedback, weights, satisfaction, strict=True):
        whiten = s.whiten if sees else s.whiten_expected
        of_engagement = OF_ENGAGEMENT * (np.linalg.inv(whiten.T.astype(np.float64)) @ mine) if sees else np.zeros(3)
        past = np.linalg.inv(past_whitening(whiten).T.astype(np.float64))
        out.append([of_engagement, of_satisfaction(0.1) * (past @ seen)] if s.observed else [of_engagement])
    return jnp.asarray(rounds * np.array([np.concatenate(row) for row in out]), jnp.float32)


def _solved(s, sums, heard=(True, True), rounds=1000, noise=0.0):
    blank = jnp.zeros(s.parameters)
    return np.asarray(s.solve_platforms(sums, jnp.asarray(heard), jnp.float32(rounds), blank, jnp.float32(noise)))


def test_sums_of_satisfaction_give_each_platform_its_own_weight_of_the_trace():
    """The one without feedback too: by its satisfaction, and by how the others' turns into engagement."""
    s = _learner(observed=True, caution=0.0)
    assert s.numbers == 5 and s.parameters == 4 and _learner(observed=True, design="sent").numbers == 11
    true = np.array([np.log(9.5 / 10), 0.6, 0.25])
    unit = np.log(9.5) / 0.5  # of the logarithm of engagement in that of satisfaction
    # B acts after A: what it observes is before A acts, and fades by 0.9 until B acts again.
    satisfaction = [[0.0, 0.6 / unit], [0.0, 1.8 / unit / 0.9]]
    sums = _sums(s, [true, None], satisfaction, 10**5)
    np.testing.assert_allclose(_solved(s, sums, rounds=10**5), [true[0], 0.25, 0.6, 1.8], rtol=2e-3)
    # Not heard, it is lent A's.
    np.testing.assert_allclose(_solved(s, sums, (True, False), 10**5)[2:], [0.6, 0.6], rtol=1e-3)
    # With a design that was met and is the expected one, the same but for the ridge on it.
    sent = _learner(observed=True, caution=0.0, design="sent")
    longer = jnp.concatenate([sums[:, :3], jnp.zeros((2, 6)), sums[:, 3:]], axis=1)
    np.testing.assert_allclose(_solved(sent, longer, rounds=10**5)[1:], [0.25, 0.6, 1.8], rtol=0.04)


@pytest.mark.parametrize("liked", [0.25, -0.25])
def test_caution_moves_the_traces_weight_against_greed_by_standard_errors(liked):
    """Greed for items of a high feature makes the trace negative, so that it costs where the weight is positive."""
    s, bold = _learner(caution=2.0), _learner(caution=0.0)
    sums = _sums(s, [[0.1, 0.05, liked], None], [None, None], 1000)
    moved = _solved(s, sums) - _solved(bold, sums)
    error = float(error_of_trace(jnp.float32(1000), s.whiten, 1.0, jnp.zeros(3)))
    np.testing.assert_allclose(moved, np.array([0, 0, 2, 2]) * np.sign(liked) * error, atol=1e-5)


def test_platforms_that_differ_by_chance_share_a_weight_and_others_keep_their_own():
    """Against the posterior of a normal family, by numerical integration, with the variance of the family found."""
    x, w = np.array([0.1, 0.5, 0.2]), np.array([40.0, 90.0, 60.0])
    mean, total = np.average(x, weights=w), w.sum()
    between = (w @ (x - mean) ** 2 - 2) / (total - (w**2).sum() / total)
    assert between > 0
    of_family = np.linspace(-3, 3, 6001)  # its mean, on which nothing is known beforehand
    likely = np.exp(-0.5 * ((x - of_family[:, None]) ** 2 / (1 / w + between)).sum(axis=1))
    likely /= likely.sum()
    given = (w * x + of_family[:, None] / between) / (w + 1 / between)
    expected = likely @ given
    spread = np.sqrt(1 / (w + 1 / between) + likely @ (given - expected) ** 2)
    found, error = random_effects(jnp.asarray(x), jnp.asarray(w), True)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    np.testing.assert_allclose(error, spread, rtol=1e-3)
    # As far apart as their errors make them: one mean for both, by precision, as where they must not differ.
    for near, differ in (([0.1, 0.2], True), ([0.1, 9.0], False)):
        found, error = random_effects(jnp.asarray(near), jnp.asarray([40.0, 90.0]), differ)
        np.testing.assert_allclose(found, np.average(near, weights=[40.0, 90.0]), rtol=1e-5)
        np.testing.assert_allclose(error, 130.0**-0.5, rtol=1e-5)
    # Who has found nothing is lent what the other found.
    np.testing.assert_allclose(
        random_effects(jnp.asarray([0.3, 0.0]), jnp.asarray([5.0, 0.0]), True)[0], 0.3, rtol=1e-6
    )


def test_what_a_click_does_to_engagement_and_to_what_is_observed():
    """Against an exposure that is pushed by 1 at one platform's tick, and fades by 0.9 a tick."""
    for fresh in [True, False]:
        for turns in ["in-order", "shuffled"]:
            world = Satisfaction(candidates=3, slate=2, platforms=3, time_budget=9, turns=turns, fresh=fresh)
            orders = list(permutations(range(3))) if turns == "shuffled" else [(0, 1, 2)]
            for number in range(3):
                seen, engaged = [], []
                for first, second in product(orders, repeat=2):
                    over = 0.9 ** (2 - first.index(number))
                    seen.append(over if fresh else 1.0)
                    engaged.append(over * 0.9 ** second.index(number))
                assert visible_share(world, 0.9**3, number) == pytest.approx(np.mean(engaged) / np.mean(seen))


def test_a_platform_plans_by_its_own_weight_and_the_mean_of_the_others():
    mine = models_at(jnp.asarray([0.1, 0.25, 1.0, 2.0, 6.0]), jnp.int32(1))
    np.testing.assert_allclose(mine.own, [0.1, 2.0, 0.25])
    np.testing.assert_allclose(mine.others, [0.1, 3.5, 0.25])
    alone = models_at(jnp.asarray([0.1, 0.25, 1.0]), jnp.int32(0))
    np.testing.assert_array_equal(alone.own, alone.others)


def test_what_is_observed_without_noise_makes_a_model():
    """Without an error of observation precisions have no bound of their own; their squares must be numbers."""
    world = Satisfaction(candidates=4, slate=2, platforms=3, time_budget=9, observation_noise=0.0)
    learner = PlanLearner(world, (True, True, False), (5,))
    sums = jnp.asarray(np.random.default_rng(0).normal(0, 1, (3, learner.numbers)), jnp.float32)
    model = learner.solve_platforms(sums, jnp.ones(3, bool), jnp.float32(15.0), jnp.zeros(5), jnp.float32(0.0))
    assert np.all(np.isfinite(model)) and len(set(np.asarray(model[2:]).tolist())) == 3
