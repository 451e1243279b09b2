"""What a batch of jobs comes to, before any of it is written."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any

from fedrank.deploy.hub.inbox import Job
from fedrank.deploy.hub.outcome import Outcome


@dataclass
class Plan:
    """One group commit.

    Attributes:
        answers: To each job, once it has been written.
        new: Digests of the tokens of new devices.
        gone: Numbers of devices that leave.
        reports: Of the open round: device → message.
    """

    answers: list[tuple[Job, Any]] = field(default_factory=list)
    new: list[bytes] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    reports: dict[int, bytes] = field(default_factory=dict)


def planned(
    batch: list[Job], judged: Callable[[int, int, bytes], Outcome | None], devices: Container[int], room: int
) -> Plan:
    """The plan for a batch; what operators and coordinators want is left to others.

    Args:
        batch: In the order in which it came.
        judged: What becomes of a report (round, device, message) that needs no writing; None for one that may count.
        devices: Numbers of those that are enrolled.
        room: Reports that the open round still takes.
    """
    plan = Plan()
    for job in batch:
        answer: Any
        if job.kind == "report":
            answer = judged(job.round, job.device, job.data)
            if answer is None and job.device in plan.reports:  # the same device twice in one batch
                answer = Outcome.ALREADY if plan.reports[job.device] == job.data else Outcome.CONFLICT
            elif answer is None and len(plan.reports) >= room:
                answer = Outcome.BETWEEN  # the round is full; it closes after this batch
            elif answer is None:
                plan.reports[job.device] = job.data
                answer = Outcome.ACCEPTED
        elif job.kind == "enrol":
            plan.new.append(job.data)
            answer = True
        elif job.kind == "leave":
            answer = job.device in devices and job.device not in plan.gone
            plan.gone |= {job.device} if answer else set()
        else:
            continue
        plan.answers.append((job, answer))
    return plan
