"""Head of the page of a run over silos: what averaging with others brought the target, beside training alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedrank.report import describe, sections, wording
from fedrank.report.charts import Chart
from fedrank.report.claims import (
    Comparison,
    Effects,
    Measured,
    Named,
    Number,
    Opening,
    Sentence,
    Share,
    Verdict,
    list_all,
    say,
)
from fedrank.report.figures import Level
from fedrank.report.run import Run
from fedrank.report.statistics import Interval, mean_interval
from fedrank.silos.report.figures import LOSS, baseline_values, measured_by
from fedrank.silos.report.files import Silos, silos_of
from fedrank.silos.report.tables import DIGITS, against, best_test, difference_of, is_refit

#: Name of the chart that the page opens with.
CHART = "opening"
_ADVICE = ("find who helps whom in your table:", "fedrank silos compare my-table.csv --silo hospital --label ill")

#: Targets that fit into the chart; the tables have all of them.
MOST_TARGETS = 8

#: How what a run is compared with is called in a sentence.
_OTHERS = {"alone": "training alone", "everyone": "averaging with everyone"}
#: How the model of a run is called: of averages, and of a fit to all own rows, which the other ways do not have.
_AVERAGED, _REFIT = "averaging with chosen partners", "a fit to all own rows, shrunk to silos that are alike"
#: What a comparison of such a fit with the other ways leaves to be known.
_FEWER = ", on the training rows only"


def opening_of(run: Run, harmful: Sequence[str]) -> Opening:
    """Title, sentence, chart and numbers of a run over silos.

    Args:
        run: A run over silos.
        harmful: The silos that harm a target.
    """
    silos = silos_of(run)
    target = _only(silos)
    if target is None:
        title = f"Whose models help whom? {len(silos.names)} silos of {_data(run)}"
        sentence, numbers = _of_many(run)
    else:
        title = f"Whose models help {target}? Silos of {_data(run)}"
        sentence, numbers = _of_one(run, target)
    if harmful:
        sentence += say(" Beware of ", Named(wording.in_words(harmful)), ": see the warning.")
    costs = [number for number in (_sent(run), sections.privacy_number(run)) if number is not None]
    chart = (CHART, f"{_title(run)}. The same numbers are in the tables below.") if _levels(run) else ("", "")
    return Opening(
        title, sentence + describe.closing(run), (*numbers[: 4 - len(costs)], *costs), *chart, advice=_ADVICE
    )


def chart(run: Run) -> Chart | None:
    """Levels of the ways of training of one target, or gains over training alone of several; None without values."""
    return sections.opening_chart(run, _levels(run), _title(run), DIGITS, signed=_only(silos_of(run)) is None)


def _of_one(run: Run, target: str) -> tuple[Sentence, list[Number]]:
    measure, whose = measured_by(run), Named(target)
    values = best_test(run, target)
    if not values:
        return say(f"The {measure} of ", whose, "’s model is undefined: its test rows have one label only."), []
    reached = Measured(mean_interval(list(values.values())), measure, DIGITS)
    note = "; ".join(filter(None, (reached.note, _rows(run, target))))
    numbers = [Number(f"Test {measure} of {target}’s model", reached, note)]
    found = _against(run, target)
    if not found:
        how = wording.capital(str(run.setting("protocol")))
        gives = say(f"{how} gives ", whose, f" a model of {measure} ", reached, " on test rows; ")
        return gives + say("this run has no other way of training to compare it with."), numbers
    if is_refit(run, target) and (best := _best_tried(run, target)) is not None:
        numbers.append(Number(f"{measure} against “{best['title']}”, same rows", _against_tried(run, target)))
    for name, value in found.items():
        numbers.append(Number(f"{measure} against {_OTHERS[name]}", value))
    return _results(run, target, reached, list(found.values())), numbers


def _rows(run: Run, target: str) -> str:
    """Number of a target's rows that judge the model, and of all its rows; empty if the run does not say."""
    of = silos_of(run).rows.get(target, {})
    counts = [n for split in ("train", "vali", "test") if isinstance(n := of.get(split), int)]
    return f"{counts[2]:,} test rows of {sum(counts):,}" if len(counts) == 3 else ""


def _results(run: Run, target: str, reached: Measured, found: Sequence[Comparison]) -> Sentence:
    """Result of averaging with chosen others, beside the other ways; a simple baseline comes first if better."""
    measure, whose = reached.measure, Named(target)
    refit = is_refit(run, target)
    how = f"By {_REFIT}, " if refit else "With chosen partners "
    ours, beside = say(how, whose, f" reaches {measure} ", reached), say(list_all(found), _FEWER if refit else "")
    best = _best_tried(run, target)
    if best is None:
        return say(ours, ": ", beside, ".")
    about, value = silos_of(run).sceptic[target], _against_tried(run, target)
    tried, its = Named(f"“{best['title']}”"), Measured(best["mean"], measure, DIGITS)
    on = say(f"on the same {about['rows']:,.0f} rows of ", whose)
    if value.verdict is Verdict.WORSE:
        lead = replace(value, other=_REFIT if refit else _AVERAGED, difference=_turn(difference_of(best)))
        sentence = say("Use ", tried, " instead: ", on, f" it reaches a test {measure} of ", its, ", ", lead)
        return sentence + say(", which reaches ", reached, ": ", beside, ".")
    first = say("The best simple baseline ", on, ", ", tried, ", reaches ", its)
    first += say(": the model of this run is ", value, ".")
    if refit:  # what has the same rows comes first
        return ours + say(". ") + first + say(" It is ", beside, ".")
    return ours + say(": ", beside, ". ") + first


def _best_tried(run: Run, target: str) -> Mapping[str, Any] | None:
    """The best simple baseline, as ``sceptic.json`` has it; None where the run has none."""
    about = silos_of(run).sceptic.get(target)
    return about["ways"][about["best"]] if about and about.get("best") else None


def _against_tried(run: Run, target: str) -> Comparison:
    """Comparison of the run's model with the best simple baseline."""
    best = _best_tried(run, target)
    assert best is not None
    return _compare(difference_of(best), "it", measured_by(run))


def _compare(value: Interval, other: str, measure: str) -> Comparison:
    """Comparison of a model with another one, as far as the seeds tell."""
    plain = measure == LOSS or other == "it"
    ways, than = (("better", "worse"), "than") if plain else (("above", "below"), "")
    return Comparison(value, other, ways=ways, than=than, digits=DIGITS)


def _turn(value: Interval) -> Interval:
    """The difference seen from the other side."""
    low, high = value.low, value.high
    return Interval(-value.mean, None if high is None else -high, None if low is None else -low)


def _of_many(run: Run) -> tuple[Sentence, list[Number]]:
    silos, measure = silos_of(run), measured_by(run)
    gains = {target: value for target in silos.targets if (value := against(run, target, "alone")) is not None}
    if not gains:
        reached = [mean_interval(list(best_test(run, t).values())).mean for t in silos.targets if best_test(run, t)]
        mean = Measured(sum(reached) / len(reached), measure, DIGITS) if reached else Named("undefined")
        how = wording.capital(str(run.setting("protocol")))
        gives = say(f"{how} gives the {len(silos.targets)} silos models of mean {measure} ", mean, " on test rows; ")
        gives += say("this run has no other way of training to compare them with.")
        return gives, [Number(f"Mean test {measure}", mean)]
    helped = tuple(target for target, value in gains.items() if value.low is not None and value.low > 0)
    harmed = tuple(target for target, value in gains.items() if value.high is not None and value.high < 0)
    rest = len(gains) - len(helped) - len(harmed)
    refit = any(is_refit(run, target) for target in gains)
    alone = f"training alone{_FEWER if refit else ''}"
    sentence = say("A fit shrunk to others’ models " if refit else "Averaging models with others ")
    if helped or harmed:
        sentence += say(Effects(helped, harmed))
        of = say("; for ", Share(rest, len(gains)), f" silos the seeds do not tell it from {alone}.")
        sentence += of if rest else say(f", compared with {alone}.")
    else:
        of = f"none of {len(gains)} silos" if rest > 1 else "no silo"
        tell = "one seed tells" if len(run.seeds) == 1 else f"{len(run.seeds)} seeds tell"
        sentence += say(f"brings {of} more than {alone}, as far as {tell}.")
    return sentence, [
        Number("Silos that gain over training alone", Share(len(helped), len(gains))),
        Number("Silos that lose", Share(len(harmed), len(gains))),
    ]


def _levels(run: Run) -> list[Level]:
    silos = silos_of(run)
    target = _only(silos)
    if target is None:
        found = [(target, against(run, target, "alone")) for target in silos.targets[:MOST_TARGETS]]
        return [
            Level(target, value.mean, value.low, value.high, ours=True) for target, value in found if value is not None
        ]
    values = best_test(run, target)
    if not values:
        return []
    reached = mean_interval(list(values.values()))
    low, high = reached.low, reached.high
    if measured_by(run) != LOSS and low is not None and high is not None:
        low, high = max(low, 0.0), min(high, 1.0)  # Student's interval of few seeds leaves what an AUC can be
    others = [Level(wording.capital(_OTHERS[name]), value) for name, value in baseline_values(run, target).items()]
    tried = silos.sceptic.get(target, {}).get("ways", {})
    others += [
        Level(f"Tried first: {one['title']}", one["mean"]) for one in tried.values() if one["kind"] == "baseline"
    ]
    return [
        Level(wording.capital(_REFIT if is_refit(run, target) else _AVERAGED), reached.mean, low, high, ours=True),
        *others,
    ]


def _title(run: Run) -> str:
    target, measure = _only(silos_of(run)), measured_by(run)
    if target is None:
        return f"{measure} gained over training alone"
    less = ", less is better" if measure == LOSS else ""
    return f"Test {measure} of {target}’s model{less}"


def _against(run: Run, target: str) -> dict[str, Comparison]:
    found = {name: against(run, target, name) for name in _OTHERS}
    measure = measured_by(run)
    return {name: _compare(value, _OTHERS[name], measure) for name, value in found.items() if value is not None}


def _sent(run: Run) -> Number | None:
    """Bytes that a silo sends and receives in a round, in the mean over silos; None where nothing crosses."""
    rounds = max((entry.round for entry in run.ledger or ()), default=0) + 1
    return sections.sent(run, rounds * len(silos_of(run).names), "in a round", ", on average")


def _data(run: Run) -> str:
    data = run.setting("data.name", run.setting("data"))
    return "generated data" if run.shown.generated(run) or isinstance(data, Mapping) else str(data)


def _only(silos: Silos) -> str | None:
    """The target, or None if there are several."""
    return silos.targets[0] if len(silos.targets) == 1 else None
