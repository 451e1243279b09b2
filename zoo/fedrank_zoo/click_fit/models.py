"""Click models fitted to a log of sessions: the likeliest attraction, examination, satisfaction and perseverance.

Each pair of a query and a result has its own attraction, and in the dynamic Bayesian models its own satisfaction. The
expectation-maximisation steps are those of the models' papers:

* ``position-based`` and ``user-browsing``: P(click) = α·γ. A result that was not clicked was attractive with
  probability α(1 − γ)/(1 − αγ), and looked at with γ(1 − α)/(1 − αγ) (Dupret and Piwowarski 2008, Section 4).
* ``dynamic-bayesian``: down to the last click all is known but satisfaction. Below it the user was satisfied there, or
  read on and left after some rank without a click; the sum over these ends is exact (Chapelle and Zhang 2009, Section
  4). ``simplified-dynamic-bayesian`` has γ = 1.
* ``by-rank``: the share of clicks at each rank, whatever the query. What a model must beat.

Most pairs of a log are seen a few times. So every attraction and satisfaction is drawn towards the log's mean as if
the pair had been seen ``prior`` times more; with ``prior=0`` the fit is the maximum of the likelihood itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from fedrank.core.errors import ConfigError
from fedrank.core.trees import Json
from fedrank.ranking.clicks.browsing import FORMAT, attraction
from fedrank.ranking.clicks.cascade import CascadeUser
from fedrank.ranking.logs.read import ClickLog

#: Models that can be fitted.
MODELS = ("by-rank", "position-based", "user-browsing", "simplified-dynamic-bayesian", "dynamic-bayesian")
#: Probabilities are kept this far from 0 and 1, where a likelihood would be zero.
_EDGE = 1e-6
#: Largest change of a probability in a step with which a fit ends.
_ENOUGH = 1e-5


@dataclass(frozen=True)
class Sessions:
    """A log of sessions.

    Attributes:
        pair: int [n, k], number of the pair of query and result at each rank of the longest list; any number below the
            end of a shorter one.
        clicked: bool [n, k]; False below the end of a list.
        length: int [n], results of each list, 1 to k; None: all have k.
    """

    pair: Int[np.ndarray, "n k"]
    clicked: Bool[np.ndarray, "n k"]
    length: Int[np.ndarray, " n"] | None = None

    @classmethod
    def of_log(cls, log: ClickLog) -> Sessions:
        """The sessions of a log, each with its results in the order of their positions."""
        length = np.diff(log.offsets)
        owner = np.repeat(np.arange(len(length)), length)
        order = np.lexsort((log.position, owner))
        depth = int(length.max())
        where = np.arange(depth) < length[:, None]
        pair, clicked = np.zeros(where.shape, np.int32), np.zeros(where.shape, bool)
        pair[where], clicked[where] = log.pair[order], log.clicked[order]
        return cls(pair, clicked, None if where.all() else length)

    @property
    def lengths(self) -> Int[np.ndarray, " n"]:
        """Number of results of each list, int [n], from 1 to k."""
        return np.full(len(self.pair), self.pair.shape[1]) if self.length is None else self.length

    @property
    def shown(self) -> Bool[np.ndarray, "n k"]:
        """At which ranks there is a result."""
        return np.arange(self.pair.shape[1]) < self.lengths[:, None]

    def rates(self) -> Float[np.ndarray, " k"]:
        """Share of the results at each rank that were clicked."""
        return self.clicked.sum(axis=0) / np.maximum(self.shown.sum(axis=0), 1)

    @property
    def pairs(self) -> int:
        """Number of different pairs."""
        return int(self.pair.max()) + 1

    def part(self, which: Int[np.ndarray, " m"]) -> Sessions:
        """The sessions of these numbers; pairs keep theirs."""
        return Sessions(self.pair[which], self.clicked[which], None if self.length is None else self.length[which])


@dataclass(frozen=True)
class Fitted:
    """A fitted model.

    Attributes:
        model: One of :data:`MODELS`.
        attraction: float [pairs], P(click | examined).
        satisfaction: float [pairs], P(satisfied | click).
        examine: float [k, k], P(examined) by rank and ranks since the last click − 1.
        perseverance: γ, P(reads on | not satisfied).
        history: Log-likelihood of the fitted sessions, in nats a session, before each step; not made of the prior.
    """

    model: str
    attraction: Float[np.ndarray, " pairs"]
    satisfaction: Float[np.ndarray, " pairs"]
    examine: Float[np.ndarray, "k k"]
    perseverance: float
    history: tuple[float, ...] = ()

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        """All probabilities that a fit finds."""
        return self.attraction, self.satisfaction, self.examine, np.array([self.perseverance])

    def click_probabilities(self, pair: Int[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """P(click) at each rank, without knowing what was clicked above."""
        n, depth = pair.shape
        reach, out = np.zeros((n, depth + 1)), np.empty((n, depth))
        reach[:, depth] = 1.0  # column: rank of the last click; the last column none
        for rank in range(depth):
            since = np.array([*(rank - last - 1 for last in range(rank)), rank])
            columns = np.array([*range(rank), depth])
            click = self.attraction[pair[:, rank], None] * self.examine[rank, since]
            clicks = reach[:, columns] * click
            out[:, rank] = clicks.sum(axis=1)
            reach[:, columns] = (reach[:, columns] - clicks) * self.perseverance
            reach[:, rank] = out[:, rank] * (1 - self.satisfaction[pair[:, rank]]) * self.perseverance
        return out

    def log_likelihoods(self, sessions: Sessions) -> Float[np.ndarray, " n"]:
        """Log P(clicks) of each session, in nats."""
        n, depth = sessions.pair.shape
        reading, left, last, shown = np.ones(n), np.zeros(n), np.full(n, -1), sessions.shown
        for rank in range(depth):
            here, before = shown[:, rank], (left, reading)
            pair, clicked = sessions.pair[:, rank], sessions.clicked[:, rank]
            click = self.attraction[pair] * self.examine[rank, rank - last - 1]
            stop = 1 - (1 - self.satisfaction[pair]) * self.perseverance
            skip = reading * (1 - click)
            left = np.where(clicked, reading * click * stop, left + skip * (1 - self.perseverance))
            reading = np.where(clicked, reading * click * (1 - stop), skip * self.perseverance)
            left, reading = (np.where(here, now, then) for now, then in zip((left, reading), before, strict=True))
            last = np.where(clicked, rank, last)
        return np.log(np.maximum(reading + left, 1e-300))

    def perplexity(self, sessions: Sessions) -> Float[np.ndarray, " k"]:
        """2 to the mean surprise in bits about a click, at each rank; 1 is certainty, 2 a coin."""
        p = np.clip(self.click_probabilities(sessions.pair), _EDGE, 1 - _EDGE)
        surprise = -np.log2(np.where(sessions.clicked, p, 1 - p)) * sessions.shown
        return 2 ** (surprise.sum(axis=0) / np.maximum(sessions.shown.sum(axis=0), 1))

    def user(self, name: str, grades: int, weights: Int[np.ndarray, " pairs"] | None = None) -> CascadeUser:
        """A user who looks and leaves as the log's users did, and is attracted by labels.

        A log has no labels: attraction by label is that of :mod:`fedrank.ranking.clicks.browsing`, and satisfaction
        after a click the log's mean, the same for each label. Examination is relative to the
        rank that is looked at most.

        Args:
            name: Name of the user.
            grades: Relevance grades.
            weights: int [pairs], clicks on each pair, for the mean of satisfaction; None: all alike.
        """
        depth = len(self.examine)
        mean = float(np.average(self.satisfaction, weights=weights))
        examine = (
            ()
            if (self.examine == 1).all()
            else tuple(tuple(row[: r + 1]) for r, row in enumerate(_scale_examination(self)))
        )
        stop = (1 - (1 - mean) * self.perseverance,) * grades
        return CascadeUser(name, attraction(grades), stop, depth, examine, 1 - self.perseverance)


def _scale_examination(fitted: Fitted) -> list[list[float]]:
    seen = np.tril(fitted.examine)
    return (seen / seen.max()).tolist()


def write_user(user: CascadeUser, about: dict[str, Json], path: str | Path) -> None:
    """Write how a fitted user looks and leaves as JSON, for the setting ``clicks``; its attraction goes by label.

    Args:
        user: Of :meth:`Fitted.user`.
        about: What it was fitted to, for readers.
        path: Such as ``mine.json``.
    """
    kept = {"format": FORMAT, "examine": user.examine, "stop": user.stop[0], "abandon": user.abandon, **about}
    Path(path).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def fit(sessions: Sessions, model: str, steps: int = 200, prior: float = 10.0, pairs: int | None = None) -> Fitted:
    """Fit a model by expectation-maximisation.

    Args:
        sessions: The log.
        model: One of :data:`MODELS`.
        steps: Steps of expectation-maximisation at most; it ends where no probability changes by 1e-5.
        prior: Sessions that each pair counts more, with the log's means; 0: the likelihood alone.
        pairs: Number of pairs, where the log has not all of them; the others get the mean.

    Raises:
        ConfigError: No such model, or numbers that make no sense.
    """
    if model not in MODELS:
        raise ConfigError(f"model must be one of {', '.join(MODELS)}, got {model!r}.")
    if steps < 1 or not 0 <= prior < 1e6:
        raise ConfigError(f"steps must be at least 1 and prior in [0, 1,000,000), got {steps} and {prior}.")
    depth, shown = sessions.pair.shape[1], sessions.lengths.sum()
    rate = float(np.clip(sessions.clicked.sum() / shown, _EDGE, 1 - _EDGE))
    everything = np.ones(sessions.pairs if pairs is None else pairs)
    rates = np.repeat(sessions.rates()[:, None], depth, axis=1)
    if model == "by-rank":
        return Fitted(model, everything, everything * 0, rates, 1.0)
    browsing = model in ("position-based", "user-browsing")
    # Browsing starts at the clicks by rank, halfway between what attracts and what is looked at.
    half = float(np.clip(rates.max(), _EDGE, 1 - _EDGE)) ** 0.5
    fitted = Fitted(
        model,
        everything * (half if browsing else rate),
        everything * (0.0 if browsing else 0.5),
        np.clip(rates / half, _EDGE, 1 - _EDGE) if browsing else np.ones((depth, depth)),
        0.9 if model == "dynamic-bayesian" else 1.0,
    )
    history = []
    cells = _count_cells(sessions, model == "user-browsing") if browsing else None
    for _ in range(steps):
        before = fitted
        if cells is None:
            history.append(float(fitted.log_likelihoods(sessions).mean()))
            fitted = _bayesian_step(fitted, sessions, prior)
        else:
            history.append(_browsing_likelihood(fitted, cells) / len(sessions.pair))
            fitted = _browsing_step(fitted, cells, prior)
        if max(np.abs(now - then).max() for now, then in zip(fitted.tables, before.tables, strict=True)) < _ENOUGH:
            break
    return Fitted(model, fitted.attraction, fitted.satisfaction, fitted.examine, fitted.perseverance, tuple(history))


def _shares(
    pair: Int[np.ndarray, "..."],
    hits: Float[np.ndarray, "..."],
    times: Float[np.ndarray, "..."],
    pairs: int,
    prior: float,
    old: Float[np.ndarray, " pairs"],
) -> Float[np.ndarray, " pairs"]:
    """Expected hits over expected times of each pair, drawn towards the mean; a pair without either keeps the mean."""
    hit = np.bincount(pair.ravel(), hits.ravel(), pairs)
    time = np.bincount(pair.ravel(), times.ravel(), pairs)
    mean = hit.sum() / max(time.sum(), _EDGE) if time.sum() else old.mean()
    seen = time + prior
    found = np.where(seen > 0, (hit + prior * mean) / np.where(seen > 0, seen, 1), mean)
    return np.clip(found, _EDGE, 1 - _EDGE)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Sums of a log that a model without memory beyond the last click depends on.

    Attributes:
        pair: int [cells], the pair.
        rank: int [cells], the rank.
        since: int [cells], ranks since the last click − 1; 0 where the model does not ask.
        shown: float64 [cells], times that the pair was shown there.
        clicks: float64 [cells], times that it was clicked.
    """

    pair: Int[np.ndarray, " cells"]
    rank: Int[np.ndarray, " cells"]
    since: Int[np.ndarray, " cells"]
    shown: Float[np.ndarray, " cells"]
    clicks: Float[np.ndarray, " cells"]


def _count_cells(sessions: Sessions, remembers: bool) -> _Cells:
    """The cells of a log; with ``remembers`` one for each number of ranks since the last click."""
    n, depth = sessions.pair.shape
    rank, here = np.arange(depth), sessions.shown
    since = np.zeros((n, depth), np.int64)
    if remembers:
        last = np.maximum.accumulate(np.where(sessions.clicked, rank, -1), axis=1)
        since = rank - np.concatenate([np.full((n, 1), -1), last[:, :-1]], axis=1) - 1
    number = (sessions.pair.astype(np.int64) * depth + rank) * depth + since
    cells, place = np.unique(number[here], return_inverse=True)
    shown = np.bincount(place).astype(np.float64)
    clicks = np.bincount(place, sessions.clicked[here], len(cells))
    return _Cells(cells // depth**2, cells // depth % depth, cells % depth, shown, clicks)


def _browsing_step(fitted: Fitted, cells: _Cells, prior: float) -> Fitted:
    depth, pair = len(fitted.examine), cells.pair
    alpha, gamma = fitted.attraction[pair], fitted.examine[cells.rank, cells.since]
    neither = (cells.shown - cells.clicks) / np.maximum(1 - alpha * gamma, _EDGE)
    attracted = cells.clicks + neither * alpha * (1 - gamma)
    looked = cells.clicks + neither * gamma * (1 - alpha)
    place = cells.rank * depth + cells.since
    counts = np.bincount(place, cells.shown, depth * depth)
    means = np.clip(np.bincount(place, looked, depth * depth) / np.maximum(counts, 1.0), _EDGE, 1 - _EDGE)
    if fitted.model == "position-based":
        examine = np.repeat(means[::depth, None], depth, axis=1)
    else:  # a place that no session has keeps its value
        examine = np.where(counts > 0, means, fitted.examine.ravel()).reshape(depth, depth)
    found = _shares(pair, attracted, cells.shown, len(fitted.attraction), prior, fitted.attraction)
    return Fitted(fitted.model, found, fitted.satisfaction, examine, 1.0)


def _browsing_likelihood(fitted: Fitted, cells: _Cells) -> float:
    """Log-likelihood of all clicks, in nats."""
    p = fitted.attraction[cells.pair] * fitted.examine[cells.rank, cells.since]
    return float(cells.clicks @ np.log(p) + (cells.shown - cells.clicks) @ np.log1p(-p))


def _bayesian_step(fitted: Fitted, sessions: Sessions, prior: float) -> Fitted:
    pair, clicked = sessions.pair, sessions.clicked
    n, depth = pair.shape
    go_on = fitted.perseverance
    rank = np.arange(depth)
    last = np.where(clicked.any(axis=1), depth - 1 - clicked[:, ::-1].argmax(axis=1), -1)
    has = last >= 0
    known = rank <= last[:, None]  # ranks that were read for certain
    final = pair[np.arange(n), np.maximum(last, 0)]
    satisfied = np.where(has, fitted.satisfaction[final], 0.0)
    # Weight of the end after exactly t ranks were read, t = 0 .. depth, and of satisfaction at the last click.
    passes = np.where(known, 1.0, (1 - fitted.attraction[pair]) * go_on)
    passes[~has, 0] /= go_on  # no user leaves before the first rank
    ends = np.concatenate([np.ones((n, 1)), np.cumprod(passes, axis=1)], axis=1)
    first = np.maximum(last + 1, 1)
    times, length = np.arange(depth + 1), sessions.lengths[:, None]
    possible = (times >= first[:, None]) & (times <= length)
    ends = np.where(possible, ends, 0.0) * np.where(times < length, 1 - go_on, 1.0)  # a list ends by itself
    ends *= (1 - satisfied)[:, None]
    total = satisfied + ends.sum(axis=1)
    satisfied, ends = satisfied / total, ends / total[:, None]

    reads = np.cumsum(ends[:, ::-1], axis=1)[:, ::-1][:, 1:]  # P(rank was read), below the last click
    reads = np.where(known, 1.0, reads)
    attraction_ = _shares(pair, clicked * 1.0, reads, len(fitted.attraction), prior, fitted.attraction)
    at_last = rank == last[:, None]
    content = np.where(at_last, satisfied[:, None], 0.0)[clicked]
    satisfaction = _shares(
        pair[clicked], content, np.ones_like(content), len(fitted.satisfaction), prior, fitted.satisfaction
    )
    if fitted.model == "dynamic-bayesian":
        # Decisions to read on: after each rank above the last click, and after those below it that were read.
        stays = np.maximum(last, 0) + (ends * np.maximum(times - first[:, None], 0)).sum(axis=1)
        leaves = np.where(times < length, ends, 0.0).sum(axis=1)
        go_on = float(np.clip(stays.sum() / max((stays + leaves).sum(), _EDGE), _EDGE, 1 - _EDGE))
    return Fitted(fitted.model, attraction_, satisfaction, fitted.examine, go_on)
