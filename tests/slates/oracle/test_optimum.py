"""The optimum of a world: against enumeration of every slate, a table over a grid, and known shares.

Everything expected is computed here in NumPy, in float64, from the formulas of the world.
"""

import itertools
import math
import warnings
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.core.errors import ConfigError, FedrankWarning
from fedrank.slates.results import baselines, exceeds, fresh_users
from fedrank.slates.world.choice import Cascade, Multinomial, Proportional
from fedrank.slates.world.optimum import OptimalPolicy, solve
from fedrank.slates.world.policies import StayKeys, play_compiled
from fedrank.slates.world.satisfaction import Satisfaction
from fedrank_zoo.fedslate_2024.horizon import kale_threshold


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def tau_before(world, left):
    """τ of whose turn it is with so many ticks left, turns being in order."""
    acting = world.platforms - 1 - (left - 1) % world.platforms
    tau = world.sensitivities[acting] if world.sensitivities else world.sensitivity
    return tau * math.exp(world.drift * (1 - left / world.time_budget))


def engagement(world, chocolate, x, left=1):
    mean = chocolate * world.choc_mean + (1 - chocolate) * world.kale_mean
    sd = chocolate * world.choc_sd + (1 - chocolate) * world.kale_sd
    return np.exp(mean * sigmoid(tau_before(world, left) * x) + sd**2 / 2)


# ---- a tiny world, by enumeration

TINY = Satisfaction(
    candidates=3, slate=2, platforms=2, time_budget=4, sensitivity=0.4, memory_discount=0.7, choice=Multinomial(0.5)
)
POINTS = 10  # of the midpoint rule over the kaleness of a candidate
X = np.linspace(-4, 4, 41)


def chances(choice, scores):
    """Of each slot and of nothing; the formulas of the three families."""
    scores = np.asarray(scores)
    if isinstance(choice, Cascade):
        click = choice.attention * choice.scaling * np.exp(scores)
        look = np.cumprod(np.concatenate([[1], 1 - click]))
        return np.append(look[:-1] * click, look[-1])
    if isinstance(choice, Proportional):
        weights = np.append(scores - choice.minimum, 0)
    else:
        weights = np.append(np.exp(scores), 0 if choice.no_click is None else np.exp(choice.no_click))
    return weights / weights.sum()


def enumerated(world):
    """The value at X of every slate of every list of a grid of lists, tick by tick; [X]."""
    side = (np.arange(POINTS) + 0.5) / POINTS
    lists = [np.array(k) for k in itertools.combinations_with_replacement(side, world.candidates)]
    mass = np.array(
        [
            math.factorial(world.candidates) / math.prod(math.factorial(c) for c in np.unique(k, return_counts=True)[1])
            for k in lists
        ]
    )
    mass = mass / mass.sum()
    chocolate_of = (lambda k: k) if world.semantics == "recsim-code" else (lambda k: 1 - k)
    points, weight = np.polynomial.hermite_e.hermegauss(3)
    weight = weight / weight.sum()

    def ahead(later, x):
        return sum(w * np.interp(x + world.innovation * z, X, later) for z, w in zip(points, weight, strict=True))

    def before(later, kaleness, left):
        slates = itertools.permutations(range(world.candidates), world.slate)
        best = np.full(len(X), -np.inf)
        fades = ahead(later, world.memory_discount * X)
        each = [
            engagement(world, chocolate_of(k), X, left)
            + ahead(later, world.memory_discount * X - 2 * (chocolate_of(k) - 0.5))
            for k in kaleness
        ]
        for slate in slates:
            p = chances(world.choice, 1 - kaleness[list(slate)])
            best = np.maximum(best, sum(q * each[i] for q, i in zip(p, slate, strict=False)) + p[-1] * fades)
        return best

    later = np.zeros(len(X))
    for done in range(0, world.time_budget, world.platforms):
        if world.shared_candidates:
            values = []
            for kaleness in lists:
                value = later
                for place in range(world.platforms):
                    value = before(value, kaleness, done + place + 1)
                values.append(value)
            later = mass @ np.array(values)
        else:
            for place in range(world.platforms):
                later = mass @ np.array([before(later, kaleness, done + place + 1) for kaleness in lists])
    return later


def check_against_enumeration(world):
    solution = solve(world, samples=2048)
    inside = np.abs(X) <= 3
    expected, found = enumerated(world)[inside], np.asarray(solution.value(X[inside].astype(np.float32)))
    assert 0 < float(solution.error) < 0.003 * expected.max()
    # Standard errors from drawing lists; the midpoint rule and the interpolation here come to about 0.1 %.
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=4 * float(solution.error))


def test_the_optimum_of_a_tiny_world_is_that_of_all_its_slates():
    check_against_enumeration(TINY)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"choice": Cascade(0.8, 0.3)},
        {"choice": Proportional()},
        {"choice": Multinomial(), "semantics": "paper"},
        {"shared_candidates": False},
        {"candidates": 5},
        {"sensitivities": (0.1, 0.8), "drift": 0.7},
        {"drift": -1.0, "shared_candidates": False},
        {"shared_candidates": False, "platforms": 1, "sensitivity": 1.0},
    ],
    ids=str,
)
def test_so_it_is_for_every_choice_model_and_both_semantics(changes):
    check_against_enumeration(replace(TINY, **changes))


# ---- 120 ticks without chance and with any kaleness on offer

PLENTY = Satisfaction(candidates=300, slate=1, platforms=1, innovation=0.0, time_budget=120)
EXPOSURE, KALENESS = np.linspace(-10, 10, 801), np.linspace(0, 1, 101)


def by_table(world):
    """The best total from exposure 0, and those of pure chocolate and pure kale."""
    later, beta = np.zeros(len(EXPOSURE)), world.memory_discount
    onward = beta * EXPOSURE[:, None] - 2 * (KALENESS - 0.5)
    now = engagement(world, KALENESS, EXPOSURE[:, None])
    for _ in range(world.time_budget):
        later = (now + np.interp(onward, EXPOSURE, later)).max(axis=1)
    totals = []
    for chocolate in (1.0, 0.0):
        x, total = 0.0, 0.0
        for _ in range(world.time_budget):
            total += engagement(world, chocolate, x)
            x = beta * x - 2 * (chocolate - 0.5)
        totals.append(total)
    return np.interp(0.0, EXPOSURE, later), *totals


@pytest.mark.parametrize(
    ("sensitivity", "memory", "choc", "kale"),
    # Shares of the optimum: greed is best where satisfaction is slow or soon forgotten, and ruinous elsewhere.
    [
        (0.01, 0.9, (0.999, 1), (0.7, 0.8)),
        (0.02, 0.9, (0.96, 0.99), (0.87, 0.92)),
        (0.03, 0.9, (0.83, 0.88), (0.94, 0.97)),
        (0.1, 0.9, (0.2, 0.3), (0.95, 0.99)),
        (0.5, 0.9, (0, 0.05), (0.8, 0.95)),
        (0.05, 0.7, (0.98, 1), (0.7, 0.9)),
    ],
)
def test_with_every_kaleness_on_offer_the_optimum_is_the_deterministic_one(sensitivity, memory, choc, kale):
    world = replace(PLENTY, sensitivity=sensitivity, memory_discount=memory)
    best, all_choc, all_kale = by_table(world)
    assert choc[0] <= all_choc / best <= choc[1]
    assert kale[0] <= all_kale / best <= kale[1]
    found = float(solve(world, samples=4).value(np.zeros((), np.float32)))
    # Of 300 candidates the best lies within 1/300 or so of the best of all: a little less, never more.
    assert 0.985 * best < found < 1.0005 * best


def test_nothing_is_to_come_at_the_end_and_the_last_tick_is_worth_what_it_brings():
    world = replace(PLENTY, sensitivity=0.5)
    solution = solve(world, samples=4)
    x = np.linspace(-8, 8, 9).astype(np.float32)
    np.testing.assert_array_equal(solution.value(x, 0), 0)
    np.testing.assert_allclose(solution.value(x, 1), engagement(world, 1.0, x), rtol=0.01)


# ---- when moderation pays


@pytest.mark.parametrize("team", [True, False])
@pytest.mark.parametrize("discount", [0.5, 0.9, 1.0])
@pytest.mark.parametrize(("platforms", "choc_sd"), [(1, 1.0), (2, 1.0), (3, 1.3)])
def test_at_the_threshold_a_little_chocolate_changes_nothing_in_the_long_run(platforms, choc_sd, discount, team):
    world = Satisfaction(platforms=platforms, time_budget=6, choc_sd=choc_sd)

    def gain(sensitivity):
        """Of a little more chocolate in one tick among neutral ones, by simulation; mean over who decides."""
        user, gains = replace(world, sensitivity=sensitivity), []
        for place in range(platforms):
            totals = []
            for more in (-1e-5, 1e-5):
                x, total = 0.0, 0.0
                for tick in range(place, 1500):
                    chocolate = 0.5 + (more if tick == place else 0.0)
                    if team or tick % platforms == place:
                        total += discount ** (tick // platforms) * engagement(user, chocolate, x)
                    x = user.memory_discount * x - 2 * (chocolate - 0.5)
                totals.append(total)
            gains.append((totals[1] - totals[0]) / 2e-5)
        return np.mean(gains)

    threshold = kale_threshold(world, discount, team)
    assert abs(gain(threshold)) < 1e-4
    assert gain(0.9 * threshold) > 0.01
    assert gain(1.1 * threshold) < -0.01


def test_who_looks_no_further_than_now_never_moderates():
    assert kale_threshold(Satisfaction(), 0.0, team=False) == math.inf
    assert kale_threshold(Satisfaction(platforms=1), 0.0) == math.inf


def test_settings_without_sense_are_refused():
    for call in [lambda: solve(TINY, grid=3), lambda: solve(TINY, samples=1), lambda: kale_threshold(TINY, 1.5)]:
        with pytest.raises(ConfigError):
            call()


@dataclass(frozen=True)
class Sweet(Satisfaction):
    """Users whose clicks follow another feature than those of the worlds here: kale, and more of it."""

    def appeal(self, kaleness):
        return 3.0 * kaleness


@pytest.mark.slow
def test_the_optimum_of_a_world_of_the_callers_own_is_by_its_own_methods():
    world = Sweet(candidates=5, slate=2, platforms=1, time_budget=4, sensitivity=0.3)
    solution = solve(world, samples=512)
    keys = fresh_users([1], 4000, world.rounds_per_episode)
    all_of_it = play_compiled(world, OptimalPolicy(world, solution), StayKeys(*(np.asarray(key[0]) for key in keys)))
    found = np.asarray(all_of_it.engagement, np.float64).sum(axis=1)
    assert found.mean() == pytest.approx(float(solution.total), abs=4 * found.std() / len(found) ** 0.5)


@dataclass(frozen=True)
class Third(Satisfaction):
    """A world in which one item in twenty engages a hundred times as much: no smooth function of one feature."""

    def _log_engagement(self, chocolate, exposure, tau=None):
        mean, sd = super()._log_engagement(chocolate, exposure, tau)
        return mean + jnp.where(jnp.abs(chocolate - 0.5) < 0.025, math.log(100.0), 0.0), sd


@pytest.mark.slow
def test_an_optimum_that_a_policy_beats_is_left_out():
    """Series of eight terms cannot follow a spike: what they call the best is beaten by the policy that is played."""
    values = np.random.default_rng(0).normal(110.0, 5.0, 400)
    assert exceeds(values, 100.0, 0.5) and not exceeds(values, 109.5, 0.0) and not exceeds(values, 108.0, 3.0)
    names = ("random", "optimum")
    for kind, kept in ((Satisfaction, names), (Third, ("random",))):
        world = kind(candidates=5, slate=2, platforms=1, time_budget=4)
        users = fresh_users([0], 3, world.rounds_per_episode)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", FedrankWarning)
            assert tuple(one.name for one in baselines(world, names, users, 0)) == kept
        assert bool(told) == (kind is Third)
