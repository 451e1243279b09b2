"""Survival of a study: Cox's model, Kaplan-Meier curves and log-rank tests from sums by time.

All is computed over given times, the ends of a codebook's bins: a time is put to the end of its bin before anything is
computed, and later than the last of them is no event. Where exact times are permitted, step ``times`` asks for those
of the events first, and a row without an event counts until the last of these that it has reached.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix
from scipy.special import ndtri

from fedrank.core.errors import DataError
from fedrank.silos.glm import Fit, Sums, maximise, symmetric
from fedrank.silos.studies.meta import Estimates, chi2_tail
from fedrank.silos.studies.protocol import Analysis, Answers, Ask, Rows
from fedrank.silos.studies.regression import endless, independent, invert, sum_squares

#: Numbers of a product of two columns that are held at once.
_HELD = 4_000_000
#: Newton's decrement, as a share of the log-likelihood, after which the next step is the last, and that below which
#: coefficients that grow without end are given up.
_CLOSE, _GIVEN_UP = 1e-18, 1e-6
#: Largest linear predictor, whichever its sign.
_LARGEST = 300.0


class Grid(NamedTuple):
    """Times that an ask names.

    Attributes:
        times: Ascending.
        exact: Whether they are those of the events, not ends of bins.
        strata: Number of strata.
    """

    times: Float[np.ndarray, " times"]
    exact: bool
    strata: int

    @classmethod
    def of(cls, ask: Ask) -> Grid:
        """From the numbers of an ask."""
        return cls(ask.numbers["times"], bool(ask.numbers["exact"]), int(ask.numbers["strata"]))

    @property
    def numbers(self) -> dict[str, np.ndarray]:
        """Numbers of an ask."""
        return {"times": self.times, "exact": np.array(float(self.exact)), "strata": np.array(float(self.strata))}

    def place(self, rows: Rows, stratum: Int[np.ndarray, " rows"]) -> tuple[np.ndarray, np.ndarray]:
        """Cell of each row, and whether it had an event at the time of the cell.

        Each stratum has a cell of rows that are never at risk, then one of each time, of rows at risk until then.
        """
        reached = np.searchsorted(self.times, rows.y, side="right" if self.exact else "left") + (not self.exact)
        event = (rows.event > 0) & (reached > 0) & (reached <= len(self.times))
        return stratum * (len(self.times) + 1) + np.minimum(reached, len(self.times)), event

    def add(
        self, place: Int[np.ndarray, " rows"], values: Float[np.ndarray, "rows k"]
    ) -> Float[np.ndarray, "strata times k"]:
        """Sums of the rows of each cell, those that are never at risk left out."""
        cells = self.strata * (len(self.times) + 1)
        put = csr_matrix((np.ones(len(place)), (place, np.arange(len(place)))), (cells, len(place)))
        return np.asarray(put @ values).reshape(self.strata, len(self.times) + 1, -1)[:, 1:]


class _Risk(NamedTuple):
    """Sums by stratum and time: of the rows until then (``s``), of those with an event then (``d``), and counts.

    Attributes:
        s: Σ w e^η (1, x, upper triangle of xx').
        d: The same of the rows with an event.
        x: Σ w x of them.
        eta: Σ w η of them.
        weight: Σ w of them.
        events: Their number.
        rows: Number of rows until then.
    """

    s: Float[np.ndarray, "strata times k"]
    d: Float[np.ndarray, "strata times k"]
    x: Float[np.ndarray, "strata times p"]
    eta: Float[np.ndarray, "strata times"]
    weight: Float[np.ndarray, "strata times"]
    events: Float[np.ndarray, "strata times"]
    rows: Float[np.ndarray, "strata times"]

    @classmethod
    def of_rows(cls, theta: Float[np.ndarray, " p"], blocks: Iterable[Rows], grid: Grid) -> _Risk:
        """Sums of a silo's rows."""
        p = len(theta)
        i, j = np.triu_indices(p)
        total = 0.0
        for block in blocks:
            part = max(_HELD // (1 + p + len(i)), 1)
            for start in range(0, max(len(block.y), 1), part):
                rows = Rows(*(column[start : start + part] for column in block))
                place, event = grid.place(rows, rows.stratum)
                eta, w, x = _predictor(rows, theta), rows.weight, rows.x
                share = (w * np.exp(eta))[:, None]
                values = np.hstack([share, share * x, share * x[:, i] * x[:, j]])
                there = np.column_stack([values, w[:, None] * x, w * eta, w, np.ones(len(w))])[event]
                own = grid.add(place, np.column_stack([values, np.ones(len(w))]))
                total = total + np.concatenate([own, grid.add(place[event], there)], axis=2)
        return cls.of_cells(np.asarray(total), p, True)

    def to_cells(self, efron: bool) -> Float[np.ndarray, "strata times numbers"]:
        """All numbers of each cell; those of ``d`` for Efron's ties only."""
        parts = [self.s, self.rows, self.d[:, :, : None if efron else 0], self.x, self.eta, self.weight, self.events]
        return np.concatenate([part if part.ndim == 3 else part[:, :, None] for part in parts], axis=2)

    @classmethod
    def of_cells(cls, cells: Float[np.ndarray, "strata times numbers"], p: int, efron: bool) -> _Risk:
        """The inverse of :meth:`to_cells`."""
        k = 1 + p + p * (p + 1) // 2
        s, rows, d, x, counts = np.split(cells, np.cumsum([k, 1, k * efron, p]), axis=2)
        eta, weight, events = np.moveaxis(counts, 2, 0)
        return cls(s, d if efron else np.zeros_like(s), x, eta, weight, events, rows[:, :, 0])


def _predictor(rows: Rows, theta: Float[np.ndarray, " p"]) -> Float[np.ndarray, " rows"]:
    return np.clip(rows.x @ theta + rows.offset, -_LARGEST, _LARGEST)


class _Likelihood:
    """Partial likelihood of sums by time, with Efron's or Breslow's treatment of ties, in the cells with events.

    With d events at a time, S the sums over rows at risk and D those over the rows with the event, it has
    −w̄ log(S⁰ − f D⁰), f = 0, 1/d, … (d − 1)/d, where w̄ is the mean weight of the events (Efron, JASA 1977; Therneau
    and Grambsch, 2000); Breslow's has d times f = 0.
    """

    def __init__(self, risk: _Risk, efron: bool) -> None:
        self.risk = risk
        self.p = risk.x.shape[2]
        at_risk = np.cumsum(risk.s[:, ::-1], axis=1)[:, ::-1]  # from rows by their last time
        self.cells = np.nonzero(risk.events > 0.5)
        self.s, self.d, self.x = at_risk[self.cells], risk.d[self.cells], risk.x[self.cells]
        self.weight, self.events = risk.weight[self.cells], np.round(risk.events[self.cells]).astype(int)
        ties = self.events if efron else np.ones(len(self.events), int)
        cell = np.repeat(np.arange(len(ties)), ties)
        share = (np.arange(len(cell)) - (np.cumsum(ties) - ties)[cell]) / ties[cell]
        bottom = self.s[cell, 0] - share * self.d[cell, 0]
        mean = self.weight[cell] / ties[cell]

        def add(values: np.ndarray) -> np.ndarray:
            return np.bincount(cell, values, len(ties))

        self.log = add(mean * np.log(bottom))
        self.first = [add(mean * share**k / bottom) for k in range(2)]
        self.second = [add(mean * share**k / bottom**2) for k in range(3)]

    @property
    def means(self) -> Float[np.ndarray, "cells p"]:
        """Sums over ties of the mean columns of the rows at risk, times the mean weight."""
        own = slice(1, 1 + self.p)
        return self.s[:, own] * self.first[0][:, None] - self.d[:, own] * self.first[1][:, None]

    def information(self, weight: Float[np.ndarray, " cells"]) -> Float[np.ndarray, "p p"]:
        """Information of the cells, each times a weight."""
        s1, d1 = self.s[:, 1 : 1 + self.p], self.d[:, 1 : 1 + self.p]
        above = (weight * self.first[0]) @ self.s[:, 1 + self.p :] - (weight * self.first[1]) @ self.d[:, 1 + self.p :]
        squares = symmetric(above, self.p)
        b0, b1, b2 = (weight * one for one in self.second)
        cross = (s1 * b1[:, None]).T @ d1
        return squares - (s1 * b0[:, None]).T @ s1 + cross + cross.T - (d1 * b2[:, None]).T @ d1

    @property
    def sums(self) -> Sums:
        """Value and derivatives."""
        value = float(self.risk.eta.sum() - self.log.sum())
        gradient = self.x.sum(axis=0) - self.means.sum(axis=0)
        return Sums(value, gradient, self.information(np.ones(len(self.log))))

    @property
    def hazards(self) -> Float[np.ndarray, "strata times numbers"]:
        """Increments of hazard and of its mean columns, without an event at a time and with one, and events' means."""
        s1, d1 = self.s[:, 1 : 1 + self.p], self.d[:, 1 : 1 + self.p]
        (a0, a1), (b0, b1, b2) = self.first, (one[:, None] for one in self.second)
        out = np.zeros((*self.risk.events.shape, 2 + 3 * self.p))
        mean = self.means / self.weight[:, None]
        out[self.cells] = np.column_stack([a0, s1 * b0 - d1 * b1, a0 - a1, s1 * (b0 - b1) - d1 * (b1 - b2), mean])
        return out

    def proportional(self) -> Float[np.ndarray, "tests 3"]:
        """Score tests that a coefficient does not change with time, as R's ``cox.zph``.

        The result has χ², degrees of freedom and p-value of each column, then of all together.
        Each column times a centred function of time, 1 − Kaplan and Meier's estimate just before, is one more column
        with coefficient 0 (Grambsch and Therneau, Biometrika 1994).
        """
        at_risk = self.risk.rows.sum(axis=0)[::-1].cumsum()[::-1]
        stay = np.cumprod(1 - self.risk.events.sum(axis=0) / np.maximum(at_risk, 1))
        g = (1 - np.append(1.0, stay)[:-1])[self.cells[1]]
        g = g - self.events @ g / self.events.sum()
        score = g @ (self.x - self.means)
        own, between, of_time = (self.information(g**k) for k in range(3))
        left = of_time - between @ np.linalg.solve(own, between)
        statistic = np.append(score**2 / np.diag(left), score @ np.linalg.solve(left, score))
        degrees = np.append(np.ones(self.p), self.p)
        return np.column_stack([statistic, degrees, chi2_tail(statistic, degrees)])


# What a silo answers.


def answer(ask: Ask, blocks: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
    """A silo's answer.

    Args:
        ask: The question.
        blocks: Its rows, at least one block, which may be without rows.

    Raises:
        DataError: Events have more times than the question allows.
    """
    steps = {"times": _event_times, "sums": _sums, "meat": _meat, "counts": _counts}
    out = steps[ask.step](ask, blocks)
    return np.append(out, 0.0) if ask.step in ("sums", "counts") else out  # the format has a count here, always 0


def _event_times(ask: Ask, blocks: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
    """Times of a silo's events, then NaN."""
    times, most = np.unique(np.concatenate([rows.y[rows.event > 0] for rows in blocks])), int(ask.numbers["most"])
    if len(times) > most:
        raise DataError(f"events have {len(times)} times; the question allows {most}. Take bins of times.")
    return np.append(times, np.full(most - len(times), np.nan))


def _local(ask: Ask, blocks: Iterable[Rows]) -> tuple[Grid, Iterable[Rows]]:
    """Times of a question, or those of the silo's own events where each silo is a stratum and times are exact."""
    grid = Grid.of(ask)
    if grid.exact and not len(grid.times):
        blocks = list(blocks)
        grid = grid._replace(times=np.unique(np.concatenate([rows.y[rows.event > 0] for rows in blocks])))
    return grid, blocks


def _sums(ask: Ask, blocks: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
    """Rows, events, and sums by time; the likelihood itself where each silo is a stratum."""
    theta, efron, rows = ask.numbers["theta"], bool(ask.numbers["efron"]), [0]
    grid, blocks = _local(ask, blocks)

    def count_rows() -> Iterable[Rows]:
        for block in blocks:
            rows[0] += len(block.y)
            yield block

    risk = _Risk.of_rows(theta, count_rows(), grid)
    made = _Likelihood(risk, efron).sums.flat() if ask.numbers["by_silo"] else risk.to_cells(efron).ravel()
    return np.concatenate([rows, [risk.events.sum()], made])


def _meat(ask: Ask, blocks: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
    """Number of rows, or clusters, and the sum of the squares of their score residuals, each times its weight."""
    theta, blocks = ask.numbers["theta"], list(blocks)
    grid, p = _local(ask, blocks)[0], len(theta)
    hazards = ask.numbers["hazards"]
    if ask.numbers["by_silo"]:
        hazards = _Likelihood(_Risk.of_rows(theta, blocks, grid), bool(ask.numbers["efron"])).hazards
    before = np.zeros((grid.strata, len(grid.times) + 1, hazards.shape[2]))
    before[:, 1:] = hazards
    without = np.cumsum(before[:, :, : 1 + p], axis=1)
    with_event = without - before[:, :, : 1 + p] + before[:, :, 1 + p : 2 + 2 * p]
    without, with_event, mean = (
        part.reshape(-1, part.shape[2]) for part in (without, with_event, before[:, :, 2 + 2 * p :])
    )

    def score(rows: Rows) -> Float[np.ndarray, "rows p"]:
        place, event = grid.place(rows, rows.stratum)
        there = event[:, None]
        hazard = np.where(there, with_event[place], without[place])
        at_risk = np.exp(_predictor(rows, theta))[:, None] * (rows.x * hazard[:, :1] - hazard[:, 1:])
        return rows.weight[:, None] * (there * (rows.x - mean[place]) - at_risk)

    return sum_squares(((score(rows), rows) for rows in blocks), p, ask)


def weigh(theta: Float[np.ndarray, " p"], rows: Rows) -> Float[np.ndarray, "kinds rows"]:
    """Weights of the rows in the sums at coefficients, w e^η, and those of rows with an event; NaN where η is cut."""
    eta = _predictor(rows, theta)
    share = np.where(np.abs(eta) < _LARGEST, rows.weight * np.exp(eta), np.nan)
    return np.array([share, share * (rows.event > 0)])


def _counts(ask: Ask, blocks: Iterable[Rows]) -> Float[np.ndarray, " numbers"]:
    """Rows; and of each stratum, group and time Σw of the rows until then and of the events then."""
    grid, groups, rows, total = Grid.of(ask), int(ask.numbers["groups"]), 0, 0.0
    cells = grid._replace(strata=grid.strata * groups)
    for block in blocks:
        group = block.x[:, 0].astype(int) if block.x.shape[1] else np.zeros(len(block.y), int)
        rows += len(block.y)
        place, event = cells.place(block, block.stratum * groups + group)
        total = total + cells.add(place, block.weight[:, None] * np.column_stack([np.ones(len(event)), event]))
    return np.append(rows, total)


# The analyses.


@dataclass(frozen=True, eq=False)
class CoxFit(Estimates):
    """Cox's model of all silos' rows: logarithms of hazard ratios.

    Attributes:
        events: Events of each silo.
        null_log_likelihood: Partial log-likelihood without columns.
        proportional: χ², degrees and p-value of tests that a hazard ratio does not change with time, by column and of
            all together; NaN where each silo is a stratum.
        ties: ``efron`` or ``breslow``.
    """

    events: dict[str, int] = field(default_factory=dict)
    null_log_likelihood: float = np.nan
    proportional: Float[np.ndarray, "tests 3"] = field(default_factory=lambda: np.zeros((0, 3)), repr=False)
    ties: str = "efron"


def _ask_times(times: Sequence[float] | np.ndarray | None, strata: int, most: int) -> Generator[Ask, Answers, Grid]:
    """The times of an analysis: given ends of bins, or those of events, for which one round asks."""
    if times is not None:
        return Grid(np.asarray(times, float), False, strata)
    answers = yield Ask("times", {"most": np.array(float(most))})
    found = np.unique(np.concatenate(list(answers.values())))
    return Grid(found[np.isfinite(found)], True, strata)


def fit_cox(
    names: Sequence[str],
    times: Sequence[float] | np.ndarray | None = None,
    *,
    strata: int = 1,
    by_silo: bool = False,
    ties: str = "efron",
    own: Float[np.ndarray, "q q"] | None = None,
    robust: str = "",
    most: int = 50,
    most_times: int = 4096,
) -> Analysis[CoxFit]:
    """Fit Cox's model to the rows of all silos.

    Args:
        names: Names of the design's columns, without an intercept.
        times: Ends of the bins of time; None: the exact times of events.
        strata: Number of strata, each with its hazard.
        by_silo: Give each silo hazards that no other shares: it sends its likelihood in place of sums by time, and
            without given times its exact times stay with it.
        ties: ``efron`` or ``breslow``.
        own: Map from (a constant, the coefficients) to the columns' own units, as of
            :func:`fedrank.silos.studies.regression.fit`.
        robust: HC0, or CR0 by cluster, from score residuals, as R's ``coxph``.
        most: Rounds after which the search gives up.
        most_times: Most exact times of events that a silo may have.

    Raises:
        DataError: There is no event, or no column varies.
    """
    p, efron, rounds = len(names), ties == "efron", 0
    if by_silo and times is None:
        grid = Grid(np.zeros(0), True, strata)
    else:
        grid = yield from _ask_times(times, strata, most_times)
        rounds = int(times is None)
    flags = {**grid.numbers, "efron": np.array(float(efron)), "by_silo": np.array(float(by_silo))}
    met: dict[str, list[int]] = {}
    shape = grid.strata, len(grid.times), -1

    def ask(theta: np.ndarray) -> Generator[Ask, Answers, tuple[Sums, _Likelihood | None]]:
        answers = yield Ask("sums", {"theta": theta, **flags})
        met.update({name: [round(float(one[k])) for k in (0, 1)] for name, one in answers.items()})
        flat = np.sum(list(answers.values()), axis=0)
        if not flat[1] > 0:
            raise DataError("no row has an event; there is nothing to fit.")
        if by_silo:
            return Sums.of(flat[2:-1], p), None
        made = _Likelihood(_Risk.of_cells(flat[2:-1].reshape(shape), p, efron), efron)
        return made.sums, made

    null, last = yield from ask(np.zeros(p))
    columns = independent(null.information)
    if not columns.any():
        raise DataError("no column varies among the rows at risk; there is nothing to fit.")
    inner = np.ix_(columns, columns)
    zero = np.zeros((int(columns.sum()), int(columns.sum())))
    search = maximise(
        np.zeros((1, len(zero))), zero, np.zeros(len(zero)), most, close=_CLOSE, ask_last=False,
        enough=lambda found, gain: gain < _GIVEN_UP and bool(endless(found, null.information[inner])),
    )  # fmt: skip
    next(search)
    theta, sums = np.zeros(p), null
    while True:
        try:
            points = search.send([Sums(sums.value, sums.gradient[columns], sums.information[inner])])
        except StopIteration as end:
            made: Fit = end.value
            break
        theta[columns] = points[0]
        sums, last = yield from ask(theta)
    ends = endless(made, null.information[inner])
    covariance, clusters = invert(made.at.information), 0
    rounds += made.rounds
    theta[columns] = made.beta
    if robust:
        hazards = last.hazards if last is not None else np.zeros((0, 0, 0))
        answers = yield Ask("meat", {
            "theta": theta, **flags, "hazards": hazards, "clusters": np.array(float(robust == "CR0")),
        })  # fmt: skip
        rounds += 1
        flat = np.sum(list(answers.values()), axis=0)
        meat = symmetric(flat[:-1], p)[inner]
        covariance, clusters = covariance @ meat @ covariance, round(float(flat[-1]))
    tests = np.full((p + 1, 3), np.nan)
    if last is not None and columns.all() and not ends:
        tests = last.proportional()
    back = np.eye(p) if own is None else own[1:, 1:]
    estimate, spread = np.full(p, np.nan), np.full((p, p), np.nan)
    estimate[columns] = back[inner] @ made.beta
    spread[inner] = back[inner] @ covariance @ back[inner].T
    unknown = np.flatnonzero(columns)[ends]
    spread[unknown], spread[:, unknown] = np.nan, np.nan
    return CoxFit(
        names=tuple(names),
        estimate=estimate,
        covariance=spread,
        log_likelihood=made.at.value,
        parameters=len(made.beta),
        rows={name: one[0] for name, one in met.items()},
        rounds=rounds,
        aliased=tuple(name for name, there in zip(names, columns, strict=True) if not there),
        separated=tuple(str(names[k]) for k in unknown),
        robust=robust,
        clusters=clusters,
        converged=made.converged,
        events={name: one[1] for name, one in met.items()},
        null_log_likelihood=null.value,
        proportional=tests,
        ties=ties,
    )


class Curve(NamedTuple):
    """A Kaplan-Meier curve.

    Attributes:
        group: Name of the group.
        time: Times, ascending.
        at_risk: Σw of the rows that were still followed just before.
        events: Σw of the events there.
        survival: Probability of no event up to and including the time.
        error: Greenwood's standard error of it.
    """

    group: str
    time: Float[np.ndarray, " times"]
    at_risk: Float[np.ndarray, " times"]
    events: Float[np.ndarray, " times"]
    survival: Float[np.ndarray, " times"]
    error: Float[np.ndarray, " times"]

    def interval(self, level: float = 0.95) -> tuple[Float[np.ndarray, " times"], Float[np.ndarray, " times"]]:
        """Ends of the intervals by log(−log S); NaN where S is 0 or 1, as R's ``survfit``."""
        inside = (self.survival > 0) & (self.survival < 1)
        s = np.where(inside, self.survival, 0.5)
        half = ndtri(0.5 + level / 2) * self.error / (s * np.abs(np.log(s)))
        low, high = (np.exp(np.log(s) * np.exp(sign * half)) for sign in (1.0, -1.0))
        return np.where(inside, low, np.nan), np.where(inside, high, np.nan)

    def median(self, level: float = 0.95) -> tuple[float, float, float]:
        """Median and the ends of its interval; NaN where a curve does not fall to one half, as R's ``survfit``."""
        low, high = self.interval(level)
        return self._falls(self.survival), self._falls(low), self._falls(high)

    def _falls(self, curve: Float[np.ndarray, " times"]) -> float:
        """Time at which a curve falls to one half; the middle of the time where it is exactly that."""
        below = np.flatnonzero(curve <= 0.5 + 1e-9)
        if not len(below):
            return np.nan
        first = below[0]
        further = np.flatnonzero(curve < curve[first] - 1e-9)
        if abs(curve[first] - 0.5) < 1e-9 and len(further):
            return float(self.time[first] + self.time[further[0]]) / 2
        return float(self.time[first])


class Survival(NamedTuple):
    """Curves of groups, and the log-rank test that they have one hazard.

    Attributes:
        curves: A curve of each group.
        statistic: χ² of the log-rank test; NaN of one group.
        degrees: Its degrees of freedom.
        p: p-value.
        rows: Rows of each silo.
        rounds: Asks.
    """

    curves: list[Curve]
    statistic: float
    degrees: int
    p: float
    rows: dict[str, int]
    rounds: int


def compare_groups(
    groups: Sequence[str], times: Sequence[float] | np.ndarray | None = None, *, strata: int = 1, most_times: int = 4096
) -> Analysis[Survival]:
    """Kaplan-Meier curves by group and the log-rank test of them, within strata.

    Rows have one column, the number of their group, or none where all are of one.

    Args:
        groups: Names of the groups.
        times: Ends of the bins of time; None: the exact times of events.
        strata: Number of strata of the test; curves are of all strata.
        most_times: Most exact times of events that a silo may have.

    Raises:
        DataError: There is no event.
    """
    grid = yield from _ask_times(times, strata, most_times)
    answers = yield Ask("counts", {**grid.numbers, "groups": np.array(float(len(groups)))})
    flat = np.sum(list(answers.values()), axis=0)[1:-1].reshape(strata, len(groups), len(grid.times), 2)
    if not flat[..., 1].sum() > 0:
        raise DataError("no row has an event; there is no curve.")
    at_risk, events = flat[..., 0][..., ::-1].cumsum(axis=2)[..., ::-1], flat[..., 1]
    curves = [
        _curve(name, grid.times, n, d)
        for name, n, d in zip(groups, at_risk.sum(axis=0), events.sum(axis=0), strict=True)
    ]
    rows = {name: round(float(one[0])) for name, one in answers.items()}
    return Survival(curves, *_log_rank(at_risk, events), rows, 1 + (times is None))


def _curve(name: str, times: np.ndarray, n: Float[np.ndarray, " times"], d: Float[np.ndarray, " times"]) -> Curve:
    some = np.maximum(n, 1e-300)
    survival = np.cumprod(1 - d / some)
    gone = n - d <= 1e-9 * some
    spread = np.cumsum(np.where(gone, 0.0, d / (some * np.where(gone, 1.0, n - d))))
    return Curve(name, times, n, d, survival, survival * np.sqrt(spread))


def _log_rank(
    at_risk: Float[np.ndarray, "strata groups times"], events: Float[np.ndarray, "strata groups times"]
) -> tuple[float, int, float]:
    """χ², degrees of freedom and p-value."""
    n, d = at_risk.sum(axis=1), events.sum(axis=1)
    share = at_risk / np.maximum(n, 1e-300)[:, None]
    apart = (events - share * d[:, None]).sum(axis=(0, 2))
    weight = np.where(n > 1, d * (n - d) / np.maximum(n - 1, 1e-300), 0.0)
    weighted = share * weight[:, None]
    variance = np.diag(weighted.sum(axis=(0, 2))) - np.einsum("sgt,sht->gh", weighted, share)
    there = np.flatnonzero(at_risk[:, :, 0].sum(axis=0) > 0)[:-1]
    if not len(there):
        return np.nan, 0, np.nan
    statistic = float(apart[there] @ np.linalg.pinv(variance[np.ix_(there, there)], hermitian=True) @ apart[there])
    return statistic, len(there), float(chi2_tail(statistic, len(there)))
