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
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fedrank.core.errors import ConfigError, DataError
from fedrank.metrics.returns import LEAST_SEEDS
from fedrank.silos.bandits.rules import MOST_COMBINED


def shapley(values: Float[np.ndarray, "*games sets"]) -> Float[np.ndarray, "*games helpers"]:
    """Shapley values of helpers.

    Args:
        values: The value of each of the 2^(k−1) combinations, in the order of ``combination_table`` in
            :mod:`fedrank.silos.bandits.rules`: entry 0 is the target alone, bit i is the i-th helper.

    Returns:
        Shares of the k − 1 helpers in the units of the values. Their sum is the value of everyone minus that of the
        target alone.

    Raises:
        DataError: The number of values is not 2^1 … 2^11.

    Source:
        Shapley: *A value for n-person games*, 1953. φⱼ is the mean of v(S + j) − v(S) over all orders of joining,
        with S those who joined before j.

    >>> shapley(np.array([0.0, 1.0, 2.0, 4.0]))
    array([1.5, 2.5])
    """
    return values @ _weights(_helpers(values)).astype(values.dtype)


def _helpers(values: Float[np.ndarray, "..."]) -> int:
    """Number of helpers whose combinations there are values of."""
    arms = values.shape[-1] if values.ndim else 0
    helpers = int(arms).bit_length() - 1
    if not 1 <= helpers < MOST_COMBINED or arms != 2**helpers:
        raise DataError(
            f"Contributions need the values of all combinations of 1 to {MOST_COMBINED - 1} helpers, a power of two of "
            f"them, got {arms}."
        )
    return helpers


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


class Intervals(NamedTuple):
    """Means with confidence intervals.

    Attributes:
        mean: Mean of each column.
        lower: Lower end; NaN with fewer than two samples.
        upper: Upper end; likewise.
        n: Number of samples that were not NaN.
    """

    mean: Float[np.ndarray, " columns"]
    lower: Float[np.ndarray, " columns"]
    upper: Float[np.ndarray, " columns"]
    n: Int[np.ndarray, " columns"]


class Inverted(NamedTuple):
    """Test of a silo's labels for inversion.

    Attributes:
        p: One-sided p-value; NaN if the AUC is undefined.
        verdict: "labels look inverted", "no sign of inverted labels", or "undefined".
    """

    p: float
    verdict: str


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

    Raises:
        DataError: There is no such silo.
    """
    if not 0 <= silo < members.shape[1]:
        raise DataError(f"silo must be from 0 to {members.shape[1] - 1}, got {silo}.")
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


def intervals(samples: Float[np.ndarray, "samples columns"], level: float = 0.95) -> Intervals:
    """Mean and Student's t-interval of every column.

    Rounds of one run depend on each other, for each starts from the model of the one before: an interval over rounds is
    too short. Average over a run's rounds first and give one sample a seed.

    Args:
        samples: Samples; NaN is no sample, and fewer than three give no interval.
        level: Confidence, in (0, 1).
    """
    from scipy.special import stdtrit  # scipy.stats, which has the same, takes half a second to import

    samples = np.asarray(samples, float)
    there = np.isfinite(samples)
    n = there.sum(axis=0)
    mean = np.where(there, samples, 0.0).sum(axis=0) / np.where(n > 0, n, np.nan)
    squares = np.where(there, samples - mean[None, :], 0.0) ** 2
    freedom = np.where(n >= LEAST_SEEDS, n - 1, np.nan)
    error = np.sqrt(squares.sum(axis=0) / freedom / np.where(n > 0, n, np.nan))
    half = stdtrit(freedom, (1 + level) / 2) * error
    return Intervals(mean, mean - half, mean + half, n)


def judge_inversion(auc: float, positives: int, negatives: int, level: float = 0.05) -> Inverted:
    """Does a silo's own model rank the target's rows backwards?

    One-sided Mann-Whitney test of "the scores say nothing about the labels" against an AUC below ½: exact for few rows
    (:data:`EXACT_PAIRS`, and then as if no scores were tied), else the normal approximation with continuity correction.
    It cannot tell inverted labels from a population in which the same features mean the opposite. One look at one
    model: for several silos divide ``level`` by their number, and fix the round beforehand.

    Args:
        auc: AUC of the silo's own model on the target's rows; NaN if a class is missing.
        positives: Rows of the target with label 1.
        negatives: Rows with label 0.
        level: Largest probability of a false alarm.

    Returns:
        The p-value and the verdict in words.

    Raises:
        ConfigError: ``level`` is out of range.
        DataError: The AUC is outside [0, 1], or a count is negative.
    """
    if not 0 < level < 1:
        raise ConfigError(f"level must be in (0, 1), got {level}.")
    if auc < 0 or auc > 1 or positives < 0 or negatives < 0:
        raise DataError(f"An AUC in [0, 1] and counts of at least 0 are needed, got {auc}, {positives}, {negatives}.")
    pairs = positives * negatives
    if math.isnan(auc) or pairs == 0:
        return Inverted(math.nan, "undefined")
    # The AUC may come from float32 and miss a whole number of pairs by a little; ties make halves.
    u = round(2 * auc * pairs) / 2
    if pairs <= EXACT_PAIRS:
        counts = _mann_whitney(positives, negatives)
        p = float(counts[: math.ceil(u) + 1].sum())
    else:
        deviation = math.sqrt(pairs * (positives + negatives + 1) / 12)
        p = 0.5 * math.erfc(-(u + 0.5 - pairs / 2) / deviation / math.sqrt(2))
    return Inverted(min(p, 1.0), "labels look inverted" if p <= level else "no sign of inverted labels")


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
