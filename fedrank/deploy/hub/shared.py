"""A hub that is one of several processes on one database.

All processes enrol devices, hand out the model and take reports. The one that leads closes rounds when they are due and
applies them; the others look at the log several times a second and follow. When the leader ends or loses the database,
another takes over where the log is: a round that was closed and not applied is applied, once.

A round may take more reports than its cohort even where ``round_seconds`` is 0: those that arrive at other processes
until the leader notices, at most a moment's. Those that are used are then drawn by lot among all that came.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedrank.deploy.draws import key_of
from fedrank.deploy.hub.admission import Admission, Enrolment, NotAdmittedError
from fedrank.deploy.hub.hub import Hub
from fedrank.deploy.hub.inbox import Job
from fedrank.deploy.hub.postgres import ClosedError, DeposedError, SharedStore
from fedrank.deploy.hub.row import Closing, Row
from fedrank.deploy.hub.settings import HubSettings
from fedrank.deploy.hub.stages import OpenRound, Outcome
from fedrank.deploy.hub.store import StoreError

_log = logging.getLogger("fedrank.hub")

#: Seconds between looks at the log; to count a round's reports may take a tenth of that time.
_LOOK = 0.2


class SharedAdmission(Admission):
    """Admits devices that several processes enrol; credentials and codes are counted by one process only."""

    _store: SharedStore

    def find(self, token: str) -> int | None:
        """The number of the device with this token, wherever it enrolled; None if there is none."""
        found = super().find(token)
        if found is None:
            digest = key_of(token)
            found = self._store.find(digest)
            if found is not None:
                self.devices.know(found, digest)
        return found

    def knows(self, ticket: str) -> bool:
        """Never."""
        return False

    def enrolment(self, token: str, ticket: str | None, identity: bytes) -> Enrolment:
        """The enrolment of a device with the hub's own token."""
        if ticket is not None:
            raise NotAdmittedError("unauthorised")
        return super().enrolment(token, None, b"")


class SharedClosing(Closing):
    """Closes rounds of reports that any process took, while this process leads.

    Attributes:
        leads: This process leads.
        came: Number of reports of the open round in the log, when it was last counted.
    """

    store: SharedStore
    leads, came = False, 0

    def recover(self, number: int) -> None:
        """Count anew."""
        self.came = 0

    def begin(self, number: int, ended: OpenRound) -> None:
        """Count anew."""
        self.came = 0

    def reports(self) -> int:
        """Number of reports of the open round, as far as this process knows."""
        return max(self.came, super().reports())

    def seconds(self) -> float | None:
        """As of every hub; None where another process leads."""
        return super().seconds() if self.leads else None

    def close(self, number: int) -> None:
        """Close a round with the reports that any process took."""
        with self.store.alone():
            self.round.recount(dict(self.store.reports(number)))
            super().close(number)


class SharedHub(Hub):
    """One of several processes of a hub; arguments as of :class:`~fedrank.deploy.hub.hub.Hub`."""

    store: SharedStore

    def __init__(self, folder: Path, store: SharedStore, settings: HubSettings):
        self._look_at, self._connections = 0.0, store.connections
        super().__init__(folder, store, settings)
        if self._closing.leads:
            _log.warning("this process leads")

    def _make_row(self, folder: Path) -> Row:
        row = super()._make_row(folder)
        self._closing = SharedClosing(self.settings, self.terms, self.store, row.round)
        self._closing.leads = self.store.lead()
        return dataclasses.replace(row, admission=SharedAdmission(self.settings, self.store), closing=self._closing)

    def _recover(self) -> None:
        try:
            super()._recover()
        except DeposedError:  # training is over here; whoever leads may go on
            last = self.store.last_round()
            self._show(0 if last is None else last.number + 1, "done")

    def _patience(self) -> float | None:
        left = max(0.0, self._look_at - time.monotonic())
        patience = super()._patience()
        return left if patience is None else min(left, patience)

    def _turn(self) -> bool:
        going_on = super()._turn()
        if time.monotonic() >= self._look_at:
            self._look()
        return going_on

    def _look(self) -> None:
        """Follow the log, or take the lead if no process has it."""
        started = time.monotonic()
        try:
            led, self._closing.leads = self._closing.leads, self.store.lead()
            took_over = self._closing.leads and not led
            if took_over:
                _log.warning("this process leads now")
            self._meet_devices()
            self._follow(took_over)
            if self._closing.leads and self.view.state == "open":
                self._closing.came = self.store.came(self.view.round)
            self.healthy = True
        except StoreError as error:
            self._trouble(error)
        now = time.monotonic()
        self._look_at = now + max(_LOOK, 10 * (now - started))

    def _meet_devices(self) -> None:
        """Know the devices that other processes enrolled, and forget those that left there."""
        devices = self.row.admission.devices
        if self._connections != self.store.connections:  # notifications of devices that left may be lost
            self._connections = self.store.connections
            devices.reset(self.store.devices())
        for number, digest in self.store.devices_after(devices.highest):
            devices.know(number, digest)
        for number in self.store.take_departed():
            if number in devices:
                devices.remove(number)

    def _follow(self, took_over: bool) -> None:
        """Come to where the log is."""
        last = self.store.last_round()
        if last is None:
            return
        done = last.state == "applied"
        here, state = last.number + done, {"open": "open", "closed": "between", "applied": "done"}[last.state]
        if (here, state) == (self.view.round, self.view.state) and not took_over:
            return
        for number in range(self.tally.rounds, here):
            row = self.store.round(number)
            if row is not None and row.state == "applied":
                self.tally.add_round(row, self.store.reporters(number))
        if here == self.view.round and not took_over:
            self.round.seconds = last.seconds or 0.0
            self._show_state(state)
        else:
            self.round.opened = time.monotonic()
            self._recover()
        if self._closing.leads and self.view.state == "between":
            self.round.recount(dict(self.store.reports(here)))
            self._persist(self._apply)

    def _commit(self, batch: list[Job]) -> list[tuple[Job, Any]]:
        if any(job.kind == "report" and job.round > self.view.round for job in batch):
            self._look()  # another process may have handed out a round that this one has not seen
        if any(job.kind == "leave" and job.device not in self.row.admission.devices for job in batch):
            with contextlib.suppress(StoreError):
                self.row.admission.devices.reset(self.store.devices())
        try:
            return super()._commit(batch)
        except ClosedError:
            self._show_state("between")
            self._look_at = 0.0
            return super()._commit(batch)

    def _apply(self) -> None:
        if self._closing.leads:
            super()._apply()

    def _persist(self, step: Callable[[], None]) -> None:
        try:
            super()._persist(step)
        except DeposedError:
            _log.warning("this process does not lead any more")
            self._closing.leads, self._look_at = False, 0.0

    async def report(self, round_: int, device: int, reply: bytes) -> Outcome:
        """Count a report, once; see :meth:`~fedrank.deploy.hub.hub.Hub.report`."""
        if round_ > self.view.round:  # the writer looks at the log before it says that this is too early
            return await self._inbox.ask("report", round=round_, device=device, data=reply)
        return await super().report(round_, device, reply)
