"""The gate on a page: which silos adopt the federation's ranker, compared with what, and their gain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from fedrank.core.trees import Json
from fedrank.report import describe
from fedrank.report.run import Run
from fedrank.report.statistics import Estimate, mean_interval
from fedrank.report.tables import Column, Table
from fedrank.texts.report.files import Decision
from fedrank.texts.report.tables import DIGITS, details_of, spread

#: What the gate leaves open, which must be said beside what it decides.
NOT_DECIDED = (
    "It decides about the ranker of a silo’s own documents only; whether to show others’ documents beside them it does "
    "not decide, and a search of all documents can lose where this gate says adopt."
)


def gate_verdict(run: Run) -> list[str]:
    """A sentence on the gate's decisions; none if there are no decisions."""
    texts = details_of(run)
    decisions = [one for one in texts.decisions if one.test == one.test]  # a silo without test queries has no value
    if not decisions:
        return []
    adopted = [one for one in decisions if one.adopted]
    refused = [one for one in decisions if not one.adopted]
    many = f"{len(decisions)} decisions ({len(texts.silos)} silos, {len(run.seeds)} seeds)"
    gained, lost = sum(one.test > 0 for one in adopted), sum(one.test < 0 for one in adopted)
    spared = sum(one.test < 0 for one in refused)
    kept, offered = (sum(getattr(one, key) for one in decisions) / len(decisions) for key in ("kept", "test"))
    with_gate, without = (describe.measured(v, signed=True, digits=DIGITS) for v in (kept, offered))
    return [
        f"Do no harm: of {many}, each against {against(decisions)}, {len(adopted)} adopt the federation’s ranker; on "
        f"test queries {gained} of these gained and {lost} lost. {len(refused)} of the decisions keep what the silo "
        f"has by itself, {spared} of them where the federation’s ranker would have lost. With the gate a silo gains "
        f"{with_gate} on average over what it has, without it {without}. {NOT_DECIDED}"
    ]


def against(decisions: Iterable[Decision]) -> str:
    """The rankers that the federation's was compared with, and how often, such as ``"BM25 (3) or Local (1)"``."""
    counted = Counter(one.against for one in decisions)
    if len(counted) == 1:
        return next(iter(counted))
    return " or ".join(f"{name} ({count})" for name, count in counted.most_common())


def gate_table(run: Run) -> Table | None:
    """Table of the gate's decisions and gains by silo; None if there are no decisions."""
    texts = details_of(run)
    if not texts.decisions:
        return None
    rows = []
    for silo in texts.names:
        of = [one for one in texts.decisions if one.silo == silo]
        tested = [one for one in of if math.isfinite(one.test)]
        rows.append(
            {
                "silo": silo,
                "against": against(of),
                "adopts": f"{sum(one.adopted for one in of)} of {len(of)}",
                "gained": _count(one.test > 0 for one in tested if one.adopted),
                "lost": _count(one.test < 0 for one in tested if one.adopted),
                "spared": _count(one.test < 0 for one in tested if not one.adopted),
                "missed": _count(one.test > 0 for one in tested if not one.adopted),
                "offered": _mean({one.seed: one.test for one in tested}),
                "kept": _mean({one.seed: one.kept for one in tested}),
            }
        )
    by_seed: dict[str, dict[int, float]] = {
        key: {
            seed: math.fsum(values) / len(values)
            for seed in run.seeds
            if (
                values := [
                    getattr(d, key) for d in texts.decisions if d.seed == seed and math.isfinite(getattr(d, key))
                ]
            )
        }
        for key in ("test", "kept")
    }
    adopted = sum(one.adopted for one in texts.decisions)
    everyone: dict[str, Json] = {
        "silo": "all",
        "against": against(texts.decisions),
        "adopts": f"{adopted} of {len(texts.decisions)}",
    }
    everyone |= {key: str(sum(int(row[key]) for row in rows)) for key in ("gained", "lost", "spared", "missed")}
    rows.append({**everyone, "offered": _mean(by_seed["test"]), "kept": _mean(by_seed["kept"])})
    columns = (
        Column("silo", "silo"),
        Column("against", "against (seeds)"),
        Column("adopts", "adopts", numeric=True),
        Column("gained", "adopted and gained", numeric=True),
        Column("lost", "adopted and lost", numeric=True),
        Column("spared", "refused, would have lost", numeric=True),
        Column("missed", "refused, would have gained", numeric=True),
        Column("offered", "gain without the gate", numeric=True, signed=True, digits=DIGITS),
        Column("kept", "gain with the gate", numeric=True, signed=True, digits=DIGITS),
    )
    queries = [one.held for one in texts.decisions if one.held is not None]
    queries = queries or [silo.queries["vali"] for silo in texts.silos]
    held = f"{min(queries)}" if min(queries) == max(queries) else f"{min(queries)} to {max(queries)}"
    notes = (
        f"By itself a silo has Local and plain BM25, and goes by whichever ranks its held-out queries better by "
        f"{texts.measure}: that is what the decision is against. It adopts the federation’s ranker where the lower end "
        f"of a one-sided 95 % interval of the difference over queries is above 0 ({held} queries{_how(run)}). A few "
        "queries seldom show a gain, and then a silo keeps what it has.",
        "Gained and lost: against the same, on test queries, which the decision does not see.",
        NOT_DECIDED,
        f"Counts are seeds, of {len(run.seeds)}. " + spread(run, ""),
    )
    return Table("Do no harm: who adopts the federation’s ranker", columns, tuple(rows), notes)


def _how(run: Run) -> str:
    """How queries were held out."""
    folds = run.setting("evaluation.folds")
    if not folds:
        return ""
    return f": all but those of the test, each ranked by rankers of {folds} folds that did not learn from it"


def _mean(values: Mapping[int, float]) -> Estimate | None:
    return mean_interval(list(values.values())) if values else None


def _count(which: Any) -> str:
    return str(sum(bool(one) for one in which))
