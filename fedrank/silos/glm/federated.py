"""A generalised linear model of a table of silos: coefficients in the columns' own units, with errors and p-values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from fedrank.core.errors import ConfigError, DataError
from fedrank.core.trees import Json
from fedrank.silos.data.tables import SiloTable
from fedrank.silos.glm.newton import Fit, Newton, Sums, check_family, firth_gradient, ridge, sums
from fedrank.silos.glm.sums import Adder, Moments, moments_of

#: The first coefficient.
INTERCEPT = "(intercept)"
#: A column whose part that no column before it explains is smaller (share of its variance) says nothing new.
_ALIASED = 1e-9
#: Standard error, in log odds, above which the model has no finite value where separated columns are 0 and the others
#: at their means.
_ENDLESS = 1e4
#: Standard errors that the last step of Firth's method is shorter than, the shortest part of a step, and its rounds.
_CLOSE, _SHORTEST, _ROUNDS = 1e-7, 0.1, 200


@dataclass(frozen=True, eq=False)
class FederatedFit:
    """A generalised linear model of all silos' rows.

    Attributes:
        family: ``logistic`` or ``linear``.
        names: :data:`INTERCEPT` and the columns.
        estimate: Coefficients in the columns' units; NaN of an aliased column.
        error: Their standard errors.
        degrees: Degrees of freedom of Student's t; infinite for a normal distribution.
        log_likelihood: Of all rows that were used.
        silos: Names of the silos.
        rows: Rows of each silo that were used.
        left_out: Rows of each that were not, because a value is missing.
        aliased: Columns that others before them explain, or that never vary: they have no coefficient.
        separated: Columns that separate the labels: without a penalty their coefficients have no finite value; with
            Firth's they have one, of which Wald's interval and p-value say little.
        penalty: Strength of the L2 penalty on standardised columns; 0: none. With one, errors are those of a
            Bayesian with that prior and p-values do not hold.
        firth: Whether Firth's penalty was used.
        rounds: Sums that were asked for.
        bytes_up: Bytes that all silos sent.
        secure: Whether sums were secure sums.
        converged: Whether Newton's method came to an end.
    """

    family: str
    names: tuple[str, ...]
    estimate: Float[np.ndarray, " p"]
    error: Float[np.ndarray, " p"]
    degrees: float
    log_likelihood: float
    silos: tuple[str, ...]
    rows: tuple[int, ...]
    left_out: tuple[int, ...]
    aliased: tuple[str, ...] = ()
    separated: tuple[str, ...] = ()
    penalty: float = 0.0
    firth: bool = False
    rounds: int = 0
    bytes_up: int = 0
    secure: bool = False
    converged: bool = True

    @property
    def statistic(self) -> Float[np.ndarray, " p"]:
        """Wald's: estimate over error."""
        return self.estimate / self.error

    @property
    def p(self) -> Float[np.ndarray, " p"]:
        """Two-sided p-value that a coefficient is 0; NaN where Wald's test misleads."""
        from scipy import stats  # takes a second to load, and a silo that only sends sums does not need it

        return 2 * stats.t.sf(np.abs(self.statistic), self.degrees) + self._misleading

    def interval(self, level: float = 0.95) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]:
        """Ends of the confidence intervals; NaN where Wald's mislead."""
        from scipy import stats

        half = stats.t.ppf(0.5 + level / 2, self.degrees) * self.error + self._misleading
        return self.estimate - half, self.estimate + half

    @property
    def _misleading(self) -> Float[np.ndarray, " p"]:
        """NaN of the coefficients of separated columns, else 0."""
        return np.where(np.isin(self.names, self.separated), np.nan, 0.0)

    def notes(self) -> tuple[str, ...]:
        """Sentences that a reader of the coefficients must know."""
        out = []
        for name, gone in zip(self.silos, self.left_out, strict=True):
            if gone:
                out.append(f"{gone} rows of {name} lack a value and were left out.")
        if self.aliased:
            out.append(
                f"Without a coefficient, as other columns say the same or it never varies: {', '.join(self.aliased)}."
            )
        if self.separated and self.firth:
            out.append(
                f"The labels are separated by {', '.join(self.separated)}. Firth's estimate is finite; Wald's interval "
                "and p-value mislead there and are left out: a penalised likelihood ratio test is needed."
            )
        elif self.separated:
            out.append(
                f"The labels are separated by {', '.join(self.separated)}: there is no finite estimate, and no error "
                "or p-value. Firth's penalty (--firth) gives finite ones."
            )
        if self.penalty:
            out.append("With an L2 penalty estimates are pulled to 0; p-values do not hold and are not given.")
        if not self.converged and (self.firth or not self.separated):
            out.append("Newton's method did not come to an end: do not use these numbers.")
        return tuple(out)

    def as_json(self, level: float = 0.95) -> dict[str, Json]:
        """JSON of ``--json``, with intervals of a level."""
        low, high = self.interval(level)
        number = [
            {
                "name": name,
                "estimate": _plain(self.estimate[k]),
                "error": _plain(self.error[k]),
                "low": _plain(low[k]),
                "high": _plain(high[k]),
                "p": None if self.penalty else _plain(self.p[k]),
            }
            for k, name in enumerate(self.names)
        ]
        return {
            "family": self.family,
            "coefficients": number,
            "log_likelihood": self.log_likelihood,
            "rows": dict(zip(self.silos, self.rows, strict=True)),
            "left_out": dict(zip(self.silos, self.left_out, strict=True)),
            "rounds": self.rounds,
            "bytes_up": self.bytes_up,
            "secure": self.secure,
            "penalty": self.penalty,
            "firth": self.firth,
            "notes": list(self.notes()),
        }


def fit_silos(
    table: SiloTable | Sequence[tuple[Any, Any]],
    family: str = "logistic",
    *,
    labels: Sequence[Float[np.ndarray, " _"]] | None = None,
    names: Sequence[str] = (),
    penalty: float = 0.0,
    firth: bool = False,
    secure: bool = False,
    reference: bool = True,
    newton: Newton | None = None,
) -> FederatedFit:
    """Fit a generalised linear model to the rows of all silos, which stay where they are.

    Rows with a missing value are left out, as statistics programs do. Of a column's levels the first has no
    coefficient: the others are measured from it.

    Args:
        table: The silos; or (features [rows, columns], labels [rows]) of each, where labels may be any number.
        family: ``logistic`` or ``linear``.
        labels: Labels of each silo instead of the table's.
        names: Names of the columns, where the table is not a :class:`SiloTable`.
        penalty: Strength of an L2 penalty on standardised columns.
        firth: Firth's penalty, of a logistic model without another.
        secure: Add by a secure sum; needs three silos.
        reference: Leave out the first level of a column of levels.
        newton: How the optimum is found.

    Raises:
        ConfigError: Settings do not fit each other.
        DataError: There are no rows, labels that do not fit, or more columns than rows.
    """
    check_family(family)
    if penalty < 0 or (firth and (penalty or family != "logistic")):
        raise ConfigError("a penalty is at least 0, and Firth's is for a logistic model without another one.")
    if isinstance(table, SiloTable):
        names, silos = table.feature_names, table.names
        parts = [(silo.features.astype(float), silo.labels.astype(float)) for silo in table.silos]
        first = references(table) if reference else []
        if labels is not None:
            parts = [(x, np.asarray(y, float)) for (x, _), y in zip(parts, labels, strict=True)]
    else:
        parts = [(np.asarray(x, float), np.asarray(y, float)) for x, y in table]
        names = tuple(names) or tuple(f"x{k}" for k in range(parts[0][0].shape[1]))
        silos, first = tuple(f"silo {k}" for k in range(len(parts))), []
    wanted = [k for k in range(len(names)) if k not in first]
    whole = [~(np.isnan(x[:, wanted]).any(axis=1) | np.isnan(y)) for x, y in parts]
    parts = [(x[ok][:, wanted], y[ok]) for (x, y), ok in zip(parts, whole, strict=True)]
    names = [names[k] for k in wanted]
    _check_labels(parts, family)
    add = Adder(secure)
    moments = moments_of([x for x, _ in parts], add)
    design = [np.column_stack([np.ones(len(y)), moments.standardise(x)]) for x, y in parts]
    kept = independent(add, design)
    shown = [name for name, there in zip(names, kept[1:], strict=True) if not there]
    at = [(x[:, kept], y) for x, (_, y) in zip(design, parts, strict=True)]
    p = int(kept.sum())

    def ask(beta: np.ndarray) -> Sums:
        own = [sums(family, beta, x, y).flat() for x, y in at]
        return Sums.of(add(own), p)

    start = np.zeros(p)
    made = (Newton() if newton is None else newton)(ask, start, ridge(p, penalty))
    ends = _endless(made, kept, moments) if family == "logistic" and not penalty else []
    if firth:
        made = _firth(ask, add, [x for x, _ in at], start, _ROUNDS if newton is None else newton.most)
    n = sum(len(y) for _, y in parts)
    degrees, scale, value = np.inf, 1.0, made.at.value
    if family == "linear":
        degrees = float(n - p)
        if degrees <= 0:
            raise DataError(f"{n} rows are too few for {p} coefficients with errors.")
        scale = -2 * made.at.value / degrees
        value = -0.5 * n * (np.log(2 * np.pi * -2 * made.at.value / n) + 1) if made.at.value else np.inf
    beta, covariance = _own_units(made, kept, moments, scale)
    columns = (INTERCEPT, *names)
    places = np.flatnonzero(kept)
    error = np.sqrt(np.maximum(np.diag(covariance), 0))
    if not firth:
        error[places[ends]] = np.nan
    return FederatedFit(
        family=family,
        names=columns,
        estimate=beta,
        error=error,
        degrees=degrees,
        log_likelihood=value,
        silos=tuple(silos),
        rows=tuple(len(y) for _, y in parts),
        left_out=tuple(int((~ok).sum()) for ok in whole),
        aliased=tuple(shown),
        separated=tuple(columns[places[k]] for k in ends),
        penalty=penalty,
        firth=firth,
        rounds=add.rounds,
        bytes_up=add.bytes_up,
        secure=secure,
        converged=made.converged,
    )


def references(table: SiloTable) -> list[int]:
    """Columns of first levels, where every level of a column has its own feature."""
    out = []
    for column, levels in table.coding.levels.items():
        places = [table.feature_names.index(f"{column}={v}") for v in levels if f"{column}={v}" in table.feature_names]
        if len(places) == len(levels) and len(levels) > 1:
            out.append(places[0])
    return out


def _check_labels(parts: Sequence[tuple[np.ndarray, np.ndarray]], family: str) -> None:
    if not parts or not sum(len(y) for _, y in parts):
        raise DataError("no row has all values; nothing to fit. Drop columns that are mostly missing (silos.drop).")
    if family == "logistic" and not all(np.isin(y, (0, 1)).all() for _, y in parts):
        raise DataError("labels of a logistic model must be 0 or 1; another number needs family linear.")
    positive = sum(float(y.sum()) for _, y in parts)
    if family == "logistic" and positive in (0, sum(len(y) for _, y in parts)):
        raise DataError("all labels of all silos are alike; there is nothing to tell apart.")


def independent(add: Adder, design: Sequence[Float[np.ndarray, "_ p"]]) -> Bool[np.ndarray, " p"]:
    """The columns that those before them do not explain, by Cholesky's method on the sum of X'X."""
    p = design[0].shape[1]
    upper = np.triu_indices(p)
    gram = np.zeros((p, p))
    gram[upper] = add([(x.T @ x)[upper] for x in design])
    gram = gram + np.triu(gram, 1).T
    kept = np.zeros(p, bool)
    for column in range(p):
        before = np.flatnonzero(kept)
        own = gram[column, column]
        if len(before):
            part = np.linalg.solve(gram[np.ix_(before, before)], gram[before, column])
            own = own - float(gram[before, column] @ part)
        kept[column] = gram[column, column] > 0 and own > _ALIASED * gram[column, column]
    return kept


def _firth(ask: Any, add: Adder, design: Sequence[np.ndarray], start: np.ndarray, most: int) -> Fit:
    """The largest l(β) + ½ log |Σ H|, by scoring with steps of at most 2 that are halved where they lose.

    The information is not the curvature of the penalty, so that steps may go too far round after round: where the
    derivative has turned, the next ones are shortened by what the secant says.
    """

    def value(at: Sums) -> float:
        return at.value + 0.5 * float(np.linalg.slogdet(at.information)[1])

    beta, at, converged = start, ask(start), False
    part, before, slope = 1.0, np.zeros(len(start)), 0.0
    for _ in range(most):
        covariance = np.linalg.inv(at.information)
        gradient = at.gradient + add([firth_gradient(beta, covariance, x) for x in design])
        if (turned := float(gradient @ before)) < 0:
            part = max(part * slope / (slope - turned), _SHORTEST)
        step = part * covariance @ gradient
        step *= min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-300))
        # In standard errors of the coefficients.
        converged = float(step @ at.information @ step) < _CLOSE**2
        new = ask(beta + step)
        while value(new) < value(at) - 1e-12 * abs(value(at)) and not converged:
            step = step / 2
            new = ask(beta + step)
        before, slope = step, float(gradient @ step)
        beta, at = beta + step, new
        if converged:
            break
    return Fit(beta, at, np.zeros((len(beta), len(beta))), add.rounds, converged)


def _own_units(
    made: Fit, kept: Bool[np.ndarray, " p"], moments: Moments, scale: float
) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, "p p"]]:
    """Coefficients and their covariance in the columns' units; NaN where a column has none."""
    columns = kept[1:]
    back = np.eye(int(kept.sum()))
    back[1:, 1:] = np.diag(1 / moments.deviation[columns])
    back[0, 1:] = -moments.mean[columns] / moments.deviation[columns]
    beta = np.full(len(kept), np.nan)
    covariance = np.full((len(kept), len(kept)), np.nan)
    beta[kept] = back @ made.beta
    covariance[np.ix_(kept, kept)] = scale * back @ made.covariance @ back.T
    return beta, covariance


def _endless(made: Fit, kept: Bool[np.ndarray, " p"], moments: Moments) -> list[int]:
    """Coefficients without a finite value; of the intercept it is asked at the means of columns that have one.

    At 0 its error is as large as columns are far from it, such as years are; at the mean of a column without a finite
    value it has none itself.
    """
    ends = [k for k in made.endless() if k]
    at = np.zeros(int(kept.sum()))
    at[0] = 1.0
    at[ends] = (-moments.mean / moments.deviation)[kept[1:]][np.array(ends, int) - 1]
    variance = at @ made.covariance @ at
    return [0, *ends] if ends and not 0 < variance < _ENDLESS**2 else ends


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
