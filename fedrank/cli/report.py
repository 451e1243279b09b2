"""``fedrank report``, ``compare``, ``cite``: what runs found, on a page, on the terminal, for machines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrank.cli.terminal import AsJson

if TYPE_CHECKING:
    import rich.console
    import rich.table

#: Runs that a table of settings has a column for on a terminal.
_COLUMNS = 3


def report(folder: Path, /, *, out: Path | None = None, png: bool = False, as_json: AsJson = False) -> None:
    """Write a run's page and figures again and print its results.

    Args:
        folder: The run's directory; an unfinished run is shown as far as it got.
        out: The page's file; by default report.html in the run's directory.
        png: Write the figures beside the page as PNG files too.
        as_json: Print the results as JSON for machines.
    """
    from fedrank.report.load import load
    from fedrank.report.page import write_page

    run = load(folder)
    page = write_page(run, out, png=png)
    show(run, page, as_json=as_json)


def compare(*runs: Path, out: Path | None = None, as_json: AsJson = False) -> None:
    """Say what differs between runs, then lay them side by side: final values, differences with intervals, curves.

    A difference is taken between runs with the same data, seed by seed. Where there is none, a sentence says why.

    Args:
        runs: Directories of two or more runs; differences are to the first.
        out: Directory for compare.html and its figures; by default nothing is written.
        as_json: Print the comparison as JSON for machines.
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
    from fedrank.cli.terminal import print_json
    from fedrank.report import compare as comparison
    from fedrank.report.tables import to_json

    labelled = comparison.load_runs(runs)
    spent = comparison.privacy_table(labelled, "run")
    differs = comparison.changed_settings(labelled)
    page = comparison.write_comparison(runs, out) if out is not None else None
    if as_json:
        final = comparison.comparison_table(labelled, pool=pool)
        content = {
            "runs": {label: str(run.path) for label, run in labelled.items()},
            "differs": to_json(differs),
            "not_comparable": comparison.refusals(labelled, pool=pool),
            "final": to_json(final),
        }
        print_json(content if spent is None else {**content, "privacy": to_json(spent)})
        return
    from fedrank.cli.console import Console

    console = Console()
    _print_differences(console, differs, list(labelled))
    for line in comparison.refused_words(labelled, pool=pool):
        console.print(line, style="bold", highlight=False, markup=False)
    final = comparison.comparison_table(labelled, most_telling=True, pool=pool)
    console.print(_terminal_comparison(final))
    for line in comparison.pooled_words(labelled) if pool else ():
        console.print(line, highlight=False, markup=False)
    if spent is not None:
        console.print(
            drawn(spent, [column.key for column in spent.columns if column.key not in ("words", "published")])
        )
        for note in spent.notes:
            console.print(note, highlight=False, markup=False)
    if page is not None:
        console.print(f"page: {page}", soft_wrap=True, highlight=False)


def _print_differences(console: rich.console.Console, differs: Any, labels: list[str]) -> None:
    """Print the differences: a column a run where two or three fit, else each setting with values and runs."""
    if not differs.rows:
        console.print(differs.notes[0], highlight=False)
    elif len(labels) <= _COLUMNS:
        console.print(drawn(differs, [column.key for column in differs.columns]))
    else:
        console.print("What differs", style="bold")
        for row in differs.rows:
            values: dict[str, list[str]] = {}
            for label, column in zip(labels, differs.columns[1:], strict=True):
                values.setdefault(differs.text(row, column), []).append(label)
            said = "; ".join(f"{value} ({_few(whose)})" for value, whose in values.items())
            console.print(f"• {row['key']}: {said}", highlight=False, markup=False)


def _few(names: list[str]) -> str:
    """Up to three names, and how many more there are."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def cite(folder: Path, /) -> None:
    """Print the BibTeX of what a run used: protocol, data, users, metric, optimiser.

    Args:
        folder: The run's directory.
    """
    from fedrank.report.load import load
    from fedrank.report.sections import citations

    print(citations(load(folder)))


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
        from fedrank.cli.terminal import print_json

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
    from fedrank.cli.console import Console

    console = Console()
    console.print(str(run.shown.opening(run).sentence), style="bold", highlight=False, markup=False)
    first = run.shown.terminal(run)
    if first is None:
        console.print(_terminal_table(final))
    _print(console, first or [])
    for caveat in describe.other_caveats(run):
        console.print(f"{caveat}.", style="bold", highlight=False, markup=False)
    _print(console, run.shown.terminal_after(run))
    for line in (*ledger_words(run), *privacy_words(run)):
        console.print(f"• {line}", highlight=False, markup=False)
    if page is not None:
        console.print(f"page: {page}", soft_wrap=True, highlight=False)


def _print(console: rich.console.Console, parts: list[Any]) -> None:
    """Lines, and tables with the keys of the columns to show."""
    from fedrank.report.run import Line

    for part in parts:
        if isinstance(part, Line):
            console.print(part.text, style="bold red" if part.warning else None, highlight=False, markup=False)
        else:
            made, keys = part
            console.print(drawn(made, list(keys)))


def drawn(made: Any, keys: list[str]) -> rich.table.Table:
    """Some columns of a table."""
    from fedrank.cli.terminal import table as rich_table

    columns = [column for column in made.columns if column.key in keys]
    numbers = [column.title for column in columns if column.numeric]
    table = rich_table(*(column.title for column in columns), numbers=numbers, title=made.title)
    for row in made.rows:
        table.add_row(*(made.text(row, column) for column in columns))
    return table


def _terminal_table(final: Any) -> rich.table.Table:
    """The final values in 80 columns: one line each; the page has the rest."""
    from rich import box
    from rich.table import Table as RichTable

    mark = next((column for column in final.columns if column.key == "baseline"), None)
    shown = [column for column in final.columns if column.key in ("split", "measure", "ranker", "baseline")]
    table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in shown:
        table.add_column(
            column.title.replace(" from clicks", ""), justify="right" if column.numeric else "left", no_wrap=True
        )
    if mark is not None:
        to = next(column.title for column in final.columns if column.key == "difference")
        table.add_column(to.removeprefix("difference "), justify="right", no_wrap=True)
    last = ""
    for row in final.rows:
        cells = [final.text(row, column) for column in shown]
        if mark is not None:
            cells.append("–" if row["difference"] is None else f"{row['difference'].mean:+.4f}".replace("-", "−"))
        cells[0] = "" if row["split"] == last else cells[0].replace("validation", "vali")  # 80 columns
        last = row["split"]
        table.add_row(*cells)
    return table


def _terminal_comparison(final: Any) -> rich.table.Table:
    """The comparison in few columns: the measure as a heading over its runs."""
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("run")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("difference to the first", justify="right", no_wrap=True)
    columns = {column.key: column for column in final.columns}
    heading = ""
    for row in final.rows:
        if (now := f"{row['measure']}, {row['split']}") != heading:
            heading = now
            table.add_row(f"[bold]{heading}[/bold]", "", "")
        table.add_row(*(final.text(row, columns[key]) for key in ("run", "value", "difference")))
    return table
