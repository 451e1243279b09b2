"""``fedrank report``, ``compare``: what runs found, on a page, on the terminal, for machines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedrank.cli.terminal import AsJson, Switch, headline, in_style, print_json, say
from fedrank.cli.terminal import table as rich_table

#: Runs that a table of settings has a column for on a terminal.
_COLUMNS = 3


def report(
    folder: Path,
    /,
    *,
    out: Path | None = None,
    png: Switch = False,
    cite: Switch = False,
    as_json: AsJson = False,
) -> None:
    """Write a run's page and figures again and print its results.

    Args:
        folder: The run's directory; an unfinished run is shown as far as it got.
        out: The page's file; by default report.html in the run's directory.
        png: Write the figures beside the page as PNG files too.
        cite: Only print the BibTeX of what the run used: protocol, data, users, metric, optimiser.
    """
    from fedrank.report.load import load
    from fedrank.report.page import write_page
    from fedrank.report.sections import citations

    run = load(folder)
    if cite:
        print(citations(run))
        return
    show(run, write_page(run, out, png=png), as_json=as_json)


def compare(*runs: Path, out: Path | None = None, as_json: AsJson = False) -> None:
    """Say what differs between runs, then lay them side by side: final values, differences with intervals, curves.

    A difference is taken between runs with the same data, seed by seed. Where there is none, a sentence says why.

    Args:
        runs: Directories of two or more runs; differences are to the first.
        out: Directory for compare.html and its figures; by default nothing is written.
    """
    compare_runs(runs, out, as_json)


def compare_runs(runs: Sequence[Path], out: Path | None, as_json: bool, pool: bool = False) -> None:
    """Print a comparison, and write its page.

    Args:
        runs: Directories of two or more runs.
        out: The page's directory; None writes none.
        as_json: Print JSON.
        pool: Average over runs that differ in nothing but the fold.
    """
    from fedrank.report import compare as comparison
    from fedrank.report.tables import to_json

    labelled = comparison.load_runs(runs)
    spent = comparison.privacy_table(labelled)
    differs = comparison.changed_settings(labelled)
    page = comparison.write_comparison(labelled, out) if out is not None else None
    sentence = str(comparison.comparison_opening(labelled).sentence)
    if as_json:
        final = comparison.comparison_table(labelled, pool=pool)
        content = {
            "sentence": sentence,
            "runs": {label: str(run.path) for label, run in labelled.items()},
            "differs": to_json(differs),
            "not_comparable": comparison.refusals(labelled, pool=pool),
            "final": to_json(final),
        }
        print_json(content if spent is None else {**content, "privacy": to_json(spent)})
        return
    final = comparison.comparison_table(labelled, most_telling=True, pool=pool)
    shown = [
        headline(sentence),
        *_differences(differs, list(labelled)),
        *(in_style(line, "bold") for line in comparison.refused_words(labelled, pool=pool)),
        _terminal_comparison(final),
        *(comparison.pooled_words(labelled) if pool else ()),
    ]
    if spent is not None:
        keys = [column.key for column in spent.columns if column.key not in ("words", "published")]
        shown += [drawn(spent, keys), *spent.notes]
    say(*shown, page=page)


def _differences(differs: Any, labels: list[str]) -> list[Any]:
    """Lines and tables of what differs: a column a run where they fit, else each setting with values and runs."""
    if not differs.rows:
        return [differs.notes[0]]
    if len(labels) <= _COLUMNS:
        return [drawn(differs)]
    lines: list[Any] = [in_style("What differs", "bold")]
    for row in differs.rows:
        values: dict[str, list[str]] = {}
        for label, column in zip(labels, differs.columns[1:], strict=True):
            values.setdefault(differs.text(row, column), []).append(label)
        lines.append(f"• {row['key']}: " + "; ".join(f"{value} ({_few(whose)})" for value, whose in values.items()))
    return lines


def _few(names: list[str]) -> str:
    """Up to three names, and how many more there are."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def show(run: Any, page: Path | None, *, as_json: bool) -> None:
    """Print a run's results.

    Args:
        run: The run.
        page: Its page; None if it has none.
        as_json: As one JSON document.
    """
    from fedrank.report import describe
    from fedrank.report.tables import to_json
    from fedrank.report.words import ledger_words, privacy_words

    final = run.shown.final(run)
    if as_json:
        print_json(
            {
                "run": str(run.path),
                "page": None if page is None else str(page),
                "finished": run.finished,
                "sentence": str(run.shown.opening(run).sentence),
                "caveats": describe.caveats(run),
                "config": dict(run.config),
                "environment": dict(run.environment),
                "final": to_json(final)["rows"],
                **run.shown.for_machines(run),
                "privacy": run.privacy and run.privacy.as_json(),
                "bytes": None
                if run.ledger is None
                else {who: run.ledger.bytes_from(who) for who in ("parties", "server")},
            }
        )
        return
    first = run.shown.terminal(run)
    say(
        headline(run.shown.opening(run).sentence),
        *([_terminal_table(final)] if first is None else _parts(first)),
        *(in_style(f"{caveat}.", "bold") for caveat in describe.other_caveats(run)),
        *_parts(run.shown.terminal_after(run)),
        *(f"• {line}" for line in (*ledger_words(run), *privacy_words(run))),
        page=page,
    )


def _parts(parts: list[Any]) -> list[Any]:
    """Lines, and tables with the keys of their columns, as :func:`say` takes them."""
    from fedrank.report.run import Line

    return [
        in_style(one.text, "bold red" if one.warning else "") if isinstance(one, Line) else drawn(one[0], list(one[1]))
        for one in parts
    ]


def drawn(made: Any, keys: Sequence[str] = ()) -> Any:
    """A table of a report on a terminal: some columns by their keys, or all."""
    columns = [column for column in made.columns if not keys or column.key in keys]
    numbers = [column.title for column in columns if column.numeric]
    table = rich_table(*(column.title for column in columns), numbers=numbers, title=made.title)
    for row in made.rows:
        table.add_row(*(made.text(row, column) for column in columns))
    return table


def _terminal_table(final: Any) -> Any:
    """The final values in 80 columns: one line each; the page has the rest."""
    mark = next((column for column in final.columns if column.key == "baseline"), None)
    shown = [column for column in final.columns if column.key in ("split", "measure", "ranker", "baseline")]
    titles = [column.title.replace(" from clicks", "") for column in shown]
    numbers = [title for title, column in zip(titles, shown, strict=True) if column.numeric]
    if mark is not None:
        to = next(column.title for column in final.columns if column.key == "difference").removeprefix("difference ")
        titles, numbers = [*titles, to], [*numbers, to]
    table, last = rich_table(*titles, numbers=numbers, whole=titles), ""
    for row in final.rows:
        cells = [final.text(row, column, single=False) for column in shown]
        if mark is not None:
            cells.append("–" if row["difference"] is None else f"{row['difference'].mean:+.4f}".replace("-", "−"))
        cells[0] = "" if row["split"] == last else cells[0].replace("validation", "vali")  # 80 columns
        last = row["split"]
        table.add_row(*cells)
    return table


def _terminal_comparison(final: Any) -> Any:
    """The comparison in few columns: the measure as a heading over its runs."""
    numbers = ("value", "difference to the first")
    table, heading = rich_table("run", *numbers, numbers=numbers, whole=numbers), ""
    columns = {column.key: column for column in final.columns}
    for row in final.rows:
        if (now := f"{row['measure']}, {row['split']}") != heading:
            heading = now
            table.add_row(f"[bold]{heading}[/bold]", "", "")
        table.add_row(*(final.text(row, columns[key], single=False) for key in ("run", "value", "difference")))
    return table
