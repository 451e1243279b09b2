"""``fedrank reproduce leaderboard``: every method that ranks under the same budgets; ``submit``: rows of others."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from fedrank.cli.report import drawn
from fedrank.cli.terminal import AsJson, Names, Quiet, Status, Switch, headline, print_json, say, time_left

app = App(
    name="leaderboard", help="Run every method that ranks under the same budgets, and lay them beside each other."
)

_OUT = Path("runs") / "leaderboard"


@app.default
def leaderboard(
    out: Path = _OUT,
    *,
    methods: Names = (),
    data: Names = (),
    clicks: Names = (),
    questions: Names = (),
    official: Switch = False,
    full: Switch = False,
    fraction: float = 1.0,
    seeds: int = 10,
    seed: int = 100,
    executor: str = "processes",
    workers: int = 0,
    address: str = "",
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run every method that ranks under the same budgets and compare them: hours of processor time.

    One budget of interactions and one of bytes, and one to choose a step size with; users, ways in which devices
    differ, promises of privacy and attackers change one at a time. Stopped or killed, the same command goes on where it
    was.

    Args:
        out: The leaderboard's directory.
        methods: Some methods only; by default all that rank, those of other packages too (fedrank run --list), but for
            coltr, foltr-coltr and rankguard, which take hours, and published code with its faults.
        data: Data sets or paths; by default MQ2008, ClueWeb09 and the samples of MSLR and LightGBM that are here;
            all: every set that is here. All their queries are divided in five, each of which judges once.
        official: The data sets' own folds that have test queries here, in place of that division.
        clicks: Click models of the users, the first of which is the one where other things change.
        questions: What changes beside data and users: privacy, attacks, heterogeneity; by default each of them; none:
            nothing.
        full: Every combination, all click models, two-layer rankers and all robust rules: days of processor time.
        fraction: Part of the rounds and seeds to run, for a quick look: 0.1.
        seeds: Runs of each cell.
        seed: The first of their seeds.
        executor: Who computes: this process (here), processes of this machine, or a cluster of dask or ray, extras.
        workers: Processes on this machine; 0: one a processor.
        address: Of a cluster of dask or ray that runs already.
    """
    from fedrank.engine.executors import executor as chosen
    from fedrank_zoo.leaderboard.board import run_board
    from fedrank_zoo.leaderboard.grid import QUESTIONS, Terms, default_grid, entrants, parts_here

    terms = Terms(seeds=seeds, seed=seed).part(fraction)
    parts, who = parts_here(data, official=official), entrants(methods, full=full)
    asked = () if list(questions) == ["none"] else questions or QUESTIONS
    grid = default_grid(terms, parts, who, clicks=clicks, questions=asked, full=full)
    with chosen(executor, workers, address) as computing:
        standings = run_board(grid, out, computing, _heard(quiet))
    _show(standings, out, as_json)


@app.command
def submit(file: Path, /, out: Path = _OUT, *, as_json: AsJson = False) -> None:
    """Check rows of another program, or of runs of your own, and show them on the page as submitted.

    The file is a CSV with a line for each seed and division; the documentation lists its columns.

    Args:
        file: The CSV file.
        out: The leaderboard's directory.
    """
    from fedrank_zoo.leaderboard.board import read_grid, standings_of
    from fedrank_zoo.leaderboard.submitted import submit as take

    grid = read_grid(out)
    rows = take(file, out, grid)
    _show(standings_of(grid, out), out, as_json)
    if not as_json:
        print(f"taken: {len(rows)} row{'s' * (len(rows) != 1)} of {file}")


@app.command
def sign(file: Path, /, key: Path = Path("leaderboard-key"), *, as_json: AsJson = False) -> None:
    """Sign rows before they are submitted, so that no one else submits under the same name.

    Args:
        file: The CSV file; the signature is written beside it.
        key: Folder of the private key, which is made where there is none.
    """
    from fedrank_zoo.leaderboard.submitted import sign as write_signature

    public = write_signature(file, key)
    if as_json:
        print_json({"key": public, "signature": f"{file}.signature"})
    else:
        print(f"signed: {file}.signature, with the key {public[:8]} of {key}")


def _heard(quiet: bool):
    """A listener that prints the progress of the cells, on the terminal or in a log."""
    from fedrank_zoo.leaderboard.board import about

    status = Status(quiet)

    def heard(done) -> None:
        left = f"{done.cells}/{done.of} cells, {time_left(done.seconds_left)} left"
        status.show(f"{left}  {about(done)}", now=done.cells == done.of)
        if done.cells == done.of:
            status.end()

    return heard


def _show(standings, out: Path, as_json: bool) -> None:
    from fedrank_zoo.leaderboard.page import board_opening, findings, ranking_table, write
    from fedrank_zoo.leaderboard.standings import contrasts, contrasts_frame, results_frame

    page = write(standings, out)
    found = contrasts(standings)
    sentence, said = board_opening(standings, found, ()).sentence, findings(standings, found)
    if as_json:
        print_json(
            {
                "sentence": str(sentence),
                "page": None if page is None else str(page),
                "missing": standings.missing,
                "findings": said,
                "rows": results_frame(standings).dicts(),
                "tests": contrasts_frame(found).dicts(),
            }
        )
        return
    columns = ["method", "interactions", "interactions p", "bytes", "bytes p"]
    tables = [ranking_table(standings, data, found) for data in dict.fromkeys(one.data for one in standings.grid.parts)]
    shown = (drawn(table, columns) for table in tables if table.rows)
    more = (text for text in said.values() if text not in ("", str(sentence)))
    say(headline(sentence), *shown, *(f"• {text}" for text in more), page=page)
