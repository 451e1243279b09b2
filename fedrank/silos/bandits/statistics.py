"""Statistics of a run of a bandit: what a silo changed or contributed, whether its labels look inverted, intervals.

**Paired differences.** Rounds of training differ more than silos do. In an Extreme-Explore round all arms start from
one model, so the difference between an arm with a silo and the same arm without it cancels what the round did to both.
Rounds of one run share validation rows and first weights, so a difference may keep its sign for reasons that are not
the silo's: a test takes one number a run, of several runs that divide the rows anew (:mod:`fedrank.silos.evidence`).

**Contributions.** An Extreme-Explore round over all combinations gives the value v(S) of every set S of helpers. From
these 2^(k−1) values follows a share for every helper: its marginal v(S + j) − v(S), averaged over all orders in which
helpers may join (Shapley 1953). The shares add up to v(all) − v(∅).
"""

from __future__ import annotations

import functools
import math

import numpy as np
from jaxtyping import Bool, Float

from fedrank.metrics.returns import LEAST_SEEDS


def shapley(values: Float[np.ndarray, "*games sets"]) -> Float[np.ndarray, "*games helpers"]:
    """Shapley values of helpers.

    Args:
        values: The value of each of the 2^(k−1) combinations, in the order of ``combination_table`` in
            :mod:`fedrank.silos.bandits.rules`: entry 0 is the target alone, bit i is the i-th helper.

    Returns:
        Shares of the k − 1 helpers in the units of the values. Their sum is the value of everyone minus that of the
        target alone.

    Source:
        Shapley: *A value for n-person games*, 1953. φⱼ is the mean of v(S + j) − v(S) over all orders of joining,
        with S those who joined before j.

    >>> shapley(np.array([0.0, 1.0, 2.0, 4.0]))
    array([1.5, 2.5])
    """
    return values @ _weights(values.shape[-1].bit_length() - 1).astype(values.dtype)


@functools.cache
def _weights(helpers: int) -> Float[np.ndarray, "sets helpers"]:
    """The weight of every set's value in every helper's share; negative where the helper is not in the set."""
    inside = (np.arange(2**helpers)[:, None] >> np.arange(helpers)) % 2 == 1
    before = inside.sum(axis=1)[:, None] - inside  # the size of S, without the helper itself
    sizes = [1 / (helpers * math.comb(helpers - 1, size)) for size in range(helpers)]
    weight = np.array(sizes)[before]
    return np.where(inside, weight, -weight)


#: Largest product of class counts for which the exact Mann-Whitney distribution is used.
EXACT_PAIRS = 2000


def differences(
    increments: Float[np.ndarray, "rounds arms"],
    observed: Bool[np.ndarray, "rounds arms"],
    members: Bool[np.ndarray, "arms silos"],
    silo: int,
) -> Float[np.ndarray, " rounds"]:
    """Paired difference that a silo makes, round by round, all else equal.

    Every arm with the silo is compared with the arm of the same silos without it, where both were observed in the
    round; the mean over such pairs is the round's difference. A pair {target, silo} whose counterpart, the target
    alone, is no arm at all is compared with 0, because an increment is already a difference to the target's own model.

    Args:
        increments: Increment of each arm, in [−1, 1].
        observed: Which arms were observed.
        members: Which silos each arm has; no arm twice.
        silo: Number of the silo; not the target, which is in every arm and has nothing to be compared with.

    Returns:
        Differences in [−1, 1], NaN where the round says nothing about the silo.
    """
    there = observed & np.isfinite(increments)
    numbers = {tuple(row): arm for arm, row in enumerate(members.tolist())}
    total, count = np.zeros(len(increments)), np.zeros(len(increments))
    for arm in np.flatnonzero(members[:, silo]):
        rest = members[arm].copy()
        rest[silo] = False
        without = numbers.get(tuple(rest.tolist()))
        if without is not None:
            pair = there[:, arm] & there[:, without]
            gain = increments[:, arm] - increments[:, without]
        elif rest.sum() == 1 and members[:, rest].all():
            pair, gain = there[:, arm], increments[:, arm]
        else:
            continue
        total += np.where(pair, gain, 0.0)
        count += pair
    return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)


def interval(samples: Float[np.ndarray, " samples"], level: float = 0.95) -> tuple[float, float, float]:
    """Mean of some samples and the ends of Student's t-interval; NaN ends of fewer than three.

    Rounds of one run depend on each other, for each starts from the model of the one before: an interval over rounds is
    too short. Average over a run's rounds first and give one sample a seed.

    Args:
        samples: At least one.
        level: Confidence, in (0, 1).
    """
    from scipy.special import stdtrit  # scipy.stats, which has the same, takes half a second to import

    n, mean = len(samples), float(samples.mean())
    if n < LEAST_SEEDS:
        return mean, math.nan, math.nan
    half = float(stdtrit(n - 1, (1 + level) / 2)) * math.sqrt(float(((samples - mean) ** 2).sum()) / (n - 1) / n)
    return mean, mean - half, mean + half


def inversion_p(auc: float, positives: int, negatives: int) -> float:
    """p-value that a silo's own model does not rank the target's rows backwards; NaN without an AUC.

    One-sided Mann-Whitney test of "the scores say nothing about the labels" against an AUC below ½: exact for few rows
    (:data:`EXACT_PAIRS`, and then as if no scores were tied), else the normal approximation with continuity correction.
    It cannot tell inverted labels from a population in which the same features mean the opposite. One look at one
    model: for several silos multiply it by their number, and fix the round beforehand.

    Args:
        auc: AUC of the silo's own model on the target's rows; NaN if a class is missing.
        positives: Rows of the target with label 1.
        negatives: Rows with label 0.
    """
    pairs = positives * negatives
    if math.isnan(auc) or pairs == 0:
        return math.nan
    # The AUC may come from float32 and miss a whole number of pairs by a little; ties make halves.
    u = round(2 * auc * pairs) / 2
    if pairs <= EXACT_PAIRS:
        counts = _mann_whitney(positives, negatives)
        return min(float(counts[: math.ceil(u) + 1].sum()), 1.0)
    deviation = math.sqrt(pairs * (positives + negatives + 1) / 12)
    return min(0.5 * math.erfc(-(u + 0.5 - pairs / 2) / deviation / math.sqrt(2)), 1.0)


def _mann_whitney(positives: int, negatives: int) -> Float[np.ndarray, " u_values"]:
    """Probability of every U in 0 … positives · negatives if labels are shuffled and no scores are tied.

    The highest score of a + b rows is one of the a with probability a / (a + b), and then beats all b others (the
    recursion of Mann and Whitney 1947). U has the same distribution if the classes swap names.
    """
    few, many = sorted((positives, negatives))
    start = np.zeros(few * many + 1)
    start[0] = 1.0
    row = [start] * (few + 1)
    for a in range(1, many + 1):
        row_before, row = row, [start]
        for b in range(1, few + 1):
            beats = np.zeros_like(start)
            beats[b:] = row_before[b][:-b]
            row.append((a * beats + b * row[b - 1]) / (a + b))
    return row[few]
