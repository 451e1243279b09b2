"""The publication's metrics, and why they are no measure of learning: a policy that never changes has them, too.

"Optimal reward" is the largest mean of 100 users in a row while learning, looked at after every 20; ETROR is the number
of users until then (Deng et al., arXiv 2409.14872, 2024, Tables I to IV).

Studies of platforms: every run beside all policies, and the publication's own metrics beside what it printed.

What a paper prints goes into ``expected.json`` as for any study. An entry whose measure is ``"optimal reward (A)"`` or
``"ETROR (A)"``, of split ``"legacy"``, stands beside ours of the same name; one of ``"engagement (A)"`` of split
``"test"`` stands beside a quantity that is not the same, and the notes say so.
"""

from __future__ import annotations

import statistics as exact
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedrank.core.trees import Json
from fedrank.engine.study import Paper, Study, expected_value
from fedrank.engine.variations import Variation
from fedrank.metrics.returns import max_of_moving_mean
from fedrank.report.run import Run
from fedrank.report.statistics import Estimate, Interval, t_quantile
from fedrank.report.tables import Column, Table
from fedrank.slates.report.files import COPYING, POLICIES, SlateRun
from fedrank.slates.report.tables import DIGITS, against, final_engagement, slates_of, way

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
    """Metrics of a policy that never changes: medians with the ends of the middle 80 %.

    Attributes:
        mean: Engagement of a user in truth, without the first round.
        reward: "Optimal reward".
        etror: ETROR.
    """

    mean: float
    reward: Interval
    etror: Interval


def constant_metrics(slates: SlateRun, platform: str, users: int) -> Fixed | None:
    """The metrics of :data:`FIXED` over a number of users, by simulation from its mean and spread.

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
        ours, still, now = (
            slates.legacy.get(name),
            constant_metrics(slates, name, slates.users),
            final_engagement(run, measure),
        )
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
    """Sentences about the metrics and their limits."""
    slates = slates_of(run)
    window, every = slates.window
    out = [
        f"“Optimal reward” is the largest mean of {window} users in a row while learning, looked at after every {every}"
        "; ETROR is the number of users until then. FedSlate’s tables print them.",
    ]
    if not slates.legacy:
        out.append(f"They need {window} users in a run that has ended; this run has {slates.users:,}.")
    first = slates.names[0]
    still = constant_metrics(slates, first, PUBLISHED_USERS)
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


#: Split of the publication's metrics in ``expected.json``.
LEGACY = "legacy"


def notes(printed: bool) -> list[str]:
    """Notes under a table of engagement.

    Args:
        printed: Whether numbers of the paper stand beside ours.
    """
    out = ["engagement: of a user's stay, without a discount; test: fresh users, without exploration."]
    if printed:
        out.append(
            "The paper's number is another quantity: the largest mean of 100 users in a row while learning (of random "
            "slates, the mean of all users). It lies above the truth, and a policy that never changes has it, too."
        )
    return out


def policies_table(runs: Sequence[tuple[str, Variation, Run]]) -> Table | None:
    """Engagement of all platforms less that of each policy for the same users; None if no run has policies.

    Args:
        runs: Label, variation and run.
    """
    rows: list[dict[str, Json | Estimate]] = []
    for label, _, run in runs:
        total = run.details.measures[0]
        apart = {name: against(run, total, name) for name in (*POLICIES, COPYING)}
        known = {name: found for name, found in apart.items() if found is not None}
        if known:
            share = way(run, total)
            row = {"run": label, "value": final_engagement(run, total), **known}
            rows.append(row | {"way": None if share is None else f"{100 * share:.0f}"})
    if not rows:
        return None
    shown = {key for row in rows for key, value in row.items() if value is not None}
    columns = (
        Column("run", "run"),
        Column("value", "all platforms", numeric=True, digits=DIGITS),
        *(Column(name, f"to {name}", numeric=True, signed=True, digits=DIGITS) for name in (*POLICIES, COPYING)),
        Column("way", "of the gap, %", numeric=True),
    )
    said = ["Differences are paired by seed: the same users, without exploration."]
    if COPYING in shown:
        said.append("Copying: all platforms show what the first with feedback would.")
    if "way" in shown:
        said.append("Of the gap: how far from random to the optimum; below 0 where random slates are better.")
    return Table("Beside every policy", tuple(c for c in columns if c.key in shown), tuple(rows), tuple(said))


def study_legacy_table(paper: Paper, study: Study, runs: Sequence[tuple[str, Variation, Run]]) -> Table | None:
    """“Optimal reward” and ETROR of every run and platform; None if no run has them.

    Args:
        paper: What was printed.
        study: Which table or figure.
        runs: Label, variation and run.
    """
    rows: list[dict[str, Json]] = []
    for label, variation, run in runs:
        for name, ours in run.details.legacy.items():
            still = constant_metrics(run.details, name, run.details.users)
            reward, etror = (
                expected_value(paper, study, variation.where, LEGACY, f"{what} ({name})")
                for what in ("optimal reward", "ETROR")
            )
            half = None if ours.reward.high is None else ours.reward.high - ours.reward.mean
            rows.append(
                {
                    "run": label,
                    "platform": name,
                    "reward": Estimate(ours.reward.mean, half, len(ours.etror)),
                    "fixed": None if still is None else still.reward,
                    "paper": None if reward is None else float(reward["value"]),
                    "etror": etror_words(ours.etror),
                    "fixed_etror": None
                    if still is None
                    else f"{still.etror.mean:,.0f} ({still.etror.low:,.0f} to {still.etror.high:,.0f})",
                    "paper_etror": None if etror is None else f"{float(etror['value']):,.0f}",
                }
            )
    if not rows:
        return None
    shown = {key for row in rows for key, value in row.items() if value is not None}
    columns = (
        Column("run", "run"),
        Column("platform", "platform"),
        Column("reward", "“optimal reward”", numeric=True, digits=DIGITS),
        Column("fixed", f"of {FIXED} that never changes", numeric=True, digits=DIGITS),
        Column("paper", "paper", numeric=True, digits=DIGITS),
        Column("etror", "ETROR, users", numeric=True),
        Column("fixed_etror", f"of {FIXED} that never changes", numeric=True),
        Column("paper_etror", "paper", numeric=True),
    )
    served = sorted({run.details.users for _, _, run in runs if run.details.legacy})
    printed = (e for e in paper.values if (e["study"], e["split"]) == (study.name, LEGACY))
    sources = dict.fromkeys(str(e["source"]) for e in printed)
    said = (
        *(f"Paper: {source}." for source in sources),
        "“Optimal reward” is the largest mean of 100 users in a row while learning, ETROR the number of users until "
        "then: the more users, the larger both. Neither is a measure of learning: "
        f"{FIXED} from beginning to end has them, too (in brackets what 80 % of such runs have).",
        f"Users of a run: {' or '.join(f'{users:,}' for users in served)}; the paper’s runs have 5,000.",
    )
    return Table("The publication’s metrics (legacy)", tuple(c for c in columns if c.key in shown), tuple(rows), said)
