"""What a run of silos with texts says to somebody who decides: did the federation help, did noise take the gain."""

from __future__ import annotations

from fedrank.report import describe
from fedrank.report.load import Run
from fedrank.report.statistics import Estimate, difference, mean_interval
from fedrank.report.text_tables import DIGITS, gain, seeds_in_words, texts_of
from fedrank.report.texts import EXACT, FEDERATED, LOCAL, TextRun

#: Of each scope: how a sentence about it begins.
_WHERE = {"own": "Ranking a silo’s own documents", "federation": "Searching all silos’ documents"}


def verdicts(run: Run) -> list[str]:
    """Sentences, the most important ones first: gains, what protection took, the gate."""
    out = []
    for scope in _WHERE:
        out += _gain(run, scope)
        out += _taken(run, scope)
    return [*out, *_gate(run)]


def told(estimate: Estimate | None) -> str:
    """What an interval tells: ``"gain"``, ``"loss"``, ``"neither"``; ``"unknown"`` where there is none."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return "unknown"
    return "gain" if estimate.low > 0 else "loss" if estimate.high < 0 else "neither"


def ends(estimate: Estimate) -> str:
    """A difference with the ends of its interval."""
    mean = describe.measured(estimate.mean, signed=True, digits=DIGITS)
    if estimate.low is None:
        return f"{mean} (one seed, no interval)"
    low, high = (describe.measured(end, signed=True, digits=DIGITS) for end in (estimate.low, estimate.high))
    return f"{mean} (95 % interval {low} to {high})"


def _gain(run: Run, scope: str) -> list[str]:
    texts, estimate = texts_of(run), gain(run, scope=scope)
    if estimate is None:
        return []
    measure = texts.measure if scope == "own" else texts.searched
    assert measure is not None  # a gain has one
    ours, local = (
        mean_interval(list(texts.values(method, measure, scope=where).values())).mean
        for method, where in ((FEDERATED, scope), (LOCAL, "own" if scope == "own" else "home"))
    )
    beside = "Local" if scope == "own" else "Local at home"
    said = {
        "gain": "The federation helps.",
        "loss": "The federation harms.",
        "neither": "The seeds do not tell this from no gain.",
        "unknown": "One seed says nothing about spread.",
    }[told(estimate)]
    return [
        f"{_WHERE[scope]}, {FEDERATED} reaches {measure} {ours:.{DIGITS}f} and {beside} {local:.{DIGITS}f}: "
        f"{ends(estimate)} over {seeds_in_words(run)}. {said}"
    ]


def _taken(run: Run, scope: str) -> list[str]:
    """Whether noise, or what sketches mix up, took the gain that exact features have."""
    texts, ours, exact = texts_of(run), gain(run, scope=scope), gain(run, EXACT, scope=scope)
    if ours is None or exact is None or told(ours) in ("gain", "unknown"):
        return []
    if told(exact) == "loss":
        return [f"With exact features in place of sketches it is {ends(exact)}: a loss too, which is not the noise’s."]
    if told(exact) == "neither":
        return [
            f"With exact features in place of sketches it is {ends(exact)}: the seeds do not tell that from no gain "
            f"either. What sketches cost, exact features minus {FEDERATED}: {_cost(texts, scope)}."
        ]
    cause = "What words share in the sketches takes" if texts.mode == "plain" else f"The noise{_budget(run)} takes"
    return [
        f"{cause} the gain: with exact features in place of sketches there is one, {ends(exact)}. What sketches cost, "
        f"exact features minus {FEDERATED}: {_cost(texts, scope)}."
    ]


def _budget(run: Run) -> str:
    epsilon = run.setting("sketch.epsilon")
    return "" if epsilon is None else f" of this privacy budget (ε = {describe.number(epsilon)})"


def _cost(texts: TextRun, scope: str) -> str:
    measure = texts.measure if scope == "own" else texts.searched
    assert measure is not None  # a gain has one
    exact, ours = (texts.values(method, measure, scope=scope) for method in (EXACT, FEDERATED))
    return ends(difference(exact, ours))


def _gate(run: Run) -> list[str]:
    texts = texts_of(run)
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
        f"Do no harm: of {many}, {len(adopted)} adopt the federation’s ranker; on test queries {gained} of these "
        f"gained and {lost} lost. {len(refused)} of the decisions keep a silo’s own ranker, {spared} of them where the "
        f"federation’s would have lost. With the gate a silo gains {with_gate} on average, without it {without}."
    ]
