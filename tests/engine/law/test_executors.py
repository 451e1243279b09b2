"""Pieces of work are computed once each, whoever computes them and whoever dies; cells that are there are kept."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pieces
import polars as pl
import pytest

from fedrank.core.errors import ConfigError, MissingExtraError, RunError
from fedrank.engine.executors import Cell, Here, Processes, executor, read_cell, run_cells
from fedrank.engine.settings import from_dict
from fedrank.engine.study import run_sweep
from fedrank.engine.variations import variations

SUPPORT = Path(pieces.__file__).parent


def squares(one, function=pieces.square, arguments=range(6)):
    with one as computing:
        return dict(computing.results(function, list(arguments)))


def test_one_process_does_them_in_order():
    assert list(Here().results(pieces.square, [3, 1, 2])) == [(0, 9), (1, 1), (2, 4)]


def test_what_means_nothing_is_refused():
    for engine, workers, address, said in (
        ("here", 2, "", "workers = 2"),
        ("processes", 0, "tcp://127.0.0.1:1", "address"),
        ("dask", 2, "tcp://127.0.0.1:1", "workers = 2"),
        ("processes", -1, "", "-1"),
    ):
        with pytest.raises(ConfigError, match=said):
            executor(engine, workers, address)


def test_an_engine_that_is_not_installed_names_its_extra(monkeypatch):
    monkeypatch.setattr("fedrank.core.lazy.find_spec", lambda name: None)
    for engine in ("dask", "ray"):
        with pytest.raises(MissingExtraError, match=f"fedrank\\[{engine}\\]"):
            executor(engine)


# ------------------------------------------------------------------------------------------------------- processes


@pytest.mark.slow
def test_processes_compute_all_of_them():
    assert squares(Processes(2)) == {place: place**2 for place in range(6)}


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced_and_its_work_done_again(tmp_path):
    jobs = [(number, str(tmp_path / "marker")) for number in range(6)]
    assert squares(Processes(2), pieces.die_once, jobs) == {place: place**2 for place in range(6)}
    assert (tmp_path / "marker").exists()  # somebody was killed indeed


@pytest.mark.minutes
def test_work_that_kills_whoever_does_it_ends_in_an_error():
    with pytest.raises(RunError, match="died 4 times"):
        squares(Processes(1), pieces.die_always, [1])


@pytest.mark.slow
def test_errors_of_other_processes_are_told_as_they_were():
    with pytest.raises(RunError, match="Known: one, two"):
        squares(Processes(1), pieces.refuse, [7])
    with pytest.raises(RunError, match=r"ZeroDivisionError(.|\n)*break_down"):
        squares(Processes(1), pieces.break_down, [0])


# ------------------------------------------------------------------------------------------------------------ Dask


@pytest.mark.minutes
def test_a_worker_of_dask_that_is_killed_loses_nothing(tmp_path):
    pytest.importorskip("distributed")
    jobs = [(number, str(tmp_path / "marker")) for number in range(8)]
    assert squares(executor("dask", 2), pieces.die_once, jobs) == {place: place**2 for place in range(8)}
    assert (tmp_path / "marker").exists()


@pytest.mark.minutes
def test_a_scheduler_that_does_not_answer_is_said():
    pytest.importorskip("distributed")
    with pytest.raises(RunError, match="no scheduler of Dask answers"):
        executor("dask", address="nonsense://nowhere")


@pytest.mark.minutes
def test_a_worker_of_ray_that_is_killed_loses_nothing(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))  # where its workers find the pieces
    jobs = [(number, str(tmp_path / "marker")) for number in range(8)]
    assert squares(executor("ray", 2), pieces.die_once, jobs) == {place: place**2 for place in range(8)}
    assert (tmp_path / "marker").exists()


# ----------------------------------------------------------------------------------------------------------- cells


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
        "from fedrank.engine.executors import Cell, run_cells\n"
        "from fedrank.engine.executors import Here\n"
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


# ---------------------------------------------------------------------------------------------------------- sweeps

SMALL = {
    "protocol": "foltr-es",
    "clients": 4,
    "interactions": 2,
    "rounds": 3,
    "seeds": 1,
    "evaluation": {"baselines": []},
}


def metrics_of(folders):
    return [pl.read_parquet(folder / "metrics.parquet") for folder in folders]


@pytest.mark.minutes
@pytest.mark.parametrize("engine", ["processes", "dask"])
def test_a_sweep_has_the_same_numbers_whoever_computes_it(engine, tmp_path):
    if engine == "dask":
        pytest.importorskip("distributed")
    todo = variations(from_dict(SMALL), {"clicks": ["perfect", "navigational", "informational"]})
    here = run_sweep(todo, tmp_path / "here")
    with executor(engine, 2) as computing:
        there = run_sweep(todo, tmp_path / "there", executor=computing)
        again = run_sweep(todo, tmp_path / "there", executor=computing)  # nothing is left to do
    assert there == again == [tmp_path / "there" / variation.name for variation in todo]
    for mine, theirs in zip(metrics_of(here), metrics_of(there), strict=True):
        assert mine.equals(theirs)
    assert all((folder / "done.json").exists() and list((folder / "weights").iterdir()) for folder in there)


@pytest.mark.minutes
def test_a_sweep_that_was_stopped_goes_on_elsewhere(tmp_path):
    """A run with a checkpoint goes to the cluster with it, and ends with the numbers of one that was never stopped."""
    pytest.importorskip("distributed")
    from fedrank.engine.progress import Listener
    from fedrank.engine.run import Interrupted, run_experiment

    class Stop(Listener):
        def progress(self, progress):
            if progress.round >= 2:
                raise KeyboardInterrupt

    settings = SMALL | {"rounds": 6, "evaluation": {"baselines": [], "every": 1}, "compute": {"checkpoint_seconds": 0}}
    todo = variations(from_dict(settings), {"clicks": ["perfect", "navigational"]})
    with pytest.raises((KeyboardInterrupt, Interrupted)):
        run_experiment(todo[0].config, tmp_path / "there" / todo[0].name, listener=Stop())
    here = run_sweep(todo, tmp_path / "here")
    with executor("dask", 1) as computing:
        there = run_sweep(todo, tmp_path / "there", executor=computing)
    for mine, theirs in zip(metrics_of(here), metrics_of(there), strict=True):
        keys = ["seed", "split", "measure", "round"]
        assert mine.sort(keys).equals(theirs.sort(keys))
