"""A learning hub without its network: devices report, rounds close, the model improves.

Rounds go through three states, each step one transaction of the log (:mod:`fedrank.deploy.hub.store`)::

    OPEN     devices report about the model of this round; each counts once
    CLOSED   enough reports, or the deadline; no report is added any more. If more came than are used, those that are
             used have been drawn by lot
    APPLIED  the reports updated the model; the next round is open, or the hub is halted because its model sank

One thread writes. What arrives while it commits is committed together next (group commit), and no report is
acknowledged before it has been committed. Before a round is APPLIED the new state is written to a checkpoint, so that
a process killed anywhere in between finds the round CLOSED and applies it again, with the same outcome.

**Several processes** may have one database. All of them enrol devices, sell tokens, hand out the model and take
reports. The one that leads closes rounds when they are due and applies them; the others look at the log several times
a second and follow. When the leader ends or loses the database, another takes over where the log is: a round that was
closed and not applied is applied, once. A round may then take more reports than its cohort even where ``round_seconds``
is 0: those that arrive at other processes until the leader notices, at most a moment's. Those that are used are drawn
by lot among all that came.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedrank.core.errors import RunError
from fedrank.core.trees import Json
from fedrank.deploy.hub.inbox import UNWRITABLE, Inbox, Job, Stopped, lost, plan_batch
from fedrank.deploy.hub.learning import CollectedModel
from fedrank.deploy.hub.row import row_of
from fedrank.deploy.hub.settings import HubSettings
from fedrank.deploy.hub.stages import Outcome, View
from fedrank.deploy.hub.store import (
    ClosedError,
    CountedError,
    DeposedError,
    Purchase,
    RoundRow,
    Store,
    StoreError,
)
from fedrank.deploy.hub.tally import Tally

_log = logging.getLogger("fedrank.hub")

#: Seconds between tries while the log cannot be written.
_TRY_AGAIN = 1.0
#: Seconds between looks at a log that others write to; to look may take a tenth of that time.
_LOOK = 0.2


class Hub:
    """A hub over its folder: call :meth:`start` inside an event loop, and :meth:`stop` at the end.

    Args:
        folder: Folder of the hub.
        store: The log, opened for writing.
        settings: Settings of the hub.

    Attributes:
        leads: This process closes rounds, and applies them.

    Raises:
        RunError: The server's states belong to something else, or the log cannot be read.
    """

    def __init__(self, folder: Path, store: Store, settings: HubSettings):
        self.settings, self.terms, self.store = settings, settings.terms(store.name), store
        self.healthy = self.alive = True  # it can write; it goes on
        self.leads, self._look_at = store.lead(), 0.0
        self._publish_at = 0.0
        if store.shared and self.leads:
            _log.warning("this process leads")
        self.row = row_of(Path(folder), store, settings, self.terms)
        self.round = self.row.round
        self.tally = Tally(settings, store)
        self._inbox = Inbox()
        self._thread: threading.Thread | None = None
        self._settled = asyncio.Event()  # the hub is not between two rounds
        self._recover()

    # ---------------------------------------------------------------------------------------------- where we were

    def _recover(self) -> None:
        """Find the round that the log is in; one that was closed but not applied is applied by the writer."""
        model, publishing, round_ = self.row.model, self.row.publishing, self.round
        last = self.store.last_round()
        if last is None:  # a coordinator has not asked anything yet
            self._show(0, "between")
            return
        done = last.state == "applied"
        number = last.number + (done and model.own)
        before = self.store.round_before(number)
        for stage in self.row:
            stage.recover(number)
        if done and model.is_halted:
            round_.before = (before, dict(self.store.reports(before)))
            self._show(number, "halted")
            return
        goes_on = done and model.own and not 0 < self.settings.rounds <= number  # training had been over
        if goes_on and self.store.leads:
            self.store.open_round(number, model.digest(), entry=publishing.entry())
            last, done = self.store.last_round() or last, False
        elif last.model is None and self.store.leads:
            self.store.set_model(number, model.digest(), publishing.entry())
        elif not done and last.model not in (None, model.digest()):
            _log.warning("round %d asks about another model than its log says: another machine or program?", number)
        publishing.skips = model.own and not done and publishing.differs(number)
        round_.before = (before, dict(self.store.reports(before)))
        if not (done and model.own):
            round_.recount(dict(self.store.reports(number)))
        if done:
            self._show(number, "done" if model.own else "between")
            return
        # How long the round has been open, by a clock that may have been set meanwhile: never more than the deadline.
        round_.opened -= min(max(0.0, time.time() - last.opened), self.settings.deadline or float("inf"))
        round_.seconds = last.seconds or 0.0
        self._show(number, "open" if last.state == "open" and not publishing.skips else "between")

    def _show(self, number: int, state: str) -> None:
        question, best = self.row.model.question(), self.row.model.best()
        self.round.number = number
        for stage in self.row:
            stage.show(number, question, best)
        tag = f'"{self.terms.hub[:8]}-{number}-{self.row.model.digest().hex()[:8]}"'
        self._turn_to(View(number, state, question, tag, best))

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
            await self._inbox.loop.run_in_executor(None, self.row.model.warm)
        self._turn_to(self.view)
        for stage in self.row:
            stage.start()
        self._thread = threading.Thread(target=self._write, name="fedrank-hub", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Finish the jobs in the queue and close the log."""
        loop = asyncio.get_running_loop()
        if self._thread is not None:
            self._inbox.stop()
            await loop.run_in_executor(None, self._thread.join)
        for stage in self.row:
            await loop.run_in_executor(None, stage.stop)
        self.store.close()

    def device_of(self, token: str) -> int | None:
        """The number of the device with this token; None if there is none."""
        return self.row.admission.find(token)

    async def enrol(self, ticket: str | None = None, identity: bytes = b"") -> str:
        """Enrol a new device and return its token, of which the hub keeps only the hash.

        Args:
            ticket: Secret of the credential, or the code, that it enrols with; None: it showed the hub's own token.
            identity: Hash of what its platform says that it is; empty: nothing does.

        Raises:
            StoreError: It cannot be written.
            NotAdmittedError: The ticket is not good, or as many have enrolled with it, or with the hub, as may.
        """
        token = secrets.token_urlsafe(32)
        await self._inbox.ask("enrol", enrolment=self.row.admission.enrolment(token, ticket, identity))
        return token

    @property
    def full(self) -> bool:
        """True if no more devices may enrol."""
        return self.row.admission.full

    def knows(self, ticket: str) -> bool:
        """True if a credential's secret or a code is good now; called by the event loop, and writes nothing.

        Raises:
            StoreError: The log cannot be read.
        """
        return self.row.admission.knows(ticket)

    async def code(self, secret: str) -> tuple[str, float] | None:
        """A single-use code for a back end.

        Args:
            secret: Secret of its credential.

        Returns:
            The code, and until when it is good, in seconds since 1970; None if there is no such credential with codes.
        """
        return await self._inbox.call(self.row.admission.code, secret)

    def look(self) -> None:
        """Have the writer read again what other processes may have written: the credentials."""
        self._inbox.put(self.row.admission.reread)

    async def sell(self, epoch: int, device: int, request: bytes) -> bytes | str:
        """The answer to a token request; only for a hub with tokens.

        Args:
            epoch: Number of the epoch.
            device: Number of the device that buys.
            request: Token request of RFC 9578.

        Returns:
            The token response; or why there is none: ``"malformed"``, ``"wrong-epoch"``, ``"other-purchase"``.

        Raises:
            StoreError: Nothing can be written.
        """
        issuer = self.row.issuer
        assert issuer is not None
        if refused := issuer.refuse(epoch, request):
            return refused
        digest = hashlib.sha256(request).digest()
        offer = (issuer.offer(self.view.round) or (0, b""))[1]
        if refused := await self._inbox.ask("buy", purchase=Purchase(epoch, device, digest, offer=offer)):
            return refused
        return await issuer.sign(epoch, request, digest)

    def use_challenge(self, digest: bytes, until: float, now: float) -> bool:
        """Use a challenge up, once over all processes; called by another thread than the loop's and the writer's.

        Arguments and value as of :meth:`fedrank.deploy.hub.store.Store.use_challenge`.

        Raises:
            StoreError: It cannot be written.
        """
        assert self._inbox.loop is not None
        asked = self._inbox.call(self.store.use_challenge, digest, until, now)
        return asyncio.run_coroutine_threadsafe(asked, self._inbox.loop).result()

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
        return await self._inbox.call(self._close_now, empty)

    async def ask_round(self, question: bytes) -> Outcome:
        """Open the next round with a coordinator's request; only for a hub that collects for a coordinator.

        Args:
            question: The round's request, whose number is above all earlier ones.

        Returns:
            ACCEPTED; ALREADY for the newest request again; CONFLICT while another round is open; STALE for a number
            that is not above all earlier ones.

        Raises:
            WireError: It does not fit this hub's terms.
        """
        model = self.row.model
        assert isinstance(model, CollectedModel)
        return await self._inbox.call(self._take, model, model.number_of(question), question)

    async def collect(self, round_: int) -> bytes | None:
        """The messages of a round, concatenated in the order of their devices' numbers; None before it has closed."""
        return await self._inbox.call(self._collect, round_)

    async def report(self, round_: int, device: int, reply: bytes) -> Outcome:
        """Count a report, once.

        Args:
            round_: Number of the round that it is about.
            device: Number of the device that reports.
            reply: The message, which its layout accepts.

        Returns:
            Its outcome; ACCEPTED and ALREADY only after it has been committed.
        """
        early = self._judge(round_, device, reply)
        # Another process may have handed out a round that this one has not seen: the writer looks at the log.
        if early is not None and not (early is Outcome.EARLY and self.store.shared):
            return early
        return await self._inbox.ask("report", round=round_, device=device, data=reply)

    def _judge(self, round_: int, device: int, reply: bytes) -> Outcome | None:
        """Outcome of a report that needs no writing; None if it may count. Called by the loop, then by the writer."""
        view = self.view
        number, previous = self.round.before
        if round_ == view.round and not view.over:
            before = self.round.counted.get(device)
            if before is not None:
                return Outcome.ALREADY if before == reply else Outcome.CONFLICT
            if self.row.draws is not None and (refused := self.row.draws.refuse(device, reply)) is not None:
                return refused
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
        return await self._inbox.call(self._resume)

    async def renew(self) -> None:
        """Make the changes of keys that were asked for.

        Raises:
            StoreError: They cannot be written.
        """
        await self._inbox.call(self._renew)

    async def wait_for_round(self, seconds: float) -> View:
        """The view of the hub; between two rounds, waits up to ``seconds`` for the next one."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), seconds)
        return self.view

    def status(self) -> dict[str, Json]:
        """Status for the page and the metrics; see :mod:`fedrank.deploy.hub.tally`."""
        view, devices = self.view, len(self.row.admission.devices)
        counted = list(self.round.counted) if view.state == "open" else []  # else the tally has them
        checks = self.round.checks if view.state == "open" else 0
        status = self.tally.status(view.round, view.state, devices, counted, self.round.age, checks)
        for stage in self.row:
            status |= stage.status()
        return status

    # ------------------------------------------------------------------------------------------------ the writer

    def _write(self) -> None:
        """Run of the writer thread: commit jobs, close and apply rounds."""
        try:
            with contextlib.suppress(RunError):  # it is tried again
                self._renew()  # before a round ends: what was asked for is of the epoch that is sold now
            if self.round.seconds and self.view.state == "between":  # it was closed when the process ended
                self._persist(self._apply)
            elif self.row.publishing.skips:  # no device may get this model: the round ends with the reports it has
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
            with contextlib.suppress(StoreError):  # still not
                self.store.probe()
                self._publish()
                self.healthy = True
        elif self.row.publishing.waits and time.monotonic() >= self._publish_at:
            self._publish_at = time.monotonic() + _TRY_AGAIN
            with contextlib.suppress(StoreError):  # still not
                self._publish()
        try:
            self._inbox.answer(self._commit(batch))
            for job in batch:
                if job.call is not None:
                    self._inbox.answer([(job, self._call(job.call))])
        except Exception:
            self._inbox.answer([(job, lost(job)) for job in batch])  # those that have an answer keep it
            raise
        if self._due():  # at a start too, where no device may be left to bring another report
            self._close()
        if self.row.keys.seconds() <= 0:
            self._call(self._renew)
        if self.store.shared and time.monotonic() >= self._look_at:
            self._look()
        return going_on

    # -------------------------------------------------------------------------------------------- several processes

    def _look(self) -> None:
        """Follow the log, or take the lead if no process has it."""
        started = time.monotonic()
        try:
            led, self.leads = self.leads, self.store.lead()
            took_over = self.leads and not led
            if took_over:
                _log.warning("this process leads now")
            self.row.admission.meet()
            self._follow(took_over)
            self._renew()
            if self.leads and self.view.state == "open":
                self.row.closing.count(self.view.round)
            elif not self.leads and not self.row.publishing.skips:
                self.row.publishing.publish()  # the leader may have appended more
            self.healthy = True
        except StoreError as error:
            self._trouble(error)
        now = time.monotonic()
        self._look_at = now + max(_LOOK, 10 * (now - started))

    def _follow(self, took_over: bool) -> None:
        """Come to where the log is."""
        last = self.store.last_round()
        if last is None:
            return
        own, publishing = self.row.model.own, self.row.publishing
        here = last.number + (own and last.state == "applied")
        state = {"open": "open", "closed": "between", "applied": "over" if own else "between"}[last.state]
        if state == "open" and publishing.skips:
            state = "between"
        shown = "over" if self.view.over else self.view.state
        if (here, state) == (self.view.round, shown) and not took_over:
            return
        for number in range(self.tally.rounds, here):
            row = self.store.round(number)
            if row is not None and row.state == "applied":
                self.tally.add_round(row, self.store.reporters(number))
        if here == self.view.round and not took_over and "over" not in (state, shown):
            self.round.seconds = last.seconds or 0.0
            self._show_state(state)
        else:
            self.round.opened = time.monotonic()
            self._recover()
        if self.leads and last.state == "closed":
            self.round.recount(dict(self.store.reports(here)))
            self._persist(self._apply)
        elif self.leads and publishing.skips:
            self._close()

    def _renew(self) -> None:
        if self.row.keys.renew():
            self.row.publishing.waits = True  # a copy has no key any more that was destroyed
            self._publish()

    def _publish(self) -> None:
        """Show the newest head of the public log, where the open round's model is in it."""
        if self.view.state != "between" and not self.row.publishing.skips:
            self.row.publishing.publish()

    def _patience(self) -> float | None:
        """Seconds until the deadline, the next look, key or try to write; None: no limit."""
        well = self.healthy and not self.row.publishing.waits
        waits = [min(max(0.0, self.row.keys.seconds()), threading.TIMEOUT_MAX)] if well else [_TRY_AGAIN]
        if self.store.shared:
            waits.append(max(0.0, self._look_at - time.monotonic()))
        seconds = self.row.closing.seconds()
        if self.view.state == "open" and seconds is not None:
            waits.append(max(0.0, seconds - self.round.age))
        return min(waits, default=None)

    def _due(self) -> bool:
        seconds = self.row.closing.seconds()
        return self.view.state == "open" and seconds is not None and self.round.age >= seconds

    def _commit(self, batch: list[Job]) -> list[tuple[Job, Any]]:
        """Write a batch in one transaction; returns the result of each job."""
        admission, number, devices = self.row.admission, self.view.round, self.row.admission.devices
        if self.store.shared and any(job.kind == "report" and job.round > number for job in batch):
            self._look()
            number = self.view.round
        if self.store.shared and any(job.kind == "leave" and job.device not in devices for job in batch):
            with contextlib.suppress(StoreError):
                admission.read_all()
        enrols = any(job.enrolment is not None for job in batch)
        try:
            # How many devices a credential has admitted must not change between the look and the write.
            with self.store.alone("admit") if enrols else contextlib.nullcontext():
                admissions = admission.batch()
                room = self.row.closing.room
                plan = plan_batch(batch, self._judge, devices, room, admissions.refuse, self.terms.is_check)
                new, bought = [], []
                if plan.new or plan.gone or plan.reports or plan.sales:
                    reports = [(number, device, data) for device, data in plan.reports.items()]
                    purchases = [self._on_sale(job.purchase) for job in plan.sales if job.purchase is not None]
                    gone = sorted(plan.gone)
                    new, bought = self.store.write(plan.new, gone, reports, admissions.admitted, purchases)
                    self.healthy = True
        except ClosedError:  # by another process
            self._show_state("between")
            self._look_at = 0.0
            return self._commit(batch)
        except StoreError as error:
            logged = dict(self.store.reports(number)) if isinstance(error, CountedError) else self.round.counted
            if logged != self.round.counted:  # another process wrote into the log: it is what counts
                self.round.recount(logged)
                return self._commit(batch)
            self._trouble(error)
            return [(job, lost(job)) for job in batch if job.call is None]
        devices.add(zip(new, plan.new, strict=True))
        for device in plan.gone:
            devices.remove(device)
        self.round.add(plan.reports)
        return [*plan.answers, *zip(plan.sales, bought, strict=True)]

    def _on_sale(self, purchase: Purchase) -> Purchase:
        """A purchase with the open round, if the tokens of its epoch are sold in it."""
        view = self.view
        assert self.row.issuer is not None
        sold = view.state == "open" and (purchase.epoch, purchase.offer) == self.row.issuer.offer(view.round)
        return dataclasses.replace(purchase, round=view.round) if sold else purchase

    def _call(self, function: Callable[[], Any]) -> Any:
        """Call a function for an operator, a coordinator or a back end; an error is its result."""
        try:
            if self.store.shared:
                self._look()
            return function()
        except RunError as error:
            self._trouble(error)
            return StoreError(UNWRITABLE)

    def _close_now(self, empty: bool) -> int | None:
        number = self.view.round
        if self.view.state != "open" or not (self.round.counted or empty):
            return None
        self._close()
        return number

    def _collect(self, number: int) -> bytes | None:
        row = self.store.round(number)
        done = row is not None and row.state == "applied"
        return b"".join(message for _, message in self.store.reports(number)) if done else None

    def _take(self, model: CollectedModel, number: int, question: bytes) -> Outcome:
        """Open a round with a coordinator's request; outcomes as of :meth:`ask_round`."""
        last = self.store.last_round()
        if last is not None and number == last.number and question == model.question():
            return Outcome.ALREADY
        if self.view.state == "open":
            return Outcome.CONFLICT
        if last is not None and number <= last.number:
            return Outcome.STALE
        self._prepare(number)
        model.take(number, question, self.row.publishing.entry(question))
        self._begin(number, "open")
        return Outcome.ACCEPTED

    def _close(self) -> None:
        """Close and apply the open round (OPEN → CLOSED → APPLIED); repeats each step until it can be written."""
        number, self.round.seconds = self.view.round, max(1e-9, self.round.age)
        self._show_state("between")
        self._persist(lambda: self.row.closing.close(number))
        self._persist(self._apply)

    def _apply(self) -> None:
        """Apply the closed round (CLOSED → APPLIED); may be repeated after a failure at any step."""
        if not self.leads:
            return
        publishing, model, number = self.row.publishing, self.row.model, self.view.round
        for stage in self.row:
            stage.settle(number)
        if not publishing.skips:
            publishing.publish()  # what was settled, before a model is made of it
        publishing.skips = False
        learnt = model.learn(number, self.store.reports(number))
        self._prepare(number + 1)  # before any device can see the next round
        following = model.digest() if learnt.following in ("open", "halted") else None
        entry, judged = publishing.entry(), learnt.judged
        self.store.apply_round(number, *learnt.reward, next_model=following, judged=judged, entry=entry)
        if learnt.following != "between":
            publishing.publish()  # before any device can see the model
        self.healthy = True  # before any device can see the next round
        row = RoundRow(number, "applied", 0.0, None, self.round.seconds, None, learnt.messages, *learnt.reward)
        self.tally.add_round(row, self.store.reporters(number))
        self.round.seconds = 0.0
        model.confirm(number, learnt)
        if learnt.following == "between":
            self._show_state("between")
        else:
            self._begin(number + 1, learnt.following)

    def _prepare(self, number: int) -> None:
        for stage in self.row:
            stage.prepare(number)

    def _resume(self) -> int | None:
        """Open the round that was not opened when the hub halted."""
        number = self.view.round
        if self.view.state != "halted":
            return None
        self.row.model.resume(number, self.row.publishing.entry())
        self._begin(number, "open")
        return number

    def _begin(self, number: int, state: str) -> None:
        """Show the next round, ``"open"``, ``"halted"`` or ``"done"``."""
        round_ = self.round
        for stage in self.row:
            stage.begin(number, round_)
        if number != round_.number:
            round_.before = (round_.number, round_.counted)
        round_.recount({})
        round_.opened = time.monotonic()
        self._show(number, state)

    def _show_state(self, state: str) -> None:
        self._turn_to(dataclasses.replace(self.view, state=state))

    def _persist(self, step: Callable[[], None]) -> None:
        """Repeat a step until it can be written; meanwhile all jobs are answered that nothing can be written."""
        while True:
            try:
                step()
                self.healthy = True
                return
            except DeposedError:
                _log.warning("this process does not lead any more")
                self.leads, self._look_at = False, 0.0
                return
            except RunError as error:
                self._trouble(error)
                self._inbox.refuse(_TRY_AGAIN)

    def _trouble(self, error: Exception) -> None:
        if self.healthy:
            _log.error("%s", error)
        self.healthy = False
