"""The queue of jobs between the event loop and a hub's writer thread, and the way back of their results."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from dataclasses import dataclass
from typing import Any

from fedrank.core.arrays import PyTree
from fedrank.deploy.hub.outcome import Outcome
from fedrank.deploy.hub.store import StoreError

#: Most jobs that are committed together.
BATCH = 8192


@dataclass(frozen=True, eq=False)
class Job:
    """One job for the writer, with the future of its result.

    Attributes:
        kind: ``"report"``, ``"enrol"``, ``"leave"``, ``"code"`` for a back end, or for an operator or coordinator
            ``"close"``, ``"ask"``, ``"collect"``, ``"look"``.
        waits: Future of the result.
        round: Number of the round that it is about.
        device: Number of the device that asks.
        data: The report, the digest of a token, or the question.
        ticket: Of a device that enrols, SHA-256 of its credential's secret or its code; empty: the hub's own token.
        code: The ticket is a code.
        identity: Of a device that enrols, the hash of its attested identity; empty: it has none.
    """

    kind: str
    waits: asyncio.Future
    round: int = 0
    device: int = 0
    data: bytes = b""
    ticket: bytes = b""
    code: bool = False
    identity: bytes = b""


def lost(job: Job) -> Any:
    """The result of a job while nothing can be written: an outcome for a report, an error for other jobs."""
    if job.kind == "report":
        return Outcome.UNAVAILABLE
    return StoreError("the log cannot be written at the moment; nothing was done.")


class Stopped(Exception):
    """The writer was told to stop while it waited."""


class Inbox:
    """Jobs from one event loop to one thread; the loop calls :meth:`ask` and :meth:`stop`, the thread the rest."""

    def __init__(self):
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def ask(self, kind: str, round_: int = 0, device: int = 0, data: bytes = b"", **more: Any) -> PyTree:
        """Put a job into the queue and wait for its result; ``more`` are further attributes of :class:`Job`."""
        future = asyncio.get_running_loop().create_future()
        self._jobs.put(Job(kind, future, round_, device, data, **more))
        return await future

    def put(self, kind: str) -> None:
        """Put a job into the queue whose result nobody waits for."""
        if self.loop is not None:
            self._jobs.put(Job(kind, self.loop.create_future()))

    def stop(self) -> None:
        """Tell the writer to stop after the jobs that are in the queue."""
        self._jobs.put(None)

    def batch(self, patience: float | None) -> tuple[list[Job], bool]:
        """All jobs that have come; waits for the first one, at most ``patience`` seconds.

        Returns:
            Jobs in the order in which they came, and False if the writer is to stop.
        """
        jobs: list[Job] = []
        with contextlib.suppress(queue.Empty):
            job = self._jobs.get(timeout=patience)
            while job is not None:
                jobs.append(job)
                if len(jobs) == BATCH:
                    break
                job = self._jobs.get_nowait()
            else:
                return jobs, False
        return jobs, True

    def refuse(self, seconds: float) -> None:
        """For ``seconds``, answer every job that nothing can be written.

        Raises:
            Stopped: The writer is to stop.
        """
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                job = self._jobs.get(timeout=left)
            except queue.Empty:
                return
            if job is None:
                raise Stopped
            self.answer([(job, lost(job))])

    def refuse_for_good(self) -> None:
        """Answer every job that nothing can be written, until the writer is to stop."""
        while (job := self._jobs.get()) is not None:
            self.answer([(job, lost(job))])

    def answer(self, answers: list[tuple[Job, Any]]) -> None:
        """Set the results of jobs, in one call into the loop."""

        def tell() -> None:
            for job, answer in answers:
                if job.waits.done():  # a client that has gone cancelled it
                    continue
                if isinstance(answer, Exception):
                    job.waits.set_exception(answer)
                else:
                    job.waits.set_result(answer)

        if answers and self.loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
                self.loop.call_soon_threadsafe(tell)
