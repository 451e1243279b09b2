"""Kaplan-Meier curves with Greenwood's errors, and the log-rank test, from counts over silos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from fedrank.core.errors import DataError
from fedrank.core.trees import Json
from fedrank.silos.glm.sums import Adder
from fedrank.silos.survival.cox import Followed, event_times


class Curve(NamedTuple):
    """A Kaplan-Meier curve.

    Attributes:
        group: What the rows have in common.
        time: Times of events of any group, ascending.
        at_risk: Rows that were still followed just before.
        events: Events there.
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
        """Ends of the intervals by log(−log S), which stay between 0 and 1."""
        z = float(stats.norm.ppf(0.5 + level / 2))
        with np.errstate(divide="ignore", invalid="ignore"):
            middle = np.log(-np.log(self.survival))
            half = z * self.error / self.survival / np.abs(np.log(self.survival))
            ends = np.exp(-np.exp(middle + half)), np.exp(-np.exp(middle - half))
        return tuple(np.where(self.survival >= 1, 1.0, end) for end in ends)  # type: ignore[return-value]

    def as_json(self, level: float = 0.95) -> dict[str, Json]:
        """As JSON can hold it, with intervals of a level."""
        columns = zip(self._fields[1:], self[1:], strict=True)
        ends = zip(("low", "high"), self.interval(level), strict=True)
        made = {name: np.asarray(values).tolist() for name, values in (*columns, *ends)}
        return {"group": self.group, "median": self.median if np.isfinite(self.median) else None, **made}

    @property
    def median(self) -> float:
        """First time at which half or more have had the event; infinite where it is not reached."""
        below = np.flatnonzero(self.survival <= 0.5)
        return float(self.time[below[0]]) if len(below) else float("inf")


def curves(
    silos: Sequence[Followed], groups: Sequence[Sequence[str]] | None = None, *, secure: bool = False
) -> list[Curve]:
    """Kaplan-Meier curves of all silos' rows.

    Args:
        silos: Rows of each; columns do not matter.
        groups: Group of each row of each silo; None: all rows are of one.
        secure: Add by a secure sum.

    Raises:
        DataError: No row has an event.
    """
    labels = [["all"] * silo.rows for silo in silos] if groups is None else [list(map(str, of)) for of in groups]
    time, names, at_risk, events = _counts(silos, labels, Adder(secure))
    out = []
    for k, name in enumerate(names):
        n, d = at_risk[k], events[k]
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(n > 0, 1 - d / n, 1.0)
            greenwood = np.cumsum(np.where(d > 0, d / (n * (n - d)), 0.0))
        survival = np.cumprod(step)
        error = np.where(survival > 0, survival * np.sqrt(np.where(np.isfinite(greenwood), greenwood, 0.0)), 0.0)
        out.append(Curve(name, time, n, d, survival, error))
    return out


def logrank(
    silos: Sequence[Followed], groups: Sequence[Sequence[str]], *, secure: bool = False
) -> tuple[float, int, float]:
    """The log-rank test that groups have one hazard.

    Returns:
        χ², its degrees of freedom, and the p-value.

    Raises:
        DataError: There is one group only, or no row has an event.
    """
    _, names, at_risk, events = _counts(silos, [list(map(str, of)) for of in groups], Adder(secure))
    if len(names) < 2:
        raise DataError(f"a log-rank test compares groups; there is one only, {names[0]!r}.")
    n, d = at_risk.sum(axis=0), events.sum(axis=0)
    there = n > 1
    n, d, at_risk, events = n[there], d[there], at_risk[:, there], events[:, there]
    apart = (events - at_risk * d / n).sum(axis=1)
    weight = d * (n - d) / (n - 1)
    share = at_risk / n
    variance = np.diag((share * weight).sum(axis=1)) - (share * weight) @ share.T
    degrees = len(names) - 1
    statistic = float(apart[:-1] @ np.linalg.pinv(variance[:-1, :-1], hermitian=True) @ apart[:-1])
    return statistic, degrees, float(stats.chi2.sf(statistic, degrees))


def _counts(
    silos: Sequence[Followed], groups: Sequence[Sequence[str]], add: Adder
) -> tuple[
    Float[np.ndarray, " times"], list[str], Float[np.ndarray, "groups times"], Float[np.ndarray, "groups times"]
]:
    kept, labels = [], []
    for k, (silo, of) in enumerate(zip(silos, groups, strict=True)):
        bare = Followed(np.zeros((silo.rows, 0)), silo.time, silo.event)
        known = ~(np.isnan(silo.time) | np.isnan(silo.event))
        kept.append(bare.complete_rows(f"{k}"))
        labels.append(np.array(of, dtype=object)[known])
    time = event_times(kept)
    if not len(time):
        raise DataError("no row has an event; there is no curve.")
    names = sorted({name for of in labels for name in of})
    flat = []
    for silo, of in zip(kept, labels, strict=True):
        counts = np.zeros((2, len(names), len(time)))
        for g, name in enumerate(names):
            own = of == name
            ordered = np.sort(silo.time[own])
            counts[0, g] = len(ordered) - np.searchsorted(ordered, time, side="left")
            place = np.searchsorted(time, silo.time[own & (silo.event > 0)])
            np.add.at(counts[1, g], place, 1.0)
        flat.append(counts.reshape(-1))
    at_risk, events = add(flat).reshape(2, len(names), len(time))
    return time, names, at_risk, events
