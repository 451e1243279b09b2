"""A trial of the plan on users: some stays are served by it, some as before; it is served to all where it is better.

Platforms that have a plan serve each later stay by one of three arms: the plan, the fallback (slates at random, or the
slates that the application says it would show at present), or the model's best slate for now. Which one is drawn from
the name of the stay, so that platforms that give a stay the same name serve it alike. After as many stays as agreed
each platform with feedback sends sums over them, clipped and noised as the sums of explorers are. A stay is in one of
these sums or in those of the explorers, so that ε of a stay stays what it is.

**Interval.** d_b is the difference of two arms' mean engagement in the b-th sums and s_b² its variance, noise included.
With V = Σ 1 / s_b², Σ d_b / s_b² less its mean moves like a Brownian motion at time V, if d_b are normal. By the
reflection principle such a motion leaves ± c √W anywhere up to the time W with a probability below
4 (1 − Φ(c)) (Feller, An Introduction to Probability Theory II, section X.5), so that with c = Φ⁻¹(1 − α / 4) the
interval Σ (d_b / s_b²) / V ± c √W / V covers the true difference at all looks of the trial together with probability
1 − α. W, the V of the whole trial, is taken to be V over the part of its stays that were counted: stays after a
decision tell less, so that W is no smaller than what V comes to. d_b are means over hundreds of stays, and s_b are
estimated: the promise holds as stays grow in number.

**Decision.** The plan is served to all but a few percent once the interval of its gain over the fallback lies above 0.
Where the interval lies below 0, and where the trial ends without either, the fallback is served, to all but a few
percent. These few go on being counted until the trial ends, so that a decision that has become wrong is taken back;
after its end all stays are served by the last verdict.

**Residuals.** In stays of the fallback the residual of log-engagement must not correlate with the square of the item's
feature, nor with the fading sum of such squares: a model that is linear in the feature has then missed something.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, UInt32

from fedrank.core.arrays import AnyArray, module_of
from fedrank.core.lazy import jax
from fedrank.core.rng import uniform as to_uniform
from fedrank.slates.world.best_slate import largest

#: The arms, and the decisions: still testing; the plan is served; the fallback is served.
PLAN, FALLBACK, MYOPIC = range(3)
TESTING, ADOPTED, FALLEN_BACK = range(3)
#: Probability of each arm, by decision.
SHARES = np.array([[0.45, 0.45, 0.1], [0.93, 0.05, 0.02], [0.05, 0.93, 0.02]])
#: Probability that an interval misses the true gain at any time.
ALPHA = 0.05
#: Numbers that a platform keeps of a stay: engagement; clicks, their residuals, the fading sum of squares of items;
#: for both probes their sum, that of their products with residuals, and that of their squares; and rounds in which the
#: user was there.
TALLY = 11
#: Numbers of a stay in the sums: of each arm (count, engagement, its square), and the residuals' scores by both probes.
NUMBERS = 11
#: Largest L2 norm of these: no vector is longer.
CLIP = 1.25
#: Least variance of a stay's engagement, in typical stays: stays that are all cut alike tell no difference.
_VARIANCE = 1e-4
#: Scales of counts and squares, and of scores, which are cut at four standard deviations: noise matters less to them.
_MINOR, _SCORE, _CUT = 0.25, 0.46, 4.0
#: Least stays of an arm from which a difference is computed.
_LEAST = 20.0
#: Numbers of the coordinator's evidence: both differences' Σ d / s² and Σ 1 / s²; the sums so far; and the decision.
EVIDENCE = 4 + NUMBERS + 1
#: Numbers of a verdict: the decision; gain over the fallback and over myopic slates, each with its half-width, as parts
#: of the fallback's engagement (a half-width below 0: nothing is known); and z of both residual tests.
VERDICT = 7


def mix(words: UInt32[AnyArray, "*shape"]) -> Float32[AnyArray, "*shape"]:
    """Uniform numbers in [0, 1) from words, by the finaliser of MurmurHash3."""
    with np.errstate(over="ignore"):
        word = (words ^ (words >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        word = (word ^ (word >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        found: Any = to_uniform(word ^ (word >> np.uint32(16)), module_of(words))
        return found


def arm_of(stay: Int[AnyArray, "*users"], decision: Float[AnyArray, "*users"]) -> Int[np.ndarray, "*users"]:
    """The arm of a stay.

    Args:
        stay: Number of the stay, or a hash of its name.
        decision: The decision when the stay begins.
    """
    edges = SHARES.cumsum(axis=1)[np.asarray(decision, np.int64), :-1]
    uniform = np.asarray(mix(np.asarray(stay, np.int64).astype(np.uint32)))
    return np.asarray((uniform[..., None] >= edges).sum(axis=-1), np.int32)


def random_slate(uniform: Float[AnyArray, "*users"], candidates: int, slots: int) -> Int[AnyArray, "*users slots"]:
    """Slates at random: each candidate has a number that follows from its place and one random number."""
    salt: Any
    if module_of(uniform) is np:
        salt = np.ascontiguousarray(uniform, np.float32).view(np.uint32).reshape(np.shape(uniform))
    else:
        salt = jax.lax.bitcast_convert_type(uniform, np.uint32)
    places = np.arange(1, candidates + 1, dtype=np.uint32) * np.uint32(0x9E3779B9)
    return largest(mix(salt[..., None] ^ places), slots)


def add_click(
    tally: Float[AnyArray, "*users tally"],
    engagement: Float[AnyArray, "*users"],
    residual: Float[AnyArray, "*users"],
    item: Float[AnyArray, "*users"],
    fade: float,
    there: Bool[AnyArray, "*users"] | bool = True,
) -> Float32[np.ndarray, "*users tally"]:
    """A stay's tally after a round.

    Args:
        tally: Before it; zeros at first.
        engagement: Of the click; 0 without one.
        residual: Of the click's log-engagement.
        item: The clicked item's feature, in about [−1, 1].
        fade: Factor of the sum of squares a round.
        there: Whether the user visited the platform in the round.
    """
    past, square = tally[..., 3], np.square(item)
    probes = np.stack([square, past], axis=-1)
    e, clicked = np.asarray(residual)[..., None], np.asarray(engagement) > 0
    one = np.ones_like(past)
    visit = np.broadcast_to(there, past.shape)[..., None]
    more = np.concatenate(
        [np.stack([engagement, one, residual, square], axis=-1), probes, e * probes, probes * probes], axis=-1
    )
    after: Any = tally + np.concatenate([np.where(clicked[..., None], more, 0), visit], axis=-1)
    after[..., 3] = fade * past + np.where(clicked, square, 0)
    return after.astype(np.float32)


def vector_of(
    tally: Float[AnyArray, "*users tally"], arm: Int[AnyArray, "*users"], typical: Float[AnyArray, "*users"]
) -> Float32[np.ndarray, "*users numbers"]:
    """The vector of a stay that has ended, of norm up to :data:`CLIP`; zeros where the user was never there.

    Engagement is that of the stay as it was, however short: who leaves early under an arm counts with what was left.
    It counts up to twice the typical stay's.

    Args:
        tally: As :func:`add_click` leaves it.
        arm: The stay's arm.
        typical: Engagement of a typical whole stay, a public number.
    """
    apart = tally[..., 0] / np.maximum(typical, 1e-30) - 1.0
    y = np.clip(np.nan_to_num(apart), -1.0, 1.0)
    one = np.stack([np.full_like(y, _MINOR), y, _MINOR * y * y], axis=-1)
    arms = np.where((np.arange(3) == np.asarray(arm)[..., None])[..., None], one[..., None, :], 0)
    clicks, e = np.maximum(tally[..., 1, None], 1.0), tally[..., 2, None]
    g, eg, gg = tally[..., 4:6], tally[..., 6:8], tally[..., 8:10]
    spread = np.sqrt(np.maximum(gg - g * g / clicks, 1e-6))
    scores = np.clip(np.nan_to_num((eg - e * g / clicks) / spread) / _CUT, -1.0, 1.0) * _SCORE
    scores = np.where((np.asarray(arm) == FALLBACK)[..., None], scores, 0)
    vector = np.concatenate([arms.reshape(*y.shape, 9), scores], axis=-1)
    return np.where(tally[..., 10, None] > 0, vector, 0).astype(np.float32)


def half_width(precision: float, part: float, alpha: float = ALPHA) -> float:
    """Half of the interval that holds at all looks of a trial together; infinite without evidence.

    Args:
        precision: V, one over the variance of the estimate so far.
        part: Part of the trial's stays that were counted, above 0, at most 1.
        alpha: Probability that any interval misses.
    """
    return NormalDist().inv_cdf(1.0 - alpha / 4.0) / (precision * part) ** 0.5 if precision > 0 else math.inf


def add_evidence(
    evidence: Float[AnyArray, " evidence"],
    sums: Float[AnyArray, " numbers"],
    platforms: float,
    noise: float,
    part: float,
    looks: int,
) -> Float32[np.ndarray, " evidence"]:
    """The coordinator's evidence after sums over some stays, and the decision that follows.

    Args:
        evidence: Before; zeros at first.
        sums: Of all platforms that were heard, as :func:`vector_of` scales them.
        platforms: How many these are; a user may be at all of them, so that their stays count as one.
        noise: Standard deviation of the noise on each of the sums.
        part: Part of the trial's stays that are counted with these sums; 1: they are the last.
        looks: Number of sums so far, these included.
    """
    before, sums = np.asarray(evidence, np.float64), np.asarray(sums, np.float64)
    kept, totals = before[:4].reshape(2, 2).copy(), before[4:-1] + sums
    count, y = sums[:9].reshape(3, 3)[:, 0] / _MINOR, sums[:9].reshape(3, 3)[:, 1]
    counts, ys, squares = (totals[:9].reshape(3, 3) / [_MINOR, 1.0, _MINOR]).T
    # The variance of each arm from all sums so far, and no less than the noise on it may hide.
    of_all = np.maximum(counts, 1.0)
    variance = np.maximum(squares / of_all - (ys / of_all) ** 2, _VARIANCE) + noise / _MINOR * looks**0.5 / of_all
    least = max(_LEAST, 5.0 * noise / _MINOR)
    for place, other in enumerate((FALLBACK, MYOPIC)):
        mine, theirs = count[PLAN], count[other]
        if min(mine, theirs) < least:
            continue
        means = y / np.maximum(count, 1.0)
        of_means = [
            platforms * variance[arm] / count[arm] + (1.0 + (means[arm] / _MINOR) ** 2) * (noise / count[arm]) ** 2
            for arm in (PLAN, other)
        ]
        kept[place] += (means[PLAN] - means[other]) / sum(of_means), 1.0 / sum(of_means)
    gain, precision = kept[0]
    half = half_width(float(precision), part)
    decision = int(before[-1])
    if precision > 0 and gain / precision > half:
        decision = ADOPTED
    elif (precision > 0 and gain / precision < -half) or (part >= 1.0 and decision == TESTING):
        decision = FALLEN_BACK
    return np.concatenate([kept.ravel(), totals, [decision]]).astype(np.float32)


def verdict_of(
    evidence: Float[AnyArray, " evidence"], part: float, noise: float, looks: int
) -> Float32[np.ndarray, " verdict"]:
    """The verdict that is told to platforms: see :data:`VERDICT`.

    Args:
        evidence: After the last sums.
        part: Part of the trial's stays that are counted.
        noise: Standard deviation of the noise on each sum.
        looks: How many sums are in the evidence.
    """
    kept, totals = np.asarray(evidence, np.float64)[:4].reshape(2, 2), np.asarray(evidence, np.float64)[4:-1]
    counts = totals[:9].reshape(3, 3)[:, 0] / _MINOR
    level = max(1.0 + totals[3 * FALLBACK + 1] / max(counts[FALLBACK], 1.0), 1e-3)
    told: list[float] = [float(evidence[-1])]
    for weighted, precision in kept:
        half = half_width(float(precision), part) if part > 0 else math.inf
        told += [weighted / precision / level, half / level] if math.isfinite(half) else [0.0, -1.0]
    variance = max(counts[FALLBACK], 1.0) * (_SCORE / _CUT) ** 2 + looks * noise**2
    return np.array([*told, *(totals[9:] / variance**0.5)], np.float32)


def verdict_json(verdict: Float[AnyArray, " verdict"]) -> dict[str, Any]:
    """A verdict as JSON: decision, gains as parts of the fallback's engagement with their intervals, residual tests."""
    words = ("testing", "plan", "fallback")
    gains = {}
    for place, name in ((1, "fallback"), (3, "myopic")):
        gain, half = (float(one) for one in verdict[place : place + 2])
        if half > 0:
            gains[f"over_{name}"] = {"gain": gain, "low": gain - half, "high": gain + half}
    scores = [float(one) for one in verdict[5:7]]
    return {"serves": words[int(verdict[0])], **gains, "residuals": scores}
