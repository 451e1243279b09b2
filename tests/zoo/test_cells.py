"""Cells that are there are kept, whoever dies while others are computed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pieces
import pytest

from fedrank.core.errors import RunError
from fedrank.engine.executors import Here
from fedrank_zoo.leaderboard.cells import Cell, read_cell, run_cells

SUPPORT = Path(pieces.__file__).parent


def cells(n=4):
    return [Cell({"number": number}) for number in range(n)]


def test_cells_are_computed_once(tmp_path):
    heard = []
    run_cells(cells(2), tmp_path, pieces.square_of_about, Here())
    run_cells([*cells(4), Cell({"number": 3})], tmp_path, pieces.square_of_about, Here(), heard=heard.append)
    assert [(done.cells, done.of) for done in heard] == [(2, 4), (3, 4), (4, 4)]  # equal ones are one
    assert [read_cell(tmp_path, cell)["square"] for cell in cells()] == [0, 1, 4, 9]
    assert heard[-1].seconds_left == 0 and heard[-1].about == {"number": 3}


def test_damaged_foreign_and_old_cells_are_computed_again(tmp_path):
    run_cells(cells(4), tmp_path, pieces.square_of_about, Here())
    files = [tmp_path / f"{cell.key}.json" for cell in cells(4)]
    files[0].write_bytes(files[0].read_bytes()[:-5])
    files[1].write_text(json.dumps(json.loads(files[1].read_text()) | {"fedrank": "0.0.1"}))
    files[2].write_bytes(files[3].read_bytes())  # another cell's
    heard = []
    run_cells(cells(4), tmp_path, pieces.square_of_about, Here(), heard=heard.append)
    assert heard[0].cells == 1
    assert [read_cell(tmp_path, cell)["square"] for cell in cells()] == [0, 1, 4, 9]


def test_one_process_at_a_time_works_in_a_folder(tmp_path):
    def within(done):
        if done.cells == 1:
            run_cells(cells(1), tmp_path, pieces.square_of_about, Here())

    with pytest.raises(RunError, match="another process"):
        run_cells(cells(2), tmp_path, pieces.square_of_about, Here(), heard=within)


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be made"):
        run_cells(cells(1), tmp_path / "file" / "cells", pieces.square_of_about, Here())


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_whole_cells_and_the_rest_is_computed(tmp_path):
    """``kill -9`` in the middle of six cells: those that are there are not begun again."""
    log, folder = tmp_path / "log", tmp_path / "cells"
    wanted = [Cell({"number": number, "log": str(log), "seconds": 0.3}) for number in range(6)]
    program = (
        f"import sys; sys.path.insert(0, {str(SUPPORT)!r})\n"
        "import pieces\n"
        "from fedrank.engine.executors import Here\n"
        "from fedrank_zoo.leaderboard.cells import Cell, run_cells\n"
        f"run_cells([Cell(about) for about in {[cell.about for cell in wanted]!r}], {str(folder)!r},"
        " pieces.slow_square_of_about, Here())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    until = time.monotonic() + 60
    while len(list(folder.glob("*.json"))) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {cell.about["number"] for cell in wanted if read_cell(folder, cell) is not None}
    assert 2 <= len(before) < 6
    run_cells(wanted, folder, pieces.slow_square_of_about, Here())
    begun = [int(line) for line in log.read_text().split()]
    assert all(begun.count(number) == 1 for number in before)
    assert [read_cell(folder, cell)["square"] for cell in wanted] == [number**2 for number in range(6)]
