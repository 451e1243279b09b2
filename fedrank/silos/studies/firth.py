"""Firth's logistic regression by asks: l*(θ) = l(θ) + ½ log |H(θ)|, its maximum and its profile likelihood.

A silo answers with its log-likelihood, gradient, information H, and the third derivatives Σ w v(1 − 2μ) x⊗x⊗x with
v = μ(1 − μ), from which the server has the gradient of the penalty exactly; so one round suffices a step, for any
number of points. The curvature of the penalty needs H⁻¹ at a silo, Σ w v(1 − 6v) (x'H⁻¹x) xx': the ask carries the one
that the third derivatives of the point before predict, which is close enough for Newton's method. The ends of all
intervals and the maxima without each parameter are searched at once, all in the same rounds. Where labels are all but
separated, the others of a parameter may have several best values; those are followed that the estimate leads to.

Firth, Biometrika 1993; Heinze and Schemper, Statistics in Medicine 2002; Venzon and Moolgavkar, JRSS C 1988.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import eigh, null_space
from scipy.special import chdtri, expit

from fedrank.silos.glm import Fit, Sums, symmetric
from fedrank.silos.studies.families import Family
from fedrank.silos.studies.protocol import Answers, Ask, Rows

#: Newton's decrement, as a share of the value, and longest part of a coefficient, of a step that is the last.
_CLOSE, _SHORTEST = 1e-16, 1e-7
#: Longest step of a coefficient of a column of deviation 1; parts of a step that one round tries.
_LONGEST, _PARTS = 5.0, np.array([1.0, 0.4])
#: Smallest curvature of the penalised likelihood to that of the likelihood in a step.
_FLATTEST = 0.1


class Profile(NamedTuple):
    """Penalised likelihood of each parameter, the others being the best for it.

    Attributes:
        low: Lower ends of the intervals; infinite where none was found.
        high: Upper ends.
        statistic: χ² of the penalised likelihood ratio that a parameter is 0.
    """

    low: Float[np.ndarray, " m"]
    high: Float[np.ndarray, " m"]
    statistic: Float[np.ndarray, " m"]


def answer(family: Family, ask: Ask, parts: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
    """A silo's sums, the penalty's curvature and third derivatives at each point.

    Args:
        family: The logistic one.
        ask: The question: points ``theta`` [points, p] and the inverse information ``inverse`` [points, p, p] at each.
        parts: The silo's rows.
    """
    points, inverses = ask.numbers["theta"], ask.numbers["inverse"]
    rising, (i, j) = _triples(points.shape[1])

    def at(theta: np.ndarray, inverse: np.ndarray, rows: Rows, pairs: np.ndarray) -> np.ndarray:
        mean = expit(rows.x @ theta + rows.offset)
        spread = mean * (1 - mean)
        weight = rows.weight * spread
        third = (rows.x * (weight * (1 - 2 * mean))[:, None]).T @ pairs
        fourth = (weight * (1 - 6 * spread) * ((rows.x @ inverse) * rows.x).sum(axis=1)) @ pairs
        return np.concatenate([family.sums(theta, rows).flat(), fourth, third[rising]])

    total = 0.0
    for rows in parts:
        pairs = rows.x[:, i] * rows.x[:, j]
        total = total + np.concatenate([at(*one, rows, pairs) for one in zip(points, inverses, strict=True)])
    return np.asarray(total)


@cache
def _triples(p: int) -> tuple[Bool[np.ndarray, "p pairs"], tuple[np.ndarray, np.ndarray]]:
    """Mask [p, pairs] that takes each triple of columns once, and the pairs (i ≤ j) of columns."""
    i, j = np.triu_indices(p)
    return np.arange(p)[:, None] <= i, (i, j)


class Point(NamedTuple):
    """Penalised likelihood at θ.

    Attributes:
        theta: θ.
        sums: Sums without the penalty.
        value: l*(θ).
        gradient: Of l*.
        curvature: Negative second derivatives of l*, nearly.
        third: Derivatives of the information.
    """

    theta: Float[np.ndarray, " m"]
    sums: Sums
    value: float
    gradient: Float[np.ndarray, " m"]
    curvature: Float[np.ndarray, "m m"]
    third: Float[np.ndarray, "m m m"]

    @classmethod
    def of(
        cls, theta: Float[np.ndarray, " m"], flat: Float[np.ndarray, " numbers"], columns: Bool[np.ndarray, " p"]
    ) -> Point:
        """From an answer's numbers, of the columns that are kept."""
        p = len(columns)
        rising, (i, j) = _triples(p)
        first, pair = np.nonzero(rising)
        third = np.zeros((p, p, p))
        sums, above, values = np.split(flat, [1 + p + len(i), 1 + p + 2 * len(i)])
        triple = first, i[pair], j[pair]
        for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
            third[tuple(triple[k] for k in order)] = values
        inner = np.ix_(columns, columns)
        at = Sums.of(sums, p)
        at = Sums(at.value, at.gradient[columns], at.information[inner])
        third, fourth = third[np.ix_(columns, columns, columns)], symmetric(above, p)[inner]
        sign, log_size = np.linalg.slogdet(at.information)
        if sign <= 0:  # all probabilities are 0 or 1, up to rounding
            return cls(theta, at, -np.inf, at.gradient, at.information, third)
        moved = np.linalg.solve(at.information, third)  # H⁻¹ ∂H/∂θ_j, for each j
        gradient = at.gradient + 0.5 * np.trace(moved, axis1=1, axis2=2)
        curvature = at.information - 0.5 * fourth + 0.5 * np.einsum("jab,kba->jk", moved, moved)
        return cls(theta, at, at.value + 0.5 * float(log_size), gradient, curvature, third)

    def inverse_after(self, step: Float[np.ndarray, " m"]) -> Float[np.ndarray, "m m"]:
        """Inverse information that is expected after a step; the one before it where the step is too long for that."""
        there = self.sums.information + np.tensordot(step, self.third, 1)
        ratio = eigh(there, self.sums.information, eigvals_only=True)
        return np.linalg.inv(there if ratio[0] > 0.2 and ratio[-1] < 5 else self.sums.information)

    def solve(self, base: Float[np.ndarray, "m k"], right: Float[np.ndarray, "m ..."]) -> Float[np.ndarray, "m ..."]:
        """Newton's step within the span of some columns, along which the likelihood is taken to be concave."""
        values, vectors = eigh(base.T @ self.curvature @ base, base.T @ self.sums.information @ base)
        vectors = base @ vectors
        return (vectors / np.maximum(np.abs(values), _FLATTEST)) @ (vectors.T @ right)


Found = TypeVar("Found")


class Trial(NamedTuple):
    """A point to ask for, and the inverse information that is expected there."""

    theta: Float[np.ndarray, " m"]
    inverse: Float[np.ndarray, "m m"]


#: Yields points, is sent the likelihood at each.
_Search = Generator[list[Trial], list[Point], Found]


def _after(at: Point, step: Float[np.ndarray, " m"], parts: Float[np.ndarray, " k"]) -> list[Trial]:
    """Points at parts of a step."""
    return [Trial(at.theta + part * step, at.inverse_after(part * step)) for part in parts]


def _shorten(step: Float[np.ndarray, " m"], at: Point, deviations: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """A step that is not too long: far out, where the likelihood is all but straight, it may be longer."""
    most = _LONGEST + 0.5 * float(np.abs(deviations * at.theta).max())
    return step * min(1.0, most / max(float(np.abs(deviations * step).max()), 1e-300))


def _climb(
    start: Trial, deviations: Float[np.ndarray, " m"], base: Float[np.ndarray, "m k"], most: int
) -> _Search[tuple[Point, Float[np.ndarray, " m"], bool]]:
    """The largest l* in the span of some columns from the start.

    Returns:
        The last point, θ after one step more, and whether that step is short enough.
    """
    at = (yield [start])[0]
    for _ in range(most):
        step = at.solve(base, at.gradient)
        if float(at.gradient @ step) < _CLOSE * max(1.0, abs(at.value)):
            return at, at.theta + step, True
        step = _shorten(step, at, deviations)
        parts = _PARTS
        while True:
            best = max((yield _after(at, step, parts)), key=lambda point: point.value)
            if best.value >= at.value - 1e-12 * abs(at.value) or parts[0] < 1e-6:
                break
            parts = parts / 8
        at = best
    return at, at.theta, False


def _descend(
    along: Float[np.ndarray, " m"],
    side: float,
    target: float,
    start: Trial,
    deviations: Float[np.ndarray, " m"],
    most: int,
) -> _Search[float]:
    """The end of an interval: the linear function where its profile has fallen to a target; ±∞ if it was not found.

    A step goes to the best values of all else, and along the path of these to where the likelihood's second-order
    model meets the target (Venzon and Moolgavkar). Where no part of it leaves half the error, a step of the first kind
    alone is taken, which can only gain.
    """
    base = null_space(along[None])

    def path(at: Point) -> tuple[np.ndarray, np.ndarray]:
        """Step to the best values of all else, and direction in which these move with the function."""
        unit = along / float(along @ along)
        return at.solve(base, at.gradient), unit - at.solve(base, at.curvature @ unit)

    def error(at: Point) -> float:
        if not np.isfinite(at.value):
            return np.inf
        return (at.value - target) ** 2 + abs(float(at.gradient @ path(at)[0]))

    at = (yield [start])[0]
    for _ in range(most):
        across, further = path(at)
        left = at.value + 0.5 * float(at.gradient @ across) - target
        slope, bend = side * float(at.gradient @ further), float(further @ at.curvature @ further)
        root = slope**2 + 2 * bend * left
        # left + slope s − bend s²/2 = 0, where it falls; no such s: to the top of the model, or far out.
        if root >= 0 and np.sqrt(root) > slope:
            length = 2 * left / (np.sqrt(root) - slope)
        elif bend > 0:
            length = (slope + np.sqrt(max(root, 0.0))) / bend
        else:
            length = 1e9
        step = across + side * length * further
        if float(np.abs(deviations * step).max()) < _SHORTEST * (1 + float(np.abs(deviations * at.theta).max())):
            return float(along @ (at.theta + step))
        step, across = _shorten(step, at, deviations), _shorten(across, at, deviations)
        new = yield [*_after(at, step, _PARTS), *_after(at, across, _PARTS)]
        ahead = min(new[: len(_PARTS)], key=error)
        best = max(new[len(_PARTS) :], key=lambda point: point.value)
        gain = float(at.gradient @ across)
        at = ahead if error(ahead) < 0.5 * error(at) or gain < 1e-3 or best.value < at.value else best
    return side * np.inf


def _together(searches: Sequence[_Search[Found]]) -> _Search[list[Found]]:
    """Several searches, whose points are asked for in the same rounds."""
    found: dict[int, Found] = {}
    sent: dict[int, list[Point] | None] = dict.fromkeys(range(len(searches)))
    while sent:
        trials: dict[int, list[Trial]] = {}
        for k, news in sent.items():
            try:
                trials[k] = next(searches[k]) if news is None else searches[k].send(news)
            except StopIteration as end:
                found[k] = end.value
        if trials:
            answers = iter((yield [trial for own in trials.values() for trial in own]))
        sent = {k: [next(answers) for _ in own] for k, own in trials.items()}
    return [found[k] for k in range(len(searches))]


def _drive(
    search: _Search[Found], columns: Bool[np.ndarray, " p"], rounds: list[int]
) -> Generator[Ask, Answers, Found]:
    """Ask for the points of a search."""
    trials, p = next(search), len(columns)
    while True:
        theta, inverse = np.zeros((len(trials), p)), np.zeros((len(trials), p, p))
        theta[:, columns] = [trial.theta for trial in trials]
        inverse[np.ix_(np.arange(len(trials)), columns, columns)] = [trial.inverse for trial in trials]
        answers = yield Ask("firth", {"theta": theta, "inverse": inverse})
        rounds.append(len(trials))
        parts = np.split(np.sum(list(answers.values()), axis=0), len(trials))
        try:
            trials = search.send(
                [Point.of(trial.theta, flat, columns) for trial, flat in zip(trials, parts, strict=True)]
            )
        except StopIteration as end:
            return end.value


def fit(
    start: Float[np.ndarray, " m"],
    information: Float[np.ndarray, "m m"],
    columns: Bool[np.ndarray, " p"],
    functions: Float[np.ndarray, "m m"],
    deviations: Float[np.ndarray, " m"],
    level: float,
    most: int,
) -> Generator[Ask, Answers, tuple[Fit, Profile]]:
    """Firth's estimate and its profile likelihood.

    Args:
        start: First point.
        information: Information there, nearly.
        columns: The columns that θ has a coefficient of.
        functions: Linear functions of θ that intervals and tests are for, one a row: parameters in their own units.
        deviations: Standard deviations of the columns, 1 of the intercept.
        level: Level of the intervals.
        most: Rounds after which a search gives up.
    """
    rounds: list[int] = []
    m = len(start)
    begin = Trial(start, np.linalg.inv(information))
    top, theta, converged = yield from _drive(_climb(begin, deviations, np.eye(m), most), columns, rounds)
    peak = top.value + 0.5 * float(top.gradient @ (theta - top.theta))
    target = peak - 0.5 * float(chdtri(1, 1 - level))
    inverse = top.solve(np.eye(m), np.eye(m))
    searches: list[_Search] = []
    for along in functions:
        away = inverse @ along / np.sqrt(along @ inverse @ along)
        [null] = _after(top, theta - away * (along @ theta) / (along @ away) - top.theta, np.ones(1))
        searches.append(_climb(null, deviations, null_space(along[None]), most))
        for side in (-1.0, 1.0):
            [end] = _after(top, theta - top.theta + side * np.sqrt(2 * (peak - target)) * away, np.ones(1))
            searches.append(_descend(along, side, target, end, deviations, most))
    found = yield from _drive(_together(searches), columns, rounds)
    nulls, low, high = found[0::3], found[1::3], found[2::3]
    converged = converged and all(null[2] for null in nulls)
    statistic = np.array([2 * (peak - null[0].value) for null in nulls])
    made = Fit(theta, top.sums, np.zeros((m, m)), len(rounds), converged)
    return made, Profile(np.array(low), np.array(high), np.maximum(statistic, 0.0))
