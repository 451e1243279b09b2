"""Attacks on sketches against their success in closed form.

One more occurrence moves a cell by one. The likelihood ratio of discrete Laplace noise then votes for or against it,
with the same weight in each cell, and is right with probability 1/(1 + e^(−1/t)): the best attacker takes a majority of
cells.
"""

import functools
import math

import numpy as np
import pytest
from scipy import stats

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.texts.insider import mean_interval
from fedrank.texts.sketch import SketchShape
from fedrank.texts.sketch.noise import SketchNoise
from fedrank_zoo.silo_sketch_2021 import PAPER_ATTACK, PrintedNoise
from fedrank_zoo.sketch_attack.settings import SketchAttack
from fedrank_zoo.sketch_attack.suite import (
    accuracy_bound,
    attack_sketches,
    cancel,
    dictionary,
    distinguish,
    distinguish_unscaled,
    intersection,
    repeat,
    two_silos,
)
from fedrank_zoo.sketch_attack.world import make_world, share_interval

TRIALS = 4_000


@functools.cache
def world(z=30, w=200, vocabulary=3_000):
    return make_world(SketchShape(z, w), vocabulary, 0)


def majority(cells, scale):
    """How often more than half of so many votes are right, ties by a coin."""
    one = 1 / (1 + math.exp(-1 / scale))
    votes = stats.binom(cells, one)
    return votes.sf(cells // 2) + (0.5 * votes.pmf(cells // 2) if cells % 2 == 0 else 0.0)


def test_one_answer_of_the_paper_tells_the_documents_apart_every_time():
    found = distinguish(world(), PrintedNoise("paper", 0.5, 30), 10, TRIALS, np.random.default_rng(1))
    assert found.measured == 1.0 and found.broken and not found.control
    assert found.promised == pytest.approx(math.exp(0.5) / (1 + math.exp(0.5))) == pytest.approx(0.622, abs=1e-3)


def test_the_label_of_the_paper_s_mode_has_the_measured_attack():
    found = attack_sketches(SketchAttack(("paper",), trials=200, vocabulary=1_500))[0]
    assert (found.attack, found.measured) == ("distinguish", PAPER_ATTACK.accuracy)
    assert PAPER_ATTACK.allowed == pytest.approx(found.promised, abs=5e-4) and PAPER_ATTACK.epsilon == 0.5
    defaults = SketchAttack()
    assert (defaults.trials, defaults.epsilon) == (PAPER_ATTACK.trials, PAPER_ATTACK.epsilon)
    assert PAPER_ATTACK.command in PAPER_ATTACK.in_words() and "62.2 %" in PAPER_ATTACK.in_words()


def test_independent_noise_of_scale_one_over_epsilon_is_too_little():
    for z1 in (10, 30):
        found = distinguish_unscaled(world(), PrintedNoise("paper", 0.5, 30), z1, TRIALS, np.random.default_rng(4))
        assert found.low <= majority(z1, 2.0) <= found.high and found.broken and found.control


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_all_that_is_published_together_stays_within_the_bound(mechanism):
    noise = SketchNoise("publish-once", 4.0, 5, mechanism)
    found = distinguish(world(z=5), noise, 2, TRIALS, np.random.default_rng(5))
    parts = [(noise.change(what), noise.scale(what)) for what in ("sketches", "sizes", "statistics")]
    if mechanism == "gaussian":
        right = stats.norm.cdf(0.5 * math.sqrt(sum(cells / scale**2 for cells, scale in parts)))
        assert found.low - 0.005 <= right <= found.high + 0.005
    assert not found.broken and found.low > 0.6  # something is learnt, as ε = 4 allows
    assert found.promised >= accuracy_bound(4.0)


def test_the_noise_of_the_paper_comes_off_with_decoys_and_independent_noise_does_not():
    rng = np.random.default_rng(6)
    found = cancel(world(), PrintedNoise("paper", 0.5, 30), 10, TRIALS, rng)
    without = cancel(world(), SketchNoise("plain", None, 30), 10, TRIALS, rng)
    assert found.broken and found.measured < 0.2 and 1.1 < found.promised < 1.5
    assert 0.08 < without.promised < found.measured
    found = cancel(world(), SketchNoise("publish-once", 0.5, 30), 10, TRIALS, rng)
    assert not found.broken and found.measured > 10 and found.promised > 10


def test_a_published_number_does_not_average_out():
    once = repeat(world(z=5), SketchNoise("publish-once", 0.5, 5), 60, 2_000, np.random.default_rng(7))
    assert not once.broken and not once.control


def test_a_dictionary_finds_the_term_of_one_scheme_and_only_the_group_of_the_other():
    rng = np.random.default_rng(8)
    found = dictionary(world(), 10, "icde", 40, rng)
    assert found.measured == 1.0 and found.broken and found.promised == pytest.approx(1 / 21)
    for z1, group in ((10, 3), (5, 6)):
        found = dictionary(world(), z1, "jos", 40, rng)
        assert found.promised == 1 / group and not found.broken
        assert 0.95 / group < found.measured <= 1 / group + 1e-12
    # Among 3,000 words some fit three positions by chance and hide the term further.
    chance = 3_000 * stats.binom.pmf(3, 30, 1 / 200)
    found = dictionary(world(), 3, "jos", 60, rng)
    assert found.measured == pytest.approx(1 / (10 + chance), rel=0.15) and not found.broken


def test_decoys_drawn_anew_give_the_private_positions_away_and_a_kept_partition_does_not():
    small = world(z=12, w=8)
    others = stats.binom(8, 1 / 8)
    expected = sum(others.pmf(more) / math.comb(4 + more, 4) for more in range(9))
    found = intersection(small, 4, 2, True, 400, np.random.default_rng(9))
    assert found.low <= expected <= found.high and found.broken
    assert intersection(small, 4, 5, True, 100, np.random.default_rng(9)).measured > 0.99
    found = intersection(world(), 10, 5, False, 20, np.random.default_rng(9))
    assert found.measured == pytest.approx(1 / math.comb(30, 10)) and not found.broken


def test_decoys_of_two_silos_that_ask_for_one_word_leave_that_word_alone():
    found = two_silos(world(), 10, 40, np.random.default_rng(10))
    assert found.promised == pytest.approx(1 / 3) and found.low > 0.95 and found.broken and found.trials == 40
    # In a small dictionary with narrow rows, as many others fit both as chance lets fit: twice z₁ of z, independently.
    small = world(z=12, w=8)
    one = stats.binom.pmf(4, 12, 1 / 8)
    found = two_silos(small, 4, 100, np.random.default_rng(11))
    others = 3_000 * one**2
    assert found.measured == pytest.approx((1 - math.exp(-others)) / others, rel=0.15)  # E[1/(1 + Poisson)]


def test_published_once_is_attacked_without_a_question():
    found = attack_sketches(SketchAttack(("publish-once",), z=1, w=4_096, trials=300, vocabulary=1_500))
    assert [one.attack for one in found] == ["distinguish", "repeat"] and not any(one.broken for one in found)
    with pytest.raises(ConfigError, match="z of at least 2"):
        SketchAttack(z=1, w=4_096)


def test_the_suite_breaks_the_paper_and_decoys_that_two_silos_ask_with():
    settings = dict(trials=300, vocabulary=1_500, seed=3)
    found = attack_sketches(SketchAttack(**settings))
    broken = {(one.attack, one.mode) for one in found if one.broken and not one.control}
    assert broken == {
        ("distinguish", "paper"),
        ("cancel", "paper"),
        ("dictionary", "icde"),
        ("intersection", "decoys drawn anew, PK kept"),
        ("intersection", "jos, two silos"),
    }
    assert all(one.low <= one.measured <= one.high or one.high - one.low < 1e-9 for one in found)
    assert attack_sketches(SketchAttack(("publish-once",), **settings)) == found[-3:]


def test_settings_out_of_range_are_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'paper'"):
        SketchAttack(("papr",))
    for arguments in (dict(z1=30), dict(z1=0), dict(trials=0), dict(seed=-1), dict(vocabulary=1)):
        with pytest.raises(ConfigError):
            attack_sketches(SketchAttack(("paper",), **arguments))


def test_intervals_hold_what_they_say():
    low, high = share_interval(1.0, 4_000)
    assert high == pytest.approx(1.0) and low == pytest.approx(
        stats.binomtest(4000, 4000).proportion_ci(0.99, "wilson").low, abs=1e-6
    )
    wilson = stats.binomtest(130, 1000).proportion_ci(0.99, "wilson")
    assert share_interval(0.13, 1000) == pytest.approx((wilson.low, wilson.high), abs=1e-6)
    assert mean_interval(np.array([1.0, 3.0])) == pytest.approx((2 - 2.5758 / math.sqrt(2), 2 + 2.5758 / math.sqrt(2)))
