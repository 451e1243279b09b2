"""Synchronisation of a device with its hub: enrol, fetch the model and its proof, send messages, leave."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import sqlite3
import time
from time import monotonic
from typing import Any, NamedTuple, NoReturn

from fedrank.deploy.device.connection import (
    CHANCE,
    LONGEST_WAIT,
    OTHER_GATEWAY,
    Backoff,
    HubClient,
    HubRefusedError,
    OnSale,
    State,
    Synced,
    tag_of,
)
from fedrank.deploy.device.memory import IDLE, Memory
from fedrank.deploy.device.outbox import COUNTED, NOT_DUE, OVER, REFUSED, TOO_LATE, Message
from fedrank.deploy.device.trial import objection
from fedrank.deploy.draws import CHECK, DUE, SEED, Beacon, beacon_of, drawn, key_of, turn, word
from fedrank.deploy.log.proof import Answer, Head, TooShortError, Trust, UnprovenError
from fedrank.deploy.log.tree import ISSUER_KEY, beacon_entry, offer_entry
from fedrank.deploy.oblivious.tokens import Wallet, header_of, key_id, parts_of
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

    def objection(
        self, terms: Terms, model: bytes | None, best: bytes | None = None, entry: bytes | None = None
    ) -> str:
        """Reason why something is not used; empty if it is proven.

        Args:
            terms: Terms of the hub.
            model: The model message, as it came; None: no model is asked about.
            best: The message of the best model, if it is to be used too.
            entry: An entry of the log about tokens that is to be used: all devices have to see the same.

        Raises:
            OSError: The hub does not answer.
            HubRefusedError: It answers something that says nothing about it.
        """
        if not terms.log:
            return "its terms have no log, and the app asks for witnesses" if self._trust.witnesses else ""
        head = self._check_head(terms)
        if isinstance(head, str):
            return head
        if model is not None and not head.holds(model, best):
            return "the newest model in the log is another"
        if entry is not None and entry not in head.others:
            return f"the log does not say that of the tokens of epoch {int.from_bytes(entry[1:5])}"
        return ""

    def _check_head(self, terms: Terms) -> Head | str:
        """The newest head, which is kept; or why there is none."""
        try:
            seen = self.seen(terms)
            head = self._newest(terms, seen)
            self._keep(terms, seen, head)
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

    def gateway(self, terms: Terms) -> tuple[bytes, ...]:
        """The gateway's key and the one before it, as far as this device has seen."""
        with contextlib.suppress(UnprovenError):
            if (seen := self.seen(terms)) is not None:
                return seen.gateway(terms)
        return (bytes.fromhex(terms.gateway),)

    def issuer(self, terms: Terms) -> bytes | None:
        """Identifier of the issuer's key that last took the place of another; None before the first change."""
        seen = self.seen(terms)
        newest = None if seen is None else seen.keys.get(ISSUER_KEY)
        return None if newest is None else newest.new

    def conflicts(self, terms: Terms) -> list[list[str]]:
        """Pairs of signed heads of the log that cannot both be true."""
        kept = self._memory.outbox.get(_name("conflicts", terms))
        return json.loads(kept) if kept else []

    def _newest(self, terms: Terms, seen: Head | None) -> Head:
        answer = self._connection.log(None if seen is not None else 0)
        try:
            return Answer.parse(answer).check(terms, seen, self._trust)
        except TooShortError as short:
            self.told |= short.size > 0
            return Answer.parse(self._connection.log(short.size)).check(terms, seen, self._trust)

    def _keep(self, terms: Terms, seen: Head | None, head: Head) -> None:
        """Keep a head; of a log that was put back, the one from before too, and no token: those it sold are void.

        All of it or nothing: a device that was killed in between would have void tokens and no evidence.
        """
        outbox, went_back = self._memory.outbox, seen is not None and head.recovered > seen.recovered
        with self._memory.lock, outbox.transaction():
            kept = outbox.get(_name("head", terms))  # another process may have seen a newer one
            before = None if kept is None else Head.from_json(kept)
            if before is None or (before.recovered, before.size) <= (head.recovered, head.size):
                outbox.put(**{_name("head", terms): head.as_json()})
            found = self.recoveries(terms)
            if seen is not None and went_back and all(when != head.recovered for when, *_ in found):
                # The oldest and the newest stay: neither the first time is pushed out, nor the last left out.
                now = [*found[:1], *found[1:][2 - _MOST_CONFLICTS :], [head.recovered, seen.note, head.note]]
                outbox.put(**{_name("recoveries", terms): json.dumps(now)})
            if went_back and terms.tokens:
                Wallet(outbox).forget(terms.hub, 1 << 32)
            if terms.tokens and (issuer := head.keys.get(ISSUER_KEY)) is not None:
                Wallet(outbox).forget_key(terms.hub, issuer.old)
        if went_back:
            when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(head.recovered))
            self._memory.complain(f"the hub was put back from a backup at {when}, as its log says")

    def recoveries(self, terms: Terms) -> list[list[Any]]:
        """Times at which the hub was put back from a backup, with the heads that this device saw before and after."""
        kept = self._memory.outbox.get(_name("recoveries", terms))
        return json.loads(kept) if kept else []

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


class _Drawing(NamedTuple):
    """Key and beacon that decide on a device's part in a round.

    Attributes:
        key: Key of its draws.
        beacon: The beacon; empty: the device takes no part in the round.
        epoch: The epoch and its beacon, of a token; None: the device shows its own.
    """

    key: bytes
    beacon: bytes
    epoch: tuple[int, Beacon] | None = None

    @property
    def entry(self) -> bytes | None:
        """Entry of the log that has to say so; None: the model message itself says it."""
        return None if self.epoch is None else beacon_entry(self.epoch[0], self.epoch[1].value, self.epoch[1].sales)


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
        self._newest = ("", False)  # entity tag of the hub's model, and whether training is over
        self._sale: OnSale | None = None  # the hub's answer about tokens in this synchronisation
        self._bought = False
        self._sent, self._last = 0, (State.RETRY, "waits since before the last start")
        self.backoff = Backoff()

    def sync(self) -> Synced:
        """Enrol if needed, fetch the model, send the waiting messages; stops where it cannot continue."""
        self._sent, self._bought, self._sale, self.prover.told = 0, False, None, False
        try:
            for step in (self._look_around, self._take_leave, self._agree, self._buy, self._fetch, self._report):
                stop = step()
                if stop is not None:
                    return stop
        except HubRefusedError as refusal:
            return self._later(State.RETRY, refusal.why, refusal.retry_after)
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

    def _take_leave(self) -> Synced | None:
        if self._memory.leaving is None:
            return None
        # The token is encrypted to no other gateway than that of the hub that it is of.
        kept = self._outbox.get("leaving_terms")
        if kept and (why := self._wrong_way(Terms.from_json(kept))):
            return self._later(State.RETRY, why, LONGEST_WAIT)
        self._connection.leave(self._memory.leaving)
        with self._memory.lock:
            self._outbox.put(leaving=None, leaving_terms=None)
            self._memory.leaving = None
            return self._silent() if self._memory.out else None

    def _agree(self) -> Synced | None:
        if self._memory.token is None:
            with self._memory.lock:
                self._outbox.put(url=self._memory.url)  # where this cannot be written, no token is asked for
            try:
                token, terms = self._connection.enrol(self._enrolment)
            except HubRefusedError as refusal:
                if refusal.unauthorised:
                    self._memory.complain("the hub does not accept the enrolment token")
                raise
            wrong_way = self._wrong_way(terms)
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
        if terms is not None and (why := self._wrong_way(terms)):
            self._memory.complain(why)
            return self._later(State.RETRY, why, LONGEST_WAIT)
        return None

    def _wrong_way(self, terms: Terms) -> str:
        """Reason why the relay is not used; empty if there is none, or it is used."""
        why = self._connection.objection(terms, self.prover.gateway(terms))
        if why != OTHER_GATEWAY or not terms.log:
            return why
        # The log says whether the key that the relay names is the new one; nothing else is asked for through it before.
        before, self._connection.gateway_key = self._connection.gateway_key, b""
        try:
            why = self.prover.objection(terms, None)
        finally:
            self._connection.gateway_key = before
        if why:
            return f"{OTHER_GATEWAY} ({why})"
        return self._connection.objection(terms, self.prover.gateway(terms))

    def _buy(self) -> None:
        """Buy a token of the next epoch, at most one a synchronisation, and never in one with a report."""
        with self._memory.lock:
            token, terms = self._memory.token, self._memory.terms
            if token is None or terms is None or not terms.tokens:
                return
            wallet = self._wallet
        sale = self._connection.tokens()
        self._sale, self._newest, now = sale, (sale.etag, sale.over), terms.epoch_of(sale.round)
        with self._memory.lock:
            wallet.forget(terms.hub, now - 1)  # a report of the epoch before may not have its answer yet
            if sale.over or self._memory.silence():
                return
            epoch, held = now, wallet.find(terms.hub, now)
            asked = None if held is None else held.pending  # its answer was lost, as the epoch before ended
            if asked is None:
                epoch, held = now + 1, wallet.find(terms.hub, now + 1)
                # Another offer than the one that was bought of: the log says whether the issuer's key was changed.
                if sale.epoch != epoch or (held is not None and held.pending is None and held.offer == sale.offer):
                    return
                # At a random moment, so that nothing follows from when.
                if held is None and CHANCE.random() >= _AHEAD:
                    return
        if asked is None:
            if why := self.prover.objection(terms, None, entry=offer_entry(epoch, sale.offer)):
                self._memory.complain(f"no token is bought: {why}")  # one made for this device would mark its token
                return
            if self.prover.told:  # with its own token beside the size, the hub would know whose size it was
                return
            with self._memory.lock:
                held = wallet.find(terms.hub, epoch)  # unless the log says that what was drawn is void
                if held is not None and held.offer != sale.offer:
                    if self.prover.issuer(terms) != key_id(parts_of(sale.offer)[0]):
                        self._memory.complain(f"the hub changed the key of the tokens of epoch {epoch}; none is bought")
                        return
                    wallet.forget_key(terms.hub, key_id(parts_of(held.offer)[0]))  # of a change that it did not see
                asked = wallet.draw(terms.hub, epoch, sale.offer)
            if asked is None:
                return
        self._bought = True
        try:
            answer = self._connection.buy(token, epoch, asked.request)
        except HubRefusedError as refusal:
            with self._memory.lock:
                if refusal.reason == "other-purchase":
                    self._memory.complain("the hub sold this device another token of this epoch; it does not report")
                void = refusal.reason in ("wrong-epoch", "malformed")  # the latter: of a key that was changed
                if refusal.reason == "other-purchase" or (void and epoch == now):
                    wallet.give_up(terms.hub, epoch)
                elif not void:
                    self._forget(token, refusal)
            return
        with self._memory.lock:
            if not wallet.keep_bought(terms.hub, epoch, asked, answer):
                raise HubRefusedError("token: the hub's answer makes no token")
            if epoch == now:
                self._newest = ("", False)  # what the device does with the model depends on the token

    @functools.cached_property
    def _wallet(self) -> Wallet:
        return Wallet(self._outbox)

    def _fetch(self) -> Synced | None:
        with self._memory.lock:
            token, terms, now = self._memory.token, self._memory.terms, self._memory.round
            if token is None or terms is None:
                return self._silent()
            known = self._outbox.get("model_of") == token  # else it would tell which token the device had before
        etag = tag_of(terms, now.number, now.weights.astype("<f4").tobytes()) if now is not None and known else ""
        if terms.tokens and now is not None and known and (etag, self._memory.over) == self._newest:
            return None
        # With tokens, all devices ask alike: without one, and without a word about the model before.
        shown, part, best = "" if terms.tokens else token, None, None
        try:
            body, over = self._connection.model(shown, terms, "" if terms.tokens else etag)
            if body is not None:
                drawing = self._drawing(terms, token, body, known)
                if isinstance(drawing, Synced):
                    return drawing
                part, compares = part_in(terms, drawing.key, drawing.beacon)
                if compares and (known or terms.tokens) and not over:
                    best = self._connection.best(shown, terms)
        except HubRefusedError as refusal:
            with self._memory.lock:
                self._forget(token, refusal)
        if body is not None and (why := self._objection(terms, body, best, drawing)):
            self._memory.complain(f"the hub's newest model is not used: {why}")
            return self._later(State.UNPROVEN, why)
        with self._memory.lock:
            if best is not None and body is not None and best[5:] == body[5:]:
                best = None  # the newest is the best: there is nothing to compare, and the device learns
            if self._memory.out or self._memory.terms != terms:  # in the meantime
                return self._silent()
            if body is not None:
                self._outbox.move_on(body, now.lost if now else 0, token, part=part, best=best)
            self._outbox.put(over=1 if over else None)
            self._memory.over = over
            if body is not None:
                decode = terms.request.decode
                self._memory.use(decode(body), over, part, None if best is None else decode(best))
        return None

    def _drawing(self, terms: Terms, token: str, model: bytes, known: bool) -> _Drawing | Synced:
        """Key and beacon of the device's part in a round; or why the model is not used now."""
        if not terms.tokens:
            # A device that enrolled after a round was opened, when what decides was known, is not drawn in it.
            return _Drawing(key_of(token), beacon_of(model) if known or not terms.draws else b"")
        round_, sale = int(terms.request.decode(model).round), self._sale
        epoch = terms.epoch_of(round_)
        if sale is None or terms.epoch_of(sale.round) != epoch:
            return self._result(State.STALE, CHANCE.uniform(0.0, 2.0), "an epoch began in this moment")
        with self._memory.lock:
            held, beacon = self._wallet.find(terms.hub, epoch), sale.beacon
            if held is None or held.token is None or beacon is None or beacon.sales < terms.least_sales:
                return _Drawing(b"", b"")
        its_turn = turn(held.key, beacon.value, terms.tokens) == (round_ - 1) % terms.tokens
        return _Drawing(held.key, beacon.value if its_turn else b"", (epoch, beacon))

    def _objection(self, terms: Terms, model: bytes, best: bytes | None, drawing: _Drawing) -> str:
        """Reason why a model is not used, as of :meth:`Prover.objection`; if there is none, the token now draws."""
        if (why := self.prover.objection(terms, model, best, drawing.entry)) or drawing.epoch is None:
            return why
        with self._memory.lock:
            wallet = self._wallet
            held = wallet.find(terms.hub, drawing.epoch[0])
            if held is None:
                return ""  # the log has just said that its key was changed: it is shown with nothing
            why = wallet.take_beacon(terms.hub, *drawing.epoch)
            if why and held.beacon is None and self.prover.issuer(terms) is not None:
                # It may be of a key that was changed twice: the log proves no more than the newest change.
                self._memory.complain(f"a token is dropped: {why}")
                wallet.forget_key(terms.hub, key_id(parts_of(held.offer)[0]))
                return ""
            return why

    def _report(self) -> Synced | None:
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
                if not self._outbox.sending(message, self._memory.limit):
                    continue
                self._memory.spent = self._outbox.spent()
            try:
                outcome = self._connection.report(shown, message.round, message.body)
            except HubRefusedError as refusal:
                with self._memory.lock:
                    if refusal.unauthorised and shown != token:  # it is the epoch's token that the hub does not take
                        self._outbox.record_answer(message, REFUSED)
                        self._memory.complain("the hub does not take the token that it sold; the message is dropped")
                        raise HubRefusedError("report: the token was refused") from refusal
                    if refusal.not_counted:
                        self._outbox.record_answer(message, None)
                    if refusal.reason == "too-few":  # no server is overloaded: it waits for company with the next
                        return self._result(State.RETRY, POLL * CHANCE.uniform(0.5, 1.5), refusal.why)
                    self._forget(token, refusal)
            with self._memory.lock:
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
                    raise HubRefusedError("report: refused")
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
        held, rounds = self._wallet.find(message.hub, now.terms.epoch_of(message.round)), now.terms.tokens
        if held is None or held.token is None or held.beacon is None:
            return None
        # With any other report of its epoch it would tell that both are of one device.
        shown = turn(held.key, held.beacon, rounds) == (message.round - 1) % rounds
        return header_of(held.token) if shown else None

    def _forget(self, token: str, refusal: HubRefusedError) -> NoReturn:
        """Forget a token that the hub does not know, and stop where it refused."""
        if refusal.unauthorised:
            self._outbox.forget_token(token)
            self._memory.token = None
        raise refusal


def part_in(terms: Terms, key: bytes, beacon: bytes) -> tuple[int | None, bool]:
    """Part of a device in a round.

    Args:
        terms: Terms of the hub.
        key: Key of its draws.
        beacon: Beacon of the draws; empty: the device takes no part.

    Returns:
        Its part, as of :meth:`fedrank.deploy.device.memory.Memory.use`, and whether its report compares the newest
        model with the best one so far.
    """
    if not beacon or not drawn(key, DUE, beacon, terms.due):
        return IDLE, False
    return word(key, SEED, beacon) if terms.drawn_seeds else None, drawn(key, CHECK, beacon, terms.checks)
