"""``fedrank report``, ``compare``, ``cite``: what runs found, on a page, on the terminal, for machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    import rich.console
    import rich.table

    from fedrank.report.load import Run
    from fedrank.report.tables import Table

AsJson = Annotated[bool, Parameter(name="--json", negative="")]


def report(folder: Path, /, *, out: Path | None = None, as_json: AsJson = False) -> None:
    """Write a run's page and figures again and print its results.

    Args:
        folder: The run's directory; an unfinished run is shown as far as it got.
        out: The page's file; by default report.html in the run's directory.
        as_json: Print the results as JSON for machines.
    """
    from fedrank.report.load import load
    from fedrank.report.page import write_page

    run = load(folder)
    page = write_page(run, out)
    show(run, page, as_json=as_json)


def compare(*runs: Path, out: Path | None = None, as_json: AsJson = False) -> None:
    """Lay runs side by side: final values, differences with intervals, curves.

    Args:
        runs: Directories of two or more runs; differences are to the first.
        out: Directory for compare.html and its figures; by default nothing is written.
        as_json: Print the comparison as JSON for machines.
    """
    from fedrank.cli.terminal import print_json
    from fedrank.report import compare as comparison
    from fedrank.report.tables import to_json
    from fedrank.texts.report.privacy import budgets_table

    labelled = comparison.labelled(runs)
    spent = budgets_table(labelled, "run")
    page = comparison.write_comparison(runs, out) if out is not None else None
    if as_json:
        final = to_json(comparison.comparison_table(labelled))
        differs = to_json(comparison.changed_settings(labelled))
        paths = {label: str(run.path) for label, run in labelled.items()}
        privacy = {} if spent is None else {"privacy": to_json(spent)}
        print_json({"runs": paths, "final": final, **privacy, "differs": differs})
        return
    from rich.console import Console

    console = Console()
    console.print(_terminal_comparison(comparison.comparison_table(labelled, most_telling=True)))
    if spent is not None:
        console.print(
            _drawn(spent, [column.key for column in spent.columns if column.key not in ("words", "published")])
        )
        for note in spent.notes:
            console.print(note, highlight=False, markup=False)
    if page is not None:
        console.print(f"page: {page}", soft_wrap=True, highlight=False)


def cite(folder: Path, /) -> None:
    """Print the BibTeX of what a run used: protocol, data, users, metric, optimiser.

    Args:
        folder: The run's directory.
    """
    from fedrank.report.citations import citations
    from fedrank.report.load import load

    print(citations(load(folder)))


def show(run: Run, page: Path, *, as_json: bool) -> None:
    """Print a run's results.

    Args:
        run: The run.
        page: Its page.
        as_json: As one JSON document.
    """
    from fedrank.report import describe
    from fedrank.report.tables import final_table, to_json
    from fedrank.report.words import ledger_words, privacy_words
    from fedrank.slates.report.tables import platforms_table
    from fedrank.texts.report.tables import methods_table

    makers = ((run.texts, methods_table), (run.slates, platforms_table))
    final = next((make for part, make in makers if part is not None), final_table)(run)
    silos = _silos_for_machines(run) if run.silos is not None else {}
    silos |= _texts_for_machines(run) if run.texts is not None else {}
    silos |= _slates_for_machines(run) if run.slates is not None else {}
    if as_json:
        from fedrank.cli.terminal import print_json

        print_json(
            {
                "run": str(run.path),
                "page": str(page),
                "finished": run.finished,
                "caveats": describe.caveats(run),
                "config": dict(run.config),
                "environment": dict(run.environment),
                "final": to_json(final)["rows"],
                **silos,
                "privacy": to_json(run.privacy),
                "bytes": None
                if run.ledger is None
                else {who: run.ledger.bytes_from(who) for who in ("parties", "server")},
            }
        )
        return
    from rich.console import Console

    console = Console()
    if run.texts is not None:
        _print_texts(console, run)
    elif run.slates is not None:
        _print_slates(console, run, final)
    else:
        console.print(_terminal_table(final))
    for caveat in describe.caveats(run):
        console.print(f"{caveat}.", style="bold", highlight=False, markup=False)
    if run.silos is not None:
        _print_silos(console, run)
    for line in (*ledger_words(run), *privacy_words(run)):
        console.print(f"• {line}", highlight=False, markup=False)
    console.print(f"page: {page}", soft_wrap=True, highlight=False)


def _silos_for_machines(run: Run) -> dict[str, object]:
    """Who took part, who helped whom with the evidence, and the warnings in words."""
    from fedrank.report.tables import to_json
    from fedrank.silos.report.page import warnings

    assert run.silos is not None
    told = {"silos": run.silos.names, "targets": run.silos.targets, "warnings": warnings(run)}
    return {name: to_json(value) for name, value in {**told, "evidence": run.silos.evidence}.items()}


def _print_silos(console: rich.console.Console, run: Run) -> None:
    """What the page says first: undefined values, warnings, and a table of helpers for each target."""
    from rich import box
    from rich.table import Table as RichTable

    from fedrank.silos.report.page import warnings
    from fedrank.silos.report.tables import helpers_table

    assert run.silos is not None
    for line in run.silos.undefined:
        console.print(line, highlight=False, markup=False)
    for line in warnings(run):
        console.print(f"Warning: {line}", style="bold red", highlight=False, markup=False)
    for target in run.silos.compared:
        helpers = helpers_table(run, target)
        columns = [column for column in helpers.columns if column.key in ("silo", "verdict", "difference", "evidence")]
        table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
        for column in columns:
            title = helpers.title if column.key == "silo" else column.title
            table.add_column(title, justify="right" if column.numeric else "left", no_wrap=column.key != "silo")
        for row in helpers.rows:
            table.add_row(*(helpers.text(row, column) for column in columns))
        console.print(table)


def _texts_for_machines(run: Run) -> dict[str, object]:
    """Verdicts in words, every table of the page that the final values are not, and the gate's decisions."""
    from fedrank.report.tables import to_json
    from fedrank.texts.report import gate as text_gate
    from fedrank.texts.report import privacy as text_privacy
    from fedrank.texts.report import queries as text_queries
    from fedrank.texts.report import tables as text_tables
    from fedrank.texts.report.verdicts import verdicts

    assert run.texts is not None
    warned = text_privacy.warning(run)
    tables = {
        "search": text_tables.search_table(run),
        "silos": text_tables.silos_table(run),
        "gate": text_gate.gate_table(run),
        "by_query": text_queries.queries_table(run),
        "count_errors": text_privacy.errors_table(run),
        "questions": text_privacy.questions_table(run),
    }
    return {
        "warnings": [] if warned is None else [warned[0], *warned[1]],
        "verdicts": verdicts(run),
        **{name: None if table is None else to_json(table)["rows"] for name, table in tables.items()},
        "decisions": [vars(one) for one in run.texts.decisions],
    }


def _print_texts(console: rich.console.Console, run: Run) -> None:
    """What the page says first: a warning, the methods in 80 columns, a search of all documents, verdicts."""
    from fedrank.texts.report.privacy import warning
    from fedrank.texts.report.tables import methods_table, search_table
    from fedrank.texts.report.verdicts import verdicts

    warned = warning(run)
    if warned is not None:
        for line in (warned[0], *warned[1]):
            console.print(line, style="bold red", highlight=False, markup=False)
    shown = [(methods_table(run), ("m0", "gain", "lead")), (search_table(run), ("everywhere", "gain", "lead"))]
    for made, keys in shown:
        if made is not None:
            console.print(_drawn(made, ["method", *keys]))
    for line in verdicts(run):
        console.print(line, highlight=False, markup=False)


def _slates_for_machines(run: Run) -> dict[str, object]:
    """What came out in words, fixed policies, what crossed, the publication's metrics."""
    from fedrank.report.tables import to_json
    from fedrank.slates.report import published_metrics as slate_legacy
    from fedrank.slates.report import tables as slate_tables

    assert run.slates is not None
    tables = {
        "policies": slate_tables.policies_table(run),
        "crossed": slate_tables.crossed_table(run),
        "legacy": slate_legacy.legacy_table(run),
    }
    return {
        "platforms": [
            {"name": name, "feedback": sees} for name, sees in zip(run.slates.names, run.slates.feedback, strict=True)
        ],
        "faults": list(run.slates.faults),
        "verdicts": slate_tables.verdicts(run),
        **{name: None if table is None else to_json(table)["rows"] for name, table in tables.items()},
    }


def _print_slates(console: rich.console.Console, run: Run, final: Table) -> None:
    """What the page says first: what each platform brings, in 80 columns, and what that comes to in sentences."""
    from fedrank.slates.report.tables import verdicts

    console.print(_drawn(final, ["who", "value", "random", "regret"]))
    for line in verdicts(run):
        console.print(line, highlight=False, markup=False)


def _drawn(made: Table, keys: list[str]) -> rich.table.Table:
    """Some columns of a table."""
    from rich import box
    from rich.table import Table as RichTable

    columns = [column for column in made.columns if column.key in keys]
    table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, title=made.title)
    for column in columns:
        table.add_column(column.title, justify="right" if column.numeric else "left")
    for row in made.rows:
        table.add_row(*(made.text(row, column) for column in columns))
    return table


def _terminal_table(final: Table) -> rich.table.Table:
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


def _terminal_comparison(final: Table) -> rich.table.Table:
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
