"""``fedrank silos``: what a silo's statistician asks: coefficients of all rows, and whose models are worth having."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import cyclopts

from fedrank.cli.report import drawn
from fedrank.cli.silo_tables import Columns, LabelledColumns, table_of
from fedrank.cli.terminal import AsJson, Names, Switch, headline, in_style, print_json, say
from fedrank.cli.terminal import table as rich_table
from fedrank.core.errors import ConfigError
from fedrank.report.statistics import p_is, p_value

app = cyclopts.App(name="silos", help="Statistics of tables that lie at several silos, and whose models help whom.")


@app.command
def glm(
    data: str,
    /,
    *,
    family: Literal["logistic", "linear", "multinomial"] = "logistic",
    meaning: Annotated[LabelledColumns, cyclopts.Parameter(name="*")] = LabelledColumns(),
    columns: Names = (),
    penalty: float = 0.0,
    firth: Switch = False,
    secure: Switch = False,
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
    """
    from fedrank.silos.glm import fit_silos
    from fedrank.silos.glm.tables import numbers_of, with_columns

    _check_level(level)
    how = {"penalty": penalty, "firth": firth, "secure": secure}
    if family == "multinomial":
        if penalty or firth or meaning.positive is not None:
            raise ConfigError("a multinomial model has no --penalty, --firth or --positive.")
        made: Any
        table, made = _multinomial(data, meaning, columns, secure)
        label, model = meaning.label, f"Log-odds against {made.levels[0]}"
    elif family == "linear":
        table, labels = numbers_of(Path(data), meaning.silo, meaning.label, *_others(meaning))
        made = fit_silos(with_columns(table, columns), "linear", labels=labels, **how)
        label, model = table.label, f"linear model of {table.label}"
    else:
        table = table_of(data, meaning)
        made = fit_silos(with_columns(table, columns), **how)
        label, model = table.label, f"logistic model of {table.label}"
    if as_json:
        print_json({"data": table.name, "label": label, "level": level, **made.as_json(level)})
        return
    numbers = ("estimate", "error", f"{level:.0%} interval", "p")
    low, high = made.interval(level)

    def cells(*at: int) -> list[str]:
        p = "" if family != "multinomial" and made.penalty else p_value(made.p[at])
        return [_number(made.estimate[at]), _number(made.error[at]), _between(low[at], high[at]), p]

    if family == "multinomial":
        shown = rich_table(label, "", *numbers, numbers=numbers, whole=("",))
        for j, name in enumerate(made.levels[1:]):
            for k, column in enumerate(made.names):
                shown.add_row("" if k else name, column, *cells(j, k), end_section=k == len(made.names) - 1)
    else:
        shown = rich_table("", *numbers, numbers=numbers, whole=("",))
        for k, name in enumerate(made.names):
            shown.add_row(name, *cells(k))
    rows = ", ".join(f"{name} {count:,}" for name, count in zip(made.silos, made.rows, strict=True))
    said = "secure sums" if made.secure else "sums in the clear (--secure hides each silo's own)"
    say(
        shown,
        f"{model}; {sum(made.rows):,} rows: {rows}. Equal to the fit of all rows at one place. "
        f"{_crossing(made.rounds, said, made.bytes_up)}",
        *(f"- {note}" for note in (*table.notes, *made.notes())),
    )


def _multinomial(data: str, meaning: LabelledColumns, columns: tuple[str, ...], secure: bool) -> tuple[Any, Any]:
    """A table, and the multinomial model of it."""
    from fedrank.silos.glm.federated import references
    from fedrank.silos.glm.multinomial import fit_multinomial
    from fedrank.silos.glm.tables import levels_of, with_columns

    table, labels, levels = levels_of(Path(data), meaning.silo, meaning.label, *_others(meaning))
    table = with_columns(table, columns)
    first = references(table)
    kept = [k for k in range(table.n_features) if k not in first]
    parts = [(one.features[:, kept].astype(float), y) for one, y in zip(table.silos, labels, strict=True)]
    names = [table.feature_names[k] for k in kept]
    return table, fit_multinomial(parts, levels, names, table.names, secure=secure)


@app.command
def survival(
    data: Path,
    /,
    *,
    time: str = "time",
    event: str = "event",
    by: str | None = None,
    columns: Names = (),
    meaning: Annotated[Columns, cyclopts.Parameter(name="*")] = Columns(),
    strata: Switch = False,
    secure: Switch = False,
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
    """
    import numpy as np

    from fedrank.silos.survival import curves, fit_cox, logrank
    from fedrank.silos.survival.tables import followed_of, grouped_of

    _check_level(level)
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
        shown = rich_table(by, "rows", "events", "median time", numbers=("rows", "events", "median time"))
        for one in made:
            pairs = zip(table.groups, whole, strict=True)
            count = sum(g == one.group and bool(ok) for of, kept in pairs for g, ok in zip(of, kept, strict=True))
            shown.add_row(one.group, f"{count:,}", f"{one.events.sum():,.0f}", f"{one.median:g}")
        say(
            shown,
            f"Log-rank: χ² {statistic:.3f} with {degrees} degrees of freedom, {p_is(p)}. The curves: --json. "
            f"{_left_out(left_out)} {READ_ALL}",
            *(f"- {note}" for note in table.notes),
        )
        return
    table = followed_of(data, meaning.silo, time, event, columns, *_others(meaning))
    fit = fit_cox(table.rows, table.columns, silo_names=table.names, strata=strata, secure=secure)
    if as_json:
        print_json({"data": data.name, "level": level, **fit.as_json(level), "notes": table.notes})
        return
    low, high = fit.interval(level)
    ends = f"{level:.0%} interval"
    numbers = ("hazard ratio", ends, "p", "proportional: p")
    shown = rich_table("", *numbers, numbers=numbers, whole=("",))
    for k, name in enumerate(fit.names):
        ratio, ends = _number(math.exp(fit.estimate[k])), _between(math.exp(low[k]), math.exp(high[k]))
        shown.add_row(name, ratio, ends, p_value(fit.p[k]), p_value(fit.proportional[k]))
    counts = ", ".join(f"{n} {r:,} ({e:,})" for n, r, e in zip(fit.silos, fit.rows, fit.events, strict=True))
    left_out = dict(zip(fit.silos, fit.left_out, strict=True))
    notes = list(table.notes)
    if fit.separated:
        notes.append(f"No finite hazard ratio: {', '.join(fit.separated)} separates the events.")
    elif not fit.converged:
        notes.append("Newton’s method did not come to an end: do not use these numbers.")
    say(
        shown,
        f"Rows (events): {counts}. {_left_out(left_out)}",
        f"Equal to Cox’s model of all rows at one place. "
        f"{_crossing(fit.rounds, 'secure sums' if fit.secure else 'sums', fit.bytes_up)}"
        + ("" if strata else " All silos would learn the times of events."),
        *(f"- {note}" for note in notes),
    )


@app.command
def compare(
    data: str,
    /,
    *,
    target: Names = (),
    meaning: Annotated[LabelledColumns, cyclopts.Parameter(name="*")] = LabelledColumns(),
    without: Names = (),
    seed: int = 0,
    out: Path | None = None,
    save_model: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Find the silos whose models help: from all rows, one division, and all that a sceptic tries first.

    Args:
        data: A CSV or parquet file with a column for the silo; or the name of a set (fedrank data list).
        target: Silos that ask, by name; without it each in turn.
        meaning: What the columns mean.
        without: Silos that are left out.
        seed: Draws the folds.
        out: Also write everything there: a page (.html), or JSON.
        save_model: Also write the recommended model there, for fedrank evaluate; of one target.
    """
    from fedrank.silos.report.answer import answers_sentence
    from fedrank.silos.sceptic.compare import answer, targets_of

    table = table_of(data, meaning)
    for name in [table.names[table.index(name)] for name in without]:
        table = table.without(name)
    wanted, left = targets_of(table, target)
    if save_model is not None and len(wanted) != 1:
        raise ConfigError(f"a model is of one silo; name it: --target {table.names[wanted[0]]}.")
    answers = [answer(table, number, seed=seed) for number in wanted]
    made = {
        "sentence": str(answers_sentence(answers)),
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
    if save_model is not None:
        from fedrank.silos.sceptic.model import model_of

        model_of(answers[0]).save(save_model)
    if as_json:
        print_json(made)
        return
    _print(made, answers, out)


for _name, _help in (
    ("codebook", "Draft the codebook of a study from one silo's table, or check one and print its hash."),
    ("answer", "Answer a round of a study from one silo's own table; the answer is a file to send."),
    ("key", "Make a silo's key for secure sums, and print its public half for the codebook."),
    ("combine", "Take silos' answers into a study's folder: write the next round, or at the end the results."),
    ("analyse", "Simulate a study on a file that holds the rows of all silos."),
):
    app.command(f"fedrank.cli.studies:{_name}", name=_name, help=_help)
for _name, _help in (
    ("send", "Write what a silo may send to others: sums of its rows with a record's ε."),
    ("private", "Compare uses of others' messages with a record's ε to a silo's own model."),
):
    app.command(f"fedrank.cli.records:{_name}", name=_name, help=_help)


def _print(made: dict[str, Any], answers: list[Any], out: Path | None) -> None:
    from fedrank.silos.report.answer import calibration_words, verdicts_table, ways_table

    shown: list[Any] = [headline(made["sentence"])] if len(answers) > 1 else []
    for one in answers:
        nested = one.nested
        shown += [
            headline(one.headline()),
            *(in_style(f"! {warning}", "red") for warning in one.warnings()),
            drawn(ways_table(one), ("way", "auc", "gain")),
            drawn(verdicts_table(one), ("silo", "verdict", "gain", "visible", "like")),
            calibration_words(one),
            "The way to use was chosen on all of these rows, which flatters it; chosen anew in each fold: AUC "
            f"{nested.value:.3f} ({ends_of(nested)}).",
        ]
    say(
        *shown,
        "Scores are out-of-fold (5 folds); what a way has to choose is chosen inside the training rows. Intervals: "
        f"DeLong. Verdicts: corrected for the number of silos. {READ_ALL}",
        *(f"- {note}" for note in made["notes"]),
        *([] if out is None else [f"written: {out}"]),
    )


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ConfigError(f"the level of intervals must be between 0 and 1, got {level:g}.")


#: What a command that computes on a file of all silos does with rows.
READ_ALL = "This command read the rows of all silos in one place."


def _crossing(rounds: int, what: str, size: int) -> str:
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
