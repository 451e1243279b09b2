"""A learning hub: devices report, rounds close, the model improves. No network in here.

Rounds go through three states, each step one transaction of the log (:mod:`fedrank.deploy.store`)::

    OPEN     devices report about the model of this round; each counts once
    CLOSED   enough reports, or the deadline; no report is added any more
    APPLIED  the reports moved the model; the next round is open

One thread writes. What arrives while it commits is committed together next (group commit), and nobody is told that a
report counts before it has been committed. Before a round is APPLIED the new state is written to a checkpoint, so that
a process killed anywhere in between finds the round CLOSED and applies it again, with the same outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import hashlib
import hmac
import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrank.core.errors import RunError
from fedrank.deploy.checkpoints import Checkpoints
from fedrank.deploy.learning import Learning, learning_of, rebuild
from fedrank.deploy.settings import HubSettings, fingerprint
from fedrank.deploy.store import Store, StoreError
from fedrank.deploy.tally import Tally

_log = logging.getLogger("fedrank.hub")

#: Most requests that are committed together.
_BATCH = 8192
#: Seconds between tries while the log cannot be written.
_TRY_AGAIN = 1.0


class Outcome(enum.Enum):
    """What became of a report."""

    ACCEPTED = "accepted"
    ALREADY = "already"
    CONFLICT = "conflict"
    STALE = "stale-round"
    EARLY = "early-round"
    BETWEEN = "between-rounds"
    DONE = "done"
    UNAVAILABLE = "unavailable"


#: Answers while nothing can be written.
_LOST = {"report": Outcome.UNAVAILABLE, "enrol": False, "leave": False, "close": None}


@dataclass(frozen=True)
class View:
    """What the hub shows now; replaced in one step.

    Attributes:
        round: The round that is open, or the first that is not.
        state: ``"open"``, ``"between"`` or ``"done"``.
        model: The round's question, as bytes.
        etag: Its HTTP entity tag, with quotes.
    """

    round: int
    state: str
    model: bytes
    etag: str


@dataclass
class _Job:
    """One thing for the writer to do, and who waits for it."""

    kind: str  # "report", "enrol", "leave", "close"
    waits: asyncio.Future
    round: int = 0
    device: int = 0
    data: bytes = b""


class Hub:
    """A hub over its folder; :meth:`start` it inside an event loop, :meth:`stop` it in the end.

    Args:
        folder: Holds ``hub.db`` and ``checkpoints``.
        store: The log, opened for writing.
        settings: Of the hub.

    Raises:
        RunError: The checkpoints belong to something else, or the log cannot be read.
    """

    def __init__(self, folder: Path, store: Store, settings: HubSettings):
        self.settings, self.terms, self.store = settings, settings.terms(store.name), store
        self.learning: Learning = learning_of(settings.protocol())
        self.checkpoints = Checkpoints(Path(folder) / "checkpoints", fingerprint(settings, store.name))
        self.healthy = True
        self._tokens: dict[bytes, int] = {token: number for number, token in store.devices()}
        self._numbers = {number: token for token, number in self._tokens.items()}
        self._next_device = store.last_device() + 1
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._counted: dict[int, bytes] = {}  # of the open round: device → message that is in the log
        self._previous: dict[int, bytes] = {}  # of the round before it
        self._recover()

    # ---------------------------------------------------------------------------------------------- where we were

    def _recover(self) -> None:
        """Find the state of the round that the log is in; apply a round that was closed and no more."""
        last = self.store.last_round()
        like = self.learning.init()
        # A state beyond the log's round belongs to a round that was not marked as applied: it is made again.
        at, state = next(self.checkpoints.states(like, last.number), (0, like))
        todo = [(n, self.store.reports(n)) for n in range(at, last.number)]
        if todo:
            _log.warning("no checkpoint of round %d; the model is made again from round %d of the log", last.number, at)
        self._state = rebuild(self.learning, state, todo)
        self.tally = Tally(self.settings, self.store)
        if last.state == "applied":  # training was over when the hub stopped
            self._state = rebuild(self.learning, self._state, [(last.number, self.store.reports(last.number))])
            if self._over(last.number):
                self._show(last.number + 1, "done")
                return
            self.store.open_after(last.number)
            last = self.store.last_round()
        self._counted = dict(self.store.reports(last.number))
        self._previous = dict(self.store.reports(last.number - 1))
        # How long the round has been open, by a clock that may have been set meanwhile: never more than the deadline.
        gone = min(max(0.0, time.time() - last.opened), self.settings.deadline)
        self._opened = time.monotonic() - gone
        self._show(last.number, "open" if last.state == "open" else "between")

    def _over(self, applied: int) -> bool:
        return 0 < self.settings.rounds <= applied + 1

    def _show(self, round_: int, state: str) -> None:
        model = self.learning.request(self._state)
        self.view = View(round_, state, model, f'"{self.terms.hub[:8]}-{round_}"')

    # ------------------------------------------------------------------------------------------- asked from the loop

    async def start(self) -> None:
        """Begin to write, in a thread of its own."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write, name="fedrank-hub", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Finish what has been asked for and close the log."""
        if self._thread is not None:
            self._jobs.put(None)
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
        self.store.shut()

    def device_of(self, token: str) -> int | None:
        """The number of the device with this token; None if there is none."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        # The look-up's time may tell about digests, never about tokens: nobody can make a token for a digest.
        number = self._tokens.get(digest)
        known = self._numbers.get(number or 0, bytes(32))
        return number if hmac.compare_digest(known, digest) and number else None

    async def enrol(self) -> str:
        """A new device's token; known to this hub by its hash only.

        Raises:
            StoreError: It cannot be written down.
        """
        token = secrets.token_urlsafe(32)
        if not await self._ask("enrol", data=hashlib.sha256(token.encode()).digest()):
            raise StoreError(f"{self.store.path}: cannot be written; nobody was enrolled.")
        return token

    async def leave(self, device: int) -> bool:
        """Forget a device's token; False if there is no such device."""
        return await self._ask("leave", device=device)

    async def close_round(self) -> int | None:
        """Close the open round now; None if it has no report."""
        return await self._ask("close")

    async def report(self, round_: int, device: int, reply: bytes) -> Outcome:
        """Count a report, once.

        Args:
            round_: The round that it is about.
            device: Who reports.
            reply: The message; its layout accepts it.

        Returns:
            What became of it; ACCEPTED and ALREADY after it has been committed.
        """
        early = self._judged(round_, device, reply)
        return early if early is not None else await self._ask("report", round_, device, reply)

    def _judged(self, round_: int, device: int, reply: bytes) -> Outcome | None:
        """What needs no writing; None for a report that may count. The loop asks it early, the writer for certain."""
        view = self.view
        if round_ == view.round and view.state == "open":
            before = self._counted.get(device)
            if before is None:
                return None
            return Outcome.ALREADY if before == reply else Outcome.CONFLICT
        if round_ == view.round:
            return Outcome.DONE if view.state == "done" else Outcome.BETWEEN
        if round_ > view.round:
            return Outcome.DONE if view.state == "done" else Outcome.EARLY
        # A device that missed our answer asks about a round that may be over by now: its report may be in the log.
        before = self._previous.get(device) if round_ == view.round - 1 else None
        if before is not None and before == reply:
            return Outcome.ALREADY
        return Outcome.DONE if view.state == "done" else Outcome.STALE

    async def _ask(self, kind: str, round_: int = 0, device: int = 0, data: bytes = b"") -> Any:
        future = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(kind, future, round_, device, data))
        return await future

    def status(self) -> dict[str, Any]:
        """What the status page shows; see :mod:`fedrank.deploy.tally`."""
        view, gone = self.view, time.monotonic() - self._opened
        return self.tally.status(view.round, view.state, len(self._tokens), len(self._counted), gone)

    # ------------------------------------------------------------------------------------------------ the writer

    def _write(self) -> None:
        """The writer's life: commit what came, close and apply rounds."""
        try:
            if self.view.state == "between":
                self._until_applied()
            elif self.view.state == "open":
                self.learning.warm(self._state, self.settings.cohort)
            while self._turn():
                pass
        except Exception:
            self.healthy = False
            _log.exception("the hub cannot go on; restart it")
            self._refuse_everything()

    def _turn(self) -> bool:
        """One batch; False when it is time to stop."""
        batch, going_on = self._batch()
        answers = self._commit(batch)
        self._answer(answers)
        if self._due():
            self._close()
        return going_on

    def _batch(self) -> tuple[list[_Job], bool]:
        """Everything that has come; waits for the first, until the deadline at most."""
        jobs: list[_Job] = []
        try:
            job = self._jobs.get(timeout=self._patience())
            while job is not None:
                jobs.append(job)
                if len(jobs) == _BATCH:
                    return jobs, True
                job = self._jobs.get_nowait()
            return jobs, False
        except queue.Empty:
            return jobs, True

    def _patience(self) -> float | None:
        """Seconds until the deadline; None: for ever."""
        if not self.settings.deadline or self.view.state == "done" or len(self._counted) < self.settings.least:
            return None
        return max(0.0, self._opened + self.settings.deadline - time.monotonic())

    def _due(self) -> bool:
        if self.view.state != "open":
            return False
        n = len(self._counted)
        late = self.settings.deadline and time.monotonic() >= self._opened + self.settings.deadline
        return n >= self.settings.cohort or bool(late and n >= self.settings.least)

    def _commit(self, batch: list[_Job]) -> list[tuple[_Job, Any]]:
        """Write a batch in one transaction; what to answer to each."""
        answers: list[tuple[_Job, Any]] = []
        new: list[tuple[int, bytes]] = []
        gone: list[int] = []
        fresh: dict[int, bytes] = {}
        close = False
        for job in batch:
            if job.kind == "report":
                outcome = self._judged(job.round, job.device, job.data)
                if outcome is None and job.device in fresh:  # the same device twice in one batch
                    outcome = Outcome.ALREADY if fresh[job.device] == job.data else Outcome.CONFLICT
                elif outcome is None:
                    fresh[job.device] = job.data
                    outcome = Outcome.ACCEPTED
                answers.append((job, outcome))
            elif job.kind == "enrol":
                new.append((self._next_device + len(new), job.data))
                answers.append((job, True))
            elif job.kind == "leave":
                there = job.device in self._numbers and job.device not in gone
                if there:
                    gone.append(job.device)
                answers.append((job, there))
            else:
                close = True
        round_ = self.view.round
        try:
            if new or gone or fresh:
                self.store.write(new, gone, [(round_, device, data) for device, data in fresh.items()])
        except StoreError as error:
            self._trouble(error)
            return [(job, _LOST[job.kind]) for job in batch]
        self.healthy = True
        self._next_device += len(new)
        for number, token in new:
            self._tokens[token] = number
            self._numbers[number] = token
        for number in gone:
            self._tokens.pop(self._numbers.pop(number))
        self._counted.update(fresh)
        if close:
            closed = round_ if self._counted and self.view.state == "open" else None
            answers += [(job, closed) for job in batch if job.kind == "close"]
            if closed is not None:
                self._answer(answers)
                self._close()
                return []
        return answers

    def _answer(self, answers: list[tuple[_Job, Any]]) -> None:
        """Tell all who wait, in one call into the loop."""
        if not answers or self._loop is None:
            return

        def tell() -> None:
            for job, answer in answers:
                if not job.waits.done():  # a client that has gone cancelled it
                    job.waits.set_result(answer)

        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
            self._loop.call_soon_threadsafe(tell)

    def _close(self) -> None:
        """OPEN → CLOSED → APPLIED; tries until it can be written."""
        number, seconds = self.view.round, time.monotonic() - self._opened
        self._show_state("between")
        self._persist(lambda: self.store.close(number, seconds))
        self._until_applied()

    def _until_applied(self) -> None:
        self._persist(self._apply)

    def _apply(self) -> None:
        """CLOSED → APPLIED."""
        number = self.view.round
        messages = [message for _, message in self.store.reports(number)]
        asked = self.learning.digest(self._state)
        reward = self.learning.reward(messages)
        state = self.learning.tell(self._state, messages)
        self.checkpoints.save(number + 1, state)
        self.store.applied(number, asked, *reward, last=self._over(number))
        self._state = state
        self.tally.applied(self.store.round(number), self._counted)
        self._previous, self._counted = self._counted, {}
        self._opened = time.monotonic()
        self._show(number + 1, "done" if self._over(number) else "open")

    def _show_state(self, state: str) -> None:
        view = self.view
        self.view = View(view.round, state, view.model, view.etag)

    def _persist(self, step: Callable[[], None]) -> None:
        """Do a step, again and again while the disk refuses it; meanwhile everybody is told to come back."""
        while True:
            try:
                step()
                self.healthy = True
                return
            except (StoreError, RunError) as error:
                self._trouble(error)
                end = time.monotonic() + _TRY_AGAIN
                while (left := end - time.monotonic()) > 0:
                    try:
                        job = self._jobs.get(timeout=left)
                    except queue.Empty:
                        break
                    if job is None:
                        raise
                    self._answer([(job, _LOST[job.kind])])

    def _trouble(self, error: Exception) -> None:
        if self.healthy:
            _log.error("%s", error)
        self.healthy = False

    def _refuse_everything(self) -> None:
        """After a failure that nobody foresaw: nobody waits for ever."""
        while (job := self._jobs.get()) is not None:
            self._answer([(job, _LOST[job.kind])])
