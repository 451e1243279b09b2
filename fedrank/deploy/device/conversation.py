"""Synchronisation of a device with its hub: enrol, fetch the model, send messages, leave."""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
from time import monotonic

from fedrank.deploy.device.connection import CHANCE, LONGEST_WAIT, Backoff, HubClient, Refusal, State, Synced, tag_of
from fedrank.deploy.device.memory import Memory
from fedrank.deploy.device.outbox import COUNTED, OVER, TOO_LATE
from fedrank.deploy.device.trial import objection

_log = logging.getLogger("fedrank.device")
#: Mean time between two synchronisations while all is well, in seconds.
POLL = 60.0


class Conversation:
    """The requests of a synchronisation, one after the other.

    Args:
        memory: State of the device.
        connection: Client of the hub.
        enrolment: The enrolment token.
        patience: Seconds without a click after which an interaction is over.
    """

    def __init__(self, memory: Memory, connection: HubClient, enrolment: str, patience: float):
        self._memory, self._connection, self._enrolment, self._patience = memory, connection, enrolment, patience
        self._outbox = memory.outbox
        self._sent, self._last = 0, (State.RETRY, "waits since before the last start")
        self.backoff = Backoff()

    def sync(self) -> Synced:
        """Enrol if needed, fetch the model, send the waiting messages; stops where it cannot continue."""
        self._sent = 0
        try:
            for step in (self._look_around, self._take_leave, self._agree, self._fetch, self._report):
                stop = step()
                if isinstance(stop, Refusal):
                    return self._later(State.RETRY, stop.why, stop.retry_after)
                if stop is not None:
                    return stop
        except OSError as error:
            return self._later(State.OFFLINE, f"no answer ({type(error).__name__}: {error})")
        except sqlite3.Error as error:
            return self._later(State.RETRY, f"the file cannot be written: {error}")
        with self._memory.lock:
            if self.backoff.failures:
                self.backoff.reset()
                with contextlib.suppress(sqlite3.Error):
                    self._outbox.put(backoff=None)
            why, over = self._memory.silence(), self._memory.over
            state = State.SILENT if why else State.DONE if over else State.OK
            return self._told(state, LONGEST_WAIT if over or why else POLL * CHANCE.uniform(0.5, 1.5), why)

    def _later(self, state: State, why: str, retry_after: float | None = None) -> Synced:
        with self._memory.lock:
            _log.info("%s: %s", state, why)
            pause, self._last = self.backoff.later(retry_after), (state, why)
            with contextlib.suppress(sqlite3.Error):
                self._outbox.put(backoff=self.backoff.as_json())
            return self._told(state, pause, why)

    def _look_around(self) -> Synced | None:
        with self._memory.lock:
            now = self._memory.round and self._memory.round.open
            if now is not None and monotonic() - now.since >= self._patience:
                self._memory.end()
            # Another process of the same folder may have enrolled, opted out or left.
            kept = (self._outbox.get("token"), bool(self._outbox.get("out")) or self._memory.unsaved)
            if kept != (self._memory.token, self._memory.out):
                self._memory.load()
            if (self._memory.out or self._outbox.unreadable) and self._memory.leaving is None:
                return self._silent()
            left = self.backoff.left()
            return self._told(self._last[0], left, self._last[1]) if left else None

    def _told(self, state: State, next_in: float, why: str = "") -> Synced:
        return Synced(state, self._sent, next_in, why, self._outbox.lasting)

    def _silent(self) -> Synced:
        return self._told(State.SILENT, LONGEST_WAIT, self._memory.silence())

    def _take_leave(self) -> Synced | Refusal | None:
        if self._memory.leaving is None:
            return None
        if refusal := self._connection.leave(self._memory.leaving):
            return refusal
        with self._memory.lock:
            self._outbox.put(leaving=None)
            self._memory.leaving = None
            return self._silent() if self._memory.out else None

    def _agree(self) -> Synced | Refusal | None:
        if self._memory.token is None:
            with self._memory.lock:
                self._outbox.put(url=self._memory.url)  # where this cannot be written, no token is asked for
            given = self._connection.enrol(self._enrolment)
            if isinstance(given, Refusal):
                if given.unauthorised:
                    self._memory.complain("the hub does not accept the enrolment token")
                return given
            token, terms = given
            with self._memory.lock:
                if self._memory.out:  # in the meantime
                    self._outbox.put(leaving=token)
                elif why := self._memory.disagreement(terms):
                    self._outbox.put(leaving=token)  # it is of no use
                    self._memory.load()
                    self._memory.complain(why)
                    return self._later(State.TERMS_CHANGED, why, LONGEST_WAIT)
                else:
                    self._outbox.adopt(self._memory.url, token, json.dumps(terms.as_json()))
                self._memory.load()
        with self._memory.lock:
            no = self._memory.terms and objection(self._memory.terms, self._memory.most)
            if no:
                self._memory.complain(f"silent: {no}")
            return self._silent() if no or self._memory.out else None

    def _fetch(self) -> Synced | Refusal | None:
        with self._memory.lock:
            token, terms, now = self._memory.token, self._memory.terms, self._memory.round
            if token is None or terms is None:
                return self._silent()
            known = self._outbox.get("model_of") == token  # else it would tell which token the device had before
        etag = tag_of(terms, now.number, now.weights.astype("<f4").tobytes()) if now is not None and known else ""
        given = self._connection.model(token, terms, etag)
        with self._memory.lock:
            if isinstance(given, Refusal):
                return self._forget(token, given)
            body, over = given
            if self._memory.out or self._memory.terms != terms:  # in the meantime
                return self._silent()
            if body is not None:
                self._outbox.move_on(body, now.lost if now else 0, token)
            self._outbox.put(over=1 if over else None)
            self._memory.over = over
            if body is not None:
                self._memory.use(terms.request.decode(body), over)
        return None

    def _report(self) -> Synced | Refusal | None:
        with self._memory.lock:
            waiting = self._outbox.waiting()
        for message in waiting:
            with self._memory.lock:
                token, now = self._memory.token, self._memory.round
                if token is None or now is None or self._memory.out:
                    return self._silent()
                fresh = message.round == now.number and not self._memory.over and not self._memory.silence()
                if message.hub != now.terms.hub or not (fresh or message.tried):
                    continue
                if not self._outbox.sending(message, self._memory.limit):
                    continue
                self._memory.spent = self._outbox.spent()
            outcome = self._connection.report(token, message.round, message.body)
            with self._memory.lock:
                if isinstance(outcome, Refusal):
                    if outcome.not_counted:
                        self._outbox.answered(message, None)
                    return self._forget(token, outcome)
                self._outbox.answered(message, outcome)
                self._sent += outcome == COUNTED
                if outcome == OVER:
                    self._memory.over = True
                    self._outbox.put(over=1)
                elif outcome == TOO_LATE:
                    return self._told(State.STALE, CHANCE.uniform(0.0, 2.0), "the message came too late")
                elif outcome != COUNTED:
                    self._memory.complain("the hub refused a message; its program and this one may not fit together")
                    return Refusal("report: refused")
        return None

    def _forget(self, token: str, refusal: Refusal) -> Refusal:
        if refusal.unauthorised:
            self._outbox.forget_token(token)
            self._memory.token = None
        return refusal
