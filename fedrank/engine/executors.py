"""Executors compute independent pieces of work: here, piece after piece; in several processes; or on a cluster.

A piece of work is a function, which can be found by its module's name, of one argument that can be pickled. It is
computed once, or again from its beginning where the process that computed it died; it must not matter how often it was
begun. Results come as they are ready, in any order.
"""

from __future__ import annotations

import abc
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from fedrank.core import registry
from fedrank.core.errors import ConfigError, FedrankError, RunError, report_crashes

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
