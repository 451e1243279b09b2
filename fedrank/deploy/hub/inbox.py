"""Jobs for a hub's writer thread: the queue between the event loop and it, the plan of a batch, and the way back."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import queue
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any

from fedrank.core.arrays import PyTree
from fedrank.deploy.hub.admission import Enrolment, NotAdmittedError
from fedrank.deploy.hub.stages import Outcome
from fedrank.deploy.hub.store import Purchase, StoreError

#: Most jobs that are committed together.
BATCH = 8192
#: Error of a job while the log cannot be written.
UNWRITABLE = "the log cannot be written at the moment; nothing was done."


@dataclass(frozen=True, eq=False)
class Job:
    """One job for the writer, with the future of its result.

    Attributes:
        kind: ``"report"``, ``"enrol"``, ``"leave"``, ``"buy"``, or ``"call"`` for an operator, a coordinator or a back
            end.
        waits: Future of the result.
        round: Number of the round that a report is about.
        device: Number of the device that reports or leaves.
        data: The report.
        enrolment: Of a device that enrols.
        purchase: Of a device that buys a token.
        call: Function that is called after the batch has been committed; its value is the result.
    """

    kind: str
    waits: asyncio.Future
    round: int = 0
    device: int = 0
    data: bytes = b""
    enrolment: Enrolment | None = None
    purchase: Purchase | None = None
    call: Callable[[], Any] | None = None


def lost(job: Job) -> Any:
    """The result of a job while nothing can be written: an outcome for a report, an error for other jobs."""
    if job.kind == "report":
        return Outcome.UNAVAILABLE
    return StoreError(UNWRITABLE)


class Stopped(Exception):
    """The writer was told to stop while it waited."""


class Inbox:
    """Jobs from one event loop to one thread; the loop calls :meth:`ask` and :meth:`stop`, the thread the rest."""

    def __init__(self):
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def ask(self, kind: str, **attributes: Any) -> PyTree:
        """Put a job into the queue and wait for its result; ``attributes`` are further ones of :class:`Job`."""
        future = asyncio.get_running_loop().create_future()
        self._jobs.put(Job(kind, future, **attributes))
        return await future

    async def call(self, function: Callable[..., Any], *arguments: Any) -> PyTree:
        """Have the writer call a function after its batch, and wait for the value."""
        return await self.ask("call", call=functools.partial(function, *arguments))

    def put(self, function: Callable[[], Any]) -> None:
        """Have the writer call a function, without waiting."""
        if self.loop is not None:
            self._jobs.put(Job("call", self.loop.create_future(), call=function))

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
            with contextlib.suppress(RuntimeError):  # the loop has closed: no client waits any more
                self.loop.call_soon_threadsafe(tell)


@dataclass
class Plan:
    """The writes of one group commit, and the results of its jobs.

    Attributes:
        answers: Result of each job, valid once the plan has been written.
        new: SHA-256 of the tokens of new devices.
        gone: Numbers of devices that leave.
        reports: New reports of the open round: device → message.
        sales: Jobs of devices that buy; their answers are known when the plan has been written.
    """

    answers: list[tuple[Job, Any]] = field(default_factory=list)
    new: list[bytes] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    reports: dict[int, bytes] = field(default_factory=dict)
    sales: list[Job] = field(default_factory=list)


def plan_batch(
    batch: list[Job],
    judge: Callable[[int, int, bytes], Outcome | None],
    devices: Container[int],
    room: int,
    refuse: Callable[[Enrolment], str] = lambda _: "",
    free: Callable[[bytes], bool] = lambda _: False,
) -> Plan:
    """The plan for a batch; jobs that are calls are left out.

    Args:
        batch: Jobs in the order in which they came.
        judge: Outcome of a report (round, device, message) that needs no writing; None for one that may count.
        devices: Numbers of the enrolled devices.
        room: Number of reports that the open round still takes.
        free: Whether a report takes no room.
        refuse: Reason why a device may not enrol; empty if it may.
    """
    plan = Plan()
    taken = 0
    for job in batch:
        answer: Any
        if job.kind == "report":
            answer = judge(job.round, job.device, job.data)
            if answer is None and job.device in plan.reports:  # the same device twice in one batch
                answer = Outcome.ALREADY if plan.reports[job.device] == job.data else Outcome.CONFLICT
            elif answer is None and taken >= room:
                answer = Outcome.BETWEEN  # the round is full; it closes after this batch
            elif answer is None:
                plan.reports[job.device] = job.data
                taken += not free(job.data)
                answer = Outcome.ACCEPTED
        elif job.enrolment is not None:
            reason = refuse(job.enrolment)
            answer = NotAdmittedError(reason) if reason else True
            plan.new += [] if reason else [job.enrolment.token]
        elif job.kind == "leave":
            answer = job.device in devices and job.device not in plan.gone
            plan.gone |= {job.device} if answer else set()
        else:
            plan.sales += [] if job.purchase is None else [job]
            continue
        plan.answers.append((job, answer))
    return plan
