"""The gate on a page: which silos adopt the federation's ranker, compared with what, and their gain.

Conclusions from a run of silos with texts, as sentences.

Whether the federation helps is told against what a silo has without one: an own ranker, and plain BM25, which
needs no training and no labels either. Then what training adds to a federated search, what cross pairs add to training,
and whether noise took the gain.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from fedrank.core.trees import Json
from fedrank.report import wording
from fedrank.report.claims import diff_words
from fedrank.report.run import Run
from fedrank.report.statistics import Estimate, direction
from fedrank.report.tables import Column, Table
from fedrank.texts.report.files import BM25, BM25_EXACT, EXACT, FEDERATED, GLOBAL, LOCAL, Decision
from fedrank.texts.report.tables import (
    DIGITS,
    UNJUDGED,
    details_of,
    gain,
    lacks_judgements,
    lead,
    level,
    mean_of_seeds,
    seeds_in_words,
    spread,
)

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
    with_gate, without = (wording.format_value(v, signed=True, digits=DIGITS) for v in (kept, offered))
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
                "offered": mean_of_seeds({one.seed: one.test for one in tested}),
                "kept": mean_of_seeds({one.seed: one.kept for one in tested}),
            }
        )
    everyone: dict[str, Json] = {
        "silo": "all",
        "against": against(texts.decisions),
        "adopts": f"{sum(one.adopted for one in texts.decisions)} of {len(texts.decisions)}",
    }
    everyone |= {key: str(sum(int(row[key]) for row in rows)) for key in ("gained", "lost", "spared", "missed")}
    rows.append({**everyone, "offered": _mean_over_silos(run, "test"), "kept": _mean_over_silos(run, "kept")})
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
    queries = queries or [silo.queries.vali for silo in texts.silos]
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


def _mean_over_silos(run: Run, key: str) -> Estimate | None:
    """Mean of a gain of the decisions over silos, with its interval over seeds."""
    found: dict[int, list[float]] = {}
    for one in details_of(run).decisions:
        if math.isfinite(value := getattr(one, key)):
            found.setdefault(one.seed, []).append(value)
    return mean_of_seeds({seed: math.fsum(values) / len(values) for seed, values in found.items()})


def _how(run: Run) -> str:
    """Rule by which queries were held out."""
    folds = run.setting("evaluation.folds")
    if not folds:
        return ""
    return f": all but those of the test, each ranked by rankers of {folds} folds that did not learn from it"


def _count(which: Any) -> str:
    return str(sum(bool(one) for one in which))


#: Of each scope: how a sentence about it begins.
_WHERE = {"own": "Ranking a silo’s own documents", "federation": "Searching all silos’ documents"}

#: What BM25 does without.
_NEEDS = "which needs no training, no labels and no federation"

_FEW_SEEDS = "So few seeds say nothing about spread."
_NOT_TOLD = "The seeds do not tell this from no gain."


def verdicts(run: Run) -> list[str]:
    """All sentences, the most important first: gains, their causes, the cost of protection, the gate."""
    out = []
    for scope in _WHERE:
        out += _gain(run, scope)
        out += _training(run) if scope == "federation" else []
        out += _cross_pairs(run, scope)
        out += _taken(run, scope)
    return [*out, *gate_verdict(run)]


def _gain(run: Run, scope: str) -> list[str]:
    """The federation's ranker against Local and BM25, which a silo has without a federation."""
    measure = details_of(run).measure_of(scope)
    at = "own" if scope == "own" else "home"
    if measure is None:
        return []
    found = {
        LOCAL: lead(run, FEDERATED, LOCAL, scope=scope, at=at),
        BM25: lead(run, FEDERATED, BM25, scope=scope, at=at),
    }
    gains = {method: estimate for method, estimate in found.items() if estimate is not None}
    if not gains:
        return []
    where = "" if scope == "own" else " at home"
    others = " and ".join(f"{method}{where} {_level(run, method, at)}" for method in gains)
    differences = " and ".join(f"minus {method}{where} {diff_words(estimate)}" for method, estimate in gains.items())
    said = UNJUDGED if scope == "federation" and lacks_judgements(run) else _helps(gains, scope)
    return [
        f"{_WHERE[scope]}, {FEDERATED} reaches {measure} {_level(run, FEDERATED, scope)}, {others}. {FEDERATED} "
        f"{differences}, paired over {seeds_in_words(run)}. {said}"
    ]


def _level(run: Run, method: str, scope: str) -> str:
    found = level(run, method, scope)
    assert found is not None  # it has a gain
    return f"{found.mean:.{DIGITS}f}"


def _helps(gains: Mapping[str, Estimate], scope: str) -> str:
    """True if the federation helps: only if it is better than both Local and BM25."""
    local, bm25 = (direction(gains.get(method)) for method in (LOCAL, BM25))
    harms = "The federation harms" if scope == "own" else "Searching together harms"
    if {local, bm25} == {"unknown"}:
        return _FEW_SEEDS
    if BM25 not in gains:
        said = {"gain": "It is better than Local.", "loss": f"{harms}."}
        return f"{said.get(local, _NOT_TOLD)} This run has no BM25 to compare with."
    if bm25 == "gain":
        return {
            "loss": "It is better than BM25, but a silo’s own ranker does better.",
            "neither": "It is better than BM25, but the seeds do not tell it from a silo’s own ranker.",
        }.get(local, "The federation helps." if scope == "own" else "Searching together helps.")
    untrained = "does better" if bm25 == "loss" else "is not told apart from it by these seeds"
    begins = {"gain": "It is better than Local, but plain", "loss": f"{harms}: plain"}.get(local, "Plain")
    ends_with = "; so does a silo’s own ranker" if local == "loss" else ""
    return f"{begins} BM25, {_NEEDS}, {untrained}{ends_with}."


def _training(run: Run) -> list[str]:
    """The gain of the federated search without training, and the gain that training adds."""
    search = lead(run, BM25, BM25, scope="federation", at="home")
    added = lead(run, FEDERATED, BM25, scope="federation")
    if search is None or added is None or lacks_judgements(run):
        return []
    said = {
        "gain": "Training helps.",
        "loss": "Plain BM25 over what silos show each other, which needs no training and no labels, does better.",
        "neither": "The seeds do not tell that from nothing.",
        "unknown": _FEW_SEEDS,
    }[direction(added)]
    return [
        "Of this the search gives to any ranker: plain BM25 in all documents minus BM25 at home, "
        f"{diff_words(search)}. What training adds to it, {FEDERATED} minus BM25 in the same search: "
        f"{diff_words(added)}. {said}{_exactly(run)}"
    ]


def _exactly(run: Run) -> str:
    """The gain that training adds to a search with exact counts."""
    exact = lead(run, EXACT, BM25_EXACT, scope="federation")
    return (
        "" if exact is None else f" With exact numbers on both sides, {EXACT} minus {BM25_EXACT}: {diff_words(exact)}."
    )


def _cross_pairs(run: Run, scope: str) -> list[str]:
    """The gain of cross pairs with guessed labels over federated training on own labels alone."""
    added = lead(run, FEDERATED, GLOBAL, scope=scope)
    if added is None or (scope == "federation" and lacks_judgements(run)):
        return []
    said = {
        "gain": "They help.",
        "loss": "They harm.",
        "neither": "The seeds do not tell that from nothing.",
        "unknown": _FEW_SEEDS,
    }[direction(added)]
    where = "on own documents" if scope == "own" else "in the search"
    return [f"What cross pairs and guessed labels add {where}, {FEDERATED} minus {GLOBAL}: {diff_words(added)}. {said}"]


def _taken(run: Run, scope: str) -> list[str]:
    """The part of the gain with exact features that noise and collisions of sketches cost."""
    ours, exact = gain(run, scope=scope), gain(run, EXACT, scope=scope)
    cost = lead(run, EXACT, FEDERATED, scope=scope)
    if ours is None or exact is None or cost is None or direction(ours) in ("gain", "unknown"):
        return []
    if scope != "own" and lacks_judgements(run):
        return []
    costs = f"exact features minus {FEDERATED}: {diff_words(cost)}."
    if direction(exact) == "loss":
        return [
            f"With exact features in place of sketches it is {diff_words(exact)} over Local: a loss too, which is not "
            "the noise’s."
        ]
    if direction(exact) == "neither":
        return [
            f"With exact features in place of sketches it is {diff_words(exact)} over Local: the seeds do not tell "
            f"that from no gain either. What sketches cost, {costs}"
        ]
    if direction(cost) != "gain":
        return [
            f"With exact features in place of sketches it is {diff_words(exact)} over Local; the seeds do not tell "
            f"that sketches cost anything, {costs}"
        ]
    cause = (
        "What words share in the sketches takes"
        if details_of(run).mode == "plain"
        else f"The noise{_budget(run)} takes"
    )
    return [
        f"{cause} the gain over Local: with exact features in place of sketches there is one, {diff_words(exact)}. "
        f"What sketches cost, {costs}",
        *(_at_owners(run) if scope == "federation" else []),
    ]


def _at_owners(run: Run) -> list[str]:
    """Value of a search that protects documents by leaving them at their owners."""
    search = lead(run, BM25_EXACT, BM25, scope="federation", at="home")
    if search is None or direction(search) != "gain":
        return []
    return [
        "To search documents of others without reading them, let their owners look queries up (fedrank search owner "
        f"serve): BM25 with exact counts in all documents minus BM25 at home, {diff_words(search)}, less what the "
        "noise on their statistics costs."
    ]


def _budget(run: Run) -> str:
    epsilon = run.setting("sketch.epsilon")
    return "" if epsilon is None else f" of this privacy budget (ε = {wording.number(epsilon)})"
