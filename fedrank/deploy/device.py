"""A device of a hub, for the app that runs on it. NumPy and the standard library only.

Four lines in an app::

    device = Device("https://hub.example.org", enrolment_token, folder)    # at the start
    ranking = device.rank(features)                                        # show documents[i] for i in ranking.order
    device.log_click(ranking, position)                                    # 0 is the document at the top
    device.sync()                                                          # now and then, from a thread or a timer

What a user does stays in memory until the interaction is over; then it becomes one value that is privatised before
anything is written (:mod:`fedrank.deploy.trial`). B interactions make a message of a few bytes; it waits in the outbox
(:mod:`fedrank.deploy.outbox`) for :meth:`Device.sync`, which alone, with :meth:`Device.leave`, uses the network.

No method raises into the app. What goes wrong is logged to ``fedrank.device``, and never what a user did.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
import operator
import os
import sqlite3
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, SupportsIndex, TypeVar

from fedrank.core.errors import ConfigError
from fedrank.deploy.connection import CHANCE, LONGEST_WAIT, Backoff, Connection, Refusal, State, Synced, usable_token
from fedrank.deploy.outbox import COUNTED, OVER, TOO_LATE, LedgerRow, Outbox, exceeds
from fedrank.deploy.terms import Terms
from fedrank.deploy.trial import Ranking, Round, Words, matrix_of, objection, promise, unranked
from fedrank.privacy.randomised_response import os_words
from fedrank.protocols.foltr_es_wire import Request

__all__ = ["Device", "LedgerRow", "Ranking", "State", "Synced"]

_log = logging.getLogger("fedrank.device")
#: Seconds between two looks at the hub, on average, while all is well.
POLL = 60.0

R = TypeVar("R")


class Memory:
    """What the device knows, and the file behind it; in memory and on the disk alike. Call it with :attr:`lock` held.

    Args:
        folder: Of the file.
        url: Address of the hub.
        most_epsilon: Largest ε of one message.
        lifetime: Largest sum of the ε of all messages.
        words: Randomness of seeds and lies.

    Attributes:
        lock: Never held while the network is used.
        token: Of the device; None: it has to enrol.
        leaving: A token that the hub has to forget.
        over: Training is over.
        out: The user has opted out.
        unsaved: This could not be written.
        spent: Sum of the ε of all messages that left.
    """

    def __init__(self, folder: str | os.PathLike[str], url: str, most_epsilon: float, lifetime: float, words: Words):
        self.lock = threading.RLock()
        self.url, self.most, self.lifetime, self.words = url, most_epsilon, lifetime, words
        self.token: str | None = None
        self.leaving: str | None = None
        self.terms: Terms | None = None
        self.round: Round | None = None
        self.over = self.out = self.unsaved = self.closed = False
        self.spent = 0.0
        self._said: set[str] = set()
        self.outbox = Outbox(folder)
        if not self.outbox.lasting:
            self.complain(f"the folder cannot be used, nothing outlives this process ({self.outbox.trouble})")

    def complain(self, message: str) -> None:
        """Log an error, once."""
        if message not in self._said and len(self._said) < 100:
            self._said.add(message)
            _log.error("%s", message)

    def load(self) -> None:
        """What the file knows."""
        get = self.outbox.get
        if get("url") not in (None, self.url):
            self.outbox.forget_hub()  # a token never goes to another hub
        self.out = bool(get("out")) or self.unsaved
        terms, model = get("terms"), get("model")
        try:
            self.terms = Terms.from_json(terms) if terms else None
            kept = self.terms.request.decode(model) if self.terms and model else None
        except Exception as error:
            self.complain(f"what was kept is damaged and is fetched again ({type(error).__name__})")
            self.outbox.forget_hub(leaving=get("leaving"))
            self.terms = kept = None
        self.token, self.leaving, self.spent = get("token"), get("leaving"), self.outbox.spent()
        self.use(kept, bool(get("over")))

    def use(self, model: Request | None, over: bool) -> None:
        """Rank by this model from now on."""
        self.over = over
        if self.terms is None or model is None:
            self.round = None
            return
        hub, number = self.terms.hub, int(model.round)
        trial, reported = self.outbox.trial(hub, number), self.outbox.reported(hub, number)
        if self.round is None or not self.round.is_about(self.terms, model):
            self.round = Round(self.terms, model, trial, reported)
        else:
            self.round.trial, self.round.reported = trial or self.round.trial, reported

    def drop(self) -> int:
        """Forget the trial; how many interactions are lost with it because they were in memory only."""
        lost = 0
        if self.round is not None:
            lost = self.round.lost
            self.round.drop()
        return lost

    def learns(self) -> bool:
        """Whether the next interaction will count."""
        now = self.round
        return now is not None and not (now.reported or self.over or self.closed or self.silence())

    def silence(self) -> str:
        """Why nothing is sent; empty if something may be."""
        if self.out:
            return "the user has opted out"
        if self.outbox.unreadable:
            return "what was kept cannot be read: whether the user has opted out is not known"
        if self.terms is None:
            return ""
        if no := objection(self.terms, self.most):
            return no
        if self.lifetime < math.inf and not self.outbox.lasting:
            return "lifetime_epsilon cannot be kept to: the ledger does not outlive the process"
        if exceeds(self.spent, self.terms.epsilon_message, self.lifetime):
            return f"ε = {self.spent:.4g} was spent; another message would exceed lifetime_epsilon = {self.lifetime:g}"
        return ""

    def end(self) -> bool:
        """The open interaction is over. Whether it counts."""
        now = self.round
        if now is None or now.open is None:
            return False
        over, now.open = now.open, None
        try:
            now.trial, counts = self.outbox.add(now.terms, over, now.trial, self.words)
            now.reported = now.trial is None
            return counts
        except sqlite3.Error as error:
            self.complain(f"an interaction is lost, the file cannot be written: {error}")
            if now.terms.mechanism == "laplace":
                now.drop()  # what was not committed may be on the disk, with its noise: no second noise on these sums
            return False


class Conversation:
    """What is said to the hub, one request after the other.

    Args:
        memory: Of the device.
        connection: To the hub.
        enrolment: The enrolment token.
        patience: An interaction is over after so many seconds without a click.
    """

    def __init__(self, memory: Memory, connection: Connection, enrolment: str, patience: float):
        self._memory, self._connection, self._enrolment, self._patience = memory, connection, enrolment, patience
        self._outbox = memory.outbox
        self._sent, self._last = 0, (State.RETRY, "waits since before the last start")
        self.backoff = Backoff()

    def hold(self) -> Synced:
        """From the hub's terms to the messages that wait; ends where it cannot go on."""
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
                self.backoff.over()
                with contextlib.suppress(sqlite3.Error):
                    self._outbox.put(backoff=None)
            why, over = self._memory.silence(), self._memory.over
            state = State.SILENT if why else State.DONE if over else State.OK
            return self._told(state, LONGEST_WAIT if over else POLL * CHANCE.uniform(0.5, 1.5), why)

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
        given = self._connection.model(token, terms, now and now.number)
        with self._memory.lock:
            if isinstance(given, Refusal):
                return self._forget(token, given)
            body, over = given
            if self._memory.out or self._memory.terms != terms:  # in the meantime
                return self._silent()
            if body is not None:
                self._outbox.move_on(body, self._memory.round.lost if self._memory.round else 0)
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
                if not self._outbox.sending(message, self._memory.lifetime):
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


def _never_raises(instead: Callable[..., R]) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """A method that returns ``instead`` of its arguments where it fails."""

    def decorate(method: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(method)
        def wrapper(self: Device, *args: Any, **named: Any) -> R:
            try:
                return method(self, *args, **named)
            except Exception as error:
                at = error.__traceback__
                while at is not None and at.tb_next is not None:
                    at = at.tb_next
                line = "" if at is None else f" ({os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno})"
                # Without the exception's own words: they may quote what the user did.
                self._memory.complain(f"{method.__name__} failed: {type(error).__name__}{line}")
                return instead(*args, **named)

        return wrapper

    return decorate


def _data_order(features: Any = (), *_: Any, **__: Any) -> Ranking:
    try:
        return unranked(len(features))
    except Exception:
        return unranked(0)


def _no(*_: Any, **__: Any) -> bool:
    return False


def _failed(*_: Any, **__: Any) -> Synced:
    return Synced(State.OFFLINE, 0, POLL, "something failed on the device; see its log")


class Device:
    """One device. All methods may be called from any thread; several processes may share a folder.

    Args:
        hub: Address of the hub, ``https://…``. One folder belongs to one hub at a time.
        enrolment: The hub's enrolment token.
        folder: Where the device keeps what has to last. If it cannot be written, everything is kept in memory, and
            :attr:`Synced.lasting` is False: each start is then a new device, and earlier messages are forgotten. If
            something was kept there that cannot be read, the device is silent: the user may have opted out.
        most_epsilon: Largest ε of one message that this app allows; a device stays silent where the hub's terms give
            more. ``math.inf`` allows everything.
        lifetime_epsilon: Largest sum of the ε of all messages in the ledger; None: no limit.
        ca: File with the certificates to trust in place of the system's.
        timeout: Longest silence of the hub, in seconds.
        patience: An interaction without a click for so many seconds is over at the next :meth:`sync`.
        allow_http: Plain http to another machine, where the network itself is protected.
        _words: Tests only: words that somebody else knows protect nobody. Asked for the shape ``(1,)`` for the seed of
            a round, then, with randomised response, ``(2,)`` for each interaction in turn.

    Raises:
        ConfigError: A setting that can never work. Nothing else is raised, here or later.
    """

    def __init__(
        self,
        hub: str,
        enrolment: str,
        folder: str | os.PathLike[str],
        *,
        most_epsilon: float = 20.0,
        lifetime_epsilon: float | None = None,
        ca: str | os.PathLike[str] | None = None,
        timeout: float = 10.0,
        patience: float = 60.0,
        allow_http: bool = False,
        _words: Words = os_words,
    ):
        limit = math.inf if lifetime_epsilon is None else lifetime_epsilon
        for name, number in (("most_epsilon", most_epsilon), ("lifetime_epsilon", limit), ("patience", patience)):
            if not number >= 0:
                raise ConfigError(f"{name} must be at least 0, got {number}.")
        if not usable_token(enrolment):
            raise ConfigError(
                "enrolment must be the hub's enrolment token: 8 to 512 printable ASCII characters, no space."
            )
        self._connection = Connection(hub, ca=ca, allow_http=allow_http, timeout=timeout)
        self._memory = Memory(folder, self._connection.url, most_epsilon, limit, _words)
        self._conversation = Conversation(self._memory, self._connection, enrolment, patience)
        self._busy = False
        self._wake()

    # --------------------------------------------------------------------------------------------- for every search

    @_never_raises(_data_order)
    def rank(self, features: Any) -> Ranking:
        """Rank documents; the interaction before is over.

        Args:
            features: float [documents, n_features], finite. Where they cannot be used that is logged, and the documents
                stay in the order of the data; so they do before there is a model.
        """
        with self._memory.lock:
            self._memory.end()
            x = matrix_of(features, self._memory.terms and self._memory.terms.n_features)
            if isinstance(x, str):
                self._memory.complain(f"rank: {x}")
                return _data_order(features)
            if self._memory.round is None or self._memory.closed:
                return _data_order(features)
            return self._memory.round.show(x, self._memory.learns(), self._memory.words, monotonic())

    @_never_raises(_no)
    def log_click(self, ranking: Ranking, position: SupportsIndex) -> bool:
        """The user clicked.

        Args:
            ranking: The newest that :meth:`rank` gave; clicks on earlier ones come too late.
            position: Of the document in what was shown, from 0.

        Returns:
            Whether the click counts: not below the ranks that the hub asks about, nor where nothing is learnt.
        """
        with self._memory.lock:
            number = operator.index(position)
            if not 0 <= number < len(ranking.order):
                self._memory.complain("log_click: position must be one of what was shown, from 0")
                return False
            return self._memory.round is not None and self._memory.round.click(ranking, number, monotonic())

    @_never_raises(_no)
    def finish(self, ranking: Ranking) -> bool:
        """The interaction is over, clicked or not; so it is at the next :meth:`rank`. Returns whether it counts."""
        with self._memory.lock:
            now = self._memory.round and self._memory.round.open
            return now is not None and now.ranking is ranking and self._memory.end()

    @property
    def wants_clicks(self) -> bool:
        """Whether the clicks of the next ranking will count: not after B interactions of a round, nor while silent."""
        return self._wants_clicks()

    @_never_raises(_no)
    def _wants_clicks(self) -> bool:
        with self._memory.lock:
            return self._memory.learns()

    # ------------------------------------------------------------------------------------------------- now and then

    @_never_raises(_failed)
    def sync(self) -> Synced:
        """Look at the hub: enrol, fetch the model, send what waits. Call it again after :attr:`Synced.next_in` seconds.

        Earlier calls are harmless. After a failure they do nothing until the pause is over.
        """
        with self._memory.lock:
            if self._memory.closed or self._busy:
                why = "the device is closed" if self._memory.closed else "another thread is at it"
                return Synced(
                    State.RETRY, 0, LONGEST_WAIT if self._memory.closed else 1.0, why, self._memory.outbox.lasting
                )
            self._busy = True
        try:
            return self._conversation.hold()
        finally:
            self._busy = False

    @_never_raises(_no)
    def opt_out(self) -> bool:
        """Send nothing any more; what has not left never will. The newest model goes on ranking.

        Returns:
            Whether this outlives the process.
        """
        with self._memory.lock:
            self._memory.out = self._memory.unsaved = True
            self._memory.outbox.opt_out(self._memory.drop())
            self._memory.unsaved = False
            return self._memory.outbox.lasting

    @_never_raises(_no)
    def opt_in(self) -> bool:
        """Take part again. Returns whether this outlives the process."""
        with self._memory.lock:
            self._memory.outbox.put(out=None)
            self._memory.unsaved = False
            self._memory.load()
            return self._memory.outbox.lasting

    @_never_raises(_no)
    def leave(self, erase: bool = True) -> bool:
        """Opt out, have the hub forget this device's token, and forget the hub.

        Args:
            erase: Forget the ledger too; with it goes the count that ``lifetime_epsilon`` is about.

        Returns:
            Whether the hub has forgotten the token; if not, each :meth:`sync` tries again.
        """
        with self._memory.lock:
            self._memory.out = self._memory.unsaved = True
            self._memory.drop()
            forget = self._memory.outbox.erase if erase else self._memory.outbox.forget_hub
            forget(url=self._connection.url, leaving=self._memory.token or self._memory.leaving, out=1)
            self._memory.unsaved = False
            self._memory.load()
        self.sync()
        return self._memory.leaving is None

    # ---------------------------------------------------------------------------------------------- for the user's eyes

    @_never_raises(lambda *_, **__: [])
    def ledger(self) -> list[LedgerRow]:
        """Every message that left the device or may have left, oldest first."""
        with self._memory.lock:
            return self._memory.outbox.ledger()

    @_never_raises(lambda *_, **__: {})
    def privacy(self) -> dict[str, Any]:
        """What is promised, what is not covered, and what was spent so far; ready for JSON, an infinite ε is None."""
        with self._memory.lock:
            spent, count = self._memory.outbox.spent(), self._memory.outbox.get
            return {
                **(
                    {"words": "The hub's terms are not known yet."}
                    if self._memory.terms is None
                    else promise(self._memory.terms)
                ),
                "messages": len(self._memory.outbox.ledger()),
                "epsilon_total": spent if spent < math.inf else None,
                "most_epsilon": self._memory.most if self._memory.most < math.inf else None,
                "lifetime_epsilon": self._memory.lifetime if self._memory.lifetime < math.inf else None,
                "opted_out": self._memory.out,
                "silent": self._memory.silence(),
                "lasting": self._memory.outbox.lasting,
                "discarded": {"interactions": count("lost_interactions") or 0, "messages": count("lost_messages") or 0},
            }

    @_never_raises(lambda *_, **__: None)
    def close(self) -> None:
        """The interaction is over and the file is closed. Rankings stay in the order of the data from here on."""
        with self._memory.lock:
            if not self._memory.closed:
                self._memory.end()
                self._memory.closed = True
                self._memory.outbox.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @_never_raises(lambda *_, **__: None)
    def _wake(self) -> None:
        with self._memory.lock:
            self._memory.load()
            self._conversation.backoff = Backoff(self._memory.outbox.get("backoff"))
