"""Pieces of work in several processes of this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from typing_extensions import override

from fedrank.core.errors import ConfigError, report_crashes
from fedrank.engine.executors.base import RETRIES, Executor, repeated_death_error, run_job, unwrap_result


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
