"""``fedrank silos``: what a silo's statistician asks: coefficients of all rows, and whose models are worth having."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import cyclopts

from fedrank.cli.silo_tables import Columns, LabelledColumns, Names, table_of
from fedrank.cli.terminal import AsJson, print_json
from fedrank.cli.terminal import table as drawn
from fedrank.report.statistics import p_is, p_value

app = cyclopts.App(name="silos", help="Statistics of tables that lie at several silos, and whose models help whom.")


@app.command
def glm(
    data: str,
    *,
    family: Literal["logistic", "linear", "multinomial"] = "logistic",
    meaning: Annotated[LabelledColumns, cyclopts.Parameter(name="*")] = LabelledColumns(),  # noqa: B008 - frozen
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
        family: logistic, of a label of two values; linear, of a number; multinomial, of a label of several.
        meaning: What the columns mean.
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
    if family == "multinomial":
        if penalty or firth or meaning.positive is not None:
            raise ConfigError("a multinomial model has no --penalty, --firth or --positive.")
        _multinomial(data, meaning, columns, secure, level, as_json)
        return
    how = {"penalty": penalty, "firth": firth, "secure": secure}
    if family == "linear":
        table, labels = numbers_of(Path(data), meaning.silo, meaning.label, *_others(meaning))
        made = fit_silos(with_columns(table, columns), "linear", labels=labels, **how)
    else:
        table = table_of(data, meaning)
        made = fit_silos(with_columns(table, columns), **how)
    if as_json:
        print_json({"data": table.name, "label": table.label, "level": level, **made.as_json(level)})
        return
    from fedrank.cli.console import Console

    low, high = made.interval(level)
    ends = f"{level:.0%} interval"
    shown = drawn("", "estimate", "error", ends, "p", numbers=("estimate", "error", ends, "p"), whole=("",))
    for k, name in enumerate(made.names):
        p = "" if made.penalty else p_value(made.p[k])
        shown.add_row(name, _number(made.estimate[k]), _number(made.error[k]),
                      _between(low[k], high[k]), p)  # fmt: skip
    console = Console()
    console.print(shown)
    rows = ", ".join(f"{name} {count:,}" for name, count in zip(made.silos, made.rows, strict=True))
    said = "secure sums" if made.secure else "sums in the clear (--secure hides each silo's own)"
    console.print(f"{family} model of {table.label}; {sum(made.rows):,} rows: {rows}.", highlight=False)
    console.print(
        f"Equal to the fit of all rows at one place. {crossing(made.rounds, said, made.bytes_up)}",
        highlight=False,
    )
    for note in (*table.notes, *made.notes()):
        console.print(f"- {note}", highlight=False)


def _multinomial(
    data: str,
    meaning: LabelledColumns,
    columns: tuple[str, ...],
    secure: bool,
    level: float,
    as_json: bool,
) -> None:
    from fedrank.silos.glm.federated import references
    from fedrank.silos.glm.multinomial import fit_multinomial
    from fedrank.silos.glm.tables import levels_of, with_columns

    table, labels, levels = levels_of(Path(data), meaning.silo, meaning.label, *_others(meaning))
    table = with_columns(table, columns)
    first = references(table)
    kept = [k for k in range(table.n_features) if k not in first]
    parts = [(one.features[:, kept].astype(float), y) for one, y in zip(table.silos, labels, strict=True)]
    made = fit_multinomial(parts, levels, [table.feature_names[k] for k in kept], table.names, secure=secure)
    if as_json:
        print_json({"data": table.name, "label": meaning.label, "level": level, **made.as_json(level)})
        return
    from fedrank.cli.console import Console

    low, high = made.interval(level)
    ends = f"{level:.0%} interval"
    shown = drawn(
        meaning.label, "", "estimate", "error", ends, "p", numbers=("estimate", "error", ends, "p"), whole=("",)
    )
    for j, name in enumerate(made.levels[1:]):
        for k, column in enumerate(made.names):
            shown.add_row("" if k else name, column, _number(made.estimate[j, k]), _number(made.error[j, k]),
                          _between(low[j, k], high[j, k]), p_value(made.p[j, k]),
                          end_section=k == len(made.names) - 1)  # fmt: skip
    console = Console()
    console.print(shown)
    rows = ", ".join(f"{name} {count:,}" for name, count in zip(made.silos, made.rows, strict=True))
    said = "secure sums" if made.secure else "sums in the clear (--secure hides each silo's own)"
    console.print(
        f"Log-odds against {made.levels[0]}; {sum(made.rows):,} rows: {rows}. Equal to the fit of all rows at one "
        f"place. {crossing(made.rounds, said, made.bytes_up)}",
        highlight=False,
    )
    for note in (*table.notes, *made.notes()):
        console.print(f"- {note}", highlight=False)


@app.command
def survival(
    data: Path,
    *,
    time: str = "time",
    event: str = "event",
    by: str | None = None,
    columns: Names = (),
    meaning: Annotated[Columns, cyclopts.Parameter(name="*")] = Columns(),  # noqa: B008 - frozen
    strata: Annotated[bool, cyclopts.Parameter(negative="")] = False,
    secure: Annotated[bool, cyclopts.Parameter(negative="")] = False,
    level: float = 0.95,
    as_json: AsJson = False,
) -> None:
    """Survival of all silos' rows, from sums: Cox's model; with --by Kaplan-Meier curves and the log-rank test.

    Args:
        data: A CSV or parquet file with a column for the silo.
        time: Column with the time of the event, or until which a row was followed.
        event: Column that is 1 where there was an event, and 0 where following ended.
        meaning: What the columns mean.
        by: A column whose values are compared by curves and the log-rank test, in place of Cox's model.
        columns: The features to take; without it all.
        strata: Give each silo its own baseline hazard.
        secure: Add by a secure sum, which three or more silos can.
        level: Of the confidence intervals.
        as_json: Print JSON instead of a table.
    """
    import numpy as np

    from fedrank.core.errors import ConfigError
    from fedrank.silos.survival import curves, fit_cox, logrank
    from fedrank.silos.survival.tables import followed_of, grouped_of

    if not 0 < level < 1:
        raise ConfigError(f"the level of intervals must be between 0 and 1, got {level:g}.")
    if by is not None:
        table = grouped_of(data, meaning.silo, time, event, by, meaning.missing)
        made = curves(table.rows, table.groups, secure=secure)
        statistic, degrees, p = logrank(table.rows, table.groups, secure=secure)
        whole = [~(np.isnan(of.time) | np.isnan(of.event)) for of in table.rows]
        left_out = {name: int((~of).sum()) for name, of in zip(table.names, whole, strict=True)}
        if as_json:
            print_json({
                "silos": table.names, "chi2": statistic, "degrees": degrees, "p": p, "left_out": left_out,
                "notes": table.notes, "curves": [one.as_json(level) for one in made],
            })  # fmt: skip
            return
        from fedrank.cli.console import Console

        shown = drawn(by, "rows", "events", "median time", numbers=("rows", "events", "median time"))
        for one in made:
            pairs = zip(table.groups, whole, strict=True)
            count = sum(g == one.group and bool(ok) for of, kept in pairs for g, ok in zip(of, kept, strict=True))
            shown.add_row(one.group, f"{count:,}", f"{one.events.sum():,.0f}", f"{one.median:g}")
        Console().print(shown)
        Console().print(
            f"Log-rank: χ² {statistic:.3f} with {degrees} degrees of freedom, {p_is(p)}. The curves: --json. "
            f"{_left_out(left_out)} {READ_ALL}",
            highlight=False,
        )
        for note in table.notes:
            Console().print(f"- {note}", highlight=False)
        return
    table = followed_of(data, meaning.silo, time, event, columns, *_others(meaning))
    fit = fit_cox(table.rows, table.columns, silo_names=table.names, strata=strata, secure=secure)
    if as_json:
        print_json({"data": data.name, "level": level, **fit.as_json(level), "notes": table.notes})
        return
    from fedrank.cli.console import Console

    low, high = fit.interval(level)
    ends = f"{level:.0%} interval"
    numbers = ("hazard ratio", ends, "p", "proportional: p")
    shown = drawn("", *numbers, numbers=numbers, whole=("",))
    import math

    for k, name in enumerate(fit.names):
        shown.add_row(name, _number(math.exp(fit.estimate[k])),
                      _between(math.exp(low[k]), math.exp(high[k])), p_value(fit.p[k]),
                      p_value(fit.proportional[k]))  # fmt: skip
    console = Console()
    console.print(shown)
    counts = ", ".join(f"{n} {r:,} ({e:,})" for n, r, e in zip(fit.silos, fit.rows, fit.events, strict=True))
    left_out = dict(zip(fit.silos, fit.left_out, strict=True))
    console.print(f"Rows (events): {counts}. {_left_out(left_out)}", highlight=False)
    console.print(
        f"Equal to Cox’s model of all rows at one place. "
        f"{crossing(fit.rounds, 'secure sums' if fit.secure else 'sums', fit.bytes_up)}"
        + ("" if strata else " All silos would learn the times of events."),
        highlight=False,
    )
    for note in table.notes:
        console.print(f"- {note}", highlight=False)
    if fit.separated:
        console.print(f"- No finite hazard ratio: {', '.join(fit.separated)} separates the events.", highlight=False)
    elif not fit.converged:
        console.print("- Newton’s method did not come to an end: do not use these numbers.", highlight=False)


@app.command
def compare(
    data: str,
    *,
    target: Names = (),
    meaning: Annotated[LabelledColumns, cyclopts.Parameter(name="*")] = LabelledColumns(),  # noqa: B008 - frozen
    exclude: Names = (),
    seed: int = 0,
    out: Path | None = None,
    model: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Find the silos whose models help: from all rows, one division, and all that a sceptic tries first.

    Args:
        data: A CSV or parquet file with a column for the silo; or the name of a set (fedrank data list).
        target: Silos that ask, by name; without it each in turn.
        meaning: What the columns mean.
        exclude: Silos that are left out.
        seed: Draws the folds.
        out: Also write everything there: a page (.html), or JSON.
        model: Also write the recommended model there, for fedrank evaluate; of one target.
        as_json: Print JSON instead of tables.
    """
    import json

    from fedrank.core.errors import ConfigError
    from fedrank.silos.sceptic.compare import answer, targets_of

    table = table_of(data, meaning)
    for name in [table.names[table.index(name)] for name in exclude]:
        table = table.without(name)
    wanted, left = targets_of(table, target)
    if model is not None and len(wanted) != 1:
        raise ConfigError(f"a model is of one silo; name it: --target {table.names[wanted[0]]}.")
    answers = [answer(table, number, seed=seed) for number in wanted]
    made = {
        "data": table.name,
        "label": table.label,
        "generated": table.generated,
        "seed": seed,
        "notes": [*table.notes, *left],
        "answers": [one.as_json() for one in answers],
    }
    if out is not None and out.suffix in (".html", ".htm"):
        from fedrank.silos.report.answer import write_answers

        write_answers(made, answers, out)
    elif out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(made, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if model is not None:
        from fedrank.silos.sceptic.model import model_of

        model_of(answers[0]).save(model)
    if as_json:
        print_json(made)
        return
    _print(made, answers, out)


for _name, _help in (
    ("send", "Write what a silo may send to others: sums of its rows with a record's ε."),
    ("private", "Compare uses of others' messages with a record's ε to a silo's own model."),
):
    app.command(f"fedrank.cli.records:{_name}", name=_name, help=_help)


def _print(made: dict[str, Any], answers: list[Any], out: Path | None) -> None:
    from fedrank.cli.console import Console
    from fedrank.silos.sceptic.ways import WAYS

    console = Console()
    for one in answers:
        console.print(f"[bold]{one.headline()}[/bold]", highlight=False)
        for warning in one.warnings():
            console.print(f"[red]! {warning}[/red]", highlight=False)
        shown = drawn("way", "AUC", "95 %", "over alone", "95 % ", numbers=("AUC", "over alone"))
        kind = ""
        for row in one.rows:
            way = WAYS[row.way]
            if kind and kind != way.kind:
                shown.add_section()
            kind = way.kind
            mark = " ←" if row.way == one.use else ""
            title = way.title + (" (simulation only)" if kind == "simulation" else "") + mark
            gain = (
                ("", "")
                if row.way == "alone"
                else (signed_number(row.over_alone.value), ends_of(row.over_alone, signed=True))
            )
            shown.add_row(title, f"{row.auc.value:.3f}", ends_of(row.auc), *gain)
        console.print(shown)
        shown = drawn("silo", "rows", f"with its rows, {one.name}’s AUC", "like", numbers=("rows",))
        names = one.table.names
        fit = one.calibration
        low, high = fit.slope.interval()
        calibrated = (
            f"Brier {fit.brier:.3f} ({fit.brier_without:.3f} without a model); calibration slope {fit.slope.value:.2f} "
            f"({low:.2f} to {high:.2f}); conformal sets at {one.sets.level:.0%} hold {one.sets.coverage:.1%} of the "
            f"labels and name one label for {one.sets.single:.0%} of the rows."
        )
        for verdict in one.verdicts:
            like = [names[k] for k in one.probes.together.get(verdict.silo, ())]
            rows = f"{one.table.silos[verdict.silo].n_rows:,}"
            shown.add_row(names[verdict.silo], rows, verdict.text, ", ".join(like) or "none")
        console.print(shown)
        console.print(calibrated, highlight=False)
        low, high = one.nested.interval()
        console.print(
            f"The way to use was chosen on all of these rows, which flatters it; chosen anew in each fold: AUC "
            f"{one.nested.value:.3f} ({low:.3f} to {high:.3f}).",
            highlight=False,
        )
    console.print(
        "Scores are out-of-fold (5 folds); what a way has to choose is chosen inside the training rows. Intervals: "
        "DeLong. Verdicts: corrected for the number of silos. Like: silos whose coefficients are not told apart. "
        f"{READ_ALL}",
        highlight=False,
    )
    for note in made["notes"]:
        console.print(f"- {note}", highlight=False)
    if out is not None:
        console.print(f"written: {out}", highlight=False)


#: What a command that computes on a file of all silos does with rows.
READ_ALL = "This command read the rows of all silos in one place."


def crossing(rounds: int, what: str, size: int) -> str:
    """A sentence on what was read here, and on what would cross where each silo keeps its rows."""
    return f"{READ_ALL} Where each silo keeps its own, {rounds} {what}, {size / 1e3:,.0f} kB, would cross."


def ends_of(found: Any, signed: bool = False) -> str:
    """The ends of a 95 % interval."""
    low, high = found.interval()
    if low != low:
        return "no interval"
    form = "+.3f" if signed else ".3f"
    return f"{low:{form}} to {high:{form}}".replace("-", "−")


def signed_number(value: float) -> str:
    """A number with three decimals and its sign, plus or minus, as text."""
    return f"{value:+.3f}".replace("-", "−")


def _others(meaning: Columns) -> tuple[tuple[str, ...], ...]:
    """Columns that are left out, those that are names, and the values that mean a missing one."""
    return meaning.drop, meaning.categorical, meaning.missing


def _left_out(counts: dict[str, int]) -> str:
    """A sentence on the rows that lack a value, with their numbers by silo."""
    of = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)
    total = f"Left out, as they lack a value: {sum(counts.values()):,}"
    return f"{total} ({of})." if of else f"{total}."


def _between(low: float, high: float) -> str:
    """An interval; a dash where there is none."""
    return "–" if low != low else f"{_number(low)} to {_number(high)}"


def _number(value: float) -> str:
    return "–" if value != value else f"{value:.4g}".replace("-", "−")
