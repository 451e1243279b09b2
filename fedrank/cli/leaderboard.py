"""``fedrank leaderboard``: every method that ranks, under the same budgets; ``leaderboard submit``: rows of others."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from fedrank.cli.terminal import AsJson, Quiet
from fedrank.core.errors import ConfigError
from fedrank.engine.executors.choose import Engine

app = App(name="leaderboard")

Names = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]
Switch = Annotated[bool, Parameter(negative="")]

_OUT = Path("runs") / "leaderboard"


@app.default
def leaderboard(
    out: Path = _OUT,
    /,
    *,
    methods: Names = None,
    data: Names = None,
    clicks: Names = None,
    full: Switch = False,
    fraction: float = 1.0,
    divisions: int = 1,
    seeds: int = 3,
    seed: int = 100,
    engine: Engine = "processes",
    workers: int = 0,
    address: str = "",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run every method that ranks under the same budgets and compare them: about 35 minutes of processor time.

    One budget of interactions and one of bytes; users, ways in which devices differ, promises of privacy and attackers
    change one at a time. Stopped or killed, the same command goes on where it was.

    Args:
        out: The leaderboard's directory.
        methods: Some methods only; by default all that rank, those of other packages too (fedrank protocols), but for
            coltr, foltr-coltr and rankguard, which take hours.
        data: Data sets or paths; by default MQ2008, ClueWeb09 and the MSLR sample where they are here; all: every set
            that is here. All folds that are here are used.
        clicks: Click models of the users, the first of which is the one where other things change.
        full: Every combination, all click models, two-layer rankers and all robust rules: days of processor time.
        fraction: Part of the rounds and seeds to run, for a quick look: 0.1.
        divisions: Divisions into training and held-out queries of data without a test part.
        seeds: Runs of each cell.
        seed: The first of their seeds.
        engine: Who computes: this process (here), processes of this machine, or a cluster of dask or ray, extras.
        workers: Processes on this machine; 0: one a processor.
        address: Of a cluster of dask or ray that runs already.
        quiet: No progress.
        as_json: Print the results as JSON for machines.
    """
    from fedrank.engine.executors.choose import executor
    from fedrank.ranking.leaderboard.board import run_board
    from fedrank.ranking.leaderboard.grid import Terms, default_grid, entrants, parts_here

    if divisions < 1:
        raise ConfigError(f"divisions must be at least 1, got {divisions}.")
    terms = Terms(seeds=seeds, seed=seed).part(fraction)
    who = entrants(methods or (), full=full)
    grid = default_grid(terms, parts_here(data or (), divisions=divisions), who, clicks=clicks or (), full=full)
    with executor(engine, workers, address) as computing:
        standings = run_board(grid, out, computing, _heard(quiet))
    _show(standings, out, as_json)


@app.command
def submit(file: Path, out: Path = _OUT, /, *, as_json: AsJson = False) -> None:
    """Check rows of another program, or of runs of your own, and show them on the page as submitted.

    The file is a CSV with a line for each seed and division; the documentation lists its columns.

    Args:
        file: The CSV file.
        out: The leaderboard's directory.
        as_json: Print the results as JSON for machines.
    """
    from fedrank.ranking.leaderboard.board import read_grid, standings_of
    from fedrank.ranking.leaderboard.submitted import submit as take

    grid = read_grid(out)
    rows = take(file, out, grid)
    if not as_json:
        print(f"taken: {len(rows)} row{'s' * (len(rows) != 1)} of {file}")
    _show(standings_of(grid, out), out, as_json)


def _heard(quiet: bool):
    """A listener that prints the progress of the cells, on the terminal or in a log."""
    from fedrank.cli.terminal import time_left
    from fedrank.ranking.leaderboard.board import about

    terminal, last = sys.stderr.isatty(), -math.inf

    def heard(done) -> None:
        nonlocal last
        now = time.monotonic()
        if quiet or (not terminal and now - last < 10 and done.cells < done.of):
            return
        last = now
        line = f"{done.cells}/{done.of} cells, {time_left(done.seconds_left)} left  {about(done)}"
        end = "\n" if not terminal or done.cells == done.of else ""
        print(f"\r\033[K{line[:100]}" if terminal else line, file=sys.stderr, end=end, flush=True)

    return heard


def _show(standings, out: Path, as_json: bool) -> None:
    from fedrank.ranking.leaderboard.page import findings, ranking_table, write
    from fedrank.ranking.leaderboard.standings import contrasts, contrasts_frame, results_frame

    page = write(standings, out)
    found = contrasts(standings)
    if as_json:
        from fedrank.cli.terminal import print_json

        print_json(
            {
                "page": None if page is None else str(page),
                "missing": standings.missing,
                "findings": findings(standings, found),
                "rows": results_frame(standings).to_dicts(),
                "tests": contrasts_frame(found).to_dicts(),
            }
        )
        return
    from fedrank.cli.console import Console
    from fedrank.cli.report import drawn

    console = Console()
    for data in dict.fromkeys(part.data for part in standings.grid.parts):
        shown = ranking_table(standings, data, found)
        if shown.rows:
            console.print(drawn(shown, ["method", "interactions", "interactions p", "bytes", "bytes p"]))
    for text in findings(standings, found).values():
        if text:
            console.print(f"• {text}", highlight=False, markup=False)
    if page is not None:
        console.print(f"page: {page}", soft_wrap=True, highlight=False)
