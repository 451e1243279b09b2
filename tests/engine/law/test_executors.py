"""Pieces of work are computed once each, whoever computes them and whoever dies."""

from pathlib import Path

import pieces
import polars as pl
import pytest

from fedrank.core.errors import ConfigError, MissingExtraError, RunError
from fedrank.engine.executors import Here, Processes, executor
from fedrank.engine.settings import from_dict
from fedrank.engine.sweep import run_sweep
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
