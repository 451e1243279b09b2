"""Head of the page of a run over silos: what averaging with others brought the target, beside training alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedrank.report import describe, sections, sentences
from fedrank.report.charts import Chart
from fedrank.report.figures import Level, levels_figure
from fedrank.report.opening import Number, Opening
from fedrank.report.run import Run
from fedrank.report.statistics import Interval, mean_interval
from fedrank.silos.report.figures import LOSS, baseline_values, measured_by
from fedrank.silos.report.files import Silos
from fedrank.silos.report.tables import DIGITS, against, best_test, difference_of

#: Name of the chart that the page opens with.
CHART = "opening"

#: Targets that fit into the chart; the tables have all of them.
MOST_TARGETS = 8

#: How what a run is compared with is called in a sentence.
_OTHERS = {"alone": "training alone", "everyone": "averaging with everyone"}


def opening_of(run: Run, harmful: Sequence[str]) -> Opening:
    """Title, sentence, chart and numbers of a run over silos.

    Args:
        run: A run over silos.
        harmful: The silos that harm a target.
    """
    silos = _silos(run)
    target = _only(silos)
    if target is None:
        title = f"Whose models help whom? {len(silos.names)} silos of {_data(run)}"
        sentence, numbers = _of_many(run)
    else:
        title = f"Whose models help {target}? Silos of {_data(run)}"
        sentence, numbers = _of_one(run, target)
    if harmful:
        verb = "harm" if len(harmful) > 1 else "harms"
        sentence += f" {_capital(describe.in_words(harmful))} {verb} others: see the warning."
    costs = [number for number in (_sent(run), sections.privacy_number(run)) if number is not None]
    chart = (CHART, f"{_title(run)}. The same numbers are in the tables below.") if _levels(run) else ("", "")
    return Opening(title, sentence + sentences.closing(run), (*numbers[: 4 - len(costs)], *costs), *chart)


def chart(run: Run) -> Chart | None:
    """Levels of the ways of training of one target, or gains over training alone of several; None without values."""
    levels = _levels(run)
    if not levels:
        return None
    said = [describe.seeds_in_words(len(run.seeds)).replace("band", "line"), *describe.caveats(run)]
    return levels_figure(levels, _title(run), said, DIGITS, signed=_only(_silos(run)) is None)


def _of_one(run: Run, target: str) -> tuple[str, list[Number]]:
    measure = measured_by(run)
    values = best_test(run, target)
    if not values:
        return f"The {measure} of {target}’s model is undefined: its test rows have one label only.", []
    reached = mean_interval(list(values.values()))
    spread = "; ".join(filter(None, (sentences.spread(reached), _rows(run, target))))
    numbers = [Number(f"Test {measure} of {target}’s model", f"{reached.mean:.{DIGITS}f}", spread)]
    found = _against(run, target)
    if not found:
        return (
            f"{_capital(str(run.setting('protocol')))} gives {target} a model of {measure} {reached.mean:.{DIGITS}f} "
            "on test rows; this run has no other way of training to compare it with.",
            numbers,
        )
    for name, value in found.items():
        numbers.append(Number(f"{measure} against {_OTHERS[name]}", _sign(value), _note(value)))
    return _results(run, target, measure, reached.mean, found), numbers


def _rows(run: Run, target: str) -> str:
    """Number of a target's rows that judge the model, and of all its rows; empty if the run does not say."""
    of = _silos(run).rows.get(target, {})
    counts = [n for split in ("train", "vali", "test") if isinstance(n := of.get(split), int)]
    return f"{counts[2]:,} test rows of {sum(counts):,}" if len(counts) == 3 else ""


def _results(run: Run, target: str, measure: str, mean: float, found: Mapping[str, Interval]) -> str:
    """Result of averaging with chosen others, beside the other ways; a simple baseline comes first if better."""
    beside = describe.in_words([_beside(value, _OTHERS[name], measure) for name, value in found.items()])
    about = _silos(run).sceptic.get(target)
    if not about or not about.get("best"):
        return f"With chosen partners {target} reaches {measure} {mean:.{DIGITS}f}: {beside}."
    best = about["ways"][about["best"]]
    value, tried = difference_of(best), f"“{best['title']}”"
    on = f"on the same {about['rows']:,.0f} rows of {target}"
    if value.mean < 0 and sentences.interval_words(value) != "may be chance":
        sure = "" if value.low is not None else " in the one seed that was run"
        return (
            f"Use {tried} instead: {on} it reaches a test {measure} of {best['mean']:.{DIGITS}f}, "
            f"{abs(value.mean):.{DIGITS}f} better than averaging with chosen partners{sure}, which reaches "
            f"{mean:.{DIGITS}f}: {beside}."
        )
    return (
        f"With chosen partners {target} reaches {measure} {mean:.{DIGITS}f}: {beside}. The best of what one tries "
        f"first {on}, {tried}, reaches {best['mean']:.{DIGITS}f}: the model of this run is "
        f"{_beside(value, 'it', measure)}."
    )


def _beside(value: Interval, other: str, measure: str) -> str:
    """Comparison of a model with another one, as far as the seeds tell."""
    told = sentences.interval_words(value)
    if told == "may be chance":
        return f"not told apart from {other} ({_sign(value)})"
    sure = "" if told != "no interval" else " in the one seed that was run"
    way = "better" if value.mean >= 0 else "worse"
    words = f"{abs(value.mean):.{DIGITS}f} {way} than"
    if measure != LOSS and other != "it":
        words = f"{abs(value.mean):.{DIGITS}f} {'above' if value.mean >= 0 else 'below'}"
    return f"{words} {other}{sure}"


def _of_many(run: Run) -> tuple[str, list[Number]]:
    silos, measure = _silos(run), measured_by(run)
    gains = {target: value for target in silos.targets if (value := against(run, target, "alone")) is not None}
    if not gains:
        reached = [mean_interval(list(best_test(run, t).values())).mean for t in silos.targets if best_test(run, t)]
        mean = f"{sum(reached) / len(reached):.{DIGITS}f}" if reached else "undefined"
        return (
            f"{_capital(str(run.setting('protocol')))} gives the {len(silos.targets)} silos models of mean {measure} "
            f"{mean} on test rows; this run has no other way of training to compare them with.",
            [Number(f"Mean test {measure}", mean)],
        )
    helped = [target for target, value in gains.items() if value.low is not None and value.low > 0]
    harmed = [target for target, value in gains.items() if value.high is not None and value.high < 0]
    rest = len(gains) - len(helped) - len(harmed)
    parts = [
        *([f"helps {describe.in_words(helped)}"] if helped else []),
        *([f"harms {describe.in_words(harmed)}"] if harmed else []),
    ]
    of = f"{rest} of {len(gains)} silos" if parts else f"none of {len(gains)} silos" if rest > 1 else "no silo"
    sentence = f"Averaging models with others {' and '.join(parts)}" if parts else "Averaging models with others"
    if parts and rest:
        sentence += f"; for {of} the seeds do not tell it from training alone."
    elif parts:
        sentence += ", compared with training alone."
    else:
        sentence += f" brings {of} more than training alone, as far as {_seeds(run)}."
    return sentence, [
        Number("Silos that gain over training alone", f"{len(helped)} of {len(gains)}"),
        Number("Silos that lose", f"{len(harmed)} of {len(gains)}"),
    ]


def _levels(run: Run) -> list[Level]:
    silos = _silos(run)
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
    others = [Level(_capital(_OTHERS[name]), value) for name, value in baseline_values(run, target).items()]
    tried = silos.sceptic.get(target, {}).get("ways", {})
    others += [
        Level(f"Tried first: {one['title']}", one["mean"]) for one in tried.values() if one["kind"] == "baseline"
    ]
    return [Level("Averaging with chosen others", reached.mean, low, high, ours=True), *others]


def _title(run: Run) -> str:
    target, measure = _only(_silos(run)), measured_by(run)
    if target is None:
        return f"{measure} gained over training alone"
    less = ", less is better" if measure == LOSS else ""
    return f"Test {measure} of {target}’s model{less}"


def _against(run: Run, target: str) -> dict[str, Interval]:
    found = {name: against(run, target, name) for name in _OTHERS}
    return {name: value for name, value in found.items() if value is not None}


def _sent(run: Run) -> Number | None:
    """Bytes that a silo sends and receives in a round, in the mean over silos; None where nothing crosses."""
    if run.ledger is None or not len(run.ledger):
        return None
    rounds = max(entry.round for entry in run.ledger) + 1
    silos = len(_silos(run).names)
    up, down = (run.ledger.bytes_from(who) / rounds / silos for who in ("parties", "server"))
    return Number(
        "Sent by a silo in a round", describe.size(round(up)), f"{describe.size(round(down))} received, on average"
    )


def _note(value: Interval) -> str:
    if value.low is None or value.high is None:
        return "difference of means, no interval"
    ends = " to ".join(describe.format_value(end, signed=True, digits=DIGITS) for end in (value.low, value.high))
    return f"{ends}: {sentences.interval_words(value)}"


def _seeds(run: Run) -> str:
    return "one seed tells" if len(run.seeds) == 1 else f"{len(run.seeds)} seeds tell"


def _sign(value: Interval) -> str:
    return describe.format_value(value.mean, signed=True, digits=DIGITS)


def _data(run: Run) -> str:
    data = run.setting("data.name", run.setting("data"))
    return "generated data" if run.shown.generated(run) or isinstance(data, Mapping) else str(data)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _only(silos: Silos) -> str | None:
    """The target, or None if there are several."""
    return silos.targets[0] if len(silos.targets) == 1 else None


def _silos(run: Run) -> Silos:
    return run.details
