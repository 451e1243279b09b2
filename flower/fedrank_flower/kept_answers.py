"""Answers that a node keeps, so that a question is answered once: no noise is drawn anew for a second look.

Where replies have noise, two answers to one question tell more than the run's ε counts. So a node writes down that it
draws an answer before it draws, and the answer before it is sent. The same question gets the same bytes again, after a
restart too; another question with the same number gets nothing. The number of a question is its round and what is asked
in it (:attr:`Exchange.turn`), so that a run of R rounds has as many answers as its ε is made for.

A failure may depend on what was drawn. It is kept as an answer is: who asks again is told of the same failure. Of a
process that was killed between the two writes it is not known what it drew, and nothing more is said in that turn.

**In a run's setup** a node answers for one party, one question after the other, each once. What is shown in a setup has
its own noise, and a secure sum protects a party only if it unmasks once. So the same question gets the same answer
again, another one in its place is refused, and setups that show something anew are counted, over all runs. Flower
starts a new process for each message: what a party remembers, private keys and its data included, is one file of the
node (:class:`Store`).
"""

from __future__ import annotations

import abc
import contextlib
import hashlib
import io
import json
import logging
import math
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Shaped
from typing_extensions import override

from fedrank.core.errors import FedrankError, RunError, WireError
from fedrank.core.protocol import Protocol
from fedrank.deploy.database import VersionError, create_private, open_database, transaction
from fedrank.engine.checkpoint import write_atomically
from fedrank.engine.deployment import SetupSide
from fedrank_flower.messages import Answer, Question

_log = logging.getLogger("fedrank.flower")

#: SQL that leads from each version of the file to the next; append, and change none that was released.
_STEPS = (
    "CREATE TABLE run (name TEXT PRIMARY KEY, epsilon REAL NOT NULL, party INTEGER NOT NULL, source TEXT NOT NULL, "
    "content TEXT NOT NULL) STRICT, WITHOUT ROWID;\n"
    # Neither an answer nor a failure: it was drawn, and the process ended before it was kept.
    "CREATE TABLE answer (run TEXT NOT NULL, turn TEXT NOT NULL, asked TEXT NOT NULL, failed TEXT, first INTEGER, "
    "heard BLOB, replies BLOB, PRIMARY KEY (run, turn)) STRICT, WITHOUT ROWID",
)
#: Seconds that a question waits for one that another process of the node is answering.
_PATIENCE = 600.0
#: Errors that keep their kind when they are raised again; the others become a RunError.
_KINDS: dict[str, type[FedrankError]] = {kind.__name__: kind for kind in (RunError, WireError)}


@dataclass(frozen=True)
class Kept:
    """Outcome of a turn in which an answer was drawn: an answer, a failure, or neither where it was lost.

    Attributes:
        asked: Hash of the question.
        answer: The answer; None: there is none.
        failed: Kind and text of the error instead of an answer; None: there was none.
    """

    asked: str
    answer: Answer | None = None
    failed: tuple[str, str] | None = None

    def again(self) -> Answer:
        """The answer; raises the failure, or RunError where the answer was lost."""
        if self.answer is not None:
            return self.answer
        if self.failed is not None:
            kind, text = self.failed
            raise _KINDS.get(kind, RunError)(text if kind in _KINDS else f"{kind}: {text}")
        raise RunError(
            "an answer was drawn and lost: the node's process ended before it was kept. Another one would have new "
            "noise and spend ε that is not counted; nothing more is said in this turn."
        )


class KeptAnswers(abc.ABC):
    """Store of a node's answers of one run."""

    @abc.abstractmethod
    def alone(self) -> contextlib.AbstractContextManager[None]:
        """A block in which no other process answers for this party, and of which each write is kept at once."""

    @abc.abstractmethod
    def begin(self, turn: str, asked: str) -> Kept | None:
        """The kept outcome of a turn; None: nothing was, and from now on it is kept that an answer is drawn.

        Only in :meth:`alone`.

        Args:
            turn: Number of the question.
            asked: Hash of the question.
        """

    @abc.abstractmethod
    def put(self, turn: str, kept: Kept) -> None:
        """Keep what became of a turn that has begun. Only in :meth:`alone`."""


@dataclass(frozen=True)
class Whose:
    """Party and data that the answers of a run are about.

    Attributes:
        party: Number of the node's first party.
        source: Path of the party's own data; empty: the run names the data.
        content: Hash of that data, as the run uses it; empty: not known.
        traces: What is there only if the party has answered in this run before; None: nothing is known to be.
    """

    party: int = 0
    source: str = ""
    content: str = ""
    traces: Path | None = None


class AnswersFile(KeptAnswers):
    """Answers of a node's runs in one SQLite file, which outlives its process, and the ε of each run.

    Args:
        path: The file, made when the first question comes; only its owner may read it.
        run: Name of the run and its party.
        epsilon: Tells the run's ε, in nats; called when its first question comes.
        most: Largest sum of ε of the party's runs; infinite: any.
        whose: Whom the answers are about. Runs of one number, or of one source of data, add up.
        patience: Seconds that a question waits for another one of the same party.
    """

    def __init__(
        self,
        path: Path,
        run: str,
        epsilon: Callable[[], float] = lambda: 0.0,
        most: float = math.inf,
        whose: Whose | None = None,
        patience: float = _PATIENCE,
    ):
        self.path, self._run, self._epsilon, self._most = Path(path), run, epsilon, most
        self._whose, self._patience = whose or Whose(), patience
        self._db: sqlite3.Connection | None = None

    @override
    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with self._lock():
            with self._usable():
                if not self.path.is_file() or not self.path.stat().st_size:
                    _log.warning(
                        "%s is new: this node knows of no earlier run. If it has taken part in one, stop, and put the "
                        "file of that time back.",
                        self.path,
                    )
                create_private(self.path, exclusive=True)  # to close it would drop the locks of a thread beside
                self._db = open_database(self.path, _STEPS, busy_seconds=self._patience)
            try:
                yield
            finally:
                self._db.close()

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Keep out who answers for the same party, until the block or the process ends."""
        path = self.path.with_name(f"{self.path.stem}-{self._whose.party}.lock")
        with self._usable():
            create_private(path, exclusive=True)
            held = sqlite3.connect(path, timeout=self._patience, isolation_level=None, check_same_thread=False)
        try:
            with self._usable():
                held.execute("BEGIN EXCLUSIVE")
            yield
        finally:
            held.close()

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except VersionError as error:
            raise RunError(f"{self.path}: written by a later version of this program. Use that one.") from error
        except (sqlite3.Error, OSError) as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise RunError(
                    f"{self.path}: another process of this node is still answering for party {self._whose.party}, "
                    f"after {self._patience:.0f} seconds. Ask again later."
                ) from error
            raise RunError(
                f"{self.path}: cannot be used ({error}); without it an answer could be given twice, with other noise. "
                "Make room, or mend its permissions."
            ) from error

    def _enter(self) -> None:
        """Count a run whose first question this is.

        Raises:
            RunError: Its ε is more than the node agrees to; or its data or the file is not that which it began with.
        """
        whose = self._whose
        known = self._open.execute("SELECT content FROM run WHERE name = ?", (self._run,)).fetchone()
        if known is not None:
            if known[0] != whose.content:
                raise RunError(
                    f"the data has changed since this run began ({whose.source or 'of the run'}): answers of both "
                    "tell how they differ, which no ε counts. Put the data of that time back, or begin another run."
                )
            return
        if whose.traces is not None and whose.traces.exists():
            raise RunError(
                f"{whose.traces} shows that this node has answered in this run, and {self.path} knows nothing of it: "
                "it was deleted, or is an older copy. Put back the file that belongs there; a run from the beginning "
                "needs another seed, and its ε adds to that of this one."
            )
        others, spent = self._open.execute(
            "SELECT count(*), coalesce(sum(epsilon), 0.0) FROM run WHERE party = ? OR (source = ? AND source <> '')",
            (whose.party, whose.source),
        ).fetchone()
        epsilon = self._epsilon()
        if not spent + epsilon <= self._most:
            raise RunError(
                f"this run has ε = {epsilon:.4g}, and {others} earlier run(s) on the same data at this node had "
                f"{spent:.4g}; this node agrees to {self._most:.4g} in all (most-total-epsilon in its --node-config)."
            )
        if others:
            _log.warning("%d earlier run(s) on the same data had ε = %.4g; this one adds %.4g", others, spent, epsilon)
        row = (self._run, epsilon, whose.party, whose.source, whose.content)
        self._open.execute("INSERT INTO run VALUES (?, ?, ?, ?, ?)", row)

    @property
    def _open(self) -> sqlite3.Connection:
        assert self._db is not None
        return self._db

    @override
    def begin(self, turn: str, asked: str) -> Kept | None:
        select = "SELECT asked, failed, first, heard, replies FROM answer WHERE run = ? AND turn = ?"
        with self._usable(), transaction(self._open):
            self._enter()
            found = self._open.execute(select, (self._run, turn)).fetchone()
            if found is None:
                mark = "INSERT INTO answer (run, turn, asked) VALUES (?, ?, ?)"
                self._open.execute(mark, (self._run, turn, asked))
                return None
        failed = None if found[1] is None else tuple(json.loads(found[1]))
        return Kept(found[0], None if found[2] is None else Answer(*found[2:]), failed)

    @override
    def put(self, turn: str, kept: Kept) -> None:
        failed = None if kept.failed is None else json.dumps(kept.failed)
        given = (None,) * 3 if kept.answer is None else (kept.answer.first, kept.answer.heard, kept.answer.replies)
        update = "UPDATE answer SET failed = ?, first = ?, heard = ?, replies = ? WHERE run = ? AND turn = ?"
        with self._usable(), transaction(self._open):
            self._open.execute(update, (failed, *given, self._run, turn))


def answered_once(
    kept: KeptAnswers, protocol: Protocol, question: Question, rounds: int, answer: Callable[[], Answer]
) -> Answer:
    """The answer that was given to this question, or a new one, which is kept before it is returned.

    Args:
        kept: The node's answers of this run.
        protocol: The run's protocol.
        question: The server's question, with a request.
        rounds: Rounds of the run.
        answer: Computes an answer.

    Raises:
        RunError: The run has no such question, another one was answered in its place, or the answer was lost or failed.
        WireError: The request cannot be read, or the answer cannot be sent.
    """
    if not (0 <= question.exchange < len(protocol.exchanges) and 0 <= question.round < rounds):
        raise RunError(
            f"the run has {rounds} rounds of {len(protocol.exchanges)} exchanges, for which its noise is made; "
            f"exchange {question.exchange} of round {question.round} is none of them."
        )
    exchange = protocol.exchanges[question.exchange]
    if not bool(exchange.due(question.round)):
        raise RunError(f"{exchange.name!r} is not asked in round {question.round}; nothing is answered.")
    turn = f"{question.round}/{exchange.turn or exchange.name}"
    about = [question.exchange, question.request.hex(), question.asked.hex()]
    asked = hashlib.sha256(json.dumps(about).encode()).hexdigest()
    exchange.request.decode(question.request)  # a request that cannot be read is none, and takes no turn
    with kept.alone():
        if (before := kept.begin(turn, asked)) is None:
            before = _drawn(asked, answer)
            kept.put(turn, before)
    if before.asked != asked:
        raise RunError(
            f"this node has answered {exchange.name!r} of round {question.round} of this run, to another request. A "
            "second answer would have new noise and spend ε that is not counted; nothing is answered. A run "
            "from the beginning needs another seed, and its ε adds to that of this one."
        )
    return before.again()


def _drawn(asked: str, answer: Callable[[], Answer]) -> Kept:
    """An answer, or how it failed: both may depend on what was drawn."""
    try:
        return Kept(asked, answer())
    except Exception as error:
        _log.exception("the answer failed; who asks again is told the same")
        return Kept(asked, failed=(type(error).__name__, str(error)))


_ABOUT, _REPLY, _OWN = "about", "reply", "own."
#: Rights of that file: only its owner may read it.
_MODE = 0o600


class Store(abc.ABC):
    """Store of the bytes that a node's party remembers."""

    @abc.abstractmethod
    def read(self) -> bytes | None:
        """The bytes that were written last; None if there are none."""

    @abc.abstractmethod
    def write(self, data: bytes) -> None:
        """Replace the bytes; raises RunError where they cannot be written."""


class NoStore(Store):
    """A memory that keeps nothing between questions, for nodes without a folder."""

    @override
    def read(self) -> bytes | None:
        return None

    @override
    def write(self, data: bytes) -> None:
        raise RunError("this node has nowhere to remember a setup; give it a state-dir.")


class FileStore(Store):
    """A file that outlives the node's process.

    Args:
        path: The file; its folder is made.
    """

    def __init__(self, path: Path):
        self.path = path

    @override
    def read(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunError(f"{self.path}: cannot be read ({error.strerror}).") from error

    @override
    def write(self, data: bytes) -> None:
        write_atomically(self.path, data, _MODE)


@dataclass(frozen=True)
class Remembered:
    """Memory of a party about the setup of a run.

    Attributes:
        done: Number of exchanges of this setup that it has answered.
        showing: Whether something with new noise has left the party in this setup.
        asked: SHA-256 of the last request, in hexadecimal digits.
        reply: The reply to it.
        own: The party's own state, arrays by name.
    """

    done: int = 0
    showing: bool = False
    asked: str = ""
    reply: bytes = b""
    own: dict[str, Shaped[np.ndarray, "..."]] = field(default_factory=dict)

    def pack(self) -> bytes:
        """The bytes of a NumPy archive."""
        about = {"done": self.done, "showing": self.showing, "asked": self.asked}
        arrays = {
            _ABOUT: np.frombuffer(json.dumps(about).encode(), np.uint8),
            _REPLY: np.frombuffer(self.reply, np.uint8),
            **{_OWN + name: array for name, array in self.own.items()},
        }
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        return buffer.getvalue()

    @classmethod
    def unpack(cls, data: bytes | None) -> Remembered:
        """The inverse of :meth:`pack`; None: nothing. Raises RunError where the bytes are damaged."""
        if data is None:
            return cls()
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                own = {name.removeprefix(_OWN): file[name] for name in file.files if name.startswith(_OWN)}
                return cls(**json.loads(bytes(file[_ABOUT])), reply=bytes(file[_REPLY]), own=own)
        except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise RunError(
                f"what this node remembers of the run's setup is damaged ({error}). Whether its sketches were handed "
                "out is not known; ask those who run the federation for a new run."
            ) from error


def setup_answer(setup: SetupSide, number: int, question: Question, store: Store, shown: Store) -> Answer:
    """A party's answer to one question of the setup.

    Args:
        setup: The node's part in the setup.
        number: Number of the party.
        question: The server's question.
        store: Where the party's memory of this run's setup is.
        shown: Where it counts the setups, of all runs, in which it showed something.

    Raises:
        FedrankError: The question is out of turn, or the exchange refuses.
    """
    protocol, index = setup.protocol, question.exchange
    if not 0 <= index < len(protocol.exchanges) or question.round:
        raise WireError(f"the setup has no exchange {index} in a round {question.round}.")
    exchange = protocol.exchanges[index]
    party = setup.party()
    asked = hashlib.sha256(question.request).hexdigest()
    before = Remembered.unpack(store.read())
    if index == before.done - 1 and asked == before.asked:  # the answer was lost on its way
        setup.answered(index, before.reply)
        return Answer.of(number, np.ones(1, bool), before.reply)
    if index == 0:
        before = Remembered()
    elif not before.own:
        raise RunError(f"this silo is asked {exchange.name!r} and has not taken part in this run's setup so far.")
    elif index < before.done:
        raise RunError(
            f"this silo is asked {exchange.name!r} a second time with another question, which could take off its "
            "masks or its noise; nothing is answered."
        )
    now = before
    if index >= setup.first_shown and not before.showing:
        _count(shown, setup.max_shown)  # before anything leaves: a process that dies now has counted
        now = replace(before, showing=True)
        store.write(replace(now, asked="", reply=b"").pack())
    mine = party if index == 0 else party._replace(own=now.own)
    mine, reply = exchange.respond(exchange.request.decode(question.request), mine, setup.draws(index))
    sent = exchange.reply.encode(reply)
    own = mine.own
    if index == len(protocol.exchanges) - 1:  # keys and secrets of the setup are not needed any more
        own = {name: array for name, array in own.items() if setup.keeps(name)}
    store.write(replace(now, done=index + 1, asked=asked, reply=sent, own=own).pack())
    setup.answered(index, sent)
    return Answer.of(number, np.ones(1, bool), sent)


def _count(shown: Store, most: float) -> None:
    """Count a setup that shows something; raises RunError where that is one too many."""
    times = setups_shown(shown)
    if times >= most:
        raise RunError(
            f"this silo has handed out its sketches in {times} setup(s), of this run or others, and would spend ε "
            f"once more; its node allows {most:g} (most-setups). Raise it if the documents' owners agree."
        )
    if times:
        _log.warning("this silo shows its documents for the %d. time: ε is spent each time, and adds up", times + 1)
    shown.write(str(times + 1).encode())


def setups_shown(shown: Store) -> int:
    """Number of setups in which a party has shown something. Raises RunError where it cannot be read."""
    data = shown.read()
    try:
        return int(data or b"0")
    except ValueError as error:
        raise RunError(
            f"what this node remembers of its setups is damaged ({error}); it does not take part."
        ) from error
