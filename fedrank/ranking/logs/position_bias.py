"""Position bias of a click log: how much less a result is looked at, the lower it stands.

A click at position k on a pair p (a query and a document) has probability θ_k α_p: it is looked at, and attracts. Pairs
that stood at several positions tell θ, whatever α is: the estimate is the maximum of the likelihood of a Poisson model
with an own α for each pair, conditional on the clicks of each pair,

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

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int

from fedrank.core.compiled import njit
from fedrank.core.errors import DataError
from fedrank.ranking.logs.read import ClickLog

#: Groups of sessions of the jackknife.
GROUPS = 32
#: Share of a log's results at positions whose bias is not known, beyond which nothing is learnt from it.
_MOST_LOST = 0.5
#: Standard error of log θ beyond which a position's bias counts as not told.
WIDE = 0.5
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
                f"Position bias cannot be told from relevance at positions {_ranges(lost)}: no clicked result moved "
                "between them and the first position. Results there are left out."
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
    total = shown.sum(axis=0)
    lost = 1 - total[usable].sum() / total.sum()
    places = np.flatnonzero(usable)
    if len(places) < 2 or lost > _MOST_LOST:
        first = int(np.flatnonzero(total)[0])
        raise DataError(
            f"position bias cannot be told from relevance: {lost:.0%} of the results stand at positions that no "
            f"clicked result shares with position {first}. A log tells it where the same results stood at different "
            "positions: rankers that changed, or a share of lists with two neighbours swapped at random. Or give what "
            "is known (a column of propensities), or take clicks as they are (--position-bias none)."
        )
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
    several = (shown > 0).sum(axis=1) > 1
    moved = float(clicks[several].sum() / max(clicks.sum(), 1))
    return PositionBias(theta, error, replicates, usable, moved)


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
