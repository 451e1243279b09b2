"""``fedrank silos``: what a silo's statistician asks: coefficients of all rows, and whose models are worth having."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import cyclopts

from fedrank.cli.flags import AsJson
from fedrank.cli.terminal import print_json
from fedrank.cli.terminal import table as drawn

app = cyclopts.App(name="silos", help="Statistics of tables that lie at several silos, and whose models help whom.")

#: A flag that takes several names.
Names = Annotated[tuple[str, ...], cyclopts.Parameter(consume_multiple=True, negative="")]


@app.command
def glm(
    data: str,
    *,
    family: Literal["logistic", "linear"] = "logistic",
    silo: str = "silo",
    label: str = "label",
    positive: str | None = None,
    drop: Names = (),
    categorical: Names = (),
    columns: Names = (),
    penalty: float = 0.0,
    firth: Annotated[bool, cyclopts.Parameter(negative="")] = False,
    secure: Annotated[bool, cyclopts.Parameter(negative="")] = False,
    level: float = 0.95,
    as_json: AsJson = False,
) -> None:
    """A generalised linear model of all silos' rows, from sums: what the rows at one place would give.

    Args:
        data: A CSV or parquet file with a column for the silo; or the name of a set (fedrank data list).
        family: logistic, of a label of two values; linear, of a number.
        silo: Column that says whose row it is.
        label: Column with the label.
        positive: Value of the label that counts as 1.
        drop: Columns that are no features, such as an id.
        categorical: Columns of numbers that are names, one coefficient a value.
        columns: The features to take; without it all.
        penalty: Strength of an L2 penalty on standardised columns.
        firth: Firth's penalty, where a column separates the labels.
        secure: Add by a secure sum, which three or more silos can.
        level: Of the confidence intervals.
        as_json: Print JSON instead of a table.
    """
    from fedrank.core.errors import ConfigError
    from fedrank.silos.glm import fit_silos
    from fedrank.silos.glm.tables import numbers_of, with_columns

    if not 0 < level < 1:
        raise ConfigError(f"the level of intervals must be between 0 and 1, got {level:g}.")
    how = {"penalty": penalty, "firth": firth, "secure": secure}
    if family == "linear":
        table, labels = numbers_of(Path(data), silo, label, drop, categorical)
        made = fit_silos(with_columns(table, columns), "linear", labels=labels, **how)
    else:
        table = _table(data, silo, label, positive, drop, categorical)
        made = fit_silos(with_columns(table, columns), **how)
    if as_json:
        print_json({"data": table.name, "label": table.label, "level": level, **made.as_json(level)})
        return
    from rich.console import Console

    low, high = made.interval(level)
    ends = f"{level:.0%} interval"
    shown = drawn("", "estimate", "error", ends, "p", numbers=("estimate", "error", ends, "p"), whole=("",))
    for k, name in enumerate(made.names):
        p = "" if made.penalty else _p(made.p[k])
        shown.add_row(name, _number(made.estimate[k]), _number(made.error[k]),
                      f"{_number(low[k])} to {_number(high[k])}", p)  # fmt: skip
    console = Console()
    console.print(shown)
    rows = ", ".join(f"{name} {count:,}" for name, count in zip(made.silos, made.rows, strict=True))
    said = "secure sums" if made.secure else "sums in the clear (--secure hides each silo's own)"
    console.print(f"{family} model of {table.label}; {sum(made.rows):,} rows: {rows}.", highlight=False)
    console.print(
        f"Equal to the fit of all rows at one place; {made.rounds} {said}; {made.bytes_up / 1e3:,.0f} kB sent.",
        highlight=False,
    )
    for note in (*table.notes, *made.notes()):
        console.print(f"- {note}", highlight=False)


def _table(
    data: str, silo: str, label: str, positive: str | None, drop: tuple[str, ...], categorical: tuple[str, ...]
) -> Any:
    from fedrank.data import load
    from fedrank.silos.data.reader import SiloReader

    reader = SiloReader(silo=silo, label=label, positive=positive, drop=drop, categorical=categorical, gaps="impute")
    return load(data, reader)


def _number(value: float) -> str:
    return "–" if value != value else f"{value:.4g}".replace("-", "−")


def _p(value: float) -> str:
    return "–" if value != value else "< 0.0001" if value < 1e-4 else f"{value:.4f}"
