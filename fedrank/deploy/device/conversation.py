"""Synchronisation of a device with its hub: enrol, fetch the model and its proof, send messages, leave."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import sqlite3
import time
from collections.abc import Callable
from time import monotonic

from fedrank.deploy.device.connection import CHANCE, LONGEST_WAIT, Backoff, HubClient, Refusal, State, Synced, tag_of
from fedrank.deploy.device.memory import Memory
from fedrank.deploy.device.outbox import COUNTED, NOT_DUE, OVER, REFUSED, TOO_LATE, Message
from fedrank.deploy.device.trial import objection
from fedrank.deploy.draws import CHECK, DUE, beacon_of, drawn, key_of
from fedrank.deploy.log.proof import Answer, Head, TooShortError, Trust, UnprovenError
from fedrank.deploy.oblivious.tokens import Wallet, header_of
from fedrank.deploy.terms import Terms

#: Most pairs of heads that contradict each other that are kept.
_MOST_CONFLICTS = 16


class Prover:
    """Checks what a hub says about its log, and keeps the newest head that was checked.

    Args:
        memory: State of the device.
        connection: Client of the hub.
        trust: Witnesses that the app trusts.

    Attributes:
        told: It told the hub which size of the log it saw last, since this was last set to False. A hub could have
            given each device another size, so that a size tells who asks as a token does.
    """

    told = False

    def __init__(self, memory: Memory, connection: HubClient, trust: Trust):
        self._memory, self._connection, self._trust = memory, connection, trust

    def objection(self, terms: Terms, model: bytes, best: bytes | None) -> str | Refusal:
        """Reason why a model is not used; empty if it is proven. A refusal is an answer that says nothing about it.

        Args:
            terms: Terms of the hub.
            model: The model message, as it came.
            best: The message of the best model, if it is to be used too.

        Raises:
            OSError: The hub does not answer.
        """
        if not terms.log:
            return "its terms have no log, and the app asks for witnesses" if self._trust.witnesses else ""
        head = self._check_head(terms)
        if not isinstance(head, Head):
            return head
        if not head.holds(model, best):
            return "the newest model in the log is another"
        return ""

    def objection_to_key(self, terms: Terms, epoch: int, key: bytes) -> str | Refusal:
        """Reason why no token is bought with a key; empty if all devices see the same. A refusal says nothing about it.

        Args:
            terms: Terms of the hub, which has tokens.
            epoch: Number of the epoch.
            key: The issuer's key, as published.

        Raises:
            OSError: The hub does not answer.
        """
        if not terms.log:
            return ""
        head = self._check_head(terms)
        if not isinstance(head, Head):
            return head
        if head.keys.get(epoch) != hashlib.sha256(key).digest():
            return f"the log has no such key of the tokens of epoch {epoch}"
        return ""

    def _check_head(self, terms: Terms) -> Head | str | Refusal:
        """The newest head, which is kept; or why there is none."""
        try:
            head = self._newest(terms, self.seen(terms))
            if isinstance(head, Head):
                self._keep(terms, head)
            return head
        except UnprovenError as error:
            if error.conflict is not None:
                self._keep_conflict(terms, error.conflict)
            return str(error)
        except ImportError:
            return "the package cryptography is not installed, which verifies signatures"

    def seen(self, terms: Terms) -> Head | None:
        """The newest head of the hub's log that was checked; None before the first.

        Raises:
            UnprovenError: It cannot be read any more, so that it is not known whether the log only grew.
        """
        with self._memory.lock:
            kept = self._memory.outbox.get(_name("head", terms))
        if kept is None:
            return None
        try:
            return Head.from_json(kept)
        except (ValueError, KeyError, TypeError) as error:
            raise UnprovenError("what this device kept of the log is damaged") from error

    def conflicts(self, terms: Terms) -> list[list[str]]:
        """Pairs of signed heads of the log that cannot both be true."""
        kept = self._memory.outbox.get(_name("conflicts", terms))
        return json.loads(kept) if kept else []

    def _newest(self, terms: Terms, seen: Head | None) -> Head | Refusal:
        asked = None if seen is not None else 0
        answer = self._connection.log(asked)
        if isinstance(answer, Refusal):
            return answer
        try:
            return Answer.parse(answer).check(terms, seen, self._trust)
        except TooShortError:
            assert seen is not None  # nothing was too short before the first
            self.told = True
            answer = self._connection.log(seen.size)
            return answer if isinstance(answer, Refusal) else Answer.parse(answer).check(terms, seen, self._trust)

    def _keep(self, terms: Terms, head: Head) -> None:
        outbox = self._memory.outbox
        with self._memory.lock, outbox.transaction():
            kept = outbox.get(_name("head", terms))  # another process may have seen a newer one
            if kept is None or Head.from_json(kept).size <= head.size:
                outbox.put(**{_name("head", terms): head.as_json()})

    def _keep_conflict(self, terms: Terms, conflict: tuple[str, str]) -> None:
        with self._memory.lock:
            found = self.conflicts(terms)
            if list(conflict) not in found and len(found) < _MOST_CONFLICTS:
                self._memory.outbox.put(**{_name("conflicts", terms): json.dumps([*found, list(conflict)])})


def _name(what: str, terms: Terms) -> str:
    """Name of a fact about a hub's log. It outlives the hub's token: a hub cannot have its log forgotten."""
    return f"{what} {terms.hub}"


_log = logging.getLogger("fedrank.device")
#: Mean time between two synchronisations while all is well, in seconds.
POLL = 60.0
#: Probability with which a synchronisation buys the token of the next epoch.
_AHEAD = 0.5


class Conversation:
    """The requests of a synchronisation, one after the other.

    Args:
        memory: State of the device.
        connection: Client of the hub.
        enrolment: The enrolment token.
        patience: Seconds without a click after which an interaction is over.
        trust: Witnesses that have to cosign the hub's log; None: none.
    """

    def __init__(
        self, memory: Memory, connection: HubClient, enrolment: str, patience: float, trust: Trust | None = None
    ):
        self.prover = Prover(memory, connection, trust or Trust())
        self._memory, self._connection, self._enrolment, self._patience = memory, connection, enrolment, patience
        self._outbox = memory.outbox
        self._wallet: Wallet | None = None
        self._newest, self._bought = ("", False), False  # entity tag of the hub's model, and whether training is over
        self._sent, self._last = 0, (State.RETRY, "waits since before the last start")
        self.backoff = Backoff()

    def sync(self) -> Synced:
        """Enrol if needed, fetch the model, send the waiting messages; stops where it cannot continue."""
        self._sent, self._bought, self.prover.told = 0, False, False
        try:
            for step in (self._look_around, self._take_leave, self._agree, self._buy, self._fetch, self._report):
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
            return self._result(state, LONGEST_WAIT if over or why else POLL * CHANCE.uniform(0.5, 1.5), why)

    def _later(self, state: State, why: str, retry_after: float | None = None) -> Synced:
        with self._memory.lock:
            _log.info("%s: %s", state, why)
            pause, self._last = self.backoff.later(retry_after), (state, why)
            with contextlib.suppress(sqlite3.Error):
                self._outbox.put(backoff=self.backoff.as_json())
            return self._result(state, pause, why)

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
            return self._result(self._last[0], left, self._last[1]) if left else None

    def _result(self, state: State, next_in: float, why: str = "") -> Synced:
        return Synced(state, self._sent, next_in, why, self._outbox.lasting)

    def _silent(self) -> Synced:
        return self._result(State.SILENT, LONGEST_WAIT, self._memory.silence())

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
            wrong_way = self._connection.objection(terms)
            with self._memory.lock:
                if self._memory.out:  # in the meantime
                    self._outbox.put(leaving=token)
                elif why := wrong_way or self._memory.disagreement(terms):
                    self._outbox.put(leaving=token)  # it is of no use
                    self._memory.load()
                    self._memory.complain(why)
                    return self._later(State.RETRY if wrong_way else State.TERMS_CHANGED, why, LONGEST_WAIT)
                else:
                    self._outbox.adopt(self._memory.url, token, json.dumps(terms.as_json()))
                self._memory.load()
        with self._memory.lock:
            if self._memory.out:
                return self._silent()
            if self._memory.terms and (no := objection(self._memory.terms, self._memory.limits)):
                self._memory.complain(f"nothing is sent: {no}")
            terms = self._memory.terms
        if terms is not None and (why := self._connection.objection(terms)):
            self._memory.complain(why)
            return self._later(State.RETRY, why, LONGEST_WAIT)
        return None

    def _buy(self) -> Synced | Refusal | None:
        """Buy a token of this epoch or the next, at most one a synchronisation, and never in one with a report."""
        with self._memory.lock:
            token, terms = self._memory.token, self._memory.terms
            if token is None or terms is None or not terms.tokens:
                return None
            wallet = self._purse()
        given = self._connection.tokens()
        if isinstance(given, Refusal):
            return given
        round_, over, etag, keys = given
        self._newest, now = (etag, over), round_ // terms.tokens
        # Others are no business of a device, and would fill its disk.
        keys = {epoch: key for epoch, key in keys.items() if epoch in (now, now + 1)}
        with self._memory.lock:
            if why := wallet.objection(terms.hub, keys):
                self._memory.complain(why)
                return self._later(State.RETRY, why, LONGEST_WAIT)
            wallet.forget(terms.hub, now - 1)
            if over or self._memory.silence():
                return None
            wanted = [epoch for epoch in (now, now + 1) if epoch in keys and wallet.wants(terms.hub, epoch)]
            # The next epoch's is bought at a random moment of this one, so that nothing follows from when.
            wanted = [e for e in wanted if e == now or wallet.begun(terms.hub, e) or CHANCE.random() < _AHEAD]
            if not wanted:
                return None
        why = self.prover.objection_to_key(terms, wanted[0], keys[wanted[0]])
        if isinstance(why, Refusal):
            return why
        if why:  # one that was made for this device would mark its token
            self._memory.complain(f"no token is bought: {why}")
            return None
        if self.prover.told:  # with its own token beside the size, the hub would know whose size it was
            return None
        with self._memory.lock:
            asked = wallet.draw(terms.hub, wanted[0], keys[wanted[0]])
        answer = self._connection.buy(token, wanted[0], asked.request)
        self._bought = True
        with self._memory.lock:
            if isinstance(answer, Refusal):
                if answer.reason == "other-purchase":
                    self._memory.complain("the hub sold this device another token of this epoch; it does not report")
                    wallet.give_up(terms.hub, wanted[0])
                    return None
                return None if answer.reason == "wrong-epoch" else self._forget(token, answer)
            # A token of this epoch is bought when a report may be waiting for it: some time lies between the two.
            wait = CHANCE.uniform(0.0, POLL) if self._connection.relayed and wanted[0] == now else 0.0
            if not wallet.bought(terms.hub, wanted[0], asked, answer, time.time() + wait):
                return Refusal("token: the hub's answer makes no token")
        return None

    def _purse(self) -> Wallet:
        if self._wallet is None:
            self._wallet = Wallet(self._outbox)
        return self._wallet

    def _fetch(self) -> Synced | Refusal | None:
        with self._memory.lock:
            token, terms, now = self._memory.token, self._memory.terms, self._memory.round
            if token is None or terms is None:
                return self._silent()
            known = self._outbox.get("model_of") == token  # else it would tell which token the device had before
        etag = tag_of(terms, now.number, now.weights.astype("<f4").tobytes()) if now is not None and known else ""
        if terms.tokens and now is not None and known and (etag, self._memory.over) == self._newest:
            return None
        # With tokens, all devices ask alike: without one, and without a word about the model before.
        given = self._connection.model("" if terms.tokens else token, terms, "" if terms.tokens else etag)
        due, best = True, None
        if not isinstance(given, Refusal) and given[0] is not None:
            due, compares = part_in(terms, token, given[0], known)
            best = self._connection.best(token, terms) if compares and not given[1] else None
            if not isinstance(best, Refusal) and (why := self.prover.objection(terms, given[0], best)):
                if isinstance(why, Refusal):
                    return why
                self._memory.complain(f"the hub's newest model is not used: {why}")
                return self._later(State.UNPROVEN, why)
        with self._memory.lock:
            if isinstance(given, Refusal):
                return self._forget(token, given)
            if isinstance(best, Refusal):
                return self._forget(token, best)
            body, over = given
            if best is not None and body is not None and best[5:] == body[5:]:
                best = None  # the newest is the best: there is nothing to compare, and the device learns
            if self._memory.out or self._memory.terms != terms:  # in the meantime
                return self._silent()
            if body is not None:
                self._outbox.move_on(body, now.lost if now else 0, token, due=due, best=best)
            self._outbox.put(over=1 if over else None)
            self._memory.over = over
            if body is not None:
                decode = terms.request.decode
                self._memory.use(decode(body), over, due, None if best is None else decode(best))
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
                shown = self._shown(message, token)
                if shown is None:
                    continue
                if not self._outbox.sending(message, self._memory.limit, self._binding(message)):
                    continue
                self._memory.spent = self._outbox.spent()
            outcome = self._connection.report(shown, message.round, message.body)
            with self._memory.lock:
                if isinstance(outcome, Refusal):
                    if outcome.unauthorised and shown != token:  # it is the epoch's token that the hub does not take
                        self._outbox.record_answer(message, REFUSED)
                        self._memory.complain("the hub does not take the token that it sold; the message is dropped")
                        return Refusal("report: the token was refused")
                    if outcome.not_counted:
                        self._outbox.record_answer(message, None)
                    if outcome.reason == "too-few":  # no server is overloaded: it waits for company with the next
                        return self._result(State.RETRY, POLL * CHANCE.uniform(0.5, 1.5), outcome.why)
                    return self._forget(token, outcome)
                self._outbox.record_answer(message, outcome)
                self._sent += outcome == COUNTED
                if outcome == OVER:
                    self._memory.over = True
                    self._outbox.put(over=1)
                elif outcome == TOO_LATE:
                    return self._result(State.STALE, CHANCE.uniform(0.0, 2.0), "the message came too late")
                elif outcome == NOT_DUE:
                    return self._result(State.STALE, POLL * CHANCE.uniform(0.5, 1.5), "the device was not due")
                elif outcome != COUNTED:
                    self._memory.complain("the hub refused a message; its program and this one may not fit together")
                    return Refusal("report: refused")
        return None

    def _shown(self, message: Message, token: str) -> str | None:
        """Token that a message is shown with: the device's token or that of the epoch; None: not now."""
        now = self._memory.round
        if now is None or not now.terms.tokens:
            return token
        # Whoever sees a purchase and a report together, or a size of the log and a report, may think that they belong
        # together.
        if self._bought or self.prover.told:
            return None
        epoch = message.round // now.terms.tokens
        spend = self._purse().spendable(message.hub, epoch, message.round, time.time(), POLL)
        return None if spend is None else header_of(spend)

    def _binding(self, message: Message) -> Callable[[], bool]:
        """Function that binds the epoch's token to a message when it is written into the ledger."""
        now = self._memory.round
        if now is None or not now.terms.tokens:
            return lambda: True
        wallet, epoch = self._purse(), message.round // now.terms.tokens
        return lambda: wallet.bind(message.hub, epoch, message.round)

    def _forget(self, token: str, refusal: Refusal) -> Refusal:
        if refusal.unauthorised:
            self._outbox.forget_token(token)
            self._memory.token = None
        return refusal


def part_in(terms: Terms, token: str, model: bytes, known: bool) -> tuple[bool, bool]:
    """Part of a device in a round.

    Args:
        terms: Terms of the hub.
        token: Token of the device.
        model: The round's model message.
        known: It had fetched a model with this token before: a device that enrolled after a round was opened, when
            what decides was known, is not drawn in it.

    Returns:
        Whether it is due to report, and whether its report compares the newest model with the best one so far.
    """
    new, key, beacon = not known, key_of(token), beacon_of(model)
    due = not (new and terms.draws) and drawn(key, DUE, beacon, terms.due)
    return due, due and not new and drawn(key, CHECK, beacon, terms.checks)
