"""Conclusions from a run of silos with texts, as sentences.

Whether the federation helps is told against what a silo has without one: a ranker of its own, and plain BM25, which
needs no training and no labels either. Then what training adds to a federated search, what cross pairs add to training,
and whether noise took the gain.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedrank.report import describe
from fedrank.report.run import Run
from fedrank.report.statistics import Estimate, direction, mean_interval
from fedrank.texts.report.files import BM25, BM25_EXACT, EXACT, FEDERATED, GLOBAL, LOCAL
from fedrank.texts.report.gate import gate_verdict
from fedrank.texts.report.tables import DIGITS, UNJUDGED, details_of, gain, lead, seeds_in_words, unjudged

#: Of each scope: how a sentence about it begins.
_WHERE = {"own": "Ranking a silo’s own documents", "federation": "Searching all silos’ documents"}

#: What BM25 does without.
_NEEDS = "which needs no training, no labels and no federation"

_ONE_SEED = "One seed says nothing about spread."
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


def ends(estimate: Estimate) -> str:
    """A difference with the ends of its interval, as text."""
    mean = describe.measured(estimate.mean, signed=True, digits=DIGITS)
    if estimate.low is None:
        return f"{mean} (one seed, no interval)"
    low, high = (describe.measured(end, signed=True, digits=DIGITS) for end in (estimate.low, estimate.high))
    return f"{mean} (95 % interval {low} to {high})"


def _gain(run: Run, scope: str) -> list[str]:
    """The federation's ranker against Local and BM25, which a silo has without a federation."""
    texts = details_of(run)
    measure = texts.measure if scope == "own" else texts.searched
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
    ours = _level(run, FEDERATED, measure, scope)
    others = " and ".join(f"{method}{where} {_level(run, method, measure, at):.{DIGITS}f}" for method in gains)
    differences = " and ".join(f"minus {method}{where} {ends(estimate)}" for method, estimate in gains.items())
    said = UNJUDGED if scope == "federation" and unjudged(run) else _helps(gains, scope)
    return [
        f"{_WHERE[scope]}, {FEDERATED} reaches {measure} {ours:.{DIGITS}f}, {others}. {FEDERATED} {differences}, "
        f"paired over {seeds_in_words(run)}. {said}"
    ]


def _level(run: Run, method: str, measure: str, scope: str) -> float:
    return mean_interval(list(details_of(run).values(method, measure, scope=scope).values())).mean


def _helps(gains: Mapping[str, Estimate], scope: str) -> str:
    """Whether the federation helps: only if it is better than both Local and BM25."""
    local, bm25 = (direction(gains.get(method)) for method in (LOCAL, BM25))
    harms = "The federation harms" if scope == "own" else "Searching together harms"
    if {local, bm25} == {"unknown"}:
        return _ONE_SEED
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
    if search is None or added is None or unjudged(run):
        return []
    said = {
        "gain": "Training helps.",
        "loss": "Plain BM25 over what silos show each other, which needs no training and no labels, does better.",
        "neither": "The seeds do not tell that from nothing.",
        "unknown": _ONE_SEED,
    }[direction(added)]
    return [
        f"Of this the search gives to any ranker: plain BM25 in all documents minus BM25 at home, {ends(search)}. What "
        f"training adds to it, {FEDERATED} minus BM25 in the same search: {ends(added)}. {said}{_exactly(run)}"
    ]


def _exactly(run: Run) -> str:
    """The gain that training adds to a search with exact counts."""
    exact = lead(run, EXACT, BM25_EXACT, scope="federation")
    return "" if exact is None else f" With exact numbers on both sides, {EXACT} minus {BM25_EXACT}: {ends(exact)}."


def _cross_pairs(run: Run, scope: str) -> list[str]:
    """The gain of cross pairs with guessed labels over federated training on own labels alone."""
    added = lead(run, FEDERATED, GLOBAL, scope=scope)
    if added is None or (scope == "federation" and unjudged(run)):
        return []
    said = {
        "gain": "They help.",
        "loss": "They harm.",
        "neither": "The seeds do not tell that from nothing.",
        "unknown": _ONE_SEED,
    }[direction(added)]
    where = "on own documents" if scope == "own" else "in the search"
    return [f"What cross pairs and guessed labels add {where}, {FEDERATED} minus {GLOBAL}: {ends(added)}. {said}"]


def _taken(run: Run, scope: str) -> list[str]:
    """The part of the gain with exact features that noise and collisions of sketches cost."""
    ours, exact = gain(run, scope=scope), gain(run, EXACT, scope=scope)
    if ours is None or exact is None or direction(ours) in ("gain", "unknown") or (scope != "own" and unjudged(run)):
        return []
    if direction(exact) == "loss":
        return [
            f"With exact features in place of sketches it is {ends(exact)} over Local: a loss too, which is not the "
            "noise’s."
        ]
    if direction(exact) == "neither":
        return [
            f"With exact features in place of sketches it is {ends(exact)} over Local: the seeds do not tell that from "
            f"no gain either. What sketches cost, exact features minus {FEDERATED}: {_cost(run, scope)}."
        ]
    cost = lead(run, EXACT, FEDERATED, scope=scope)
    if cost is None or direction(cost) != "gain":
        return [
            f"With exact features in place of sketches it is {ends(exact)} over Local; the seeds do not tell that "
            f"sketches cost anything, exact features minus {FEDERATED}: {_cost(run, scope)}."
        ]
    cause = (
        "What words share in the sketches takes"
        if details_of(run).mode == "plain"
        else f"The noise{_budget(run)} takes"
    )
    return [
        f"{cause} the gain over Local: with exact features in place of sketches there is one, {ends(exact)}. What "
        f"sketches cost, exact features minus {FEDERATED}: {_cost(run, scope)}.",
        *(_at_owners(run) if scope == "federation" else []),
    ]


def _at_owners(run: Run) -> list[str]:
    """What a search is worth that protects documents by leaving them where they are."""
    search = lead(run, BM25_EXACT, BM25, scope="federation", at="home")
    if search is None or direction(search) != "gain":
        return []
    return [
        "To search documents of others without reading them, let their owners look queries up (fedrank serve search): "
        f"BM25 with exact counts in all documents minus BM25 at home, {ends(search)}, less what the noise on their "
        "statistics costs."
    ]


def _budget(run: Run) -> str:
    epsilon = run.setting("sketch.epsilon")
    return "" if epsilon is None else f" of this privacy budget (ε = {describe.number(epsilon)})"


def _cost(run: Run, scope: str) -> str:
    cost = lead(run, EXACT, FEDERATED, scope=scope)
    assert cost is not None  # both have a gain
    return ends(cost)
