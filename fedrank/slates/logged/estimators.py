"""Off-policy estimates of what a policy would have earned, with intervals, from sums over a log's rows.

Of a row with reward r, shown with probability p, let w = π(item | position) / p be how much more often the policy would
have shown it, and q̂ a model of rewards. Over n rows::

    logged    Σ r / n                                     what was earned
    ips       Σ w r / n                                   inverse propensity; unbiased
    snips     Σ w r / Σ w                                 self-normalised (Swaminathan & Joachims, NeurIPS 2015)
    dm        Σ q̂(π) / n,  q̂(π) = Σ_a π(a) q̂(a)          direct: as good as the model
    dr        Σ (q̂(π) + w (r − q̂)) / n                    doubly robust (Dudík et al., ICML 2011); unbiased

All follow from Σ f fᵀ with f = (1, r, w, w r, q̂(π), q̂(π) + w (r − q̂)): a *summary* of 21 numbers. Summaries of
platforms add up to that of all their rows, so that they judge a policy together without a row leaving them. Intervals
are of the normal approximation, with the variance of a ratio by the delta method; they trust neither few clicks nor a
policy that the log hardly shows, which is what the effective numbers are for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from fedrank.core.errors import ConfigError, DataError
from fedrank.slates.logged.clicks import PRIOR, counts, mean_rewards
from fedrank.slates.logged.log import Log
from fedrank.slates.logged.policies import Table

#: Numbers of a row that are summed: f of the module.
TERMS = 6
_ONE, _REWARD, _WEIGHT, _WEIGHTED, _MODEL, _ROBUST = range(TERMS)
#: Estimates by name, in the order of tables.
ESTIMATORS = ("ips", "snips", "dr", "dm")
#: Parts of a log, each judged with the model of the others.
FOLDS = 3
#: Fewer clicks than this behind an estimate leave its interval without worth.
FEW = 10.0

Summary = Float64[np.ndarray, "terms terms"]


@dataclass(frozen=True)
class Estimate:
    """An estimate and its 95 % interval; ends are None where there is none.

    Attributes:
        value: The mean reward of a row.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Judgement:
    """What one policy would have earned at one platform, or at all.

    Attributes:
        rows: Rows behind it.
        logged: What was earned a row.
        estimates: By name of :data:`ESTIMATORS`. ``dm`` has no interval: its error is the model's.
        gain: The doubly robust estimate less what was earned, of the same rows.
        weight: Mean of w with its interval: far from 1, the probabilities of the log are not those it was shown with,
            or the policy shows what the log never does.
        effective_rows: (Σ w)² / Σ w²: as many rows, were they shown by the policy itself, would tell as much.
        effective_clicks: (Σ w r)² / Σ (w r)²: the same of rewards. Below :data:`FEW` no interval is worth anything.
        unseen: Share of what the policy shows that the log never shows at that position.
    """

    rows: int
    logged: Estimate
    estimates: dict[str, Estimate]
    gain: Estimate
    weight: Estimate
    effective_rows: float
    effective_clicks: float
    unseen: float


def judge(
    logs: Sequence[Log], table: Table, *, prior: float = PRIOR, folds: int = FOLDS, level: float = 0.95
) -> tuple[list[Judgement], Judgement]:
    """What a policy would have earned at each platform, and at all of them.

    The model of rewards is that of all platforms' counts; each part of every log is judged with the counts of the other
    parts, so that no row is judged with a model that has seen it.

    Args:
        logs: Logs of platforms that show the same items; of no row that the policy was learnt from.
        table: The policy.
        prior: As of :func:`~fedrank.slates.logged.clicks.mean_rewards`.
        folds: Parts, at least 2; each a stretch of time.
        level: Coverage of the intervals.

    Raises:
        DataError: A log has fewer rows than parts, or the policy is of other items.
        ConfigError: Folds, prior or level make no sense.
    """
    if folds < 2 or not 0.0 < level < 1.0 or not 0.0 < prior < math.inf:
        raise ConfigError(
            f"needs at least 2 folds, a level in (0, 1) and a prior above 0, got {folds}, {level}, {prior}."
        )
    parts = [_folds(log, folds) for log in logs]
    counted = np.stack([counts(part[fold] for part in parts) for fold in range(folds)])
    total = counted.sum(axis=0)
    if table.shape != total.shape[1:]:
        raise DataError(f"the policy has {table.shape} items and positions, and the logs have {total.shape[1:]}.")
    models = [mean_rewards(total - one, prior) for one in counted]
    summaries = [np.sum([summary(part[fold], table, models[fold]) for fold in range(folds)], axis=0) for part in parts]
    each = [
        judgement(one, _lowest([log]), _unseen(counts([log])[0], table), level)
        for log, one in zip(logs, summaries, strict=True)
    ]
    return each, judgement(np.sum(summaries, axis=0), _lowest(logs), _unseen(total[0], table), level)


def _folds(log: Log, folds: int) -> list[Log]:
    if len(log) < folds:
        raise DataError(f"log {log.name}: needs at least {folds} rows, got {len(log)}.")
    edges = np.linspace(0, len(log), folds + 1).astype(int)
    return [log.part(slice(low, high)) for low, high in itertools.pairwise(edges)]


def summary(log: Log, table: Table, model: Table) -> Summary:
    """Σ f fᵀ of a log's rows; see the module.

    Args:
        log: The rows.
        table: The policy.
        model: Mean reward of each item at each position.
    """
    weights = table[log.items, log.positions] / log.propensity
    expected = np.einsum("ip,ip->p", table, model)[log.positions]
    robust = expected + weights * (log.rewards - model[log.items, log.positions])
    f = np.stack([np.ones(len(log)), log.rewards, weights, weights * log.rewards, expected, robust])
    return f @ f.T


def judgement(total: Summary, lowest: float = -math.inf, unseen: float = 0.0, level: float = 0.95) -> Judgement:
    """What a summary says.

    Args:
        total: A summary, or the sum of several.
        lowest: The least that a row can earn; intervals end there.
        unseen: As of the result.
        level: Coverage of the intervals.
    """
    from scipy.stats import t

    n = total[_ONE, _ONE]
    means = total[_ONE] / n
    spread = (total / n - np.outer(means, means)) * (n / max(n - 1, 1))
    quantile = float(t.ppf(0.5 + level / 2, max(n - 1, 1)))

    def estimate(value: float, gradient: np.ndarray, low: float) -> Estimate:
        half = quantile * math.sqrt(max(float(gradient @ spread @ gradient), 0.0) / n) if n > 1 else math.nan
        if not math.isfinite(half):
            return Estimate(value)
        return Estimate(value, max(value - half, low), value + half)

    unit, weight = np.eye(TERMS), means[_WEIGHT]
    ratio = means[_WEIGHTED] / weight if weight > 0 else math.nan
    of_ratio = (unit[_WEIGHTED] - ratio * unit[_WEIGHT]) / weight if weight > 0 else np.zeros(TERMS)
    squares = total[_WEIGHT, _WEIGHT], total[_WEIGHTED, _WEIGHTED]
    rows, clicks = (
        float(total[_ONE, place] ** 2 / square) if square > 0 else 0.0
        for place, square in zip((_WEIGHT, _WEIGHTED), squares, strict=True)
    )
    return Judgement(
        int(n),
        estimate(float(means[_REWARD]), unit[_REWARD], lowest),
        {
            "ips": estimate(float(means[_WEIGHTED]), unit[_WEIGHTED], lowest),
            "snips": estimate(float(ratio), of_ratio, lowest) if weight > 0 else Estimate(math.nan),
            "dr": estimate(float(means[_ROBUST]), unit[_ROBUST], lowest),
            "dm": Estimate(float(means[_MODEL])),
        },
        estimate(float(means[_ROBUST] - means[_REWARD]), unit[_ROBUST] - unit[_REWARD], -math.inf),
        estimate(float(weight), unit[_WEIGHT], 0.0),
        rows,
        clicks,
        unseen,
    )


def _lowest(logs: Sequence[Log]) -> float:
    """0 where nothing was ever earned below it, as with clicks."""
    return 0.0 if all(float(log.rewards.min()) >= 0.0 for log in logs) else -math.inf


def _unseen(shown: Table, table: Table) -> float:
    """Share of the policy's choices at positions as often as they were shown that the log never made."""
    share = shown.sum(axis=0) / shown.sum()
    return float(np.sum(share * np.where(shown > 0, 0.0, table).sum(axis=0)))
