"""The publication's metrics, and why they are no measure of learning: a policy that never changes has them, too.

"Optimal reward" is the largest mean of 100 users in a row while learning, looked at after every 20; ETROR is the number
of users until then (Deng et al., arXiv 2409.14872, 2024, Tables I to IV).
"""

from __future__ import annotations

import statistics as exact
from typing import NamedTuple

import numpy as np

from fedrank.metrics.returns import max_of_moving_mean
from fedrank.report.run import Run
from fedrank.report.statistics import Interval, t_quantile
from fedrank.report.tables import Column, Table
from fedrank.slates.report.figures import slates_of
from fedrank.slates.report.files import SlateRun
from fedrank.slates.report.tables import DIGITS, reached

#: The policy that never changes.
FIXED = "choc"
_STILL = f"{FIXED} from beginning to end"
#: Users that the publication's platforms served.
PUBLISHED_USERS = 5000
#: Curves of it that are drawn, and with which seed.
_CURVES, _SEED = 200, 20240913
#: Ends of what most of them have.
_ENDS = (10, 50, 90)


class Fixed(NamedTuple):
    """What the metrics come to for a policy that never changes: medians with the ends of the middle 80 %.

    Attributes:
        mean: Engagement of a user in truth, without the first round.
        reward: "Optimal reward".
        etror: ETROR.
    """

    mean: float
    reward: Interval
    etror: Interval


def fixed(slates: SlateRun, platform: str, users: int) -> Fixed | None:
    """The metrics of :data:`FIXED` over so many users, by simulation from its mean and spread.

    A user's engagement is a sum over many rounds and nearly normal.

    Args:
        slates: A run.
        platform: One of its platforms.
        users: Users that are served, one after the other.

    Returns:
        None if the run has no such policy, or there are fewer users than a moving mean has.
    """
    mark, window = slates.mark(FIXED), slates.window
    found = None if mark is None else mark.values.get(slates.measures[1 + slates.names.index(platform)])
    if mark is None or found is None or found.high is None or mark.users < 2 or users < 2 * max(window):
        return None
    counted = (slates.stay - 1) / slates.stay  # the publication leaves the first round of a user out
    spread = (found.high - found.mean) / t_quantile(mark.users - 1) * mark.users**0.5
    mean, deviation = counted * found.mean, counted**0.5 * spread
    draws = np.random.default_rng(_SEED).normal(mean, deviation, (_CURVES, users))
    rewards, etrors = max_of_moving_mean(draws, *window)
    low, middle, high = np.percentile(rewards, _ENDS)
    first, half, last = np.percentile(etrors, _ENDS)
    return Fixed(
        mean, Interval(float(middle), float(low), float(high)), Interval(float(half), float(first), float(last))
    )


def legacy_table(run: Run) -> Table | None:
    """The metrics of the run beside those of a policy that never changes; None where they are not defined."""
    slates, rows = slates_of(run), []
    counted = (slates.stay - 1) / slates.stay
    for name, measure in zip(slates.names, slates.measures[1:], strict=True):
        ours, still, now = slates.legacy.get(name), fixed(slates, name, slates.users), reached(run, measure)
        if ours is None:
            continue
        rows.append(
            {
                "platform": name,
                "policy": "this run, while it learnt",
                "mean": None if now is None else f"{counted * now.mean:.{DIGITS}f}",
                "reward": _ends(ours.reward, DIGITS),
                "etror": etror_words(ours.etror),
            }
        )
        if still is not None:
            rows.append(
                {
                    "platform": name,
                    "policy": _STILL,
                    "mean": f"{still.mean:.{DIGITS}f}",
                    "reward": _ends(still.reward, DIGITS),
                    "etror": _ends(still.etror, 0),
                }
            )
    if not rows:
        return None
    columns = (
        Column("platform", "platform"),
        Column("policy", "policy"),
        Column("mean", "mean of a user in truth", numeric=True),
        Column("reward", "“optimal reward”", numeric=True),
        Column("etror", "ETROR, users", numeric=True),
    )
    notes = [
        "Without the first round of a user, as the publication counts. In truth: of this run its last networks, for "
        "fresh users. In brackets: “optimal reward”: 95 % interval over seeds; ETROR: smallest to largest.",
    ]
    if any(row["policy"] == _STILL for row in rows):
        notes.append(
            f"{FIXED}: median, and in brackets what 80 % of {_CURVES} runs of {slates.users:,} users have, drawn from "
            "its mean and spread."
        )
    return Table("The publication’s metrics (legacy)", columns, tuple(rows), tuple(notes))


def legacy_words(run: Run) -> list[str]:
    """What the metrics are, and what they do not tell."""
    slates = slates_of(run)
    window, every = slates.window
    out = [
        f"“Optimal reward” is the largest mean of {window} users in a row while learning, looked at after every {every}"
        "; ETROR is the number of users until then. FedSlate’s tables print them.",
    ]
    if not slates.legacy:
        out.append(f"They need {window} users in a run that has ended; this run has {slates.users:,}.")
    first = slates.names[0]
    still = fixed(slates, first, PUBLISHED_USERS)
    if still is not None:
        (low, high), (soon, late) = (
            (f"{end or 0:,.0f}" for end in (x.low, x.high)) for x in (still.reward, still.etror)
        )
        out.append(
            f"A policy that never changes scores the same: {FIXED} from beginning to end, {still.mean:,.0f} a user on "
            f"{first} in truth, has over the publication’s {PUBLISHED_USERS:,} users an “optimal reward” of "
            f"{still.reward.mean:,.0f} (80 % of runs: {low} to {high}) after {soon} to {late} users, and has learnt "
            "nothing."
        )
    out.append(
        "The largest of many means lies above the truth, the more so the longer the run, and where it falls is chance: "
        "neither says how good a policy is, or how soon. What does stands above."
    )
    return out


def etror_words(values: tuple[int, ...]) -> str:
    """ETROR over seeds: median, and smallest to largest."""
    return f"{exact.median(values):,.0f}" + (f" ({min(values):,} to {max(values):,})" if len(values) > 1 else "")


def _ends(value: Interval, digits: int) -> str:
    ends = "" if value.low is None or value.high is None else f" ({value.low:.{digits}f} to {value.high:.{digits}f})"
    return f"{value.mean:.{digits}f}{ends}"
