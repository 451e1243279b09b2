"""Off-policy evaluation of rankings: what another order of the logged results would have been worth, with intervals.

A ranker orders the results of each logged session anew; its r-th goes to the r-th place that was shown. With λ_k the
worth of a relevant result at position k, θ position bias, c clicks, logged position k and new position k':

    ips     Σ λ_k' c / θ_k  a session (Joachims et al., WSDM 2017); unbiased where θ is right
    snips   Σ λ_k' c / θ_k  over  Σ c / θ_k: the mean worth of a relevant result's place, whatever the scale of θ
            (Swaminathan & Joachims, NeurIPS 2015)
    dr      Σ λ_k' q̂ + λ̄ (c − θ_k q̂) / ρ  a session, with a model q̂ of attraction, and ρ and λ̄ the means of θ_k and λ_k'
            over the sessions that show the pair (Oosterhuis, TOIS 2023); unbiased where θ is right, however bad q̂ is
    dm      Σ λ_k' q̂  a session: as good as the model; no interval

λ is 1 / log₂(k + 1) up to 10, so that ``ips``, ``dr`` and ``dm`` estimate DCG@10 with attraction as the gain; or θ, so
that they estimate clicks a session.

Intervals are of the jackknife of :mod:`~fedrank.ranking.logs.position_bias`, with Student's t: they hold the noise of
the clicks *and* that of θ, which was estimated from the same log. The model and the rankers are taken as given, so they
must not have seen these sessions. A ranker is only told about from results that were shown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float32, Float64

from fedrank.core.compiled import njit
from fedrank.ranking.logs.position_bias import GROUPS, PositionBias, count_cells, group_of, jackknife_error
from fedrank.ranking.logs.read import ClickLog

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
