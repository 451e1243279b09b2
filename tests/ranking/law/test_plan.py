"""Plans: closed forms of what is tried and simulated, and a small plan from end to end."""

import dataclasses
import json
import math

import numpy as np
import pytest

from fedrank.cli.main import call
from fedrank.core.errors import ConfigError
from fedrank.core.trees import nest
from fedrank.engine.settings import changes, from_dict
from fedrank.engine.variations import variations
from fedrank.privacy.accounts.shuffle import shuffled_epsilon
from fedrank.privacy.calibration import gaussian_sigma, shared_gaussian_sigma
from fedrank.privacy.piecewise import AT_ENDS, LARGEST_EPSILON, best, clipped_second_moment
from fedrank.ranking import plan as planning
from fedrank.ranking.build import build
from fedrank.ranking.evaluate import Evaluator
from fedrank.ranking.plan import Need
from fedrank.ranking.schedule import ENOUGH, Schedule, choose_schedule

#: What falls with devices where reports have one number, and the largest ε of it.
REPORT = clipped_second_moment, LARGEST_EPSILON


def test_choices_use_every_device_once_and_days_are_those_of_their_searches():
    need = Need(devices=100_000, searches=8.0)
    found = planning.choices(need)
    assert [(one.rounds, one.interactions) for one in found] == [(25, 64), (50, 64), (50, 128), (100, 128)]
    assert all(one.rounds * one.clients == 100_000 for one in found)
    assert Schedule(50, 16, 2000).days(8.0) == 100.0
    assert [one.days(8.0) for one in found] == sorted(one.days(8.0) for one in found)
    summed = planning.choices(Need(devices=100_000, trust="secure-sum"))
    assert {(one.rounds, one.interactions) for one in summed} == {(r, b) for r in (25, 50, 100) for b in (4, 16)}
    few = planning.choices(Need(devices=1000))
    assert {one.rounds for one in few} == {25, 50}  # 100 rounds would have 10 devices
    twice = planning.choices(Need(devices=1000, participations=2))
    assert {one.rounds * one.clients for one in twice} == {2000}
    assert all(one.days(8.0) <= 90 for one in planning.choices(dataclasses.replace(need, days=90)))


def test_a_schedule_makes_up_for_fewer_devices_by_more_searches():
    """Of a one-bit report with ε = 1 the mean square is coth(1/2)² in units of the largest difference."""
    one_bit = 1 / math.tanh(0.5) ** 2
    assert clipped_second_moment(1.0) == pytest.approx(one_bit, rel=1e-6)
    for devices, searches in [(100_000, 128), (200_000, 64), (400_000, 32), (20_000, 128)]:
        made = choose_schedule(devices, one_bit)
        assert (made.interactions, made.rounds * made.clients) == (searches, devices)
        told = devices * searches * 2 / math.pi / one_bit
        assert devices < 100_000 or told == pytest.approx(ENOUGH, rel=0.02)
    assert choose_schedule(2_000_000, one_bit).rounds == 100
    for most in (300, 1600):
        made = choose_schedule(50_000, one_bit, most)
        assert 0.9 * most <= made.rounds * made.interactions <= most


def test_a_run_with_an_epsilon_of_a_life_is_scheduled_unless_it_says_how_it_is():
    life = {"population": 200_000, "privacy": {"epsilon_user": 1.0}}
    made = from_dict(life).resolved()
    assert (made.rounds, made.clients, made.interactions) == (50, 4000, 64)
    assert made.method.server.learning_rate == 0.4 / 50 and made.resolved() == made
    method = build(made).protocol
    assert (
        method.privacy.effective_clip == pytest.approx(0.015)
        and method.clicks_to_reply.clip == method.privacy.effective_clip
    )
    given = from_dict({**life, "rounds": 100}).resolved()
    assert (given.rounds, given.clients, given.interactions) == (100, 2000, 64)
    assert given.method.server.learning_rate == 0.4 / 100
    few = from_dict({"rounds": 40, "clients": 200}).resolved()
    assert (few.population, few.interactions) == (8000, 128)
    said = from_dict({"rounds": 40, "clients": 200, "interactions": 4}).resolved()
    assert (said.population, said.interactions, said.method.server.learning_rate) == (8000, 4, 0.01)
    for explicit in ({"rounds": 250}, {"clients": 2000}, {"rounds": 250, "clients": 2000}):
        assert (from_dict(explicit).resolved().rounds, from_dict(explicit).resolved().clients) == (250, 2000)
    slow = from_dict({"rounds": 20, "server": {"learning_rate": 0.001}})
    assert slow.resolved().method.server.learning_rate == 0.001
    repeated = from_dict(nest({"protocol": "foltr-es", **changes(from_dict({"clients": 2000}))}))
    assert repeated.resolved() == from_dict({"clients": 2000}).resolved()
    many = [one.config.resolved() for one in variations(from_dict({}), {"clients": [500, 2000, 4000]})]
    assert [(one.rounds, one.clients) for one in many] == [(250, 500), (250, 2000), (250, 4000)]
    searches = from_dict({"interactions": 64}).resolved()
    assert (searches.rounds, searches.clients, searches.method.server.learning_rate) == (50, 4000, 0.008)
    budget = from_dict({"budget": 80_000}).resolved()
    assert (budget.rounds, budget.interactions, budget.method.server.learning_rate) == (10, 4, 0.04)
    own = from_dict({"rounds": 5, "clients": 20, "share": "fixed"}).resolved()
    assert (own.population, own.participations, own.interactions, own.bound_to_rounds) == (20, 5, 128, True)
    shared = from_dict({"protocol": "foltr-pdgd", "privacy": {"epsilon_user": 2.0}}).resolved()
    assert shared.population is None and shared.bound_to_rounds
    assert from_dict({}).resolved().population == 200_000
    paper = from_dict({"privacy": {"p": 0.9}}).resolved()
    assert (paper.rounds, paper.clients, paper.interactions, paper.population) == (250, 2000, 4, None)
    stepped = from_dict({**life, "server": {"learning_rate": 0.5}}).resolved()
    assert stepped.rounds == 50 and stepped.method.server.learning_rate == 0.5


def test_a_plan_takes_the_quickest_that_none_is_told_apart_from():
    def one(rounds, *values):
        return planning.Predicted(Schedule(rounds, 4, 20), 1.0, 1.0, (20, 1.0), float(np.mean(values)), 0, 1, values)

    noisy = [one(1, 0.50, 0.52, 0.51), one(2, 0.53, 0.50, 0.52), one(4, 0.49, 0.53, 0.51)]
    assert planning.quickest_of_best(noisy) is noisy[0]
    better = [*noisy[:1], one(2, 0.601, 0.619, 0.611), one(4, 0.602, 0.618, 0.612)]
    assert planning.quickest_of_best(better) is better[1]


def test_an_interval_ends_where_no_ranking_is():
    low, high = planning.possible_values(Need(devices=500))
    config = Need(devices=500).config(Need(devices=500).shortest)
    evaluator, splits = build(config), build(config).splits
    assert 0 <= low < high <= 1 and splits.train.n_queries
    found = Evaluator(splits, evaluator.ranker, evaluator.metric, evaluator.users, ())
    labels = np.concatenate([part.labels for part in splits.parts().values()])
    values = found.measurement.per_query(labels[None].astype(np.float32))
    assert next(iter(values.values()))[0, : splits.train.n_queries].mean() == pytest.approx(high)


@pytest.mark.parametrize("epsilon", [0.1, 0.25, 1.0, 4.0])
def test_fewer_devices_with_a_larger_epsilon_have_the_same_noise(epsilon):
    """The variance of a mean of reports about differences of which nine in ten are at an end, drawn here."""
    n = 10_000_000
    fewer, larger = planning.equivalent(n, epsilon, *REPORT, most=100_000)
    assert 100_000 <= fewer < n and larger > epsilon

    def noise(devices, one):
        mechanism, random = best(one, AT_ENDS), np.random.default_rng(0)
        d = np.where(
            random.random(200_000) < AT_ENDS, random.choice([-1.0, 1.0], 200_000), random.triangular(-1, 0, 1, 200_000)
        )
        return float(np.mean(mechanism.second_moment(d))) / devices

    assert noise(fewer, larger) == pytest.approx(noise(n, epsilon), rel=0.01)


def test_few_devices_are_simulated_as_they_are():
    assert planning.equivalent(50_000, 1.0, *REPORT) == (50_000, 1.0)
    assert planning.equivalent(300_000, 16.0, *REPORT, most=200_000) == (
        300_000,
        16.0,
    )  # hardly any noise to make larger


def test_fewer_devices_in_a_secure_sum_have_the_same_noise():
    for epsilon in [0.25, 1.0, 4.0]:
        n = 10_000_000
        summed = (lambda one: gaussian_sigma(one, 1e-6, 1.0)), planning.LARGEST_OF_A_SUM
        fewer, larger = planning.equivalent(n, epsilon, *summed, most=500_000)
        assert 500_000 <= fewer < n and larger > epsilon
        noise = [gaussian_sigma(one, 1e-6, 1.0) / devices for devices, one in ((fewer, larger), (n, epsilon))]
        assert noise[0] == pytest.approx(noise[1], rel=1e-6)
        assert planning.equivalent(50_000, epsilon, *summed) == (50_000, epsilon)


def test_rounds_of_a_secure_sum_share_the_epsilon_of_a_life():
    once, often = (Need(devices=50_000, trust="secure-sum", participations=times) for times in (1, 9))
    assert planning.epsilon_message(once, 2000) == pytest.approx(1.0, rel=1e-6)
    one = planning.epsilon_message(often, 2000)
    made = shared_gaussian_sigma(1.0, 1e-6, 1.0e6, 1, 46, rounds=9)
    assert gaussian_sigma(one, 1e-6, 1.0e6) == pytest.approx(made, rel=1e-3) and 1 / 9 < one < 1


def test_an_anonymous_channel_gives_a_message_the_epsilon_that_is_left_among_the_others():
    need = Need(devices=50_000, trust="channel", delta=1e-6)
    one = planning.epsilon_message(need, 2000)
    assert one > 3 and shuffled_epsilon(best(one, AT_ENDS), 2000, 1e-6) <= 1.0
    assert planning.epsilon_message(dataclasses.replace(need, trust="nobody"), 2000) == 1.0
    assert planning.epsilon_message(Need(devices=50_000, participations=4), 2000) == 0.25


def test_an_interval_of_one_further_run_holds_it_as_often_as_said():
    random = np.random.default_rng(0)
    hits = 0
    for _ in range(4000):
        *values, further = random.normal(size=6).tolist()
        _, low, high = planning.prediction_interval(values)
        hits += low <= further <= high
    assert abs(hits / 4000 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 4000)


def test_what_makes_no_sense_is_refused():
    for settings, says in [
        ({"devices": 100}, "devices must be 500 to"),
        ({"devices": 10**13}, "devices must be 500 to"),
        ({"devices": 10_000, "searches": 0.0}, "searches"),
        ({"devices": 1000, "participations": 50}, "participations"),
        ({"devices": 10_000, "seeds": 2}, "seeds"),
        ({"devices": 10_000, "trust": "everybody"}, "trust must be one of"),
        ({"devices": 10_000, "epsilon": 1e-9}, "epsilon"),
    ]:
        with pytest.raises(ConfigError, match=says):
            Need(**settings)


@pytest.mark.parametrize("trust", ["nobody", "secure-sum"])
def test_a_plan_from_end_to_end(monkeypatch, tmp_path, capsys, trust):
    monkeypatch.setattr(planning, "ROUNDS", (2,))
    monkeypatch.setattr(planning, "INTERACTIONS", (2,))
    page, searches = tmp_path / "plan.html", 4 if trust == "nobody" else 2
    asked = ["--trust", trust, "--devices", "120", "--days", "3", "--seeds", "3", "--json", "--quiet"]
    assert call(["privacy", "plan", *asked, "--out", str(page)]) == 0
    printed = capsys.readouterr()
    made = json.loads(printed.out)
    assert not printed.err
    assert [one["name"] for one in made["predictions"]] == [
        "taken",
        "taken, other seeds",
        "twice the devices",
        "no privacy",
    ]
    assert made["predictions"][0]["mean"] != made["predictions"][1]["mean"]
    for one in made["predictions"]:
        assert one["low"] <= one["mean"] <= one["high"] and one["days"] == one["rounds"] * searches / 3
    assert [one["clients"] for one in made["predictions"]] == [60, 60, 120, 60]
    assert 0 < made["untrained"] < 1 and "ε = 1" in page.read_text(encoding="utf-8")


def test_the_command_of_a_plan_makes_the_run_that_was_simulated():
    more = {"trust": "channel", "clicks": "perfect", "participations": 2, "delta": 1e-9}
    need = Need(devices=50_000, epsilon=2.0, **more)
    one = planning.Predicted(Schedule(25, 16, 4000), 100.0, 1.0, (100_000, 1.0), 0.5, 0.4, 0.6)
    made = planning.Plan(need, "expected MaxRR (perfect)", (one,), one, one, one, 0.1)
    flags = planning.command_of(made).split()[3:]
    given = dict(zip(flags[::2], flags[1::2], strict=True))
    config = need.config(one.choice)
    values = {
        "--clicks": config.clicks, "--population": config.population, "--participations": config.participations,
        "--rounds": config.rounds, "--clients": config.clients, "--interactions": config.interactions,
        "--server.learning-rate": config.method.server.learning_rate,
        "--privacy.epsilon-user": config.method.privacy.epsilon_user,
        "--privacy.channel": config.method.privacy.channel, "--privacy.delta": config.method.privacy.delta,
    }  # fmt: skip
    assert given == {name: str(value) for name, value in values.items()}


def test_the_settings_of_a_plan_are_those_that_a_run_takes():
    config = Need(devices=50_000, epsilon=2.0).config(Schedule(25, 16, 2000))
    method = build(config).protocol
    assert method.privacy.epsilon_message == 2.0 and method.shown.name == "interleaved"
