"""Meta-analysis in two stages: each silo answers once with its own fit, and the server pools the estimates.

Random effects: weights 1/(v + τ²), τ² by restricted maximum likelihood (REML); intervals by the normal distribution.
Prediction intervals are those of Higgins, Thompson and Spiegelhalter (JRSS A 2009), by Student's t with k − 2 degrees
of freedom.

:class:`Estimates` of an analysis have their covariance, and Wald's tests and intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import chdtrc, stdtr, stdtrit

from fedrank.core.errors import DataError
from fedrank.silos.studies.protocol import Analysis, Answerer, Ask, Rows, run


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimates of parameters.

    Attributes:
        names: Names of the parameters.
        estimate: In the columns' own units; NaN of an aliased column.
        covariance: Their covariance, robust if that was asked for.
        log_likelihood: Of all rows, without a penalty.
        parameters: Number of parameters that were estimated, a deviation or θ among them.
        rows: Rows of each silo.
        rounds: Asks.
        aliased: Columns that others before them explain, or that never vary.
        separated: Parameters without a finite estimate.
        robust: Kind of the robust covariance; empty: that of the model.
        clusters: Clusters, or rows, behind a robust covariance.
        converged: Whether the search came to an end.
        degrees: Degrees of freedom of Student's t; infinite for a normal distribution.
    """

    names: tuple[str, ...]
    estimate: Float[np.ndarray, " m"]
    covariance: Float[np.ndarray, "m m"] = field(repr=False)
    log_likelihood: float
    parameters: int
    rows: dict[str, int]
    rounds: int
    aliased: tuple[str, ...] = ()
    separated: tuple[str, ...] = ()
    robust: str = ""
    clusters: int = 0
    converged: bool = True
    degrees: float = np.inf

    @property
    def error(self) -> Float[np.ndarray, " m"]:
        """Standard errors; NaN where there is no finite estimate."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    @property
    def statistic(self) -> Float[np.ndarray, " m"]:
        """Wald's: estimate over error."""
        return self.estimate / self.error

    @property
    def p(self) -> Float[np.ndarray, " m"]:
        """Two-sided p-values that a parameter is 0."""
        return 2 * stdtr(self.degrees, -np.abs(self.statistic))

    def interval(self, level: float = 0.95) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Ends of the confidence intervals."""
        half = stdtrit(self.degrees, 0.5 + level / 2) * self.error
        return self.estimate - half, self.estimate + half

    @property
    def aic(self) -> float:
        """Akaike's information criterion, 2 · parameters − 2 · log-likelihood; smaller is better."""
        return 2 * self.parameters - 2 * self.log_likelihood

    def notes(self) -> tuple[str, ...]:
        """Sentences that a reader of the estimates must know."""
        out = []
        if self.aliased:
            names = ", ".join(self.aliased)
            out.append(f"Without a coefficient, as other columns say the same or it never varies: {names}.")
        if self.separated:
            out.append(f"No finite estimate, as the outcome is separated: {', '.join(self.separated)}.")
        elif not self.converged:
            out.append("The search did not come to an end: do not use these numbers.")
        return tuple(out)


def chi2_tail(statistic: Float[np.ndarray, "..."] | float, degrees: Float[np.ndarray, "..."] | int) -> Any:
    """Probability that χ² of so many degrees of freedom exceeds a statistic, which rounding may put below 0."""
    return chdtrc(degrees, np.maximum(statistic, 0.0))


@dataclass(frozen=True)
class Pooled:
    """One parameter, pooled over silos.

    Attributes:
        name: Name of the parameter.
        estimate: Pooled estimate.
        error: Its standard error.
        tau2: τ², the variance between silos.
        i2: I², the share of the variance of estimates that is between silos, from 0 to 1.
        silos: The silos with an estimate.
        own: Their estimates and standard errors.
        without: Silos whose rows gave no estimate.
    """

    name: str
    estimate: float
    error: float
    tau2: float
    i2: float
    silos: tuple[str, ...]
    own: tuple[tuple[float, float], ...]
    without: tuple[str, ...] = ()

    @property
    def p(self) -> float:
        """Two-sided p-value that the parameter is 0."""
        return float(2 * stdtr(np.inf, -abs(self.estimate / self.error)))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Ends of the confidence interval of the mean over silos."""
        half = float(stdtrit(np.inf, 0.5 + level / 2)) * self.error
        return self.estimate - half, self.estimate + half

    def prediction(self, level: float = 0.95) -> tuple[float, float]:
        """Ends of the interval in which another silo's parameter lies; NaN of fewer than three silos."""
        if len(self.silos) < 3:
            return np.nan, np.nan
        half = float(stdtrit(len(self.silos) - 2, 0.5 + level / 2)) * float(np.hypot(self.error, self.tau2**0.5))
        return self.estimate - half, self.estimate + half


def pool(estimates: dict[str, tuple[float, float]], name: str = "") -> Pooled:
    """Pool estimates of one parameter.

    Args:
        estimates: Estimate and standard error by silo; NaN: there is none.
        name: Name of the parameter.

    Raises:
        DataError: No silo has an estimate.
    """
    from scipy.optimize import brentq  # takes half a second to load, and a silo does not need it

    there = {silo: pair for silo, pair in estimates.items() if np.isfinite(pair).all() and pair[1] > 0}
    if not there:
        raise DataError(f"no silo's own rows give an estimate of {name or 'the parameter'}.")
    y, error = np.array(list(there.values())).T
    v, k = error**2, len(y)

    def mean(tau2: float) -> tuple[float, Float[np.ndarray, " silos"]]:
        w = 1 / (v + tau2)
        return float(w @ y / w.sum()), w

    def slope(tau2: float) -> float:
        middle, w = mean(tau2)
        return float(w**2 @ (y - middle) ** 2 - w.sum() + w @ w / w.sum())

    tau2 = i2 = 0.0
    if k > 1:
        most = 10 * float(np.var(y, ddof=1)) + float(v.max())
        if slope(0.0) > 0:
            tau2 = float(brentq(slope, 0.0, most, xtol=1e-300, rtol=1e-14))  # type: ignore[arg-type]
        w = mean(0.0)[1]
        typical = (k - 1) * w.sum() / (w.sum() ** 2 - w @ w)  # of all w alike: their variance
        i2 = float(tau2 / (tau2 + typical))
    middle, w = mean(tau2)
    without = tuple(silo for silo in estimates if silo not in there)
    return Pooled(name, middle, float(np.sqrt(1 / w.sum())), tau2, i2, tuple(there), tuple(there.values()), without)


def answer(
    own: Callable[[], Analysis[Estimates]],
    answerer: Answerer,
    parameters: int,
    blocks: Iterable[Rows],
) -> Float[np.ndarray, " numbers"]:
    """A silo's answer: its own fit, made by the analysis of all silos over its rows alone.

    Args:
        own: Begins the analysis.
        answerer: Answers it.
        parameters: Number of parameters.
        blocks: The silo's rows; they are gone through more than once.

    Returns:
        Rows, estimates, the upper triangle of their covariance (all NaN where there is no fit), and 0.
    """
    blocks = blocks if isinstance(blocks, Sequence) else list(blocks)
    above = np.triu_indices(parameters)
    fit = np.full(parameters + len(above[0]), np.nan)
    try:
        made = run(own(), lambda ask: {"": answerer(ask, blocks)})
        if made.converged:
            fit = np.concatenate([made.estimate, made.covariance[above]])
    except DataError:
        pass  # too few rows, or an outcome that does not vary: the server names the silo
    return np.concatenate([[sum(len(rows.y) for rows in blocks)], fit, [0.0]])


@dataclass(frozen=True)
class MetaFit:
    """Parameters pooled over silos.

    Attributes:
        pooled: Each parameter that a silo has an estimate of.
        rows: Rows of each silo.
        rounds: Asks.
    """

    pooled: tuple[Pooled, ...]
    rows: dict[str, int]
    rounds: int = 1


def fit(names: Sequence[str]) -> Analysis[MetaFit]:
    """Ask each silo for its own fit, and pool each parameter.

    Args:
        names: Names of the parameters.

    Raises:
        DataError: No silo has an estimate of any parameter.
    """
    answers = yield Ask("own")
    m = len(names)
    diagonal = 1 + m + np.cumsum(np.append(0, np.arange(m, 1, -1)))  # of the upper triangle
    pairs = {silo: (one[1 : 1 + m], np.sqrt(one[diagonal])) for silo, one in answers.items()}
    by_name = {
        name: {silo: (float(estimate[k]), float(error[k])) for silo, (estimate, error) in pairs.items()}
        for k, name in enumerate(names)
    }
    known = [name for name, own in by_name.items() if any(np.isfinite(pair).all() for pair in own.values())]
    if not known:
        raise DataError("no silo's own rows give an estimate of any parameter.")
    rows = {silo: round(float(one[0])) for silo, one in answers.items()}
    return MetaFit(tuple(pool(by_name[name], name) for name in known), rows)
