"""The outcome of a batch of jobs, worked out before any of it is written."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any

from fedrank.deploy.hub.credentials import NotAdmittedError
from fedrank.deploy.hub.inbox import Job
from fedrank.deploy.hub.outcome import Outcome


@dataclass
class Plan:
    """What one group commit writes, and the results of its jobs.

    Attributes:
        answers: Result of each job, valid once the plan has been written.
        new: Digests of the tokens of new devices.
        gone: Numbers of devices that leave.
        reports: New reports of the open round: device → message.
    """

    answers: list[tuple[Job, Any]] = field(default_factory=list)
    new: list[bytes] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    reports: dict[int, bytes] = field(default_factory=dict)


def planned(
    batch: list[Job],
    judged: Callable[[int, int, bytes], Outcome | None],
    devices: Container[int],
    room: int,
    refused: Callable[[Job], str] = lambda _: "",
    free: Callable[[bytes], bool] = lambda _: False,
) -> Plan:
    """The plan for a batch; jobs of operators and coordinators are left out.

    Args:
        batch: Jobs in the order in which they came.
        judged: Outcome of a report (round, device, message) that needs no writing; None for one that may count.
        devices: Numbers of the enrolled devices.
        room: Number of reports that the open round still takes.
        free: Whether a report takes no room.
        refused: Reason why the device of a job may not enrol; empty if it may.
    """
    plan = Plan()
    taken = 0
    for job in batch:
        answer: Any
        if job.kind == "report":
            answer = judged(job.round, job.device, job.data)
            if answer is None and job.device in plan.reports:  # the same device twice in one batch
                answer = Outcome.ALREADY if plan.reports[job.device] == job.data else Outcome.CONFLICT
            elif answer is None and taken >= room:
                answer = Outcome.BETWEEN  # the round is full; it closes after this batch
            elif answer is None:
                plan.reports[job.device] = job.data
                taken += not free(job.data)
                answer = Outcome.ACCEPTED
        elif job.kind == "enrol":
            if reason := refused(job):
                answer = NotAdmittedError(reason)
            else:
                plan.new.append(job.data)
                answer = True
        elif job.kind == "leave":
            answer = job.device in devices and job.device not in plan.gone
            plan.gone |= {job.device} if answer else set()
        else:
            continue
        plan.answers.append((job, answer))
    return plan
