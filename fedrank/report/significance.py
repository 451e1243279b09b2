"""Two rankers compared query by query.

The unit is the query, and the rankers are given: a small p says that the difference is no accident of *these queries*.
It says nothing about other seeds, for which see :mod:`fedrank.report.statistics`, and, on queries that a ranker was
trained on, nothing about queries it has not seen.

``a`` and ``b`` are float64 [queries], the same measure of the same queries in the same order; differences are a − b,
and one within rounding of its two values is none. All p are two-sided. One query allows no test and no interval: they
are None.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedrank.core.errors import ConfigError, DataError
from fedrank.core.trees import Json
from fedrank.report.statistics import Estimate, t_quantile
from fedrank.report.tables import Column

#: Random sign patterns of a randomisation test; at p = 0.05 its chance is then ± 0.0014.
RESAMPLES = 100_000

# Numbers in memory at a time (8 MiB as float64).
_CHUNK = 2**20


@dataclass(frozen=True)
class Compared:
    """One ranker, a, compared with another, b.

    Attributes:
        difference: Mean of a − b.
        low: Lower end of its 95 % Student t interval; None for one query.
        high: Upper end.
        dz: Cohen's d_z (1988): the mean difference in standard deviations of the differences. 0 if a and b are equal,
            ±infinite if they differ by a constant, None for one query.
        wins: Queries on which a is better.
        ties: Queries on which they are equal.
        losses: Queries on which b is better.
        p_t: Of the paired t test; None for one query.
        p_randomisation: Of the paired randomisation test; None for one query.
    """

    difference: float
    low: float | None
    high: float | None
    dz: float | None
    wins: int
    ties: int
    losses: int
    p_t: float | None
    p_randomisation: float | None

    @property
    def queries(self) -> int:
        """Number of queries that both rankers were measured on: the pairs of the comparison."""
        return self.wins + self.ties + self.losses


def paired_t(a: np.ndarray, b: np.ndarray) -> float | None:
    """The paired t test's p: 1 if a and b are equal, 0 if they differ by a constant, None for one query.

    >>> round(paired_t(np.array([0.3, 0.5, 0.9]), np.array([0.2, 0.3, 0.6])), 4)
    0.0742

    Raises:
        DataError: a and b are not numbers of the same queries.
    """
    from scipy.stats import t

    differences, deviation = _differences(a, b)
    if len(differences) == 1:
        return None
    mean = abs(differences.mean())
    if deviation == 0:
        return float(mean == 0)
    return float(2 * t.sf(mean / deviation * math.sqrt(len(differences)), len(differences) - 1))


def paired_randomisation(a: np.ndarray, b: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> float | None:
    """The paired randomisation test's p (Fisher 1935; Smucker et al. 2007), None for one query.

    If the rankers are alike, each difference could as well have had the other sign. p is the share of sign patterns
    whose mean is at least as far from 0 as the one that was seen. All patterns are tried where there are at most
    ``resamples`` (queries without a difference have no sign); otherwise as many random ones and the one that was seen,
    (1 + hits) / (1 + resamples), which is never 0 (Phipson & Smyth 2010).

    Args:
        a: See module.
        b: See module.
        resamples: Random patterns, at least 1.
        seed: Of NumPy's PCG64; the same seed tries the same patterns.

    >>> paired_randomisation(np.array([0.3, 0.5, 0.9]), np.array([0.2, 0.3, 0.6]))
    0.25

    Raises:
        DataError: a and b are not numbers of the same queries.
        ConfigError: ``resamples`` is below 1.
    """
    if resamples < 1:
        raise ConfigError(f"resamples of a randomisation test must be at least 1, got {resamples}.")
    differences, _ = _differences(a, b)
    if len(differences) == 1:
        return None
    signed = differences[differences != 0]
    exact = 2 ** len(signed) <= resamples
    total = signed.sum()
    # Patterns with the same sum in exact arithmetic count, whatever the order of adding rounds them to.
    seen = abs(total) - 1e-12 * np.abs(signed).sum()
    patterns = _all_patterns(len(signed)) if exact else _random_patterns(len(signed), resamples, seed)
    sums = (total - 2 * _flipped_sums(signed, piece) for piece in patterns)
    hits = sum(int(np.count_nonzero(np.abs(piece) >= seen)) for piece in sums)
    return hits / 2 ** len(signed) if exact else (1 + hits) / (1 + resamples)


def compare_queries(a: np.ndarray, b: np.ndarray, resamples: int = RESAMPLES) -> Compared:
    """The mean difference with its interval, effect size and tests, and on how many queries which is better.

    Args:
        a: See module.
        b: See module.
        resamples: See :func:`paired_randomisation`.

    Raises:
        DataError: a and b are not numbers of the same queries.
    """
    differences, deviation = _differences(a, b)
    n, mean = len(differences), float(differences.mean())
    wins, losses = int(np.count_nonzero(differences > 0)), int(np.count_nonzero(differences < 0))
    rest = wins, n - wins - losses, losses, paired_t(a, b), paired_randomisation(a, b, resamples)
    if n == 1:
        return Compared(mean, None, None, None, *rest)
    half = t_quantile(n - 1) * deviation / math.sqrt(n)
    dz = mean / deviation if deviation > 0 else math.copysign(math.inf, mean) if mean else 0.0
    return Compared(mean, mean - half, mean + half, dz, *rest)


def adjust(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """p-values corrected for their number, so that the chance of any false discovery is bounded (Holm 1979).

    Args:
        p_values: float64 [n], each in [0, 1].

    Returns:
        float64 [n], in the order given; compare with the level as it is.

    Raises:
        ConfigError: A value is no probability.

    >>> adjust([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, np.float64)
    if p.ndim != 1 or not np.all((p >= 0) & (p <= 1)):
        raise ConfigError(f"p-values must be a list of numbers in [0, 1], got {p_values!r}.")
    order = np.argsort(p)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)), 1.0)
    return adjusted


#: Columns of :func:`compared_cells`, besides the difference.
COMPARED = (
    Column("wins", "better/equal/worse", numeric=True),
    Column("p_t", "p, t-test", numeric=True),
    Column("p_r", "p, randomisation", numeric=True),
)


def compared_cells(found: Sequence[Compared]) -> list[dict[str, Json]]:
    """Cells of a table, a row a comparison: ``difference`` and :data:`COMPARED`, p corrected for their number."""
    by_t, by_r = (_adjust_known([getattr(one, key) for one in found]) for key in ("p_t", "p_randomisation"))
    return [
        {
            "difference": Estimate(
                one.difference, None if one.high is None else one.high - one.difference, one.queries
            ),
            "wins": f"{one.wins}/{one.ties}/{one.losses}",
            "p_t": _p_text(t),
            "p_r": _p_text(r),
        }
        for one, t, r in zip(found, by_t, by_r, strict=True)
    ]


def _adjust_known(values: Sequence[float | None]) -> list[float | None]:
    """The p-values that are known, corrected; None of the others."""
    tested = [i for i, value in enumerate(values) if value is not None]
    adjusted = dict(zip(tested, adjust([values[i] for i in tested]).tolist(), strict=True))  # type: ignore[misc]
    return [adjusted.get(i) for i in range(len(values))]


def _differences(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, float]:
    """Their difference, float64 [queries], and its standard deviation; rounding makes neither of them."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.ndim != 1 or a.shape != b.shape or a.size == 0:
        raise DataError(
            f"two rankers are compared on the same queries, one or more: got values of shapes {a.shape} and {b.shape}."
        )
    for values in (a, b):
        if not np.isfinite(values).all():
            query = int(np.argmin(np.isfinite(values)))
            raise DataError(f"values to compare must be finite, got {values[query]} for query number {query}.")
    rounding = 4 * np.finfo(np.float64).eps * np.maximum(np.abs(a), np.abs(b))
    differences = np.where(np.abs(a - b) <= rounding, 0.0, a - b)
    constant = np.ptp(differences) <= rounding.max()
    return differences, 0.0 if constant else float(differences.std(ddof=1))


def _all_patterns(n: int) -> Iterator[np.ndarray]:
    """Every choice of n signs to flip, in pieces: uint8 [patterns, ⌈n/8⌉], a bit for each sign, the lowest first."""
    for start in range(0, 2**n, _CHUNK):
        numbers = np.arange(start, min(start + _CHUNK, 2**n), dtype="<u8")
        yield numbers.view(np.uint8).reshape(-1, 8)[:, : (n + 7) // 8]


def _random_patterns(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """``resamples`` random choices of n signs to flip, in pieces, as :func:`_all_patterns` gives them."""
    rng = np.random.Generator(np.random.PCG64(seed))
    wide = (n + 7) // 8
    step = max(1, _CHUNK // wide)
    for start in range(0, resamples, step):
        yield rng.integers(0, 256, (min(step, resamples - start), wide), dtype=np.uint8)


def _flipped_sums(values: np.ndarray, patterns: np.ndarray) -> np.ndarray:
    """The sum of the values whose signs each pattern flips: float64 [patterns]; a table look-up for eight at a time."""
    eights = np.zeros((patterns.shape[1], 8))
    eights.flat[: len(values)] = values
    table = eights @ np.unpackbits(np.arange(256, dtype=np.uint8)[None], axis=0, bitorder="little")
    return table.ravel()[patterns + 256 * np.arange(len(eights))].sum(axis=1)


def _p_text(value: float | None) -> str:
    """A p-value in [0, 1] as text with three decimals, ``< 0.001`` below that; a dash where there is none."""
    if value is None:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
