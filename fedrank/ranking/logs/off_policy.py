"""Off-policy evaluation of rankings: what another order of the logged results would have been worth, with intervals.

A ranker orders the results of each logged session anew; its r-th goes to the r-th place that was shown. With λ_k the
worth of a relevant result at position k, θ position bias, c clicks, logged position k and new position k':

    ips     Σ λ_k' c / θ_k  a session (Joachims et al., WSDM 2017); unbiased where θ is right
    snips   Σ λ_k' c / θ_k  over  Σ c / θ_k: the mean worth of a relevant result's place, whatever the scale of θ
            (Swaminathan & Joachims, NeurIPS 2015)
    dr      Σ λ_k' q̂ + λ̄ (c − θ_k q̂) / ρ  a session, with a model q̂ of attraction, and ρ and λ̄ the means of θ_k
            and λ_k' over the sessions that show the pair (Oosterhuis, TOIS 2023); unbiased where θ is right, however
            bad q̂ is
    dm      Σ λ_k' q̂  a session: as good as the model; no interval

λ is 1 / log₂(k + 1) up to 10, so that ``ips``, ``dr`` and ``dm`` estimate DCG@10 with attraction as the gain; or θ, so
that they estimate clicks a session.

Intervals are of a jackknife over groups of sessions, with Student's t: they hold the noise of the
clicks *and* that of θ, which was estimated from the same log. The model and the rankers are taken as given, so they
must not have seen these sessions. A ranker is only told about from results that were shown.

**Position bias** is how much less a result is looked at, the lower it stands. A click at position k on a pair p (a
query and a document) has probability θ_k α_p: it is looked at, and attracts. Pairs that stood at several positions tell
θ, whatever α is: the estimate is the maximum of the likelihood of a Poisson model with an own α for each pair,
conditional on the clicks of each pair,

    Σ_p c_pk = Σ_p c_p n_pk θ_k / Σ_j n_pj θ_j    for each k

with c clicks and n times shown. It asks for the mean θ_k α_p only, not for a distribution of clicks, and has no bias
from the many α (Wooldridge, Journal of Econometrics 1999). For two positions it is the ratio of clicks on swapped
results (Joachims et al., WSDM 2017), and with more it harvests all interventions (Agarwal et al., WSDM 2019) with the
weights of least variance.

θ is known only between positions that pairs connect, and up to a factor; θ of the first position is 1. Two positions
between which no pair that was clicked ever moved cannot be told from their results' relevance (Chen et al., ICML 2024).
It is assumed that a pair's attraction does not change while it moves.

Standard errors are of a jackknife that leaves out one of :data:`GROUPS` groups of sessions at a time, or of users where
the log names them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int

from fedrank.core.compiled import njit
from fedrank.core.errors import DataError
from fedrank.ranking.logs.read import ClickLog

#: Groups of sessions of the jackknife.
GROUPS = 32
#: Share of a log's results at positions whose bias is not known, beyond which nothing is learnt from it.
_MOST_LOST = 0.5
#: Standard error of log θ beyond which a position's bias counts as hardly told; and as not told at all, as weights of
#: such a θ are of any size.
WIDE, _UNTOLD = 0.5, 1.0
_STEPS, _ENOUGH, _LOWEST = 60, 1e-9, 1e-5


@dataclass(frozen=True, eq=False)
class PositionBias:
    """Position bias: the probability that a result is looked at, by position.

    Attributes:
        theta: float64 [positions + 1], θ by position from 1, of the first usable one 1; 0 where it is not known.
        error: float64 [positions + 1], standard error of log θ; infinite where θ is not known.
        replicates: float64 [GROUPS, positions + 1], θ without each group of sessions.
        usable: bool [positions + 1]; positions that are connected with the first one, θ of which is told.
        moved: Share of the clicks that are on pairs seen at more than one position.
        source: ``"swaps"``: of pairs that moved; ``"given"``: known propensities; ``"none"``: taken to be none.
    """

    theta: Float64[np.ndarray, " positions"]
    error: Float64[np.ndarray, " positions"]
    replicates: Float64[np.ndarray, "groups positions"]
    usable: Bool[np.ndarray, " positions"]
    moved: float
    source: str = "swaps"

    @property
    def warnings(self) -> list[str]:
        """Sentences about what the log does not tell."""
        lost = np.flatnonzero(~self.usable[1:]) + 1
        wide = np.flatnonzero(self.usable & (self.error > WIDE))
        said = []
        if self.source == "none":
            said.append(
                "Position bias was taken to be none: where users look less at lower results, the ranker repeats the "
                "old one, and estimates favour it."
            )
        if len(lost):
            said.append(
                f"Position bias cannot be told from relevance at positions {_ranges(lost)}: too few clicked results "
                "moved between them and the first position. Results there are left out."
            )
        if len(wide):
            said.append(
                f"Position bias is hardly told from relevance at positions {_ranges(wide)}: the standard error of its "
                f"logarithm is above {WIDE:g}. Log more searches in which results move, such as a share of lists with "
                "two neighbours swapped at random."
            )
        return said


def group_of(log: ClickLog) -> Int[np.ndarray, " sessions"]:
    """The group of the jackknife of each session, 0 .. GROUPS − 1."""
    return (log.draw % np.uint32(GROUPS)).astype(np.int64)


def given_bias(theta: Float64[np.ndarray, " positions"], source: str = "given") -> PositionBias:
    """Position bias that is known, by position from 1; ``theta[0]`` is not looked at and positions of 0 are unknown."""
    usable = theta > 0
    usable[0] = False
    scaled = np.where(usable, theta / max(theta[usable].max(), 1e-300) if usable.any() else theta, 0.0)
    error = np.where(usable, 0.0, np.inf)
    return PositionBias(scaled, error, np.tile(scaled, (GROUPS, 1)), usable, 0.0, source)


def count_cells(log: ClickLog) -> tuple[Int[np.ndarray, "pairs positions"], Int[np.ndarray, "pairs positions"]]:
    """Times that each pair was shown at each position, and was clicked there, int32 [pairs, positions + 1] each."""
    shown = np.zeros((len(log.query), log.depth + 1), np.int32)
    clicks = np.zeros_like(shown)
    _count(log.pair, log.position, log.clicked, shown, clicks, 1)
    return shown, clicks


def estimate_bias(log: ClickLog) -> PositionBias:
    """The position bias of a log.

    Raises:
        DataError: More than half of its results are at positions whose bias cannot be told from relevance.
    """
    shown, clicks = count_cells(log)
    usable = _find_connected(shown, clicks)
    _refuse_lost(log, shown, usable)
    theta = _fit(shown, clicks, usable, np.where(usable, 1.0, 0.0))
    groups, replicates = group_of(log), np.empty((GROUPS, len(theta)))
    for group in range(GROUPS):
        part = log.part(groups == group)
        _count(part.pair, part.position, part.clicked, shown, clicks, -1)
        replicates[group] = _fit(shown, clicks, usable, theta)
        _count(part.pair, part.position, part.clicked, shown, clicks, 1)
    with np.errstate(divide="ignore"):
        logs = np.where(usable, np.log(np.where(usable, replicates, 1.0)), 0.0)
    error = np.where(usable, jackknife_error(logs), np.inf)
    usable &= (error <= _UNTOLD) & (theta > 1.01 * _LOWEST) & (theta < 0.99 / _LOWEST)
    _refuse_lost(log, shown, usable)
    theta, replicates, error = (
        np.where(usable, theta, 0.0),
        np.where(usable, replicates, 0.0),
        np.where(usable, error, np.inf),
    )
    several = (shown > 0).sum(axis=1) > 1
    moved = float(clicks[several].sum() / max(clicks.sum(), 1))
    return PositionBias(theta, error, replicates, usable, moved)


def _refuse_lost(log: ClickLog, shown: np.ndarray, usable: np.ndarray) -> None:
    """Refuse a log of which too few results are at usable positions, and name the features that may be why."""
    total = shown.sum(axis=0)
    lost = 1 - total[usable].sum() / total.sum()
    if usable.sum() < 2 or lost > _MOST_LOST:
        first = int(np.flatnonzero(total)[0])
        raise DataError(
            f"position bias cannot be told from relevance: {lost:.0%} of the results stand at positions that too few "
            f"clicked results share with position {first}. "
            + "".join(f"One cause may be the feature {one}; leave it out. " for one in log.odd_features(are=True))
            + "A log tells it where the same results, with the same features, stood at different "
            "positions: rankers that changed, or a share of lists with two neighbours swapped at random. Or give what "
            "is known (a column of propensities), or take clicks as they are (--position-bias none)."
        )


def jackknife_error(replicates: Float64[np.ndarray, "groups *rest"]) -> Float64[np.ndarray, "*rest"]:
    """Standard error from values without each of the groups."""
    n = len(replicates)
    return np.asarray(np.sqrt((n - 1) / n * ((replicates - replicates.mean(axis=0)) ** 2).sum(axis=0)))


@njit(cache=True, nogil=True)
def _count(pair, position, clicked, shown, clicks, sign):
    for row in range(len(pair)):
        shown[pair[row], position[row]] += sign
        if clicked[row]:
            clicks[pair[row], position[row]] += sign


def _find_connected(shown: np.ndarray, clicks: np.ndarray) -> np.ndarray:
    """Positions that clicked pairs connect with the first one that is shown, and that have clicks: bool [positions]."""
    told = (clicks.sum(axis=1) > 0) & ((shown > 0).sum(axis=1) > 1)
    where = (shown[told] > 0).astype(np.float32)
    joined = (where.T @ where) > 0
    # A position without a click on a pair that moved has θ = 0 by the log, and no weight can make up for that.
    clicked = clicks[told].sum(axis=0) > 0
    first = int(np.flatnonzero(shown.sum(axis=0))[0])
    reached = np.zeros(shown.shape[1], bool)
    reached[first] = True
    for _ in range(shown.shape[1]):
        reached |= joined[reached].any(axis=0) & clicked
    return reached & (clicked | (np.arange(len(reached)) == first))


def _fit(shown: np.ndarray, clicks: np.ndarray, usable: np.ndarray, start: np.ndarray) -> np.ndarray:
    """θ by Newton's method with halved steps on the conditional log-likelihood, which is concave in log θ."""
    places = np.flatnonzero(usable)
    eta = np.zeros(len(usable))
    eta[places] = np.log(start[places])
    value, gradient, curvature = _likelihood(shown, clicks, usable, np.exp(eta))
    for _ in range(_STEPS):
        free = places[1:]
        hessian = curvature[np.ix_(free, free)]
        step = np.linalg.lstsq(hessian + 1e-12 * np.trace(hessian) * np.eye(len(free)), gradient[free], rcond=None)[0]
        size = 1.0
        while True:
            moved = eta.copy()
            moved[free] = np.clip(eta[free] + size * step, np.log(_LOWEST), -np.log(_LOWEST))
            found = _likelihood(shown, clicks, usable, np.exp(moved))
            if found[0] >= value - 1e-12 * abs(value) or size < 1e-6:
                break
            size /= 2
        done = np.abs(moved - eta).max() < _ENOUGH
        eta, (value, gradient, curvature) = moved, found
        if done:
            break
    return np.where(usable, np.exp(eta - eta[places[0]]), 0.0)


@njit(cache=True, nogil=True)
def _likelihood(shown, clicks, usable, theta):
    """Conditional log-likelihood, its gradient, and minus its second derivatives, in log θ."""
    k = shown.shape[1]
    value, gradient, curvature = 0.0, np.zeros(k), np.zeros((k, k))
    share = np.zeros(k)
    place = np.zeros(k, np.int64)
    for pair in range(len(shown)):
        total, several, clicked = 0.0, 0, 0
        for j in range(k):
            if shown[pair, j] > 0 and usable[j]:
                place[several] = j
                several += 1
                total += shown[pair, j] * theta[j]
                clicked += clicks[pair, j]
        if several < 2 or clicked == 0:
            continue
        for a in range(several):
            j = place[a]
            share[a] = shown[pair, j] * theta[j] / total
            if clicks[pair, j] > 0:
                value += clicks[pair, j] * np.log(share[a])
            gradient[j] += clicks[pair, j] - clicked * share[a]
            curvature[j, j] += clicked * share[a]
        for a in range(several):
            for b in range(several):
                curvature[place[a], place[b]] -= clicked * share[a] * share[b]
    return value, gradient, curvature


def _ranges(numbers: np.ndarray) -> str:
    """Ascending whole numbers in words: ``3, 7 to 10``."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


Measure = Literal["DCG@10", "clicks"]
#: Estimates by name.
ESTIMATORS = ("ips", "snips", "dr", "dm")
#: Fewer effective clicks than this leave an estimate without a verdict.
FEW = 100.0
_CUT = 10
_IPS, _RELEVANT, _DR, _DM, _SESSIONS = range(5)


@dataclass(frozen=True)
class Estimate:
    """An estimate and its 95 % interval.

    Attributes:
        value: The estimate.
        low: Lower end; NaN where there is no interval.
        high: Upper end.
    """

    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, eq=False)
class Worth:
    """The worth of one ranking of a log's sessions.

    Attributes:
        estimates: By name of :data:`ESTIMATORS`.
        effective_clicks: (Σ w)² / Σ w² over clicks, w = λ_k' / θ_k: as many clicks without weights would tell as much.
        replicates: By name, float64 [GROUPS], the estimate without each group of sessions.
    """

    estimates: dict[str, Estimate]
    effective_clicks: float
    replicates: dict[str, Float64[np.ndarray, " groups"]]

    def minus(self, other: Worth, estimator: str = "dr") -> Estimate:
        """The difference to another ranking of the same sessions, with the interval of the paired difference."""
        value = self.estimates[estimator].value - other.estimates[estimator].value
        return _interval(value, self.replicates[estimator] - other.replicates[estimator])


class OffPolicy:
    """Judges rankings by sessions of a log that nothing was learnt from.

    Args:
        log: The sessions; results at positions whose bias is not known are left out.
        bias: Position bias.
        attraction: float32 [pairs], q̂ of each pair, of a model that has not seen these sessions.
        measure: What a relevant result is worth at a position.
    """

    def __init__(
        self,
        log: ClickLog,
        bias: PositionBias,
        attraction: Float32[np.ndarray, " pairs"],
        measure: Measure = "DCG@10",
    ):
        self.log = log.up_to(bias.usable)
        self._theta = np.concatenate([bias.theta[None], bias.replicates])
        shown, _ = count_cells(self.log)
        shown = shown[:, : self._theta.shape[1]]
        times = np.maximum(shown.sum(axis=1), 1)
        self._rho = (shown @ self._theta.T[: shown.shape[1]] / times[:, None]).astype(np.float32)
        self._rho[self._rho <= 0] = 1.0  # pairs that these sessions do not show
        self._attraction = np.asarray(attraction, np.float32)
        positions = np.arange(self._theta.shape[1])
        discount = np.where(
            (positions >= 1) & (positions <= _CUT), 1 / np.log2(positions + 1.0 + (positions == 0)), 0.0
        )
        self._worth = discount[None] if measure == "DCG@10" else self._theta
        self._groups = group_of(self.log)

    def judge(self, scores: Float32[np.ndarray, " pairs"] | None) -> Worth:
        """The worth of a ranking.

        Args:
            scores: The score of each pair, higher ones first; equal ones in an order that does not depend on the log's.
                None: the ranking that was shown.
        """
        log = self.log
        place = log.position if scores is None else _places(log.offsets, log.pair, log.position, _single(scores))
        # The worth of a pair's places, by their mean: the correction of dr has no bias then, though lists differ.
        counts = np.zeros((len(log.query), self._worth.shape[1]), np.int32)
        _count_places(log.pair, place, counts)
        worth = self._worth
        mean = (counts @ worth.T / np.maximum(counts.sum(axis=1), 1)[:, None]).astype(np.float32)
        inverse = np.where(self._theta > 0, 1 / np.where(self._theta > 0, self._theta, 1), 0.0)
        sums = np.zeros((len(self._theta), 5))
        model = self._attraction
        rows = log.offsets, log.pair, log.position, log.clicked, place, self._groups
        first, second = _sum(*rows, self._theta, inverse, worth, mean, self._rho, model, sums)
        sessions = np.maximum(sums[:, _SESSIONS], 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = {
                "ips": sums[:, _IPS] / sessions,
                "snips": sums[:, _IPS] / sums[:, _RELEVANT],
                "dr": sums[:, _DR] / sessions,
                "dm": sums[:, _DM] / sessions,
            }
        estimates = {name: _interval(float(values[0]), values[1:]) for name, values in found.items() if name != "dm"}
        estimates["dm"] = Estimate(float(found["dm"][0]))
        effective = first**2 / second if second > 0 else 0.0
        return Worth(estimates, effective, {name: values[1:] for name, values in found.items()})


def _single(scores: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(scores, np.float32)


def _interval(value: float, replicates: np.ndarray) -> Estimate:
    from scipy.special import stdtrit

    half = float(stdtrit(GROUPS - 1, 0.975)) * float(jackknife_error(replicates))
    return Estimate(value, value - half, value + half) if math.isfinite(half) else Estimate(value)


@njit(cache=True, nogil=True)
def _places(offsets, pair, position, scores):
    """The position of each row in the new order of its session, whose places are those that were shown."""
    out = np.empty_like(position)
    places = np.empty(256, np.uint8)
    for session in range(len(offsets) - 1):
        begin, end = offsets[session], offsets[session + 1]
        for row in range(begin, end):  # the places in order
            at = row - begin
            while at > 0 and places[at - 1] > position[row]:
                places[at] = places[at - 1]
                at -= 1
            places[at] = position[row]
        for row in range(begin, end):
            rank, mine, tie = 0, scores[pair[row]], _scatter(pair[row], session)
            for other in range(begin, end):
                theirs = scores[pair[other]]
                if theirs > mine or (theirs == mine and _scatter(pair[other], session) < tie):
                    rank += 1
            out[row] = places[rank]
    return out


@njit(cache=True, nogil=True)
def _count_places(pair, place, counts):
    for row in range(len(pair)):
        counts[pair[row], place[row]] += 1


@njit(cache=True, nogil=True)
def _sum(offsets, pair, position, clicked, place, groups, theta, inverse, worth, mean, rho, attraction, sums):
    """Add the terms of each session to the sums of all, and of all but each group; returns Σ w and Σ w² of clicks."""
    first, second = 0.0, 0.0
    several = len(worth) > 1
    for session in range(len(offsets) - 1):
        group = groups[session] + 1
        for variant in range(len(theta)):
            if variant != group:
                sums[variant, 4] += 1
        for row in range(offsets[session], offsets[session + 1]):
            p, k, new = pair[row], position[row], place[row]
            click = 1.0 if clicked[row] else 0.0
            model = attraction[p]
            if clicked[row]:
                weight = worth[0, new] * inverse[0, k]
                first += weight
                second += weight * weight
            for variant in range(len(theta)):
                if variant == group:
                    continue
                of = variant if several else 0
                debiased = click * inverse[variant, k]
                sums[variant, 0] += worth[of, new] * debiased
                sums[variant, 1] += debiased
                correction = (click - theta[variant, k] * model) / rho[p, variant]
                sums[variant, 2] += worth[of, new] * model + mean[p, of] * correction
                sums[variant, 3] += worth[of, new] * model
    return first, second


@njit(cache=True, nogil=True, inline="always")
def _scatter(pair, session):
    """A number that orders equal scores of a session by chance, always the same."""
    z = (np.uint64(pair) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(session)
    z = (z ^ (z >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    return z ^ (z >> np.uint64(29))
