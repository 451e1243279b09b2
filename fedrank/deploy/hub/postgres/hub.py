"""A hub that is one of several processes on one database.

All processes enrol devices, hand out the model and take reports. The one that leads closes rounds when they are due and
applies them; the others look at the log several times a second and follow. When the leader ends or loses the database,
another takes over where the log is: a round that was closed and not applied is applied, once.

A round may take more reports than its cohort even where ``round_seconds`` is 0: those that arrive at other processes
until the leader notices, at most a moment's. Those that are used are then drawn by lot among all that came.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedrank.deploy.hub.credentials import NotAdmittedError
from fedrank.deploy.hub.devices import digest_of
from fedrank.deploy.hub.hub import Hub
from fedrank.deploy.hub.inbox import Job
from fedrank.deploy.hub.outcome import Outcome
from fedrank.deploy.hub.postgres.store import ClosedError, DeposedError, SharedStore
from fedrank.deploy.hub.settings import HubSettings
from fedrank.deploy.hub.store import StoreError

_log = logging.getLogger("fedrank.hub")

#: Seconds between looks at the log; to count a round's reports may take a tenth of that time.
_LOOK = 0.2


class SharedHub(Hub):
    """One of several processes of a hub; arguments as of :class:`~fedrank.deploy.hub.hub.Hub`."""

    store: SharedStore

    def __init__(self, folder: Path, store: SharedStore, settings: HubSettings):
        self.leads = store.lead()
        self._look_at, self._came, self._connections = 0.0, 0, store.connections
        super().__init__(folder, store, settings)
        if self.leads:
            _log.warning("this process leads")

    # ---------------------------------------------------------------------------------------------------- from the loop

    def device_of(self, token: str) -> int | None:
        """The number of the device with this token, wherever it enrolled; None if there is none."""
        found = super().device_of(token)
        if found is None:
            digest = digest_of(token)
            found = self.store.find(digest)
            if found is not None:
                self.devices.know(found, digest)
        return found

    # ------------------------------------------------------------------------------------------------------- the writer

    def _recover(self) -> None:
        self._told = -1  # what this process applied may not be what the log went on with
        self._came = 0
        try:
            super()._recover()
        except DeposedError:  # training is over here; whoever leads may go on
            last = self.store.last_round()
            self._show(0 if last is None else last.number + 1, "done")

    def _patience(self) -> float | None:
        left = max(0.0, self._look_at - time.monotonic())
        patience = super()._patience()
        return left if patience is None else min(left, patience)

    def _due(self) -> bool:
        return self.leads and super()._due()

    def _begin(self, number: int, state: str) -> None:
        self._came = 0
        super()._begin(number, state)

    def _reports(self) -> int:
        return max(self._came, super()._reports())

    def _turn(self) -> bool:
        going_on = super()._turn()
        if time.monotonic() >= self._look_at:
            self._look()
        return going_on

    def _look(self) -> None:
        """Follow the log, or take the lead if nobody has it."""
        started = time.monotonic()
        try:
            led, self.leads = self.leads, self.store.lead()
            took_over = self.leads and not led
            if took_over:
                _log.warning("this process leads now")
            self._meet_devices()
            self._follow(took_over)
            if self.leads and self.view.state == "open":
                self._came = self.store.came(self.view.round)
            self.healthy = True
        except StoreError as error:
            self._trouble(error)
        now = time.monotonic()
        self._look_at = now + max(_LOOK, 10 * (now - started))

    def _meet_devices(self) -> None:
        """Know the devices that other processes enrolled, and forget those that left there."""
        if self._connections != self.store.connections:  # nobody knows who left meanwhile
            self._connections = self.store.connections
            self.devices.reset(self.store.devices())
        for number, digest in self.store.devices_after(self.devices.highest):
            self.devices.know(number, digest)
        for number in self.store.departed():
            if number in self.devices:
                self.devices.remove(number)

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
                self.tally.applied(row, self.store.reporters(number))
        if here == self.view.round and not took_over:
            self._lasted = last.seconds or 0.0
            self._show_state(state)
        else:
            self._opened = time.monotonic()
            self._recover()
        if self.leads and self.view.state == "between":
            self._counted = dict(self.store.reports(here))
            self._persist(self._apply)

    def _commit(self, batch: list[Job]) -> list[tuple[Job, Any]]:
        if any(job.kind == "report" and job.round > self.view.round for job in batch):
            self._look()  # another process may have handed out a round that this one has not seen
        if any(job.kind == "leave" and job.device not in self.devices for job in batch):
            with contextlib.suppress(StoreError):
                self.devices.reset(self.store.devices())
        try:
            return super()._commit(batch)
        except ClosedError:
            self._show_state("between")
            self._look_at = 0.0
            return super()._commit(batch)

    def _close(self) -> None:
        """Close the open round, whoever leads; the leader applies it."""
        number, self._lasted = self.view.round, max(1e-9, time.monotonic() - self._opened)
        self._show_state("between")
        self._persist(lambda: self._draw(number))
        self._persist(self._apply)

    def _draw(self, number: int) -> None:
        """Close a round and draw those that are used, among the reports that any process took."""
        with self.store.alone():
            self._counted = dict(self.store.reports(number))
            more = max(0, len(self._counted) - self.settings.cohort)
            unused = secrets.SystemRandom().sample(sorted(self._counted), more)
            self.store.close_round(number, self._lasted, unused)

    def _apply(self) -> None:
        if self.leads:
            super()._apply()

    def _persist(self, step: Callable[[], None]) -> None:
        try:
            super()._persist(step)
        except DeposedError:
            _log.warning("this process does not lead any more")
            self.leads, self._look_at = False, 0.0

    def knows(self, ticket: str) -> bool:
        """Never: credentials and codes are counted by one process only."""
        return False

    async def enrol(self, ticket: str | None = None, identity: bytes = b"") -> str:
        """Enrol a new device with the hub's own token; credentials and codes are counted by one process only."""
        if ticket is not None:
            raise NotAdmittedError("unauthorised")
        return await super().enrol()

    async def report(self, round_: int, device: int, reply: bytes) -> Outcome:
        """Count a report, once; see :meth:`~fedrank.deploy.hub.hub.Hub.report`."""
        if round_ > self.view.round:  # the writer looks at the log before it says that this is too early
            return await self._inbox.ask("report", round_, device, reply)
        return await super().report(round_, device, reply)
