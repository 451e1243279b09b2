"""Tables as plain data, and two ways to show them: on a page, to a program."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from fedrank.core.errors import FedrankError
from fedrank.core.trees import Json, flat
from fedrank.engine.methods import method
from fedrank.engine.settings import from_dict, settings_of
from fedrank.report import describe, wording
from fedrank.report.html import Html, h, join
from fedrank.report.run import Run
from fedrank.report.statistics import Estimate, Interval, final_values, first_values, mean_interval

#: Characters up to which the heading of a row stays on one line.
SHORT = 16


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        key: Key in each row, and in JSON.
        title: What a reader sees.
        numeric: Set flush right, in figures of one width.
        signed: Numbers carry their sign: a difference.
        digits: Decimals of measures.
        code: Set as code.
    """

    key: str
    title: str
    numeric: bool = False
    signed: bool = False
    digits: int = 4
    code: bool = False


@dataclass(frozen=True)
class Table:
    """A table as data.

    Attributes:
        title: What it shows.
        columns: In order.
        rows: Values by column key: text, numbers, None,
            :class:`~fedrank.report.statistics.Estimate` or :class:`~fedrank.report.statistics.Interval`.
        notes: What must be said with it.
        met: Of the printed numbers that it lays beside ours, how many ours meets, and how many there are.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Json], ...]
    notes: tuple[str, ...] = ()
    met: tuple[int, int] | None = None

    def text(self, row: Mapping[str, Json], column: Column, *, single: bool = True) -> str:
        """One cell for a reader; without ``single``, a mean of seeds too few for an interval stands alone."""
        value = row.get(column.key)
        if isinstance(value, Estimate) and not single:
            value = replace(value, values=())
        measure = isinstance(value, Estimate | Interval) or (isinstance(value, float) and column.numeric)
        return (
            wording.format_value(value, signed=column.signed, digits=column.digits)
            if measure
            else wording.number(value)
        )

    def as_html(self, *, filters: Mapping[str, str] = MappingProxyType({})) -> Html:
        """The table as markup, with its title as caption and its notes below, so that it can stand beside charts.

        The first column is the heading of its row. The table scrolls inside its frame where a screen is narrow.

        Args:
            filters: Keys of columns by whose values a reader can choose rows, each with the value that is chosen at
                first; empty: all rows are shown.
        """
        heads = h(
            "tr",
            *(
                h("th", c.title, scope="col", class_="number" if c.numeric else None, data_filter=filters.get(c.key))
                for c in self.columns
            ),
        )
        body = []
        for row in self.rows:
            cells = []
            for i, column in enumerate(self.columns):
                text = self.text(row, column)
                name, scope = ("th", "row") if i == 0 else ("td", None)
                content = h("code", text) if column.code else text
                kind = "number" if column.numeric else "short" if i == 0 and len(text) <= SHORT else None
                cells.append(h(name, content, scope=scope, class_=kind))
            body.append(h("tr", *cells))
        grid = h("table", h("caption", self.title), h("thead", heads), h("tbody", *body))
        frame = h("div", grid, class_="scroll", tabindex="0", role="region", aria_label=self.title)
        return join(frame, *(h("p", note, class_="note") for note in self.notes))


def table_of(title: str, columns: Iterable[Column], rows: Iterable[Sequence[Json]], notes: Sequence[str] = ()) -> Table:
    """A table whose rows are values in the order of its columns."""
    columns = tuple(columns)
    keys = [column.key for column in columns]
    return Table(title, columns, tuple(dict(zip(keys, row, strict=True)) for row in rows), tuple(notes))


def filled(columns: Iterable[Column], rows: Sequence[Mapping[str, Json]]) -> tuple[Column, ...]:
    """The columns in which any row has a value."""
    return tuple(column for column in columns if any(row.get(column.key) is not None for row in rows))


def final_table(run: Run) -> Table:
    """Final values, a row for each split and measure: the ranker over seeds, its gain, the baseline, the difference."""
    rows, seeds = [], set()
    for split in describe.SPLITS:
        for measure in run.measures(split):
            final = final_values(run.metrics, split, measure)
            first = first_values(run.metrics, split, measure)
            estimate = mean_interval(list(final.values()))
            seeds.add(estimate.n)
            mark = run.baseline.values.get((split, measure)) if run.baseline else None
            gain = [final[s] - first[s] for s in final]
            rows.append(
                {
                    "split": describe.SPLIT_NAMES[split],
                    "measure": measure,
                    "ranker": estimate,
                    "gain": mean_interval(gain),
                    "baseline": mark,
                    "difference": None if mark is None else _difference(run, estimate, mark),
                    **{f"baseline{i}": b.values.get((split, measure)) for i, b in enumerate(run.baselines[1:], 1)},
                }
            )
    columns = [
        Column("split", "split"),
        Column("measure", "measure"),
        Column("ranker", run.shown.learnt, numeric=True),
        Column("gain", "gain over start", numeric=True, signed=True),
    ]
    notes = [
        "online: mean over the last tenth of the rounds. Other splits: the last evaluation of all queries, or as named."
    ]
    if run.baseline:
        columns.append(Column("baseline", run.baseline.label, numeric=True))
        columns.append(Column("difference", f"difference to {run.baseline.name}", numeric=True, signed=True))
        columns.extend(Column(f"baseline{i}", b.label, numeric=True) for i, b in enumerate(run.baselines[1:], 1))
    notes.extend(run.shown.baseline_notes(run))
    notes.extend(note for b in run.baselines for note in b.notes)
    notes.append(wording.spread_note(*(seeds or {1})))
    return Table("Final values", tuple(columns), tuple(rows), (*notes, *(f"{c}." for c in describe.caveats(run))))


def _difference(run: Run, estimate: Estimate, mark: float) -> Estimate | Interval:
    # A baseline that was trained with the same seeds has its own spread: it is no constant.
    return Interval(estimate.mean - mark) if run.shown.spread_baselines else estimate.minus(mark)


#: Settings, or tables of them, that a reader looks for first.
_FIRST = ("protocol", "data", "clicks", "users", "ranker", "clients", "rounds", "seeds")


def config_table(run: Run) -> Table:
    """Every setting of the run, and what it is; those first that a reader looks for first."""
    place = {name: i for i, name in enumerate(_FIRST)}
    settings = sorted(flat(run.config), key=lambda one: place.get(one[0].partition(".")[0], len(place)))
    return settings_table(run, "Configuration", dict(settings))


def settings_table(run: Run, title: str, values: Mapping[str, Json], notes: Sequence[str] = ()) -> Table:
    """Values by dotted names of settings, with what each setting is; a name that is no setting stands for itself."""
    known = {}
    with suppress(FedrankError):  # of a package that is not installed, or an object of the caller's own
        known["protocol"] = method(str(run.config.get("protocol"))).summary
        known |= {name: one.metadata.get("help") for name, _, one in settings_of(from_dict(dict(run.config)))}
    rows = [{"key": key, "value": value, "help": known.get(key) or ""} for key, value in values.items()]
    columns = (Column("key", "setting", code=True), Column("value", "value"), Column("help", "what it is"))
    return Table(title, columns if any(row["help"] for row in rows) else columns[:2], tuple(rows), tuple(notes))


def environment_table(run: Run) -> Table:
    """Versions, machine and time; the command has its own place on the page."""
    rows = [
        {"what": k.replace("_", " ") if k.endswith("_per_second") else k, "value": v}
        for k, v in flat(run.environment)
        if k not in ("command", "citations", "notes")
    ]
    return Table("Environment", (Column("what", "what"), Column("value", "value")), tuple(rows))


def to_json(value: Any) -> Any:
    """Tables, estimates and plain values as what JSON can hold; infinite and undefined numbers become null."""
    if isinstance(value, Table):
        rows = [{c.key: to_json(row.get(c.key)) for c in value.columns} for row in value.rows]
        return {"title": value.title, "rows": rows, "notes": list(value.notes)}
    if isinstance(value, Estimate):
        numbers = {"mean": value.mean, "low": value.low, "high": value.high, "seeds": value.n, "method": value.method}
        return {k: to_json(v) for k, v in numbers.items()}
    if isinstance(value, Interval):
        return {k: to_json(v) for k, v in vars(value).items()}
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)
