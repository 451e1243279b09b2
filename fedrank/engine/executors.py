"""Executors compute independent pieces of work: here, piece after piece; in several processes; or on a cluster.

A piece of work is a function, which can be found by its module's name, of one argument that can be pickled. It is
computed once, or again from its beginning where the process that computed it died; it must not matter how often it was
begun. Results come as they are ready, in any order.

A cell is a small experiment whose result is kept in a file, so that what is computed is computed once. A cell's file is
written in one step when the cell is done. Whatever ends the process, even ``kill -9``, the files that are there are
whole, and the same command computes the rest.
"""

from __future__ import annotations

import abc
import contextlib
import hashlib
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from fedrank import __version__
from fedrank.core import registry
from fedrank.core.errors import ConfigError, FedrankError, RunError, report_crashes
from fedrank.core.trees import Json
from fedrank.engine.checkpoint import lock_folder, write_atomically

#: How often a piece is begun again after the process that computed it died.
RETRIES = 3


@dataclass(frozen=True)
class Failure:
    """The error that a piece of work raised; exceptions themselves need not survive the way between processes.

    Attributes:
        text: The error as a user reads it.
        trace: Where it was raised; empty for errors that fedrank raises on purpose.
        stopped: Whether it was Ctrl-C.
    """

    text: str
    trace: str = ""
    stopped: bool = False


def run_job(job: tuple[Callable[[Any], Any], Any]) -> Any:
    """The result of a function for its argument, or a :class:`Failure`."""
    function, argument = job
    try:
        return function(argument)
    except FedrankError as error:
        return Failure(str(error))
    except KeyboardInterrupt as stop:
        return Failure(str(stop), stopped=True)
    except Exception as error:  # whatever it is must be told where the work was asked for
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())


def unwrap_result(result: Any) -> Any:
    """The result that :func:`run_job` returned, unless it is a failure.

    Raises:
        RunError: The piece of work failed; says how.
        KeyboardInterrupt: It was stopped.
    """
    if not isinstance(result, Failure):
        return result
    if result.stopped:
        raise KeyboardInterrupt(result.text)
    raise RunError(result.text + (f"\n{result.trace}" if result.trace else ""))


class Executor(abc.ABC):
    """Computes pieces of work; to be used in a ``with`` statement, which lets go of processes at its end.

    Attributes:
        shares_files: Whether every piece sees the files of this machine, under the same paths.
    """

    shares_files: bool

    @abc.abstractmethod
    def results(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """The place of each argument and the function's result for it, as they are ready.

        Args:
            function: A function of a module.
            arguments: One for each piece of work.

        Raises:
            RunError: A piece failed, or the process that computed it died again and again.
        """

    def close(self) -> None:  # noqa: B027 - those without processes have nothing to let go of
        """Let go of processes, and of a cluster that was started for this."""

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Here(Executor):
    """In this process, one piece after the other: they share compiled programs and data."""

    shares_files = True

    @override
    def results(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for place, argument in enumerate(arguments):
            yield place, function(argument)


def repeated_death_error(what: str) -> RunError:
    """The error of work whose processes died again and again."""
    return RunError(
        f"{what} died {RETRIES + 1} times in a row while they computed the same work. If one crashed, its trace stands "
        "above; most often memory ran out: take fewer workers, or smaller runs. What is done is kept: the same command "
        "goes on."
    )


def cpus() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Processes(Executor):
    """Processes of this machine, each of which computes a piece at a time; one that dies is replaced.

    Args:
        workers: Number of processes; 0: one for each processor.

    Raises:
        ConfigError: Fewer than 0.
    """

    shares_files = True

    def __init__(self, workers: int = 0):
        if workers < 0:
            raise ConfigError(f"workers must be at least 1, or 0 for one a processor; got {workers}.")
        self.workers = workers or cpus()

    @override
    def results(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        left = dict(enumerate(arguments))
        deaths = 0
        while left:
            try:
                for place, result in self._until_one_dies(function, left):
                    deaths = 0
                    del left[place]
                    yield place, unwrap_result(result)
            except BrokenProcessPool as error:
                deaths += 1
                if deaths > RETRIES:
                    raise repeated_death_error("the processes") from error

    def _until_one_dies(self, function: Callable[[Any], Any], left: dict[int, Any]) -> Iterator[tuple[int, Any]]:
        """Results in the order in which they are ready.

        Raises:
            BrokenProcessPool: A process died; what was not told yet is lost.
        """
        # New ones, not forks: JAX and Numba have threads, which a fork leaves behind.
        context = multiprocessing.get_context("spawn")
        before = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(
            min(self.workers, len(left)), context, initializer=_begin, initargs=(max(1, cpus() // self.workers),)
        )
        waiting = iter(list(left.items()))
        running: dict[Future[Any], int] = {}
        ended = False

        def fill() -> None:
            # No more than there are processes: what is not begun needs no stopping.
            for place, argument in waiting:
                running[pool.submit(run_job, (function, argument))] = place
                if len(running) >= self.workers:
                    return

        try:
            fill()
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                found = [(running.pop(future), future.result()) for future in done]
                fill()
                yield from found
            ended = True
        finally:
            if not ended:  # Ctrl-C, an error, or a reader that has enough: end what is running
                for child in set(multiprocessing.active_children()) - before:
                    child.terminate()
            pool.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """Wait for the end of the parent, which may be killed, and end as well: the work has no reader any more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _begin(threads: int) -> None:
    """Settle in a new process: Ctrl-C is the parent's, and the processes share the processors."""
    from threadpoolctl import threadpool_limits

    report_crashes()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(threads)
    import numba

    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]


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


def executor(engine: str, workers: int = 0, address: str = "") -> Executor:
    """The executor of that name.

    Args:
        engine: ``here``: this process; ``processes`` of this machine; or a cluster of ``fedrank.executors``, such as
            ``dask`` and ``ray`` of ``fedrank-zoo``.
        workers: Number of processes on this machine; 0: one for each processor.
        address: Of a cluster that runs already; empty: one is started on this machine.

    Raises:
        ConfigError: Workers or an address where they mean nothing.
        UnknownNameError: No package has such an engine.
        MissingExtraError: The engine is not installed.
        RunError: There is no cluster at the address.
    """
    if address and engine in ("here", "processes"):
        raise ConfigError(f"address = {address!r} is of a cluster of dask or ray; the engine {engine!r} has none.")
    if workers and (engine == "here" or address):
        raise ConfigError(
            f"workers = {workers} means nothing with {'address' if address else 'engine here'}: "
            f"{'the cluster has its own' if address else 'it is one process'}. Leave it out."
        )
    if engine == "here":
        return Here()
    if engine == "processes":
        return Processes(workers)
    return registry.get("fedrank.executors", engine)(workers, address)
