"""Does a silo help or harm? Paired differences, and tests that may be looked at after every round.

**Paired.** Rounds of training differ more than silos do. In an Extreme-Explore round all arms start from one model, so
the difference between an arm with a silo and the same arm without it cancels what the round did to both
(:func:`differences`).

**Anytime-valid.** One looks at a table after every round and stops when it is convincing; an ordinary p-value does not
survive that. :func:`evidence` bets against a hypothesis, such as "the silo does not harm": capital starts at 1, every
round a share λ is staked on "harm", and if the hypothesis holds capital is not expected to grow, whatever happened
before. So the probability that it *ever* reaches 1/level is at most ``level`` (Ville's inequality). Instead of guessing
λ the capital is spread over a fixed grid of shares once; the sum is what is reported, an *e-value*.

The hypothesis concerns the mean of a round given the past, which may drift while training goes on: "harms" means that
in some round the mean difference was below zero.

**What the rounds of one run can say.** They share validation rows and first weights, so a difference may keep its sign
for reasons that are not the silo's. A test of rounds is about those rows; for more, take one number a run and several
runs that divide the rows anew.

**Mean or sign.** AUCs differ by at most 1, and a test of the mean that holds for all such differences is slow where
they are small: the most one may stake is the whole capital, which a difference of −0.03 multiplies by at most 1.03.
``by="sign"`` bets on the sign instead, hypothesis "at least as often better with the silo as worse", and convinces
itself within a handful of rounds if the sign is steady. Decide which before looking.

**Several silos.** ``level`` is for one statement about one silo. Asking about m silos in both directions makes 2m
statements; divide ``level`` by that to be wrong about any with at most the original probability.

Source:
    Waudby-Smith and Ramdas: *Estimating means of bounded random variables by betting*, JRSS-B 86(1), 2024, section 4
    (capital processes) and appendix B (grids of bets). Shafer: *Testing by betting*, JRSS-A 184(2), 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from fedrank.core.errors import ConfigError, DataError

#: Shares of the capital among which it is spread; below 1, so that nothing ever ruins it.
BETS = (np.arange(20) + 0.5) / 20
#: Means at which the confidence sequence is evaluated; it is rounded outwards to them.
MEANS = np.linspace(-1.0, 1.0, 801)[1:-1]
#: Most products of class counts for which the exact Mann-Whitney distribution is used.
EXACT_PAIRS = 2000

Verdict = Literal["harms", "helps", "no evidence"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the rounds say about one silo.

    Attributes:
        verdict: "harms" or "helps" if that e-value ever reached 1/level; if both did, the one that is larger now.
        n: Rounds with an observation.
        mean: Mean difference (of signs, if by sign); NaN without observations.
        harm: float64 [rounds], e-value after each round against "the silo does not harm".
        help: float64 [rounds], e-value after each round against "the silo does not help".
        harmed_at: First round, from 0, at which ``harm`` is at least 1/level, or None.
        helped_at: Likewise for ``help``.
        lower: float64 [rounds], lower end of the confidence sequence of the mean.
        upper: float64 [rounds], upper end. Each end by itself holds in all rounds at once with probability 1 − level,
            both together with 1 − 2 level, if the mean given the past is constant.
        level: As asked for.
        by: "mean" or "sign".
    """

    verdict: Verdict
    n: int
    mean: float
    harm: np.ndarray
    help: np.ndarray
    harmed_at: int | None
    helped_at: int | None
    lower: np.ndarray
    upper: np.ndarray
    level: float
    by: str


class Inverted(NamedTuple):
    """Whether a silo's labels look inverted.

    Attributes:
        p: One-sided p-value; NaN if the AUC is undefined.
        verdict: "labels look inverted", "no sign of inverted labels", or "undefined".
    """

    p: float
    verdict: str


def differences(increments: Any, observed: Any, members: Any, silo: int) -> np.ndarray:
    """What a silo changed, round by round, all else equal.

    Every arm with the silo is compared with the arm of the same silos without it, where both were observed in the
    round; the mean over such pairs is the round's difference. A pair {target, silo} whose counterpart, the target
    alone, is no arm at all is compared with 0, because an increment is already a difference to the target's own model.

    Args:
        increments: [rounds, arms], in [−1, 1].
        observed: bool [rounds, arms].
        members: bool [arms, silos], no arm twice.
        silo: Which silo; not the target, which is in every arm and has nothing to be compared with.

    Returns:
        float64 [rounds] in [−1, 1], NaN where the round says nothing about the silo.

    Raises:
        DataError: Shapes do not fit each other, or there is no such silo.
    """
    increments, members = np.asarray(increments, float), np.asarray(members, bool)
    observed = np.asarray(observed, bool)
    if increments.ndim != 2 or members.ndim != 2 or increments.shape[1] != len(members):
        raise DataError(
            f"increments must be [rounds, arms] and members [arms, silos], got {increments.shape} and {members.shape}."
        )
    if observed.shape != increments.shape:
        raise DataError(f"observed must be [rounds, arms] like increments, got {observed.shape}, {increments.shape}.")
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


def evidence(differences: Any, level: float = 0.05, by: Literal["mean", "sign"] = "mean") -> Evidence:
    """Sequential evidence from paired differences.

    Args:
        differences: [rounds] in [−1, 1]; NaN is no observation and moves nothing.
        level: Largest probability of ever finding harm where there is none; the same for help.
        by: What is tested to be below or above zero: the mean difference, or the mean of its sign.

    Returns:
        E-values, confidence sequence and verdict.

    Raises:
        ConfigError: ``level`` or ``by`` is out of range.
        DataError: A difference is outside [−1, 1].
    """
    if not 0 < level < 1:
        raise ConfigError(f"level must be in (0, 1), got {level}.")
    if by not in ("mean", "sign"):
        raise ConfigError(f"by must be mean or sign, got {by}.")
    x = np.asarray(differences, float).reshape(-1)
    seen = ~np.isnan(x)
    if np.any(np.abs(x[seen]) > 1):
        raise DataError(f"Differences must lie in [-1, 1], got {x[seen][np.argmax(np.abs(x[seen]))]}.")
    x = np.where(seen, np.sign(x) if by == "sign" else x, 0.0)
    harm, help_ = _capital(-x, seen, 0.0), _capital(x, seen, 0.0)
    harmed_at, helped_at = _first(harm >= 1 / level), _first(help_ >= 1 / level)
    lower, upper = _sequence(x, seen, level)
    verdict: Verdict = "no evidence"
    if harmed_at is not None or helped_at is not None:
        both = harmed_at is not None and helped_at is not None
        verdict = "harms" if (harm[-1] >= help_[-1] if both else harmed_at is not None) else "helps"
    n = int(seen.sum())
    mean = float(x.sum() / n) if n else math.nan
    return Evidence(verdict, n, mean, harm, help_, harmed_at, helped_at, lower, upper, level, by)


def inverted(auc: float, positives: int, negatives: int, level: float = 0.05) -> Inverted:
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


def _capital(x: np.ndarray, seen: np.ndarray, mean: np.ndarray | float) -> np.ndarray:
    """Capital after each round, [..., rounds], of a bet on "above ``mean``" ([...]) that is spread over BETS.

    A stake of λ pays 1 + λ (x − mean) / (1 + mean), which is never below 1 − λ since x ≥ −1.
    """
    mean = np.expand_dims(mean, -1)
    gain = np.where(seen, (x - mean) / (1 + mean), 0.0)
    total = np.zeros(gain.shape)
    with np.errstate(over="ignore"):  # beyond all floats is beyond all levels
        for bet in BETS:
            total += np.cumprod(1 + bet * gain, axis=-1)
    return total / len(BETS)


def _sequence(x: np.ndarray, seen: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends [rounds]: the outermost means that no bet has refuted so far.

    The gain falls with the mean that is bet against, so the refuted means are a lower part of the grid, and their
    number says where it ends. The end is the largest mean that is refuted: rounded outwards.
    """

    def lower(x: np.ndarray) -> np.ndarray:
        highest = np.maximum.accumulate(_capital(x, seen, MEANS), axis=-1)
        return np.concatenate([[-1.0], MEANS])[(highest >= 1 / level).sum(axis=0)]

    return lower(x), -lower(-x)


def _first(crossed: np.ndarray) -> int | None:
    return int(np.argmax(crossed)) if crossed.any() else None


def _mann_whitney(positives: int, negatives: int) -> np.ndarray:
    """float64 [positives · negatives + 1]: probability of every U if labels are shuffled and no scores are tied.

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
