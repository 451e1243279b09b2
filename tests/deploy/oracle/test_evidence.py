"""The sequential test against its definition, gambler by gambler, and its promise against chance."""

import itertools
import json

import numpy as np
import pytest

from fedrank.deploy.hub.checks import FRACTIONS, Evidence, half_width


def money_of_gamblers(rounds, bound, highest):
    """What 1 becomes: every gambler by himself, each with a round in which he begins and a part that he bets."""
    total = 0.0
    for start, part in itertools.product(range(1, 2000), FRACTIONS):
        held = 1 / (start * (start + 1)) / len(FRACTIONS)
        for number, xs in enumerate(rounds, 1):
            if number >= start:
                for x in xs:
                    held *= 1 - part / (highest - bound) * (x - bound)
        total += held
    return total + 1 / 2000  # of those who begin later


def test_the_money_is_that_of_all_gamblers():
    random = np.random.default_rng(1)
    rounds = [random.uniform(-1.5, 1.5, n) for n in (3, 1, 7, 2)]
    evidence = Evidence(-0.1, 1.5)
    for number, xs in enumerate(rounds, 1):
        evidence.add(xs)
        assert evidence.money == pytest.approx(money_of_gamblers(rounds[:number], -0.1, 1.5), rel=1e-9)


def test_a_test_goes_on_from_what_was_kept():
    random = np.random.default_rng(2)
    one, other = Evidence(0.0, 2.0), Evidence(0.0, 2.0)
    for _ in range(20):
        xs = random.uniform(-2, 2, 5)
        one.add(xs)
        other.add(xs[::-1])
        other = Evidence(0.0, 2.0, json.loads(json.dumps(other.as_json())))
    assert other.money == pytest.approx(one.money, rel=1e-12)


def reaches(mean, bound, lives, rounds, per_round, seed, largest=2.164):
    """Of so many lives with numbers ±largest of a mean, in which round each reached 20; 0 where it never did."""
    random = np.random.default_rng(seed)
    first = []
    for _ in range(lives):
        evidence = Evidence(bound, largest)
        up = random.random((rounds, per_round)) < (1 + mean / largest) / 2
        money = []
        for row in np.where(up, largest, -largest):
            evidence.add(row)
            money.append(evidence.money)
        first.append(next((n for n, m in enumerate(money, 1) if m >= 20), 0))
    return first


def test_a_false_alarm_in_a_life_is_at_most_as_likely_as_said():
    """At the edge of what is no alarm, looked at after each of 150 rounds; minutes/ has longer lives."""
    alarms = sum(n > 0 for n in reaches(-0.05, -0.05, 60, 150, 20, seed=3))
    assert alarms <= 7  # 5 % of 60 are 3; with chance 0.05 more than 7 happen once in 80


def test_a_sinking_model_is_noticed():
    assert all(0 < n <= 150 for n in reaches(-0.4, -0.05, 10, 150, 20, seed=4))


def test_one_number_decides_nothing_and_many_do_not_overflow():
    evidence = Evidence(0.0, 1.0)
    evidence.add([-1.0])
    assert evidence.money < 2
    for _ in range(50):
        evidence.add(np.full(2000, -1.0))
    assert np.isfinite(evidence.money) and evidence.money > 1e100
    evidence.add(np.full(2000, 1.0))
    assert evidence.money >= 0


def test_the_interval_holds_at_all_times_together():
    random, lives, rounds, missed = np.random.default_rng(5), 200, 2000, 0
    n = np.arange(1, rounds + 1)
    half = np.array([half_width(int(k), 1.0, 0.05) for k in n])
    for _ in range(lives):
        means = np.cumsum(random.choice([-1.0, 1.0], rounds)) / n
        missed += bool((np.abs(means) > half).any())
    assert missed <= 18  # 5 % of 200 are 10
    assert half[999] < 2 * 1.96 / 1000**0.5
