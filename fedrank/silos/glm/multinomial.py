"""Multinomial logistic regression of silos' rows: a label of several levels, equal to the fit of all rows together.

log P(level j)/P(first level) = xβ_j. Log-likelihood and derivatives are sums over silos, as of the other families, with
one block of coefficients a level: one sum a round of Newton's method. Log-odds of other pairs of levels are
differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats
from scipy.special import logsumexp

from fedrank.core.errors import DataError
from fedrank.core.trees import Json
from fedrank.silos.glm.federated import INTERCEPT, independent
from fedrank.silos.glm.newton import Newton, Sums
from fedrank.silos.glm.sums import Adder, Moments, moments_of


@dataclass(frozen=True, eq=False)
class MultinomialFit:
    """A multinomial logistic model of all silos' rows.

    Attributes:
        levels: Levels of the label; the others are compared with the first.
        names: The intercept and the columns.
        estimate: Coefficients in the columns' units, one row a level after the first; NaN of an aliased column.
        error: Their standard errors; NaN where there is no finite estimate.
        log_likelihood: Of all rows that were used.
        silos: Names of the silos.
        rows: Rows of each silo that were used.
        left_out: Rows of each that were not, because a value is missing.
        counts: Rows of each level, all silos together.
        aliased: Columns that others before them explain, or that never vary.
        separated: Columns, with the level, that separate it from the first: no finite coefficient.
        rounds: Sums that were asked for.
        bytes_up: Bytes that all silos sent.
        secure: Whether sums were secure sums.
        converged: Whether Newton's method came to an end.
    """

    levels: tuple[str, ...]
    names: tuple[str, ...]
    estimate: Float[np.ndarray, "others p"]
    error: Float[np.ndarray, "others p"]
    log_likelihood: float
    silos: tuple[str, ...]
    rows: tuple[int, ...]
    left_out: tuple[int, ...]
    counts: tuple[int, ...]
    aliased: tuple[str, ...] = ()
    separated: tuple[str, ...] = ()
    rounds: int = 0
    bytes_up: int = 0
    secure: bool = False
    converged: bool = True

    @property
    def p(self) -> Float[np.ndarray, "others p"]:
        """Two-sided p-values of Wald's test that a coefficient is 0."""
        return 2 * stats.norm.sf(np.abs(self.estimate / self.error))

    def interval(self, level: float = 0.95) -> tuple[Float[np.ndarray, "others p"], Float[np.ndarray, "others p"]]:
        """Ends of the confidence intervals."""
        half = stats.norm.ppf(0.5 + level / 2) * self.error
        return self.estimate - half, self.estimate + half

    def notes(self) -> tuple[str, ...]:
        """Sentences that a reader of the coefficients must know."""
        out = [
            f"{gone} rows of {name} lack a value and were left out."
            for name, gone in zip(self.silos, self.left_out, strict=True)
            if gone
        ]
        if self.aliased:
            out.append(
                f"Without a coefficient, as other columns say the same or it never varies: {', '.join(self.aliased)}."
            )
        if self.separated:
            out.append(f"No finite estimate, as levels are separated by {', '.join(self.separated)}.")
        elif not self.converged:
            out.append("Newton's method did not come to an end: do not use these numbers.")
        return tuple(out)

    def as_json(self, level: float = 0.95) -> dict[str, Json]:
        """JSON of ``--json``, with intervals of a level."""
        low, high = self.interval(level)
        p = self.p
        found = [
            {
                "level": label,
                "name": name,
                "estimate": _plain(self.estimate[j, k]),
                "error": _plain(self.error[j, k]),
                "low": _plain(low[j, k]),
                "high": _plain(high[j, k]),
                "p": _plain(p[j, k]),
            }
            for j, label in enumerate(self.levels[1:])
            for k, name in enumerate(self.names)
        ]
        return {
            "family": "multinomial",
            "against": self.levels[0],
            "coefficients": found,
            "log_likelihood": self.log_likelihood,
            "rows": dict(zip(self.silos, self.rows, strict=True)),
            "left_out": dict(zip(self.silos, self.left_out, strict=True)),
            "levels": dict(zip(self.levels, self.counts, strict=True)),
            "rounds": self.rounds,
            "bytes_up": self.bytes_up,
            "secure": self.secure,
            "notes": list(self.notes()),
        }


def multinomial_sums(
    beta: Float[np.ndarray, " numbers"], x: Float[np.ndarray, "rows p"], y: Int[np.ndarray, " rows"], levels: int
) -> Sums:
    """Terms of one silo: the log-likelihood of its rows and its derivatives.

    Args:
        beta: Coefficients of the levels after the first, one after the other.
        x: The silo's rows, a column of ones for the intercept.
        y: Level of each row, from 0.
        levels: Number of levels.
    """
    p = x.shape[1]
    eta = np.column_stack([np.zeros(len(y)), x @ beta.reshape(levels - 1, p).T])
    total = np.asarray(logsumexp(eta, axis=1))
    share = np.exp(eta - total[:, None])[:, 1:]
    is_level = (y[:, None] == np.arange(1, levels)).astype(float)
    weight = share[:, :, None] * ((np.arange(levels - 1)[:, None] == np.arange(levels - 1)) - share[:, None, :])
    information = np.einsum("njk,na,nb->jakb", weight, x, x, optimize=True)
    size = (levels - 1) * p
    value = float((eta[np.arange(len(y)), y] - total).sum())
    return Sums(value, ((is_level - share).T @ x).ravel(), information.reshape(size, size))


def fit_multinomial(
    parts: Sequence[tuple[Float[np.ndarray, "_ columns"], Float[np.ndarray, " _"]]],
    levels: Sequence[str],
    names: Sequence[str] = (),
    silo_names: Sequence[str] = (),
    *,
    secure: bool = False,
    newton: Newton | None = None,
) -> MultinomialFit:
    """Fit a multinomial logistic model to the rows of all silos, which stay where they are.

    Args:
        parts: Features and the number of each row's level, from 0, of each silo; NaN: missing.
        levels: Names of the levels.
        names: Names of the columns.
        silo_names: Names of the silos.
        secure: Add by a secure sum; needs three silos.
        newton: How the optimum is found.

    Raises:
        DataError: There are no rows, or a level that no row has.
    """
    names = tuple(names) or tuple(f"x{k}" for k in range(parts[0][0].shape[1]))
    silos = tuple(silo_names) or tuple(f"silo {k}" for k in range(len(parts)))
    whole = [~(np.isnan(x).any(axis=1) | np.isnan(y)) for x, y in parts]
    used = [(x[ok], y[ok].astype(int)) for (x, y), ok in zip(parts, whole, strict=True)]
    if len(levels) < 2 or not sum(len(y) for _, y in used):
        raise DataError("there are no rows, or all have one level of the label; nothing to fit.")
    add = Adder(secure)
    counts = add([np.bincount(y, minlength=len(levels)).astype(float) for _, y in used]).round().astype(int)
    if not counts.all():
        missing = [name for name, count in zip(levels, counts, strict=True) if not count]
        raise DataError(f"no row that is left has the level {', '.join(missing)} of the label; leave the level out.")
    moments = moments_of([x for x, _ in used], add)
    design = [np.column_stack([np.ones(len(y)), moments.standardise(x)]) for x, y in used]
    kept = independent(add, design)
    p, many = int(kept.sum()), len(levels) - 1
    at = [(x[:, kept], y) for x, (_, y) in zip(design, used, strict=True)]

    def ask(beta: np.ndarray) -> Sums:
        return Sums.of(add([multinomial_sums(beta, x, y, len(levels)).flat() for x, y in at]), p * many)

    made = (Newton() if newton is None else newton)(ask, np.zeros(p * many))
    estimate, error = _own_units(made.beta, made.covariance, kept, moments, many)
    places = np.flatnonzero(kept)
    columns = (INTERCEPT, *names)
    separated = []
    for number in made.endless():
        level, column = divmod(number, p)
        error[level, places[column]] = np.nan
        separated.append(f"{columns[places[column]]} ({levels[level + 1]})")
    return MultinomialFit(
        levels=tuple(levels),
        names=columns,
        estimate=estimate,
        error=error,
        log_likelihood=made.at.value,
        silos=silos,
        rows=tuple(len(y) for _, y in used),
        left_out=tuple(int((~ok).sum()) for ok in whole),
        counts=tuple(counts.tolist()),
        aliased=tuple(name for name, there in zip(names, kept[1:], strict=True) if not there),
        separated=tuple(separated),
        rounds=add.rounds,
        bytes_up=add.bytes_up,
        secure=secure,
        converged=made.converged,
    )


def _own_units(
    beta: Float[np.ndarray, " numbers"],
    covariance: Float[np.ndarray, "numbers numbers"],
    kept: Bool[np.ndarray, " p"],
    moments: Moments,
    many: int,
) -> tuple[Float[np.ndarray, "others p"], Float[np.ndarray, "others p"]]:
    """Coefficients and errors in the columns' units; NaN where a column has none."""
    p = int(kept.sum())
    back = np.eye(p)
    back[1:, 1:] = np.diag(1 / moments.deviation[kept[1:]])
    back[0, 1:] = -moments.mean[kept[1:]] / moments.deviation[kept[1:]]
    estimate, error = (np.full((many, len(kept)), np.nan) for _ in range(2))
    for j in range(many):
        own = slice(j * p, (j + 1) * p)
        estimate[j, kept] = back @ beta[own]
        error[j, kept] = np.sqrt(np.maximum(np.diag(back @ covariance[own, own] @ back.T), 0))
    return estimate, error


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
