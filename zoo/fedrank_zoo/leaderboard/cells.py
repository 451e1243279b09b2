"""Cells: small experiments whose results are kept in files, so that what is computed is computed once.

A cell's file is written in one step when the cell is done. Whatever ends the process, even ``kill -9``, the files that
are there are whole, and the same command computes the rest.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrank import __version__
from fedrank.core.errors import RunError
from fedrank.core.trees import Json
from fedrank.engine.checkpoint import lock_folder, write_atomically
from fedrank.engine.executors import Executor


@dataclass(frozen=True)
class Cell:
    """One small experiment.

    Attributes:
        about: Everything that its result depends on, as JSON can hold it. Equal ones are the same cell.
        cost: About how much it takes beside the others, for an estimate of the time.
    """

    about: dict[str, Json]
    cost: float = 1.0

    @property
    def key(self) -> str:
        """Name of its file: a digest of what it is about."""
        text = json.dumps(self.about, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Done:
    """Progress of the cells.

    Attributes:
        cells: Finished cells.
        of: Cells in all.
        seconds_left: Estimate; nan before the first one.
        about: The cell that came last; empty at the start.
    """

    cells: int
    of: int
    seconds_left: float
    about: dict[str, Json]


def read_cell(folder: Path, cell: Cell) -> dict[str, Json] | None:
    """The result of a cell; None where it is not there, damaged, or of another version of fedrank."""
    try:
        content = json.loads((folder / f"{cell.key}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("fedrank") != __version__ or content.get("about") != cell.about:
        return None
    return content.get("result")


def run_cells(
    cells: Sequence[Cell],
    folder: str | os.PathLike[str],
    function: Callable[[dict[str, Json]], dict[str, Json]],
    executor: Executor,
    *,
    heard: Callable[[Done], None] = lambda done: None,
) -> None:
    """Compute the cells that are not there yet.

    Args:
        cells: All of them.
        folder: Gets a file a cell, named after :attr:`Cell.key`.
        function: A function of a module: from what a cell is about to its result, which JSON can hold.
        executor: Who computes.
        heard: Is told after each cell, and once before the first.

    Raises:
        RunError: Another process is at work in the folder, or a cell failed.
    """
    home = Path(folder)
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{home}: cannot be made ({error.strerror}). Choose another folder.") from error
    with lock_folder(home, "is at work here"):
        for left in home.glob("*.partial"):  # of a process that was killed while it wrote
            left.unlink(missing_ok=True)
        _run(list({cell.key: cell for cell in cells}.values()), home, function, executor, heard)


def _run(cells, home, function, executor, heard) -> None:
    todo = [cell for cell in cells if read_cell(home, cell) is None]
    there, cost, began = len(cells) - len(todo), sum(cell.cost for cell in todo), time.monotonic()
    heard(Done(there, len(cells), float("nan") if todo else 0.0, {}))
    spent = 0.0
    for place, result in executor.results(function, [cell.about for cell in todo]):
        cell = todo[place]
        content: dict[str, Any] = {"about": cell.about, "fedrank": __version__, "result": result}
        write_atomically(home / f"{cell.key}.json", json.dumps(content, ensure_ascii=False).encode())
        there, spent = there + 1, spent + cell.cost
        left = (time.monotonic() - began) * (cost - spent) / spent
        heard(Done(there, len(cells), left, cell.about))
