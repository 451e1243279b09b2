"""Firth's logistic regression by asks: l*(θ) = l(θ) + ½ log |H(θ)|, its maximum and its profile likelihood.

A silo answers with its log-likelihood, gradient, information H and the third derivatives Σ w μ(1 − μ)(1 − 2μ) x⊗x⊗x,
from which the server has the gradient of the penalty exactly; so one round suffices a step, for any number of points.
The curvature of the penalty is learnt from the gradients of earlier points (symmetric rank one). The ends of all
intervals and the maxima without each parameter are searched at once, all in the same rounds.

Firth, Biometrika 1993; Heinze and Schemper, Statistics in Medicine 2002; Venzon and Moolgavkar, JRSS C 1988.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit

from fedrank.silos.glm.newton import Fit, Sums
from fedrank.silos.studies.families import Family
from fedrank.silos.studies.protocol import Answers, Ask, Rows

#: Square of the length, in standard errors, of a step that is the last.
_CLOSE = 1e-16
#: Longest step of a coefficient; parts of a step that one round tries.
_LONGEST, _PARTS = 5.0, np.array([1.0, 0.5, 0.25])


class Profile(NamedTuple):
    """Penalised likelihood of each parameter, the others being the best for it.

    Attributes:
        low: Lower ends of the intervals; infinite where the likelihood does not fall far enough.
        high: Upper ends.
        statistic: χ² of the penalised likelihood ratio that a parameter is 0.
    """

    low: Float[np.ndarray, " m"]
    high: Float[np.ndarray, " m"]
    statistic: Float[np.ndarray, " m"]


def answer(family: Family, ask: Ask, parts: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
    """A silo's sums and third derivatives at each point.

    Args:
        family: The logistic one.
        ask: The question, with the points ``theta``.
        parts: The silo's rows.
    """
    points = ask.numbers["theta"]
    rising, (i, j) = _triples(points.shape[1])

    def at(theta: np.ndarray, rows: Rows, pairs: np.ndarray) -> np.ndarray:
        mean = expit(rows.x @ theta + rows.offset)
        third = (rows.x * (rows.weight * mean * (1 - mean) * (1 - 2 * mean))[:, None]).T @ pairs
        return np.concatenate([family.sums(theta, rows).flat(), third[rising]])

    total = 0.0
    for rows in parts:
        pairs = rows.x[:, i] * rows.x[:, j]
        total = total + np.concatenate([at(theta, rows, pairs) for theta in points])
    return np.asarray(total)


def _triples(p: int) -> tuple[Bool[np.ndarray, "p pairs"], tuple[np.ndarray, np.ndarray]]:
    """Whether a column goes before a pair (i ≤ j) of columns, so that each triple is taken once; and the pairs."""
    i, j = np.triu_indices(p)
    return np.arange(p)[:, None] <= i, (i, j)


class Point(NamedTuple):
    """Penalised likelihood at θ.

    Attributes:
        theta: θ.
        sums: Sums without the penalty.
        value: l*(θ).
        pull: Gradient of the penalty.
    """

    theta: Float[np.ndarray, " m"]
    sums: Sums
    value: float
    pull: Float[np.ndarray, " m"]

    @property
    def gradient(self) -> Float[np.ndarray, " m"]:
        """Of l*."""
        return self.sums.gradient + self.pull

    @classmethod
    def of(
        cls, theta: Float[np.ndarray, " m"], flat: Float[np.ndarray, " numbers"], columns: Bool[np.ndarray, " p"]
    ) -> Point:
        """From an answer's numbers, of the columns that are kept."""
        p = len(columns)
        rising, (i, j) = _triples(p)
        first, pair = np.nonzero(rising)
        third = np.zeros((p, p, p))
        values = flat[len(flat) - len(first) :]
        for a, b, c in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
            triple = first, i[pair], j[pair]
            third[triple[a], triple[b], triple[c]] = values
        sums = Sums.of(flat[: len(flat) - len(first)], p)
        sums = Sums(sums.value, sums.gradient[columns], sums.information[np.ix_(columns, columns)])
        sign, log_size = np.linalg.slogdet(sums.information)
        if sign <= 0:  # all probabilities are 0 or 1, up to rounding
            return cls(theta, sums, -np.inf, np.zeros(len(theta)))
        covariance = np.linalg.inv(sums.information)
        pull = 0.5 * np.einsum("abc,bc->a", third[np.ix_(columns, columns, columns)], covariance)
        return cls(theta, sums, sums.value + 0.5 * float(log_size), pull)


@dataclass(eq=False)
class _Curvature:
    """Negative second derivatives of l*: the information, and the penalty's part from differences of its gradient."""

    penalty: Float[np.ndarray, "m m"]

    def learn(self, before: Point, after: Sequence[Point]) -> None:
        for one in after:
            step = one.theta - before.theta
            rest = before.pull - one.pull - self.penalty @ step
            bottom = float(rest @ step)
            if np.isfinite(one.value) and abs(bottom) > 1e-8 * np.linalg.norm(rest) * np.linalg.norm(step):
                self.penalty = self.penalty + np.outer(rest, rest) / bottom

    def inverse(self, at: Point) -> Float[np.ndarray, "m m"]:
        """Of the information alone where the whole is not positive definite by a margin."""
        whole = at.sums.information + self.penalty
        scale = np.sqrt(np.diag(at.sums.information))
        if (
            np.linalg.eigvalsh(whole / np.outer(scale, scale))[0]
            < 0.1 * np.linalg.eigvalsh(at.sums.information / np.outer(scale, scale))[0]
        ):
            whole = at.sums.information
        return np.linalg.inv(whole)


Found = TypeVar("Found")
#: Yields points, is sent the likelihood at each.
_Search = Generator[Float[np.ndarray, "points m"], list[Point], Found]


def _climb(
    start: Float[np.ndarray, " m"] | Point, curvature: _Curvature, fixed: Float[np.ndarray, " m"] | None, most: int
) -> _Search[tuple[Point, Float[np.ndarray, " m"], bool]]:
    """The largest l* where a linear function of θ stays what it is at the start, if one is fixed.

    Returns:
        The last point, θ after one step more, and whether that step is short enough.
    """
    at = start if isinstance(start, Point) else (yield start[None])[0]
    for _ in range(most):
        inverse, gradient = curvature.inverse(at), at.gradient
        step = inverse @ gradient
        if fixed is not None:
            step = step - inverse @ fixed * (fixed @ step) / (fixed @ inverse @ fixed)
        if float(gradient @ step) < _CLOSE * max(1.0, abs(at.value)):
            return at, at.theta + step, True
        step = step * min(1.0, _LONGEST / float(np.abs(step).max()))
        parts = _PARTS
        while True:
            new = yield at.theta + parts[:, None] * step
            curvature.learn(at, new)
            best = max(new, key=lambda point: point.value)
            if best.value >= at.value - 1e-12 * abs(at.value) or parts[0] < 1e-6:
                break
            parts = parts / 8
        at = best
    return at, at.theta, False


def _descend(
    along: Float[np.ndarray, " m"],
    side: float,
    target: float,
    start: Float[np.ndarray, " m"],
    curvature: _Curvature,
    most: int,
) -> _Search[float]:
    """The end of an interval: the linear function where its profile has fallen to a target; ±∞ if it was not found.

    Venzon and Moolgavkar's step solves l* = target and gradient ∝ the function; of parts of it the one that leaves
    the smallest error goes on.
    """

    def error(point: Point) -> float:
        inverse = curvature.inverse(point)
        left = inverse @ point.gradient
        across = point.gradient @ left - (along @ left) ** 2 / (along @ inverse @ along)
        return (point.value - target) ** 2 + abs(float(across))

    at = (yield start[None])[0]
    for _ in range(most):
        if not np.isfinite(at.value):
            break
        inverse, gradient = curvature.inverse(at), at.gradient
        room = 2 * (at.value + 0.5 * gradient @ inverse @ gradient - target) / (along @ inverse @ along)
        step = inverse @ (gradient + side * np.sqrt(max(room, 0.0)) * along)
        if float(step @ at.sums.information @ step) < _CLOSE:
            return float(along @ (at.theta + step))
        step = step * min(1.0, _LONGEST / float(np.abs(step).max()))
        parts, now = _PARTS, error(at)
        while True:
            new = yield at.theta + parts[:, None] * step
            curvature.learn(at, new)
            best = min((point for point in new if np.isfinite(point.value)), key=error, default=at)
            if error(best) < now or parts[0] < 0.01:
                break
            parts = parts / 8
        at = best
    return side * np.inf


def _together(searches: Sequence[_Search[Found]]) -> _Search[list[Found]]:
    """Several searches, whose points are asked for in the same rounds."""
    found: dict[int, Found] = {}
    sent: dict[int, list[Point] | None] = dict.fromkeys(range(len(searches)))
    while len(found) < len(searches):
        points: dict[int, np.ndarray] = {}
        for k, news in sent.items():
            try:
                points[k] = next(searches[k]) if news is None else searches[k].send(news)
            except StopIteration as end:
                found[k] = end.value
        if points:
            answers = iter((yield np.vstack(list(points.values()))))
            sent = {k: [next(answers) for _ in own] for k, own in points.items()}
    return [found[k] for k in range(len(searches))]


def _drive(
    search: _Search[Found], columns: Bool[np.ndarray, " p"], rounds: list[int]
) -> Generator[Ask, Answers, Found]:
    """Ask for the points of a search."""
    points = next(search)
    while True:
        whole = np.zeros((len(points), len(columns)))
        whole[:, columns] = points
        answers = yield Ask("firth", {"theta": whole})
        rounds.append(len(points))
        parts = np.split(np.sum(list(answers.values()), axis=0), len(points))
        try:
            points = search.send([Point.of(theta, flat, columns) for theta, flat in zip(points, parts, strict=True)])
        except StopIteration as end:
            return end.value


def fit(
    start: Float[np.ndarray, " m"],
    columns: Bool[np.ndarray, " p"],
    functions: Float[np.ndarray, "m m"],
    level: float,
    most: int,
) -> Generator[Ask, Answers, tuple[Fit, Profile]]:
    """Firth's estimate and its profile likelihood.

    Args:
        start: First point.
        columns: The columns that θ has a coefficient of.
        functions: Linear functions of θ that intervals and tests are for, one a row: parameters in their own units.
        level: Level of the intervals.
        most: Rounds after which a search gives up.
    """
    from scipy import stats

    rounds: list[int] = []
    m = len(start)
    curvature = _Curvature(np.zeros((m, m)))
    top, theta, converged = yield from _drive(_climb(start, curvature, None, most), columns, rounds)
    peak = top.value + 0.5 * float(top.gradient @ (theta - top.theta))
    target = peak - 0.5 * float(stats.chi2.ppf(level, 1))
    inverse = curvature.inverse(top)
    searches: list[_Search] = []
    for along in functions:
        away = inverse @ along / np.sqrt(along @ inverse @ along)
        copies = [_Curvature(curvature.penalty) for _ in range(3)]
        null = theta - away * (along @ theta) / (along @ away)
        searches.append(_climb(null, copies[0], along, most))
        for side, copy in zip((-1.0, 1.0), copies[1:], strict=True):
            begin = theta + side * np.sqrt(2 * (peak - target)) * away
            searches.append(_descend(along, side, target, begin, copy, most))
    found = yield from _drive(_together(searches), columns, rounds)
    nulls, low, high = found[0::3], found[1::3], found[2::3]
    converged = converged and all(null[2] for null in nulls)
    statistic = np.array([2 * (peak - null[0].value) for null in nulls])
    made = Fit(theta, top.sums, np.zeros((m, m)), len(rounds), converged)
    return made, Profile(np.array(low), np.array(high), np.maximum(statistic, 0.0))
