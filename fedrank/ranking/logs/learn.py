"""A ranker learnt from a click log, freed of position bias, and judged by sessions of queries that it has not seen.

Of each pair p (a query and a document with its features) the log has clicks c_p, times shown n_p and the sum of
position bias over its places, Θ_p = Σ θ. Its attraction is estimated by

    ctr     c_p / n_p                               clicks taken as labels: what stood high looks good
    ips     c_p / Θ_p                               weighted by propensity
    dr      q̂ + (c_p − Θ_p q̂) / max(Θ_p, τ)          doubly robust: where a pair was hardly looked at, the model q̂

with q̂ = σ(b + w·x), fitted to all clicks by the likelihood of P(click) = θ q̂. The ranker is the maximum of

    Σ_q n_q Σ_d α̂_d ln softmax(s)_d

over the documents d that were shown for a query q (Ai et al., SIGIR 2018; Joachims et al., WSDM 2017, listwise), less a
normal prior on its weights of variance 1. Only sums of pairs are needed, so that ten million sessions are learnt from
as fast as ten thousand; L-BFGS finds the maximum, and there is no step size to choose.

Its page shows its worth beside simple rankings, and how far down people look.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int

from fedrank import __version__
from fedrank.core.errors import ConfigError, DataError
from fedrank.core.lazy import is_installed
from fedrank.core.trees import Json
from fedrank.ranking.data.splits import CONSTANT, fit_constants, in_range
from fedrank.ranking.evaluate import row_scores
from fedrank.ranking.logs.columns import LogFormat
from fedrank.ranking.logs.off_policy import (
    ESTIMATORS,
    FEW,
    Estimate,
    Measure,
    OffPolicy,
    PositionBias,
    Worth,
    count_cells,
    estimate_bias,
    given_bias,
)
from fedrank.ranking.logs.read import ClickLog, read_log
from fedrank.ranking.model import RankingModel
from fedrank.ranking.rankers.base import Ranker
from fedrank.ranking.rankers.linear import Linear
from fedrank.ranking.rankers.mlp import TwoLayer
from fedrank.report.claims import Comparison, Measured, Named, Number, Opening, say
from fedrank.report.figures import Level, levels_figure
from fedrank.report.page import write_findings_page
from fedrank.report.statistics import Interval
from fedrank.report.tables import Column, Table

#: τ, looks below which the model's guess of a pair counts.
TAU = 5.0
HIDDEN = 10
_STEPS = 300
#: Sessions that LightGBM learns from at most.
_OF_TREES = 50_000
#: Name of the ranking that was shown.
LOGGED = "logged ranking"


@dataclass(frozen=True, eq=False)
class Row:
    """One ranking of the held-out sessions.

    Attributes:
        name: Name of the ranking.
        worth: Its worth.
        gain: Doubly robust difference to the logged ranking.
        verdict: ``better``, ``worse`` or ``not told apart`` from the logged ranking; ``cannot be said`` where the log
            has too few effective clicks.
    """

    name: str
    worth: Worth
    gain: Estimate
    verdict: str


@dataclass(frozen=True, eq=False)
class LearntFromLog:
    """Result of learning from a log: the ranker, position bias, and the judgements.

    Attributes:
        model: The ranker, doubly robust.
        bias: Position bias.
        rows: Rankings of the held-out sessions, the logged one first.
        measure: What their estimates are of.
        chosen: Name of the row of the model.
        learnt: Sessions learnt from.
        held_out: Sessions judged by.
        left_out: What of the log was left out.
        others: Sentences on the columns that are no features.
        warnings: Sentences about what the log does not tell.
    """

    model: RankingModel
    bias: PositionBias
    rows: list[Row]
    measure: str
    chosen: str
    learnt: int
    held_out: int
    left_out: dict[str, int]
    others: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def row(self, name: str) -> Row:
        """The row of a ranking.

        Raises:
            KeyError: There is no such row.
        """
        return {row.name: row for row in self.rows}[name]

    def as_json(self) -> dict[str, Json]:
        """Everything but the model."""

        def plain(estimate: Estimate) -> list[Json]:
            return [v if math.isfinite(v) else None for v in (estimate.value, estimate.low, estimate.high)]

        return {
            "measure": self.measure,
            "chosen": self.chosen,
            "sessions": {"learnt": self.learnt, "held_out": self.held_out},
            "features": list(self.model.feature_names),
            "no_features": list(self.others),
            "left_out": dict(self.left_out),
            "position_bias": {
                "theta": self.bias.theta[1:].tolist(),
                "standard_error_of_log": [v if math.isfinite(v) else None for v in self.bias.error[1:].tolist()],
                "clicks_on_pairs_that_moved": self.bias.moved,
                "source": self.bias.source,
            },
            "rankings": [
                {
                    "name": row.name,
                    **{name: plain(row.worth.estimates[name]) for name in ESTIMATORS},
                    "effective_clicks": row.worth.effective_clicks,
                    "gain": plain(row.gain),
                    "verdict": row.verdict,
                }
                for row in self.rows
            ],
            "warnings": list(self.warnings),
        }


def learn_from_log(
    log: Any,
    *,
    ranker: Literal["linear", "mlp"] = "linear",
    position_bias: Literal["estimate", "given", "none"] = "estimate",
    normalise: Literal["auto", "none", "standard", "min-max", "log"] = "auto",
    measure: Measure = "DCG@10",
    held_out: float = 0.25,
    form: LogFormat | None = None,
    features: Any = None,
    compare: bool = True,
    seed: int = 0,
) -> LearntFromLog:
    """Learn a ranker from a click log, and judge it by held-out sessions.

    Args:
        log: As of :func:`~fedrank.ranking.logs.read.read_log`, or a log that was read.
        ranker: ``linear``, or ``mlp`` with ten hidden units.
        position_bias: ``estimate`` it from results that moved; ``given``: the log's column of propensities; ``none``:
            take clicks as they are.
        normalise: ``standard``, ``min-max`` or ``log``: constants of the log's features; ``auto``: ``standard`` unless
            all features lie in [0, 1].
        measure: Of the estimates: ``DCG@10`` with attraction as the gain, or ``clicks`` a search.
        held_out: Share of the queries by whose sessions rankings are judged.
        form: Meaning of the log's columns.
        features: A table of features beside the log.
        compare: Also judge the other ranker, weighting by propensity alone, the best single feature, and LightGBM with
            positions if it is installed. Clicks taken as labels are always judged.
        seed: Of the draw of held-out queries, and of the start of the two-layer ranker.

    Raises:
        ConfigError: Settings that make no sense.
        DataError: The log has no features, or its position bias cannot be told from relevance.
    """
    if not 0 < held_out < 1:
        raise ConfigError(f"held_out must be between 0 and 1, got {held_out}.")
    name = Path(log).name if isinstance(log, str | Path) else "a click log"
    read = log if isinstance(log, ClickLog) else read_log(log, form or LogFormat(), features)
    if not read.features.shape[1]:
        raise DataError(
            f"{name} has no features of documents, so that no ranker can be learnt from it: log them with each result, "
            "or give a table with --features. Click models need none: fedrank data clicks fit (fedrank-zoo)."
            + "".join(f" No feature is {one}." for one in read.odd_features(are=False))
        )
    bias = _bias(read, position_bias)
    used = read.up_to(bias.usable)
    of_sessions = used.query[used.pair[used.offsets[:-1]]]
    queries = np.unique(of_sessions)
    chosen_queries = np.random.default_rng(seed).permutation(queries)[: max(1, round(held_out * len(queries)))]
    if len(chosen_queries) == len(queries):
        raise DataError(f"{name} has searches for {len(queries)} query; with {held_out:.0%} held out none is left.")
    unseen = np.isin(of_sessions, chosen_queries)
    pairs, learnt = _Pairs(used, bias, chosen_queries), int((~unseen).sum())
    if not pairs.clicks.any():
        raise DataError(f"{name} has no click in {learnt:,} sessions: nothing can be learnt from it.")
    how = normalise
    if how == "auto":
        how = "none" if in_range(read.features) else "standard"
    constants = fit_constants(read.features, how) if how in CONSTANT else None
    x = read.features if constants is None else constants.apply(read.features)
    n = x.shape[1]
    model_of_attraction = pairs.attraction_model(x)
    dr, ips, ctr = pairs.doubly_robust(model_of_attraction), pairs.by_propensity(), pairs.by_clicks()
    kinds: dict[str, Ranker] = {"linear": Linear(n), "mlp": TwoLayer(n, HIDDEN)}
    chosen = f"doubly robust, {ranker}"
    weights = {chosen: pairs.fit(kinds[ranker], x, dr, seed)}
    hidden = {chosen: getattr(kinds[ranker], "hidden", 0)}
    scores: dict[str, np.ndarray | None] = {LOGGED: None}
    for label, kind, target in (
        ("clicks as labels, linear", "linear", ctr),
        ("by propensity, linear", "linear", ips),
        *((f"doubly robust, {one}", one, dr) for one in kinds if one != ranker),
    ):
        if compare or target is ctr:
            weights[label] = pairs.fit(kinds[kind], x, target, seed)
            hidden[label] = getattr(kinds[kind], "hidden", 0)
    if compare:
        scores["best single feature"] = pairs.best_feature(x, dr)
        if is_installed("lightgbm"):
            scores["LightGBM with positions"] = _trees(used, ~unseen, x)
    test = used.part(unseen)
    scores |= {label: row_scores(found, x, hidden[label]) for label, found in weights.items()}
    judge = OffPolicy(test, bias, model_of_attraction, measure)
    worths = {label: judge.judge(found) for label, found in scores.items()}
    rows = [_row(label, worth, worths[LOGGED]) for label, worth in worths.items()]
    about: dict[str, Json] = {
        "fedrank": __version__,
        "protocol": "learn-from-log",
        "data": name,
        "sessions": learnt,
        "position_bias": bias.theta[1:].tolist(),
        "privacy": None,
    }
    model = RankingModel(kinds[ranker], weights[chosen], how, read.names, about, constants)
    few = [row.name for row in rows if row.verdict == "cannot be said"]
    warnings = [
        f"Feature {one}. Leave it out of --format.features." for one in read.odd_features(are=True)
    ] + bias.warnings
    if few:
        warnings.append(
            f"The log cannot say what {', '.join(few)} would have been worth: fewer than {FEW:g} effective clicks. "
            "Take more sessions, or a larger share of the queries as held out."
        )
    counts = learnt, test.n_sessions, read.left_out
    return LearntFromLog(model, bias, rows, measure, chosen, *counts, read.odd_features(are=False), warnings)


def _bias(log: ClickLog, how: str) -> PositionBias:
    if how == "estimate":
        return estimate_bias(log)
    if how == "given":
        if log.propensity is None:
            raise ConfigError("position_bias = 'given' needs a column of propensities in the log; it has none.")
        return given_bias(log.propensity[: log.depth + 1])
    if how != "none":
        raise ConfigError(f"position_bias must be estimate, given or none, got {how!r}.")
    return given_bias(np.ones(log.depth + 1), "none")


def _row(name: str, worth: Worth, logged: Worth) -> Row:
    gain = worth.minus(logged)
    verdict = "not told apart"
    if worth.effective_clicks < FEW or logged.effective_clicks < FEW or not math.isfinite(gain.low):
        verdict = "cannot be said"
    elif name == LOGGED:
        verdict = ""
    elif gain.low > 0 or gain.high < 0:
        verdict = "better" if gain.low > 0 else "worse"
    return Row(name, worth, gain, verdict)


class _Pairs:
    """Sums of a log by pair, sorted by query, and the fits that need no more.

    Args:
        log: The sessions.
        bias: Position bias.
        without: Queries whose sessions are not looked at.
    """

    def __init__(self, log: ClickLog, bias: PositionBias, without: Int[np.ndarray, " queries"] | tuple[()] = ()):
        shown, clicks = count_cells(log)
        held = np.isin(log.query, without)
        shown[held], clicks[held] = 0, 0
        self._cells = shown, clicks
        self._theta = bias.theta[: shown.shape[1]]
        self.shown, self.clicks = shown.sum(axis=1), clicks.sum(axis=1)
        self.looks = shown @ self._theta
        seen = np.flatnonzero(self.shown)
        self._rows = seen[np.argsort(log.query[seen], kind="stable")]  # by query
        queries = log.query[self._rows]
        self._starts = np.flatnonzero(np.concatenate([[True], queries[1:] != queries[:-1]]))
        self._lengths = np.diff(np.append(self._starts, len(queries)))
        self._owner = np.repeat(np.arange(len(self._starts)), self._lengths)
        # Sessions of a query, by its results: all of a query count alike, however long its lists are.
        sessions = np.bincount(log.query[log.pair[log.offsets[:-1]]], minlength=int(log.query.max()) + 1)
        self._times = sessions[queries].astype(np.float64)

    def by_clicks(self) -> Float64[np.ndarray, " pairs"]:
        """Share of the times shown that each pair was clicked."""
        return self.clicks / np.maximum(self.shown, 1)

    def by_propensity(self) -> Float64[np.ndarray, " pairs"]:
        """Clicks over looks of each pair; one look at least."""
        return self.clicks / np.maximum(self.looks, 1.0)

    def doubly_robust(self, model: Float32[np.ndarray, " pairs"]) -> Float64[np.ndarray, " pairs"]:
        """The model's attraction, corrected by what was clicked; never below 0."""
        return model + (self.clicks - self.looks * model) / np.maximum(self.looks, TAU)

    def attraction_model(self, x: Float32[np.ndarray, "pairs f"]) -> Float32[np.ndarray, " pairs"]:
        """q̂ of every pair: logistic in the features, by the likelihood of all clicks at their positions."""
        shown, clicks = self._cells
        row, k = np.nonzero(shown)
        times, hits, theta = shown[row, k].astype(float), clicks[row, k].astype(float), self._theta[k]
        seen = self._rows
        inside, numbers = x[seen].astype(np.float64), np.zeros(len(x), np.int64)
        numbers[seen] = np.arange(len(seen))
        at, n = numbers[row], max(self.clicks.sum(), 1)

        def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
            q = 1 / (1 + np.exp(-np.clip(inside @ w[1:] + w[0], -30, 30)))
            p = np.clip(theta * q[at], 1e-12, 1 - 1e-12)
            value = -(hits * np.log(p) + (times - hits) * np.log1p(-p)).sum()
            slope = -(hits / p - (times - hits) / (1 - p)) * theta
            per_pair = np.bincount(at, slope, len(seen)) * q * (1 - q)
            gradient = np.concatenate([[per_pair.sum()], per_pair @ inside + w[1:]])
            return (value + w[1:] @ w[1:] / 2) / n, gradient / n

        rate = self.clicks.sum() / max(self.looks.sum(), 1e-9)
        start = np.zeros(x.shape[1] + 1)
        start[0] = math.log(np.clip(rate, 1e-4, 0.99) / (1 - np.clip(rate, 1e-4, 0.99)))
        w = _least(loss, start)
        return (1 / (1 + np.exp(-np.clip(x @ w[1:].astype(np.float32) + w[0], -30, 30)))).astype(np.float32)

    def fit(
        self, ranker: Ranker, x: Float32[np.ndarray, "pairs f"], target: Float64[np.ndarray, " pairs"], seed: int
    ) -> Float32[np.ndarray, " parameters"]:
        """Weights of a ranker that explains the attraction of each query's documents listwise."""
        inside = x[self._rows].astype(np.float64)
        gain = target[self._rows] * self._times
        total = np.add.reduceat(gain, self._starts)
        n = max(gain.sum(), 1e-9)
        hidden = getattr(ranker, "hidden", 0)

        def of_scores(s: np.ndarray) -> tuple[float, np.ndarray]:
            top = np.maximum.reduceat(s, self._starts)
            e = np.exp(s - top[self._owner])
            sums = np.add.reduceat(e, self._starts)
            value = float(total @ (np.log(sums) + top) - gain @ s)
            return value, (total / sums)[self._owner] * e - gain

        def linear(w: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = of_scores(inside @ w)
            return (value + w @ w / 2) / n, (slope @ inside + w) / n

        def two_layers(w: np.ndarray) -> tuple[float, np.ndarray]:
            f = inside.shape[1]
            into, b, out = w[: hidden * f].reshape(hidden, f), w[hidden * f : -hidden], w[-hidden:]
            z = inside @ into.T + b
            h = np.maximum(z, 0)
            value, slope = of_scores(h @ out)
            back = slope[:, None] * out * (z > 0)
            gradient = np.concatenate([(back.T @ inside).ravel(), back.sum(axis=0), slope @ h])
            return (value + w @ w / 2) / n, (gradient + w) / n

        if not hidden:
            return _least(linear, np.zeros(inside.shape[1])).astype(np.float32)
        start = np.random.default_rng(seed).normal(0, 1 / math.sqrt(inside.shape[1]), ranker.size)
        return _least(two_layers, start).astype(np.float32)

    def best_feature(
        self, x: Float32[np.ndarray, "pairs f"], target: Float64[np.ndarray, " pairs"]
    ) -> Float32[np.ndarray, " pairs"]:
        """The one feature, rising or falling, with the highest DCG@10 of the estimated attraction."""
        gain = target[self._rows] * self._times
        ranks = np.arange(len(gain)) - self._starts[self._owner]
        discount = np.where(ranks < 10, 1 / np.log2(ranks + 2), 0.0)
        chance = np.random.default_rng(0).random(len(gain))  # of equal values none is favoured

        def worth(values: np.ndarray) -> float:
            return float(gain[np.lexsort((chance, -values, self._owner))] @ discount)

        signed = [sign * x[:, feature] for feature in range(x.shape[1]) for sign in (1, -1)]
        return max(signed, key=lambda values: worth(values[self._rows]))


def _least(loss: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray) -> np.ndarray:
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):
        return minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "ftol": 1e-10}).x


def _trees(
    log: ClickLog, learnt: Bool[np.ndarray, " sessions"], x: Float32[np.ndarray, "pairs f"]
) -> Float32[np.ndarray, " pairs"]:
    """Scores of LightGBM's lambdarank, which estimates position bias beside its trees, from clicks and positions."""
    import lightgbm

    sessions = np.flatnonzero(np.maximum.reduceat(log.clicked, log.offsets[:-1]) & learnt)[:_OF_TREES]
    kept = np.zeros(log.n_sessions, bool)
    kept[sessions] = True
    part = log.part(kept)
    settings = {"objective": "lambdarank", "verbosity": -1, "seed": 0, "deterministic": True, "force_row_wise": True,
                "num_threads": 1, "lambdarank_position_bias_regularization": 0.0}  # fmt: skip
    clicks, positions = part.clicked.astype(np.int32), part.position.astype(np.int32)
    data = lightgbm.Dataset(x[part.pair], clicks, group=np.diff(part.offsets), position=positions, params=settings)
    booster = lightgbm.train(settings, data, 100)
    return np.asarray(booster.predict(x), np.float32)


_CHART = "worth"


def log_opening(found: LearntFromLog) -> Opening:
    """Title, sentence and numbers of the page."""
    mine, logged, rest = found.row(found.chosen), found.row(LOGGED), _best_other(found)
    who = f"The ranker learnt ({found.chosen})"
    base = logged.worth.estimates["dr"].value
    gain = Comparison(_interval(mine.gain), "the logged ranking", base, digits=4, unit="clicks")
    if mine.verdict == "cannot be said":
        sentence = say(f"{who} cannot be judged: too few clicks of this log tell about it.")
    else:
        sentence = say(f"{who} is ", gain, f" ({found.measure}, estimated from past clicks).")
    numbers = [
        Number("The ranker", _worth_of(mine, found.measure)),
        Number("Logged ranking", _worth_of(logged, found.measure)),
        Number("Effective clicks", Named(f"{mine.worth.effective_clicks:,.0f}"), "behind the ranker's estimate"),
    ]
    if rest is not None:
        numbers.insert(2, Number(f"Best of the others: {rest.name}", _worth_of(rest, found.measure)))
    said = "; ".join(f"{row.name}: {row.gain.value:+.4f}" for row in found.rows if row.name != LOGGED)
    advice = (
        ("put it into your engine:", "fedrank export ranker.safetensors my_ranker.json --to elasticsearch-ltr")
        if mine.verdict == "better"
        else ("log more searches, some with two neighbours swapped, and learn again:", "fedrank learn-from-log LOG")
    )
    return Opening("A ranker from a click log", sentence, tuple(numbers), _CHART, said, advice)


def rankings(found: LearntFromLog) -> Table:
    """Table of the rankings, judged on the held-out searches."""
    columns = (
        Column("name", "ranking"),
        Column("worth", found.measure, numeric=True, digits=4),
        Column("low", "low", numeric=True, digits=4),
        Column("high", "high", numeric=True, digits=4),
        Column("gain", "against logged", numeric=True, digits=4),
        Column("verdict", ""),
        Column("clicks", "clicks", numeric=True, digits=0),
    )
    rows = []
    for row in found.rows:
        worth = row.worth.estimates["dr"]
        rows.append({
            "name": row.name, "worth": worth.value, "low": worth.low, "high": worth.high,
            "gain": row.gain.value if row.verdict else None, "verdict": row.verdict,
            "clicks": row.worth.effective_clicks,
        })  # fmt: skip
    notes = (
        f"Doubly robust estimates with 95 % intervals from {found.held_out:,} searches for queries that were not "
        f"learnt from ({found.learnt:,} were); clicks: effective number behind an estimate.",
    )
    return Table("Rankings", columns, tuple(rows), notes)


def write_page(found: LearntFromLog, file: str | os.PathLike[str], log: str) -> Path:
    """Write the page.

    Args:
        found: What was learnt.
        file: Where.
        log: Name of the log.

    Returns:
        The file.

    Raises:
        RunError: The page cannot be written.
    """
    levels = [
        Level(row.name, one.mean, one.low, one.high, row.name == found.chosen)
        for row in found.rows
        if row.name != LOGGED
        for one in [_interval(row.gain)]
    ]
    said = [f"Difference of {found.measure} on held-out searches", "95 % intervals"]
    chart: Any = levels_figure(levels, "Gain over the logged ranking", said, signed=True)
    usable = [k for k in range(1, len(found.bias.theta)) if found.bias.usable[k]]
    looked = ", ".join(f"{k}: {found.bias.theta[k]:.2f}" for k in usable)
    words = [
        f"Position bias (how often a result at a position is looked at, the first being 1): {looked}.",
        *column_words(found),
        *(f"Left out: {count:,} {why}." for why, count in found.left_out.items()),
        *found.warnings,
        "Results that the logged ranking never showed cannot be judged: test old against new before a rollout.",
    ]
    caveats = ("Estimated from past clicks, not tested on people",)
    about = f"fedrank learn-from-log · {log}"
    return write_findings_page(
        file, log_opening(found), about, caveats, chart, rankings(found), words, "fedrank learn-from-log"
    )


def column_words(found: LearntFromLog) -> list[str]:
    """Sentences on the columns that are features, and on those that are none."""
    return [f"Features: {', '.join(found.model.feature_names)}.", *(f"No feature: {one}." for one in found.others)]


def _best_other(found: LearntFromLog) -> Row | None:
    others = [row for row in found.rows if row.name not in (LOGGED, found.chosen)]
    return max(others, key=lambda row: row.worth.estimates["dr"].value, default=None)


def _interval(estimate: Any) -> Interval:
    ends = (end if math.isfinite(end) else None for end in (estimate.low, estimate.high))
    return Interval(estimate.value, *ends)


def _worth_of(row: Row, measure: str) -> Measured:
    return Measured(_interval(row.worth.estimates["dr"]), "" if measure == "clicks" else measure, 4)
