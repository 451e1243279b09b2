"""Cox's model of proportional hazards, from sums over silos, with Efron's treatment of ties.

At an event time t with d events, S the sums over rows at risk and D those over the rows with the event there, the
partial likelihood has Σ xβ over the events less Σ_l log(S⁰ − (l/d) D⁰), l = 0 … d − 1 (Efron, JASA 1977).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from fedrank.core.errors import ConfigError, DataError
from fedrank.core.trees import Json
from fedrank.silos.glm.newton import Newton, Sums
from fedrank.silos.glm.sums import Adder, moments_of


class Followed(NamedTuple):
    """The rows of one silo.

    Attributes:
        x: Columns.
        time: Time of the event, or until which a row was followed without one; at least 0.
        event: 1 where there was an event, 0 where following ended (censored).
    """

    x: Float[np.ndarray, "rows columns"]
    time: Float[np.ndarray, " rows"]
    event: Float[np.ndarray, " rows"]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.time)

    def complete_rows(self, name: str) -> Followed:
        """The same without rows that lack a value.

        Raises:
            DataError: A time is below 0, or an event is neither 0 nor 1.
        """
        whole = ~(np.isnan(self.x).any(axis=1) | np.isnan(self.time) | np.isnan(self.event))
        kept = Followed(self.x[whole], self.time[whole], self.event[whole])
        if len(odd := np.flatnonzero(~np.isfinite(self.time) & ~np.isnan(self.time) | (self.time < 0))):
            row = int(odd[0])
            raise DataError(
                f"times of silo {name!r} must be finite and at least 0, got {self.time[row]:g} in its row {row + 1}."
            )
        if not np.isin(kept.event, (0, 1)).all():
            raise DataError(f"events of silo {name!r} must be 0 (censored) or 1, got {np.unique(kept.event)[:5]}.")
        return kept


def event_times(silos: Sequence[Followed]) -> Float[np.ndarray, " times"]:
    """The times at which anybody had an event, ascending."""
    return np.unique(np.concatenate([silo.time[silo.event > 0] for silo in silos]))


@dataclass(frozen=True, eq=False)
class CoxFit:
    """Cox's model of all silos' rows.

    Attributes:
        names: The columns.
        estimate: Logarithms of hazard ratios, by unit of the column.
        error: Their standard errors.
        log_likelihood: Partial log-likelihood.
        proportional: p-values of score tests that a hazard ratio does not change with the rank of time, from
            Schoenfeld's residuals, as R's ``cox.zph``; NaN with strata.
        silos: Names of the silos.
        rows: Rows of each that were used.
        events: Events of each.
        left_out: Rows of each that lack a value.
        strata: Whether each silo has its own baseline hazard.
        rounds: Sums that were asked for.
        bytes_up: Bytes that all silos sent.
        secure: Whether sums were secure sums.
        converged: Whether Newton's method came to an end.
        separated: Columns whose hazard ratio has no finite value.
    """

    names: tuple[str, ...]
    estimate: Float[np.ndarray, " p"]
    error: Float[np.ndarray, " p"]
    log_likelihood: float
    proportional: Float[np.ndarray, " p"] = field(repr=False)
    silos: tuple[str, ...]
    rows: tuple[int, ...]
    events: tuple[int, ...]
    left_out: tuple[int, ...]
    strata: bool
    rounds: int
    bytes_up: int
    secure: bool
    converged: bool
    separated: tuple[str, ...]

    @property
    def p(self) -> Float[np.ndarray, " p"]:
        """Two-sided p-values (Wald) that a hazard ratio is 1."""
        return 2 * stats.norm.sf(np.abs(self.estimate / self.error))

    def interval(self, level: float = 0.95) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, " p"]]:
        """Ends of the intervals of the logarithms of hazard ratios."""
        half = stats.norm.ppf(0.5 + level / 2) * self.error
        return self.estimate - half, self.estimate + half

    def as_json(self, level: float = 0.95) -> dict[str, Json]:
        """JSON of ``--json``."""
        low, high = self.interval(level)
        columns = (self.estimate, self.error, low, high, self.p, self.proportional)
        keys = ("log_hazard_ratio", "error", "low", "high", "p", "proportional_p")
        return {
            "coefficients": [
                {
                    "name": name,
                    "hazard_ratio": float(np.exp(self.estimate[k])),
                    **{
                        key: float(column[k]) if np.isfinite(column[k]) else None
                        for key, column in zip(keys, columns, strict=True)
                    },
                }
                for k, name in enumerate(self.names)
            ],
            "log_likelihood": self.log_likelihood,
            "rows": dict(zip(self.silos, self.rows, strict=True)),
            "events": dict(zip(self.silos, self.events, strict=True)),
            "left_out": dict(zip(self.silos, self.left_out, strict=True)),
            "strata": self.strata,
            "rounds": self.rounds,
            "bytes_up": self.bytes_up,
            "secure": self.secure,
            "converged": self.converged,
            "separated": list(self.separated),
        }


def fit_cox(
    silos: Sequence[Followed],
    names: Sequence[str] = (),
    *,
    silo_names: Sequence[str] = (),
    strata: bool = False,
    secure: bool = False,
) -> CoxFit:
    """Fit Cox's model to the rows of all silos, which stay where they are.

    Args:
        silos: Rows of each.
        names: Names of the columns.
        silo_names: Names of the silos.
        strata: Give each silo its own baseline hazard.
        secure: Add by a secure sum; needs three silos.

    Raises:
        DataError: There is no event, a column never varies, or columns say the same.
        ConfigError: Too few silos for a secure sum.
    """
    if not silos:
        raise ConfigError("Cox's model needs a silo.")
    names = tuple(names) or tuple(f"x{k}" for k in range(silos[0].x.shape[1]))
    called = tuple(silo_names) or tuple(f"silo {k}" for k in range(len(silos)))
    kept = [silo.complete_rows(name) for silo, name in zip(silos, called, strict=True)]
    if not sum(float(silo.event.sum()) for silo in kept):
        raise DataError("no row has an event; there is nothing to fit.")
    add = Adder(secure)
    moments = moments_of([silo.x for silo in kept], add)
    if not (moments.deviation > 0).all():
        constant = [name for name, d in zip(names, moments.deviation, strict=True) if d <= 0]
        raise DataError(f"{', '.join(constant)} never varies; leave it out.")
    at = [Followed(moments.standardise(silo.x), silo.time, silo.event) for silo in kept]
    times, p = event_times(at), len(names)

    def ask(beta: np.ndarray) -> Sums:
        if strata:
            own = [_likelihood(_risk(silo, beta, event_times([silo]))).flat() for silo in at]
            return Sums.of(add(own), p)
        flat = add([_flat(_risk(silo, beta, times)) for silo in at])
        return _likelihood(_unflat(flat, len(times), p))

    made = Newton()(ask, np.zeros(p))
    ends = made.endless()
    if not ends and np.linalg.matrix_rank(made.at.information, tol=1e-9 * np.trace(made.at.information)) < p:
        raise DataError("a column is explained by the others; leave one of them out.")
    error = np.sqrt(np.maximum(np.diag(made.covariance), 0)) / moments.deviation
    error[ends] = np.nan
    proportional = np.full(p, np.nan)
    if not strata and not ends:
        risk = _unflat(add([_flat(_risk(silo, made.beta, times)) for silo in at]), len(times), p)
        proportional = _proportional(risk, _ranks(add([_count_followed(silo, times) for silo in at])))
    return CoxFit(
        names=names,
        estimate=made.beta / moments.deviation,
        error=error,
        log_likelihood=made.at.value,
        proportional=proportional,
        silos=called,
        rows=tuple(silo.rows for silo in kept),
        events=tuple(int(silo.event.sum()) for silo in kept),
        left_out=tuple(before.rows - after.rows for before, after in zip(silos, kept, strict=True)),
        strata=strata,
        rounds=add.rounds,
        bytes_up=add.bytes_up,
        secure=secure,
        converged=made.converged,
        separated=tuple(names[k] for k in ends),
    )


#: Sums at each event time: of the rows at risk, of the rows with the event (both Σw, Σwx, Σwxx'), Σx and number of
#: these, and Σxβ.
_Risk = tuple[
    np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray
]


def _risk(silo: Followed, beta: Float[np.ndarray, " p"], times: Float[np.ndarray, " times"]) -> _Risk:
    """One silo's sums at the times."""
    eta = silo.x @ beta
    w = np.exp(eta)
    wx = w[:, None] * silo.x
    wxx = wx[:, :, None] * silo.x[:, None, :]
    # At risk at t: followed until t or longer. Sums from the end, looked up at each time.
    order = np.argsort(silo.time)
    first = np.searchsorted(silo.time[order], times, side="left")

    def from_end(values: np.ndarray) -> np.ndarray:
        summed = np.cumsum(values[order][::-1], axis=0)[::-1]
        return np.concatenate([summed, np.zeros((1, *values.shape[1:]))])[first]

    there = silo.event > 0
    place = np.searchsorted(times, silo.time[there])

    def at(values: np.ndarray) -> np.ndarray:
        out = np.zeros((len(times), *values.shape[1:]))
        np.add.at(out, place, values[there])
        return out

    at_risk = from_end(w), from_end(wx), from_end(wxx)
    return *at_risk, at(w), at(wx), at(wxx), at(silo.x), at(np.ones(silo.rows)), at(eta)


def _flat(risk: _Risk) -> Float[np.ndarray, " numbers"]:
    return np.concatenate([part.reshape(-1) for part in risk])


def _unflat(flat: Float[np.ndarray, " numbers"], times: int, p: int) -> _Risk:
    shapes = [(), (p,), (p, p), (), (p,), (p, p), (p,), (), ()]
    sizes = [times * int(np.prod(shape)) for shape in shapes]
    parts = np.split(flat, np.cumsum(sizes)[:-1])
    return tuple(part.reshape(times, *shape) for part, shape in zip(parts, shapes, strict=True))  # type: ignore[return-value]


def _likelihood(risk: _Risk) -> Sums:
    """Partial log-likelihood of sums, and its derivatives."""
    s0, s1, s2, d0, d1, d2, x, number, eta = risk
    p = s1.shape[1]
    value, gradient, information = float(eta.sum()), x.sum(axis=0).astype(float), np.zeros((p, p))
    for k in range(len(number)):
        count = round(float(number[k]))
        for tie in range(count):
            share = tie / count
            bottom = s0[k] - share * d0[k]
            mean = (s1[k] - share * d1[k]) / bottom
            value -= float(np.log(bottom))
            gradient = gradient - mean
            information += (s2[k] - share * d2[k]) / bottom - np.outer(mean, mean)
    return Sums(value, gradient, information)


def _count_followed(silo: Followed, times: Float[np.ndarray, " times"]) -> Float[np.ndarray, " numbers"]:
    """Numbers of a silo's rows that were followed for less than each time, and for exactly that time."""
    sides = [np.searchsorted(np.sort(silo.time), times, side=side) for side in ("left", "right")]  # type: ignore[arg-type]
    return np.concatenate([sides[0], sides[1] - sides[0]]).astype(float)


def _ranks(counts: Float[np.ndarray, " numbers"]) -> Float[np.ndarray, " times"]:
    """Ranks of the times of events among the times of all rows, the middle rank where several are equal."""
    less, equal = np.round(counts).reshape(2, -1)
    return less + (equal + 1) / 2


def _proportional(risk: _Risk, rank: Float[np.ndarray, " times"]) -> Float[np.ndarray, " p"]:
    """p-values of score tests that a coefficient does not change with the rank of time, as R's cox.zph since 3.0.

    Each column times the centred rank of an event's time is taken as one more column with coefficient 0: its score is
    the sum of Schoenfeld's residuals times the rank, and its information has that of the model beside it (Grambsch and
    Therneau, Biometrika 1994; Therneau, *survival*, function ``cox.zph`` with ``transform = "rank"``).
    """
    s0, s1, s2, d0, d1, d2, x, number, _ = risk
    counts = np.round(number).astype(int)
    rank = rank - (counts @ rank) / counts.sum()
    p = x.shape[1]
    score, blocks = np.zeros(p), np.zeros((3, p, p))
    for k, count in enumerate(counts):
        ties = np.arange(count)[:, None] / count
        bottom = s0[k] - ties * d0[k]
        means = (s1[k] - ties * d1[k]) / bottom
        spread = ((s2[k] - ties[:, :, None] * d2[k]) / bottom[:, :, None]).sum(axis=0) - means.T @ means
        score += rank[k] * (x[k] - means.sum(axis=0))
        blocks += np.power(rank[k], [0, 1, 2])[:, None, None] * spread
    own, between, of_ranks = blocks
    left = of_ranks - between @ np.linalg.solve(own, between)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = score**2 / np.diag(left)
    return stats.chi2.sf(statistic, 1)
