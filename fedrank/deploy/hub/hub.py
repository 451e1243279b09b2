"""A learning hub without its network: devices report, rounds close, the model improves.

Rounds go through three states, each step one transaction of the log (:mod:`fedrank.deploy.hub.store`)::

    OPEN     devices report about the model of this round; each counts once
    CLOSED   enough reports, or the deadline; no report is added any more. If more came than are used, those that are
             used have been drawn by lot
    APPLIED  the reports updated the model; the next round is open, or the hub is halted because its model sank

One thread writes. What arrives while it commits is committed together next (group commit), and no report is
acknowledged before it has been committed. Before a round is APPLIED the new state is written to a checkpoint, so that
a process killed anywhere in between finds the round CLOSED and applies it again, with the same outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedrank.core.errors import RunError
from fedrank.core.trees import Json
from fedrank.deploy.hub.checks.comparing import Comparing
from fedrank.deploy.hub.credentials import CODE, Admissions, Credentials, NotAdmittedError
from fedrank.deploy.hub.devices import Devices, digest_of
from fedrank.deploy.hub.draws import Drawn
from fedrank.deploy.hub.inbox import Inbox, Job, Stopped, lost
from fedrank.deploy.hub.learning import reward_of
from fedrank.deploy.hub.model import Model, OwnModel, RelayedModel, learnt_from
from fedrank.deploy.hub.outcome import Outcome, View
from fedrank.deploy.hub.plan import Plan, planned
from fedrank.deploy.hub.settings import MOST_REPORTS, HubSettings
from fedrank.deploy.hub.store import CountedError, RoundRow, Store, StoreError
from fedrank.deploy.hub.tally import Tally
from fedrank.deploy.log.entries import model_data, round_of
from fedrank.deploy.log.published import PublishedLog
from fedrank.deploy.oblivious.issuer import FILE as TOKENS
from fedrank.deploy.oblivious.issuer import Issuer

_log = logging.getLogger("fedrank.hub")

#: Jobs that are done one by one, after the batch that they came with has been committed.
_OPERATED = ("close", "ask", "collect", "look", "code", "resume")
#: Seconds between tries while the log cannot be written.
_TRY_AGAIN = 1.0


class Hub:
    """A hub over its folder: call :meth:`start` inside an event loop, and :meth:`stop` at the end.

    Args:
        folder: Folder with ``hub.db`` and ``checkpoints``.
        store: The log, opened for writing.
        settings: Settings of the hub.

    Raises:
        RunError: The checkpoints belong to something else, or the log cannot be read.
    """

    def __init__(self, folder: Path, store: Store, settings: HubSettings):
        self.settings, self.terms, self.store = settings, settings.terms(store.name), store
        self.healthy = self.alive = True  # it can write; it goes on
        self.devices = Devices(store.devices(), store.last_device())
        self.credentials = Credentials(store)
        self._listed = self.credentials.as_json()
        self._asked: Credentials | None = None  # by the event loop, over a connection of its own
        self._protocol = settings.protocol()
        self._inbox = Inbox()
        self._thread: threading.Thread | None = None
        self._counted: dict[int, bytes] = {}  # of the open round: device → message that is in the log
        self._checks = 0  # of them, those that are checks of the model
        self._previous: tuple[int, dict[int, bytes]] = (-1, {})  # the same of the round before it
        self._settled = asyncio.Event()  # the hub is not between two rounds
        self._opened = time.monotonic()
        self._said_full = False
        self._told = -1  # the last round that updated the model
        self._lasted = 0.0  # seconds for which the round that is being applied was open
        self._compares = Comparing(settings, store) if self.terms.checks else None
        self._own = None if settings.relay else OwnModel(Path(folder) / "checkpoints", store, settings)
        if self._own is None:
            self.relayed = RelayedModel(store, self.terms)
        self.tally = Tally(settings, store)
        self.model: Model = self.relayed if self._own is None else self._own
        self.issuer: Issuer | None = None
        if settings.tokens:
            self.issuer = Issuer(Path(folder) / TOKENS, self.terms.hub, settings.tokens)
        self.log: PublishedLog | None = None
        if self.terms.log:
            self.log = PublishedLog(Path(folder), store, self.terms, settings.witnesses)
        self._skips = False  # the open round's model is not the one in the public log, which has one of a round
        self._spent: set[int] = set()  # tokens of this epoch that were spent, at least in its earlier rounds
        self._recover()

    # ---------------------------------------------------------------------------------------------- where we were

    def _recover(self) -> None:
        """Find the round that the log is in; one that was closed but not applied is applied by the writer."""
        last = self.store.last_round()
        own = not self.settings.relay
        if last is None:  # a coordinator has not asked anything yet
            self._show(0, "between")
            return
        done = last.state == "applied"
        here = last.number + (done and own)
        self.model.restore(here)
        if self._compares is not None and self._own is not None:
            self._own.compare_with(self._compares.best)
            if done and self._compares.halted:
                before = self.store.round_before(here)
                self._previous = (before, dict(self.store.reports(before)))
                self._show(here, "halted")
                return
        if done and own and not self._over(last.number):  # training had been over, and goes on
            self.store.open_round(here, self.model.digest(), entry=self._entry())
            last, done = self.store.last_round() or last, False
        elif last.model is None:
            self.store.set_model(here, self.model.digest(), self._entry())
        elif not done and last.model != self.model.digest():
            _log.warning("round %d asks about another model than its log says: another machine or program?", here)
        self._skips = own and not done and self._logged_otherwise(here)
        if self.issuer is not None:
            self.issuer.prepare(here)
            self._remember_spent(here)
        before = self.store.round_before(here)
        self._previous = (before, dict(self.store.reports(before)))
        if not (done and own):
            self._recount(dict(self.store.reports(here)))
        if done:
            self._show(here, "done" if own else "between")
            return
        # How long the round has been open, by a clock that may have been set meanwhile: never more than the deadline.
        self._opened -= min(max(0.0, time.time() - last.opened), self.settings.deadline or float("inf"))
        self._lasted = last.seconds or 0.0
        self._show(here, "open" if last.state == "open" and not self._skips else "between")

    def _remember_spent(self, here: int) -> None:
        """Read from the log which tokens of a round's epoch were spent up to it, in reports that are used or not."""
        assert self.issuer is not None
        rows = [row.number for row in self.store.rounds() if row.number <= here]
        rows = [number for number in rows if self.issuer.epoch_of(number) == self.issuer.epoch_of(here)]
        self._spent = {token for number in rows for token in self.store.reporters(number)}

    def _over(self, applied: int) -> bool:
        return 0 < self.settings.rounds <= applied + 1

    def _recount(self, counted: dict[int, bytes]) -> None:
        """Take these messages for those of the open round."""
        self._counted, self._checks = counted, sum(map(self._is_check, counted.values()))

    def _is_check(self, message: bytes) -> bool:
        """Whether a message compares models, so that the model does not learn from it."""
        return self.terms.check is not None and message[:1] == self.terms.check.head

    def _entry(self, question: bytes = b"") -> bytes | None:
        """Data of the public log's entry of a model message and the best model's; None where there is none."""
        question = question or self.model.question()
        if self.log is None or not question:
            return None
        best = self._own.best() if self._compares is not None and self._own is not None else None
        return model_data(question, best)

    def _logged_otherwise(self, here: int) -> bool:
        """Whether the public log has another model of a round than the one that would be handed out."""
        newest = None if self.log is None else self.store.newest_model()
        return newest is not None and round_of(newest[1]) == here and newest[1] != self._entry()

    def _sold(self) -> dict[int, bytes]:
        """The issuer's keys by epoch."""
        return {} if self.issuer is None else self.issuer.keys()

    def _show(self, round_: int, state: str) -> None:
        if self.log is not None and not self._skips and (entry := self._entry()) is not None:
            self.log.show(entry, self._sold())
        tag = f'"{self.terms.hub[:8]}-{round_}-{self.model.digest().hex()[:8]}"'
        question, best = self.model.question(), None
        if self._compares is not None and self._own is not None:
            best = self._own.best()
        self._drawn = Drawn(self.terms, question, best, self.store.last_device_before(round_))
        self._turn_to(View(round_, state, question, tag, best))

    def _turn_to(self, view: View) -> None:
        self.view = view
        if self._inbox.loop is not None:
            change = self._settled.clear if view.state == "between" else self._settled.set
            with contextlib.suppress(RuntimeError):  # the loop has closed
                self._inbox.loop.call_soon_threadsafe(change)

    # ------------------------------------------------------------------------------------------- asked from the loop

    async def start(self) -> None:
        """Compile what rounds need, and start the writer thread."""
        self._inbox.loop = asyncio.get_running_loop()
        if not self.view.over:
            await self._inbox.loop.run_in_executor(None, self.model.warm, self.settings.cohort)
        self._turn_to(self.view)
        if self.issuer is not None:
            self.issuer.start()
        if self.log is not None:
            self.log.submission.start()
        self._thread = threading.Thread(target=self._write, name="fedrank-hub", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Finish the jobs in the queue and close the log."""
        if self._thread is not None:
            self._inbox.stop()
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
        if self.issuer is not None:
            await asyncio.get_running_loop().run_in_executor(None, self.issuer.stop)
        if self.log is not None:
            self.log.close()
        if self._asked is not None:
            self._asked.close()
        self.store.close()

    def device_of(self, token: str) -> int | None:
        """The number of the device with this token; None if there is none."""
        return self.devices.find(token)

    async def enrol(self, ticket: str | None = None, identity: bytes = b"") -> str:
        """Enrol a new device and return its token, of which the hub keeps only the hash.

        Args:
            ticket: Secret of the credential, or the code, that it enrols with; None: it showed the hub's own token.
            identity: Hash of what its platform says that it is; empty: nothing does.

        Raises:
            StoreError: It cannot be written.
            NotAdmittedError: The ticket is not good, or as many have enrolled with it, or with the hub, as may.
        """
        if self.full:
            self._say_full()
            raise NotAdmittedError("hub-full")
        token = secrets.token_urlsafe(32)
        shown = b"" if ticket is None else digest_of(ticket)
        code = ticket is not None and ticket.startswith(CODE)
        await self._inbox.ask("enrol", data=digest_of(token), ticket=shown, code=code, identity=identity)
        return token

    @property
    def full(self) -> bool:
        """Whether no more devices may enrol."""
        return len(self.devices) >= self.settings.most_devices

    def _say_full(self) -> None:
        if not self._said_full:
            self._said_full = True
            _log.error("the hub is full: it has most_devices = %d devices, no more enrol", self.settings.most_devices)

    def knows(self, ticket: str) -> bool:
        """Whether a credential's secret or a code is good now; called by the event loop, and writes nothing.

        Raises:
            StoreError: The log cannot be read.
        """
        if self._asked is None:
            self._asked = Credentials(Store(self.store.path, read_only=True))
        find = self._asked.of_code if ticket.startswith(CODE) else self._asked.of_secret
        return find(digest_of(ticket)) is not None

    async def code(self, secret: str) -> tuple[str, float] | None:
        """A single-use code for a back end.

        Args:
            secret: Secret of its credential.

        Returns:
            The code, and until when it is good, in seconds since 1970; None if there is no such credential with codes.
        """
        return await self._inbox.ask("code", ticket=digest_of(secret))

    def look(self) -> None:
        """Have the writer read again what other processes may have written: the credentials."""
        self._inbox.put("look")

    async def leave(self, device: int) -> bool:
        """Forget a device's token; False if there is none, StoreError if it cannot be written."""
        return await self._inbox.ask("leave", device=device)

    async def close_round(self, empty: bool = False) -> int | None:
        """Close the open round now.

        Args:
            empty: Close it even if it has no report; the model then stays as it is.

        Returns:
            Its number; None if no round is open, or it has no report.
        """
        return await self._inbox.ask("close", int(empty))

    async def ask_round(self, question: bytes) -> Outcome:
        """Open the next round with a coordinator's request; only for a hub that relays.

        Args:
            question: The round's request, whose number is above all earlier ones.

        Returns:
            ACCEPTED; ALREADY for the newest request again; CONFLICT while another round is open; STALE for a number
            that is not above all earlier ones.

        Raises:
            WireError: It does not fit this hub's terms.
        """
        return await self._inbox.ask("ask", self.relayed.number_of(question), data=question)

    async def collected(self, round_: int) -> bytes | None:
        """The messages of a round, concatenated in the order of their devices' numbers; None before it has closed."""
        return await self._inbox.ask("collect", round_)

    async def report(self, round_: int, device: int, reply: bytes) -> Outcome:
        """Count a report, once.

        Args:
            round_: Number of the round that it is about.
            device: Number of the device that reports.
            reply: The message, which its layout accepts.

        Returns:
            Its outcome; ACCEPTED and ALREADY only after it has been committed.
        """
        early = self._judged(round_, device, reply)
        return early if early is not None else await self._inbox.ask("report", round_, device, reply)

    def _judged(self, round_: int, device: int, reply: bytes) -> Outcome | None:
        """Outcome of a report that needs no writing; None if it may count. Called by the loop, then by the writer."""
        view = self.view
        number, previous = self._previous
        if round_ == view.round and not view.over:
            before = self._counted.get(device)
            if before is not None:
                return Outcome.ALREADY if before == reply else Outcome.CONFLICT
            if device in self._spent:
                return Outcome.SPENT
            if self._drawn.draws and not self._drawn.wants(device, self.devices.key(device), reply):
                return Outcome.NOT_DUE
            return None if view.state == "open" else Outcome.BETWEEN
        # A device that missed our answer may ask about a round that is over by now: its report may be in the log.
        if round_ == number and previous.get(device) == reply:
            return Outcome.ALREADY
        if view.over:
            return Outcome.DONE
        return Outcome.EARLY if round_ > view.round else Outcome.STALE

    async def resume(self) -> int | None:
        """Go on after a halt, from the best model.

        Returns:
            The number of the round that is open now; None if the hub was not halted.
        """
        return await self._inbox.ask("resume")

    async def settled(self, seconds: float) -> View:
        """The view of the hub; between two rounds, waits up to ``seconds`` for the next one."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), seconds)
        return self.view

    def status(self) -> dict[str, Json]:
        """Status for the page and the metrics; see :mod:`fedrank.deploy.hub.tally`."""
        view, gone = self.view, time.monotonic() - self._opened
        counted = list(self._counted) if view.state == "open" else []  # else the tally has them
        checks = self._checks if view.state == "open" else 0
        status = self.tally.status(view.round, view.state, len(self.devices), counted, gone, checks)
        compared = {} if self._compares is None else self._compares.as_json()
        return {**status, "most_devices": self.settings.most_devices, "credentials": self._listed, **compared}

    # ------------------------------------------------------------------------------------------------ the writer

    def _write(self) -> None:
        """Run of the writer thread: commit jobs, close and apply rounds."""
        try:
            if self._lasted and self.view.state == "between":  # it was closed when the process ended
                self._persist(self._apply)
            elif self._skips:  # no device may get this model: the round ends with the reports that it has
                self._close()
            if self._due():  # it had enough reports when the process ended: nobody may be left to bring another
                self._close()
            while self._turn():
                pass
        except Stopped:
            pass  # in the middle of a round: it is applied at the next start
        except Exception:
            self.healthy = self.alive = False
            _log.exception("the hub cannot go on; restart it")
            self._inbox.refuse_for_good()

    def _turn(self) -> bool:
        """Handle one batch of jobs; returns False when the writer is to stop."""
        batch, going_on = self._inbox.batch(self._patience())
        if not batch and not self.healthy:
            self._probe()
        try:
            self._inbox.answer(self._commit(batch))
            for job in batch:
                if job.kind in _OPERATED:
                    self._inbox.answer([(job, self._operate(job))])
        except Exception:
            self._inbox.answer([(job, lost(job)) for job in batch])  # those that have an answer keep it
            raise
        if self._due():
            self._close()
        return going_on

    def _probe(self) -> None:
        try:
            self.store.probe()
            self.healthy = True
        except StoreError:
            pass  # still not

    def _patience(self) -> float | None:
        """Seconds until the deadline or the next try to write; None: no limit."""
        again = None if self.healthy else _TRY_AGAIN
        after = self._closes_after()
        if self.view.state != "open" or after is None:
            return again
        left = max(0.0, self._opened + after - time.monotonic())
        return left if again is None else min(left, again)

    def _due(self) -> bool:
        after = self._closes_after()
        return self.view.state == "open" and after is not None and time.monotonic() >= self._opened + after

    def _closes_after(self) -> float | None:
        """Seconds after its opening at which the round closes with the reports that are there; None: more must come."""
        n, s = self._reports(), self.settings
        if n >= s.cohort:
            return s.round_seconds
        # Where devices are drawn, a round in which too few are is over at its deadline: the next draws others.
        return s.deadline if s.deadline and (n >= s.least or self.terms.draws) else None

    def _reports(self) -> int:
        """Number of reports of the open round from which the model learns, as far as this process knows."""
        return len(self._counted) - self._checks

    def _commit(self, batch: list[Job]) -> list[tuple[Job, Any]]:
        """Write a batch in one transaction; returns the result of each job."""
        most = MOST_REPORTS if self.settings.round_seconds else self.settings.cohort
        admissions = Admissions(
            self.credentials,
            self.settings.attested_devices,
            self.settings.attested_days,
            most=self.settings.most_devices - len(self.devices),
        )
        round_ = self.view.round
        plan = Plan()
        try:
            room = most - len(self._counted) + self._checks
            plan = planned(batch, self._judged, self.devices, room, admissions.refused, self._is_check)
            if plan.new:
                self.devices.next = self.store.reserve(self.devices.next, len(plan.new))
            if plan.new or plan.gone or plan.reports:
                new = list(enumerate(plan.new, self.devices.next))
                reports = [(round_, device, data) for device, data in plan.reports.items()]
                self.store.write(new, sorted(plan.gone), reports, admissions.admitted)
                self.healthy = True
        except StoreError as error:
            there = dict(self.store.reports(round_)) if isinstance(error, CountedError) else self._counted
            if there != self._counted:  # somebody else wrote into the log: it is what counts
                self._recount(there)
                return self._commit(batch)
            self._trouble(error)
            return [(job, lost(job)) for job in batch if job.kind not in _OPERATED]
        self.devices.add(plan.new)
        for number in plan.gone:
            self.devices.remove(number)
        self._counted.update(plan.reports)
        self._checks += sum(map(self._is_check, plan.reports.values()))
        return plan.answers

    def _operate(self, job: Job) -> Any:
        """Do a job of an operator or a coordinator, after the batch that it came with has been committed."""
        try:
            if job.kind == "ask":
                return self._take(job)
            if job.kind == "resume":
                return self._resume()
            if job.kind == "look":
                self._listed = self.credentials.as_json()
                return None
            if job.kind == "code":
                owner = self.credentials.of_secret(job.ticket)
                return self.credentials.code(owner) if owner is not None and owner.code_minutes else None
            if job.kind == "collect":
                row = self.store.round(job.round)
                done = row is not None and row.state == "applied"
                return b"".join(message for _, message in self.store.reports(job.round)) if done else None
        except RunError as error:
            self._trouble(error)
            return lost(job)
        number, empty = self.view.round, bool(job.round)
        if self.view.state != "open" or not (self._counted or empty):
            return None
        self._close()
        return number

    def _take(self, job: Job) -> Outcome:
        """Open a round with a coordinator's request; outcomes as of :meth:`ask_round`."""
        last = self.store.last_round()
        if last is not None and job.round == last.number and job.data == self.relayed.question():
            return Outcome.ALREADY
        if self.view.state == "open":
            return Outcome.CONFLICT
        if last is not None and job.round <= last.number:
            return Outcome.STALE
        if self.issuer is not None:
            self.issuer.prepare(job.round)
        self.relayed.take(job.round, job.data, self._entry(job.data))
        self._begin(job.round, "open")
        return Outcome.ACCEPTED

    def _close(self) -> None:
        """Close and apply the open round (OPEN → CLOSED → APPLIED); repeats each step until it can be written."""
        number, self._lasted = self.view.round, max(1e-9, time.monotonic() - self._opened)
        self._show_state("between")
        # By lot, and not before all have come: nobody gains by being early, and nobody can know who will be used.
        learnt = sorted(device for device, message in self._counted.items() if not self._is_check(message))
        more = max(0, len(learnt) - self.settings.cohort)
        unused = secrets.SystemRandom().sample(learnt, more)
        self._persist(lambda: self.store.close_round(number, self._lasted, unused, self._checks))
        self._persist(self._apply)

    def _apply(self) -> None:
        """Apply the closed round (CLOSED → APPLIED); may be repeated after a failure at any step."""
        self._skips = False
        number, relay = self.view.round, self.settings.relay
        reports = self.store.reports(number)
        messages = [message for _, message in learnt_from(reports, self.terms.check)]
        reward, last = reward_of(self._protocol, messages), relay or self._over(number)
        found = None
        if self._compares is not None:
            found = self._compares.judge(number, [message for _, message in reports if self._is_check(message)])
        sinks = found is not None and found.sinks
        if self._told != number:  # once: the second time, it is the log that could not be written
            if found is not None and found.promoted and self._own is not None:
                self._own.compare_with(number)
            if sinks and self._own is not None:
                self._own.return_to_best(number + 1)
            else:
                self.model.tell(number, messages)
            self._told = number
        if self.issuer is not None:
            self.issuer.prepare(number + 1)  # before anybody can see the next round
        judged = None if found is None or self._compares is None else (found, self._compares.state)
        following = None if last else self.model.digest()
        self.store.apply_round(number, *reward, next_model=following, judged=judged, entry=self._entry())
        if self.log is not None and not relay:
            self.log.show(self._entry() or b"", self._sold())  # before anybody can see the model
        self.healthy = True  # before anybody can see the next round
        row = RoundRow(number, "applied", 0.0, None, self._lasted, None, len(messages), *reward)
        self.tally.applied(row, self.store.reporters(number))
        self._lasted = 0.0
        if sinks and self._compares is not None:
            self._compares.halt(number + 1)
        if relay:
            self._show_state("between")
        else:
            self._begin(number + 1, "halted" if sinks else "done" if last else "open")

    def _resume(self) -> int | None:
        """Open the round that was not opened when the hub halted."""
        if self.view.state != "halted" or self._compares is None:
            return None
        number = self.view.round
        state = self._compares.resumed()
        self.store.resume(state, number, self.model.digest(), self._entry())
        self._compares.resume()
        self._begin(number, "open")
        return number

    def _begin(self, number: int, state: str) -> None:
        """Show the next round, ``"open"`` or ``"done"``."""
        if self.issuer is not None:
            same = self.issuer.epoch_of(number) == self.issuer.epoch_of(self.view.round)
            self._spent = self._spent | self._counted.keys() if same else set()
            self._forget(number)
        if number != self.view.round:
            self._previous = (self.view.round, self._counted)
        self._recount({})
        self._opened = time.monotonic()
        self._show(number, state)

    def _forget(self, number: int) -> None:
        """Delete what belongs to epochs that are over; where that cannot be written, the next epoch does it."""
        assert self.issuer is not None
        try:
            self.issuer.begin(number)
        except StoreError as error:
            _log.warning("%s", error)

    def _show_state(self, state: str) -> None:
        view = self.view
        self._turn_to(View(view.round, state, view.model, view.etag, view.best))

    def _persist(self, step: Callable[[], None]) -> None:
        """Repeat a step until it can be written; meanwhile all jobs are answered that nothing can be written."""
        while True:
            try:
                step()
                self.healthy = True
                return
            except (StoreError, RunError) as error:
                self._trouble(error)
                self._inbox.refuse(_TRY_AGAIN)

    def _trouble(self, error: Exception) -> None:
        if self.healthy:
            _log.error("%s", error)
        self.healthy = False
