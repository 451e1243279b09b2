"""The opening of a page of a comparison: the run that reaches most on the most telling measure, against the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedrank.core.trees import Json
from fedrank.report import describe, sentences
from fedrank.report.opening import MOST_NUMBERS, Number, Opening
from fedrank.report.run import Run
from fedrank.report.tables import Table

#: Settings that the sentence names; the table has all of them.
MOST_SETTINGS = 4

#: Beginnings of measures of which less is better: a page does not open with them.
_LESS_IS_BETTER = ("log-loss", "MAP-JOS")


def comparison_opening(runs: Mapping[str, Run], table: Table, differs: Table, charts: Sequence[str]) -> Opening:
    """Title, sentence, chart and numbers of a comparison.

    Args:
        runs: By label.
        table: Final values, and differences where runs can be compared.
        differs: The settings in which the runs differ.
        charts: Names of the page's charts.
    """
    first, *others = runs
    title = f"{others[0]} against {first}" if len(others) == 1 else f"{len(others)} runs against {first}"
    chart = (
        (charts[0], f"Learning curves of {len(runs)} runs. The final values are in the table below.") if charts else ()
    )
    rows = _leading(table)
    closing = _differing(differs)
    closing += "".join(dict.fromkeys(sentences.closing(run) for run in runs.values()))
    if not rows:
        return Opening(title, f"The runs have no measure in common.{closing}", (), *chart)
    digits = next(column.digits for column in table.columns if column.key == "value")
    numbers = []
    for row in rows[:MOST_NUMBERS]:
        difference, half = row["difference"], row["value"].half
        note = "" if half is None else f"± {half:.{digits}f}"
        if difference is not None:
            amount = describe.format_value(difference, signed=True, digits=digits)
            note = f"{amount}: {sentences.interval_words(difference)}"
        numbers.append(Number(str(row["run"]), describe.format_value(row["value"].mean, digits=digits), note))
    named = f"{rows[0]['measure']} ({rows[0]['split']})"
    compared = [row for row in rows if row["difference"] is not None]
    if not compared:
        sentence = f"No difference is given in {named}: see below what differs."
    else:
        best = max(compared, key=lambda row: row["difference"].mean)
        amount = describe.format_value(best["difference"].mean, signed=True, digits=digits)
        told = {"a gain": "a gain", "a loss": "a loss", "may be chance": "which may be chance"}
        known = told.get(sentences.interval_words(best["difference"]), "without an interval")
        reached = describe.format_value(best["value"].mean, digits=digits)
        who = f"{best['run']} reaches" + (", most of what is compared," if len(compared) > 1 else "")
        split = str(rows[0]["split"])
        where = {"online": "In the users’ own sessions", "sum": "In the sum"}.get(split, f"On {split} data")
        measure, other = rows[0]["measure"], rows[0]["run"]
        sentence = f"{where}, {who} {measure} {reached}: {amount} against {other}, {known}."
    return Opening(title, sentence + closing, tuple(numbers), *chart)


def _differing(differs: Table) -> str:
    """In which settings the runs differ, as a sentence."""
    keys = [str(row["key"]) for row in differs.rows]
    if not keys:
        return " Their settings are the same."
    some = keys if len(keys) <= MOST_SETTINGS else [*keys[: MOST_SETTINGS - 1], f"{len(keys) - MOST_SETTINGS + 1} more"]
    return f" They differ in {describe.in_words(some)}."


def _leading(table: Table) -> list[Mapping[str, Json]]:
    """The rows of the most telling measure that two runs or more have, the first run's first; empty if none has."""
    order = [describe.SPLIT_NAMES[split] for split in ("test", "vali", "train", "online", "total")]
    groups: dict[tuple[str, str], list[Mapping[str, Json]]] = {}
    for row in table.rows:
        groups.setdefault((str(row["split"]), str(row["measure"])), []).append(row)
    for split in order:
        for (of, measure), rows in groups.items():
            if of == split and len(rows) > 1 and not measure.startswith(_LESS_IS_BETTER):
                return rows
    return []
