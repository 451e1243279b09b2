"""Estimates of an analysis with their covariance, and Wald's tests and intervals of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import chdtrc, stdtr, stdtrit


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
        left_out: Rows of each that lack a value.
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
    left_out: dict[str, int]
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
        out = [f"{gone} rows of {name} lack a value and were left out." for name, gone in self.left_out.items() if gone]
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
