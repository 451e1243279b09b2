"""A device of a hub, for the app that runs on it. NumPy and the standard library only.

Four lines in an app::

    device = Device("https://hub.example.org", enrolment_token, folder)    # at the start
    ranking = device.rank(features)                                        # show documents[i] for i in ranking.order
    device.log_click(ranking, position)                                    # 0 is the document at the top
    device.sync()                                                          # now and then, from a thread or a timer

What a user does stays in memory until the interaction is over; then it becomes one value that is privatised before
anything is written (:mod:`fedrank.deploy.device.trial`). B interactions make a message of a few bytes; it waits in the
outbox (:mod:`fedrank.deploy.device.outbox`) for :meth:`Device.sync`, which alone, with :meth:`Device.leave`, uses the
network.

No method raises into the app. What goes wrong is logged to ``fedrank.device``, and never what a user did.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import os
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, SupportsIndex, TypeVar

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import LIFETIME_EPSILON, MOST_EPSILON, MOST_SEARCH_EPSILON
from fedrank.core.trees import Json
from fedrank.deploy.device.connection import LONGEST_WAIT, Attest, Backoff, HubClient, State, Synced, usable_token
from fedrank.deploy.device.conversation import POLL, Conversation
from fedrank.deploy.device.memory import Memory, changes
from fedrank.deploy.device.outbox import LedgerRow
from fedrank.deploy.device.trial import Limits, Ranking, Words, base_of, keep_order, matrix_of, promise
from fedrank.deploy.log.proof import Trust
from fedrank.privacy.randomised_response import os_words

__all__ = ["Device", "LedgerRow", "Ranking", "State", "Synced"]

R = TypeVar("R")


def _never_raises(instead: Callable[..., R], locks: bool = True) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Decorate a method so that it logs errors and returns the result of ``instead`` for them.

    Unless it says otherwise, the method has the memory's lock.
    """

    def decorate(method: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(method)
        def wrapper(self: Device, *args: Any, **named: Any) -> R:
            try:
                with self._memory.lock if locks else contextlib.nullcontext():
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
        return keep_order(len(features))
    except Exception:
        return keep_order(0)


def _no(*_: Any, **__: Any) -> bool:
    return False


def _nothing(*_: Any, **__: Any) -> dict[str, Json] | None:
    return None


def _log_failure(*_: Any, **__: Any) -> Synced:
    return Synced(State.OFFLINE, 0, POLL, "something failed on the device; see its log")


class Device:
    """One device. All methods may be called from any thread; several processes may share a folder.

    Args:
        hub: URL of the hub, ``https://…``. One folder belongs to one hub at a time.
        enrolment: The hub's enrolment token.
        folder: Folder of the device's file. If it cannot be written, everything is kept in memory, and
            :attr:`Synced.lasting` is False: each start is then a new device, and earlier messages are forgotten. If
            there is a file that cannot be read, the device sends nothing: the user may have opted out.
        most_epsilon: Largest ε of one message that this app allows; a device stays silent where the hub's terms give
            more. ``math.inf`` allows everything.
        most_search_epsilon: The same of one search.
        lifetime_epsilon: Largest sum of the ε of all messages that ever leave; ``math.inf``: no limit. Where nothing
            outlives the process, such a limit cannot be kept to, and the device stays silent.
        ca: File with the certificates to trust in place of the system's.
        timeout: Longest silence of the hub, in seconds.
        patience: Seconds without a click after which an interaction is over at the next :meth:`sync`.
        allow_http: Plain http to another machine, where the network itself is protected.
        relay: URL of an oblivious relay, through which everything goes that this device sends: the hub then sees no
            address.
        witnesses: Public keys of witnesses of the hub's log, as ``fedrank hub witness`` (fedrank-zoo) shows them. A
            model is used only if enough of them cosigned the log that has it: they have seen that it only grew, so
            that no one else gets another one. Without them a device sees that the log never changed since its own
            first contact.
        quorum: How many of them are needed; by default more than half.
        attest: Called at the enrolment with a hub that wants a statement of the device's platform, with the hub's
            challenge and the kinds that it accepts. Returns the kind and the statement, which JSON can write.
        _words: Source of random words, for tests only; by default the operating system. Called with the shape ``(1,)``
            for the seed of a round, then, with randomised response, ``(2,)`` for each interaction, or with the
            one privatised number a message ``(1,)`` for each interleaved list and ``(3,)`` for the message.

    Raises:
        ConfigError: A setting that can never work. Nothing else is raised, here or later.
    """

    def __init__(
        self,
        hub: str,
        enrolment: str,
        folder: str | os.PathLike[str],
        *,
        most_epsilon: float = MOST_EPSILON,
        most_search_epsilon: float = MOST_SEARCH_EPSILON,
        lifetime_epsilon: float = LIFETIME_EPSILON,
        ca: str | os.PathLike[str] | None = None,
        timeout: float = 10.0,
        patience: float = 60.0,
        allow_http: bool = False,
        relay: str | None = None,
        witnesses: Sequence[str] = (),
        quorum: int | None = None,
        attest: Attest | None = None,
        _words: Words = os_words,
    ):
        trust = Trust.of(witnesses, quorum)
        limits = Limits(most_epsilon, most_search_epsilon, lifetime_epsilon)
        given = {**limits._asdict(), "patience": patience, "timeout": timeout}
        for name, number in given.items():  # they may come from a file that an app reads
            if not isinstance(number, int | float) or not number >= 0:
                raise ConfigError(f"{name} must be a number of at least 0, got {number!r}.")
        if ca is not None and not isinstance(ca, str | os.PathLike):
            raise ConfigError(f"ca must be the path of a file, got {ca!r}.")
        if not usable_token(enrolment):
            raise ConfigError(
                "enrolment must be the hub's enrolment token: 8 to 512 printable ASCII characters, no space."
            )
        if attest is not None and not callable(attest):
            raise ConfigError("attest must be a function of the hub's challenge and the kinds that it accepts.")
        self._connection = HubClient(hub, ca=ca, allow_http=allow_http, timeout=timeout)
        if relay is not None:
            from fedrank.deploy.device.connection import RelayedHubClient

            self._connection = RelayedHubClient(hub, relay, ca=ca, allow_http=allow_http, timeout=timeout)
        self._connection.attest = attest
        self._memory = Memory(folder, self._connection.url, limits, _words, relay is not None)
        self._conversation = Conversation(self._memory, self._connection, enrolment, patience, trust)
        self._busy = False
        self._wake()

    # --------------------------------------------------------------------------------------------- for every search

    @_never_raises(_data_order)
    def rank(self, features: Any, base: Any = None) -> Ranking:
        """Rank documents; ends the interaction before.

        Args:
            features: float [documents, n_features], finite. If they cannot be used, this is logged and the documents
                stay in the order of the data, as they do before there is a model.
            base: float [documents]: scores that the model's are added to, such as those of a search engine: what is
                learnt is what they lack. None: there are none.
        """
        self._memory.end()
        x = matrix_of(features, self._memory.terms and self._memory.terms.n_features)
        added = None if base is None or isinstance(x, str) else base_of(base, len(x))
        if isinstance(x, str) or isinstance(added, str):
            self._memory.complain(f"rank: {x if isinstance(x, str) else added}")
            return _data_order(features)
        if self._memory.round is None or self._memory.closed:
            return _data_order(features)
        return self._memory.round.show(x, self._memory.learns(), self._memory.words, monotonic(), added)

    @_never_raises(_no)
    def log_click(self, ranking: Ranking, position: SupportsIndex) -> bool:
        """Report a click.

        Args:
            ranking: The newest result of :meth:`rank`; clicks on earlier ones are ignored.
            position: Rank of the clicked document, from 0.

        Returns:
            Whether the click counts; it does not below the ranks of the hub's metric, or while nothing is learnt.
        """
        number = operator.index(position)
        if not 0 <= number < len(ranking.order):
            self._memory.complain("log_click: position must be one of what was shown, from 0")
            return False
        return self._memory.round is not None and self._memory.round.click(ranking, number, monotonic())

    @_never_raises(_no)
    def finish(self, ranking: Ranking) -> bool:
        """End the interaction, with or without a click, as the next :meth:`rank` does. Returns whether it counts."""
        now = self._memory.round and self._memory.round.open
        return now is not None and now.ranking is ranking and self._memory.end()

    @property
    @_never_raises(_no)
    def wants_clicks(self) -> bool:
        """True if the clicks of the next ranking will count: not after B interactions of a round, nor while silent."""
        return self._memory.learns()

    # ------------------------------------------------------------------------------------------------- now and then

    @_never_raises(_log_failure, locks=False)
    def sync(self) -> Synced:
        """Synchronise with the hub: enrol, fetch the model, send messages.

        Call it again after :attr:`Synced.next_in` seconds. Earlier calls are harmless; after a failure they do nothing
        until the pause is over.
        """
        with self._memory.lock:
            if self._memory.closed or self._busy:
                why = "the device is closed" if self._memory.closed else "another thread is at it"
                return Synced(
                    State.RETRY, 0, LONGEST_WAIT if self._memory.closed else 1.0, why, self._memory.outbox.lasting
                )
            self._busy = True
        try:
            return self._conversation.sync()
        finally:
            self._busy = False

    @_never_raises(_no)
    def opt_out(self) -> bool:
        """Stop sending: messages that have not left are discarded. Ranking continues with the newest model.

        Returns:
            Whether this was written and outlives the process.
        """
        self._memory.out = self._memory.unsaved = True
        self._memory.outbox.opt_out(self._memory.drop())
        self._memory.unsaved = False
        return self._memory.outbox.lasting

    @_never_raises(_no)
    def opt_in(self) -> bool:
        """Take part again. Returns whether this was written and outlives the process."""
        self._memory.outbox.put(out=None)
        self._memory.unsaved = False
        self._memory.load()
        return self._memory.outbox.lasting

    @_never_raises(_no, locks=False)
    def leave(self, erase: bool = True) -> bool:
        """Opt out, have the hub forget this device's token, and forget the hub.

        Args:
            erase: Delete the ledger too, except for the sum of the ε that ``lifetime_epsilon`` limits.

        Returns:
            Whether the hub has forgotten the token; if not, each :meth:`sync` tries again.
        """
        with self._memory.lock:
            self._memory.out = self._memory.unsaved = True
            self._memory.drop()
            forget = self._memory.outbox.erase if erase else self._memory.outbox.forget_hub
            get, left = self._memory.outbox.get, self._memory.token or self._memory.leaving
            under = (get("terms") or get("leaving_terms")) if left else None
            forget(url=self._connection.url, leaving=left, leaving_terms=under, out=1, agreed=None, offered=None)
            self._memory.unsaved = False
            self._memory.load()
        self.sync()
        return self._memory.leaving is None

    @_never_raises(_no)
    def agree(self) -> bool:
        """Agree to the terms that the hub offers in place of those agreed to; see :meth:`offered`.

        A device agrees to the first terms of a hub by enrolling, if they are within ``most_epsilon``. Other terms stop
        it (:attr:`State.TERMS_CHANGED`): nothing is sent under them until this is called.

        Returns:
            Whether there was something to agree to, and this outlives the process.
        """
        done = self._memory.agree()
        if done:
            self._conversation.backoff = Backoff()
        return done and self._memory.outbox.lasting

    @_never_raises(_nothing)
    def offered(self) -> dict[str, Json] | None:
        """Terms that the hub offers in place of those agreed to; None if there is nothing to agree to.

        Returns:
            ``changed``: name → [agreed, offered]; and what the new terms promise, as in :meth:`privacy`. JSON-able.
        """
        agreed, offered = self._memory.terms_agreed(), self._memory.terms_offered()
        if agreed is None or offered is None:
            return None
        return {
            "changed": {name: list(both) for name, both in changes(agreed, offered).items()},
            **promise(offered, self._memory.relayed).as_json(),
        }

    # ------------------------------------------------------------------------------------------------- for the user

    @_never_raises(lambda *_, **__: [])
    def ledger(self) -> list[LedgerRow]:
        """Every message that left the device or may have left, oldest first."""
        return self._memory.outbox.ledger()

    @_never_raises(lambda *_, **__: {})
    def privacy(self) -> dict[str, Json]:
        """The privacy guarantee, what it does not cover, and the ε spent so far; JSON-able, an infinite ε is None."""
        spent, count = self._memory.outbox.spent(), self._memory.outbox.get
        said, put_back = {"words": ["The hub's terms are not known yet."]}, []
        if (terms := self._memory.terms) is not None:
            said = promise(terms, self._memory.relayed).as_json()
            put_back = [when for when, *_ in self._conversation.prover.recoveries(terms)]
        return {
            **said,
            "messages": len(self._memory.outbox.ledger()),
            "epsilon_total": spent if spent < math.inf else None,
            **{name: most if most < math.inf else None for name, most in self._memory.limits._asdict().items()},
            "opted_out": self._memory.out,
            "silent": self._memory.silence(),
            "lasting": self._memory.outbox.lasting,
            "put_back": put_back,
            "discarded": {"interactions": count("lost_interactions") or 0, "messages": count("lost_messages") or 0},
        }

    @_never_raises(lambda *_, **__: None)
    def close(self) -> None:
        """End the interaction and close the file. Later rankings stay in the order of the data."""
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
        self._memory.load()
        self._conversation.backoff = Backoff(self._memory.outbox.get("backoff"))
