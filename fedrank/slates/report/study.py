"""Studies of platforms: every run beside all policies, and the publication's own metrics beside what it printed.

What a paper prints goes into ``expected.json`` as for any study. An entry whose measure is ``"optimal reward (A)"`` or
``"ETROR (A)"``, of split ``"legacy"``, stands beside ours of the same name; one of ``"engagement (A)"`` of split
``"test"`` stands beside a quantity that is not the same, and the notes say so.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedrank.core.trees import Json
from fedrank.engine.study import Paper, Study, expected_value
from fedrank.engine.variations import Variation
from fedrank.report.run import Run
from fedrank.report.statistics import Estimate
from fedrank.report.tables import Column, Table
from fedrank.slates.report.fedslate_2024 import FIXED, etror_words, fixed
from fedrank.slates.report.files import COPYING, POLICIES
from fedrank.slates.report.tables import DIGITS, against, reached, way

#: Split of the publication's metrics in ``expected.json``.
LEGACY = "legacy"


def notes(printed: bool) -> list[str]:
    """What must be said under a table of engagement.

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
    """What all platforms together get, less what each policy gets of the same users; None if no run has policies.

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
            row = {"run": label, "value": reached(run, total), **known}
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


def legacy_table(paper: Paper, study: Study, runs: Sequence[tuple[str, Variation, Run]]) -> Table | None:
    """“Optimal reward” and ETROR of every run and platform; None if no run has them.

    Args:
        paper: What was printed.
        study: Which table or figure.
        runs: Label, variation and run.
    """
    rows: list[dict[str, Json]] = []
    for label, variation, run in runs:
        for name, ours in run.details.legacy.items():
            still = fixed(run.details, name, run.details.users)
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
