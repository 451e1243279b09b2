"""A leaderboard in its folder: what it is of, its cells, what others submitted, and the page.

::

    board.json           what is run: terms, data, methods, users
    cells/<key>.json     one cell each
    submitted/*.csv      rows of others
    results.csv, results.parquet, tests.csv, runs.csv, curves.csv
    leaderboard.html, figures/
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

from fedrank.core.errors import ConfigError, DataError, RunError
from fedrank.core.trees import Json
from fedrank.engine.checkpoint import write_atomically
from fedrank.engine.executors import Executor
from fedrank_zoo.leaderboard.cell import compute
from fedrank_zoo.leaderboard.cells import Done, run_cells
from fedrank_zoo.leaderboard.grid import Block, Entrant, Grid, Part, Terms
from fedrank_zoo.leaderboard.standings import Standings, collect
from fedrank_zoo.leaderboard.submitted import submitted_rows


def run_board(
    grid: Grid, folder: Path, executor: Executor, heard: Callable[[Done], None] = lambda done: None
) -> Standings:
    """Compute the cells that are not there yet, and pool all of them.

    Args:
        grid: What is run.
        folder: The leaderboard's.
        executor: Who computes.
        heard: Is told after each cell.

    Raises:
        RunError: Another process is at work there, or a cell failed.
    """
    keep_grid(grid, folder)
    run_cells(grid.cells(), folder / "cells", compute, executor, heard=heard)
    return standings_of(grid, folder)


def standings_of(grid: Grid, folder: Path) -> Standings:
    """Standings computed from finished cells and submitted rows."""
    return collect(grid, folder / "cells", submitted_rows(folder, grid))


def keep_grid(grid: Grid, folder: Path) -> None:
    """Write the settings of a leaderboard to ``board.json`` in its folder, whole or not at all."""
    write_atomically(
        folder / "board.json", (json.dumps(dataclasses.asdict(grid), indent=1, ensure_ascii=False) + "\n").encode()
    )


def read_grid(folder: Path) -> Grid:
    """The settings of a leaderboard, read from ``board.json`` in its folder.

    Raises:
        RunError: There is none in the folder, or its file is damaged.
    """
    file = folder / "board.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return Grid(
            Terms(**content["terms"]),
            tuple(Part(**one) for one in content["parts"]),
            tuple(Entrant(**one) for one in content["entrants"]),
            tuple(Block(**one) for one in content["blocks"]),
        )
    except OSError as error:
        raise RunError(
            f"{folder}: holds no leaderboard (no board.json). Make one with: fedrank reproduce leaderboard {folder}"
        ) from error
    except (ValueError, KeyError, TypeError, ConfigError, DataError) as error:
        raise RunError(
            f"{file}: is damaged ({error}). Run the same command as before: fedrank reproduce leaderboard {folder}"
        ) from error


def about(done: Done) -> str:
    """The cell that came last, in a few words."""
    cell: dict[str, Json] = done.about
    if "labels" in cell:
        return f"labels: {cell['labels']}, {cell['part']['data']}"
    if not cell:
        return ""
    settings = cell["settings"]
    return f"{settings['protocol']}, {settings['data']}, {settings['clicks']}"
