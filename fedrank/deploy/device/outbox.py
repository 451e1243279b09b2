"""A device's SQLite file. What it holds about the user was privatised before it was written.

It holds the hub's token, terms and model; the running sums of the round's trial (with randomised response only, see
:mod:`fedrank.deploy.device.trial`); and a row for each message that was made, which is outbox and ledger at once: a
message is in the ledger from before the first attempt to send it, because from then on it may have left. No click, no
query, no feature and no time of an interaction is ever written.

Several processes may use one file. Each step is one transaction; there is at most one message for a hub's round. A
folder that cannot be written, or a file that is damaged, does not stop an app: the outbox is then in memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedrank.deploy.database import create_private, open_database, transaction
from fedrank.deploy.device.trial import Interaction, Trial, Words, in_words, message_of
from fedrank.deploy.terms import Terms

#: Name of the file in the device's folder.
FILE = "device.sqlite3"
#: Seconds to wait while another process has the file: an app that ranks must not wait long.
_BUSY = 0.5

#: Outcomes of a message that was sent.
COUNTED = "counted"
TOO_LATE = "too late, not counted"
OVER = "training was over, not counted"
NOT_DUE = "was not due, not counted"
REFUSED = "refused, not counted"
UNKNOWN = "no answer came; it may have been counted"
_NONE_YET = "sent, no answer yet"

#: Names of what is kept about a hub.
_OF_A_HUB = (
    "url",
    "token",
    "terms",
    "model",
    "model_of",
    "best",
    "part",
    "over",
    "backoff",
    "leaving",
    "leaving_terms",
)

_1_FACTS_TRIALS_MESSAGES = """
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value);
CREATE TABLE IF NOT EXISTS trial (
    hub TEXT NOT NULL, round INTEGER NOT NULL, seed INTEGER NOT NULL,
    plus INTEGER NOT NULL, minus INTEGER NOT NULL,            -- sums of privatised values
    plus_done INTEGER NOT NULL, minus_done INTEGER NOT NULL,  -- interactions behind them
    PRIMARY KEY (hub, round)
);
CREATE TABLE IF NOT EXISTS message (
    number INTEGER PRIMARY KEY,
    hub TEXT NOT NULL, round INTEGER NOT NULL, body BLOB NOT NULL, epsilon REAL NOT NULL, words TEXT NOT NULL,
    sent REAL,                           -- seconds since 1970 at the first attempt; NULL: it never left
    unanswered INTEGER NOT NULL,         -- attempts without an answer: it may have been counted
    outcome TEXT,                        -- NULL: none yet
    UNIQUE (hub, round)
)
"""

#: SQL that leads from each version of the file to the next; append, and change none that was released. The version, in
#: ``PRAGMA user_version``, is the number of steps that were done. A file of an app's later version is not touched.
STEPS: tuple[str, ...] = (_1_FACTS_TRIALS_MESSAGES,)


@dataclass(frozen=True)
class Message:
    """A message without an outcome yet.

    Attributes:
        number: Number in the outbox.
        hub: Name of the hub that it is for.
        round: Round of the model that it is about.
        body: Bytes of the message.
        tried: Whether it may have left already.
    """

    number: int
    hub: str
    round: int
    body: bytes
    tried: bool


@dataclass(frozen=True)
class LedgerRow:
    """One message that left the device, or may have left.

    Attributes:
        when: Time of the first attempt by the device's clock: UTC, ISO 8601.
        round: Round of the hub.
        bytes: Bytes of the message, without what the transport adds.
        epsilon: ε of the message, in nats; infinite where nothing was promised.
        total: Sum of the ε of this and all earlier messages.
        words: The numbers that were sent and their meaning, as text.
        outcome: Outcome of the message.
    """

    when: str
    round: int
    bytes: int
    epsilon: float
    total: float
    words: str
    outcome: str


class Outbox:
    """The file, or a database in memory in its place. Methods may raise :class:`sqlite3.Error`; then nothing changed.

    Args:
        folder: Made if it is not there, readable for its owner only.

    Attributes:
        lasting: Whether the data outlives the process.
        trouble: Why it does not.
        unreadable: Whether there was a file that cannot be read: it may say that the user has opted out.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self.lasting, self.trouble, self.unreadable = True, "", False
        try:
            path = Path(folder)
            self.unreadable = _something_there(path / FILE)
            create_private(path / FILE, exclusive=True)  # it holds a token
            self._db = _open_database(path / FILE)
            self.unreadable = False
        except (OSError, ValueError, TypeError, sqlite3.Error) as error:
            self.lasting, self.trouble = False, f"{type(error).__name__}: {error}"
            self._db = _open_database(":memory:")

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """One transaction; does not nest.

        Args:
            durable: Whether it survives a power cut, not only the end of the process.
        """
        self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        with transaction(self._db):
            yield

    def execute(self, statement: str, values: tuple = ()) -> list[tuple]:
        """The rows of a statement; within a transaction if one is open."""
        return self._db.execute(statement, values).fetchall()

    # ---------------------------------------------------------------------------------------------------------- facts

    def get(self, name: str) -> Any:
        """A named value; None if there is none."""
        row = self._db.execute("SELECT value FROM fact WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def put(self, **facts: Any) -> None:
        """Write named values; None removes one. Within a transaction if one is open."""
        for name, value in facts.items():
            if value is None:
                self._db.execute("DELETE FROM fact WHERE name = ?", (name,))
            else:
                self._db.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, value))

    def adopt(self, url: str, token: str, terms: str) -> None:
        """Write the token and terms of an enrolment; if another process enrolled first, its token stays.

        The hub is then told to forget this one, of which nothing would remain here.
        """
        with self.transaction():
            held = self.get("token")
            if held not in (None, token):
                self.put(leaving=token)
            elif held is None:
                if self.get("terms") != terms:
                    self._discard()
                    self._give_up("1")
                    self.put(model=None, best=None, part=None, over=None)
                self.put(url=url, token=token, terms=terms, agreed=terms, offered=None)

    def forget_token(self, token: str) -> None:
        """Forget a token that the hub does not know any more; the device then enrols as a new one.

        A message that may have been counted for the old device must not count for the new one.
        """
        with self.transaction():
            if self.get("token") == token:
                self.put(token=None)
            self._give_up("unanswered > 0")

    def forget_hub(self, **facts: Any) -> None:
        """Forget everything about the hub except the ledger and the terms agreed to, and write ``facts``."""
        with self.transaction(durable=True):
            self._discard()
            self._give_up("1")
            self.put(**dict.fromkeys(_OF_A_HUB))
            self.put(**facts)

    def move_on(
        self, model: bytes, lost: int, token: str, *, part: int | None = None, best: bytes | None = None
    ) -> None:
        """Write a new model, and discard the trial of the model before it.

        Args:
            model: Bytes of the hub's request.
            lost: Number of interactions of a trial that was in memory only.
            token: Token with which it was fetched: under another, nothing may tell that the device has this model.
            part: As of :meth:`fedrank.deploy.device.memory.Memory.use`.
            best: Bytes of the best model so far, where it was drawn to compare.
        """
        with self.transaction():
            # Else another process was here already, and is trying this model.
            if (self.get("model"), self.get("best"), self.get("part")) != (model, best, part):
                self._discard(lost)
                self.put(model=model, best=best, part=part)
            self.put(model_of=token)

    def opt_out(self, lost: int) -> None:
        """Write that the user opted out, and discard messages that have not left; ``lost`` as for :meth:`move_on`."""
        with self.transaction(durable=True):
            self._discard(lost)
            self._give_up("1")
            self.put(out=1)

    def erase(self, **facts: Any) -> None:
        """Delete and overwrite everything except these facts and the sum of the ε that was spent."""
        with self.transaction(durable=True):
            facts["spent"] = self.spent() or None
            tables = self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in tables:  # those of tokens too, where there are any
                self._db.execute(f"DELETE FROM {table}")
            self.put(**facts)
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _discard(self, lost: int = 0) -> None:
        """Discard trials, and messages that never left."""
        rows = self._db.execute("SELECT plus_done + minus_done FROM trial").fetchall()
        self._db.execute("DELETE FROM trial")
        whole = self._db.execute("DELETE FROM message WHERE sent IS NULL").rowcount
        for name, more in (("lost_interactions", lost + sum(row[0] for row in rows)), ("lost_messages", whole)):
            if more:
                self.put(**{name: (self.get(name) or 0) + more})

    def _give_up(self, which: str) -> None:
        """Set the outcome of messages that left and are not sent again to :data:`UNKNOWN`."""
        update = f"UPDATE message SET outcome = ? WHERE sent IS NOT NULL AND outcome IS NULL AND {which}"
        self._db.execute(update, (UNKNOWN,))

    # ---------------------------------------------------------------------------------------------------------- trial

    def trial(self, hub: str, round_: int) -> Trial | None:
        """The unfinished trial of a round; None if there is none."""
        columns = "seed, plus, minus, plus_done, minus_done"
        row = self._db.execute(f"SELECT {columns} FROM trial WHERE (hub, round) = (?, ?)", (hub, round_)).fetchone()
        return None if row is None else Trial(hub, round_, row[0], (row[1], row[2]), (row[3], row[4]))

    def has_report(self, hub: str, round_: int) -> bool:
        """True if a message of that round exists, sent or not; there is at most one."""
        return bool(self._db.execute("SELECT 1 FROM message WHERE (hub, round) = (?, ?)", (hub, round_)).fetchone())

    def add(self, terms: Terms, over: Interaction, held: Trial | None, words: Words) -> tuple[Trial | None, bool]:
        """Privatise an interaction, add it to its trial, and make the message if it was the last of the round.

        Args:
            terms: Terms of the hub.
            over: The interaction.
            held: The trial where it is in memory only; ignored with randomised response.
            words: Source of random words.

        Returns:
            The trial as it is now, None if the round has its message; and whether the interaction counts. It does not
            if another process has completed the round, or tries another seed, or has made this half's interactions.
        """
        shown, half = over.trial, over.trial.half
        written = terms.at_once
        with self.transaction():
            if self.get("out") or self.has_report(shown.hub, shown.round):  # another process may have opted out
                return None, False
            kept = (self.trial(shown.hub, shown.round) if written else held) or Trial(
                shown.hub, shown.round, shown.seed
            )
            kept = dataclasses.replace(kept, check=shown.check)
            if kept.seed != shown.seed or kept.done[half] >= terms.per_half:
                return kept, False
            trial = kept.after(terms, half, over.pattern, words, over.team)
            if trial.complete(terms):
                body = message_of(terms, trial, words)
                insert = "INSERT INTO message (hub, round, body, epsilon, words, unanswered) VALUES (?, ?, ?, ?, ?, 0)"
                self._db.execute(insert, (trial.hub, trial.round, body, terms.epsilon_message, in_words(terms, body)))
                self._db.execute("DELETE FROM trial WHERE (hub, round) = (?, ?)", (trial.hub, trial.round))
                trial = None
            elif written:
                row = (trial.hub, trial.round, trial.seed, *trial.sums, *trial.done)
                self._db.execute("INSERT OR REPLACE INTO trial VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        return trial, True

    # -------------------------------------------------------------------------------------------------------- sending

    def waiting(self) -> list[Message]:
        """Messages without an outcome, oldest first."""
        rows = self._db.execute("SELECT number, hub, round, body, sent FROM message WHERE outcome IS NULL").fetchall()
        return [Message(n, hub, round_, body, sent is not None) for n, hub, round_, body, sent in sorted(rows)]

    def sending(self, message: Message, lifetime: float) -> bool:
        """Write into the ledger that a message is being sent.

        Args:
            message: A waiting message.
            lifetime: Largest sum of the ε of all messages that ever left, this one included.

        Returns:
            False: that sum would be exceeded, or another process opted out or had the message's answer; it must not be
            sent.
        """
        with self.transaction(durable=True):
            select = "SELECT epsilon, sent FROM message WHERE number = ? AND outcome IS NULL"
            row = self._db.execute(select, (message.number,)).fetchone()
            if self.get("out") or row is None or (row[1] is None and exceeds(self.spent(), row[0], lifetime)):
                return False
            update = "UPDATE message SET sent = coalesce(sent, ?), unanswered = unanswered + 1 WHERE number = ?"
            self._db.execute(update, (time.time(), message.number))
        return True

    def record_answer(self, message: Message, outcome: str | None) -> None:
        """Write the result of an attempt to send.

        Args:
            message: The message that was sent.
            outcome: Its outcome; None: it was not counted now, and may be later. Where an earlier attempt had no
                answer, a message that is not counted may have been counted then: :data:`UNKNOWN`.
        """
        with self.transaction():
            mine = "WHERE number = ? AND outcome IS NULL"
            self._db.execute(f"UPDATE message SET unanswered = unanswered - 1 {mine}", (message.number,))
            if outcome is not None:
                update = f"UPDATE message SET outcome = iif(unanswered > 0 AND ? <> ?, ?, ?) {mine}"
                self._db.execute(update, (outcome, COUNTED, UNKNOWN, outcome, message.number))

    # --------------------------------------------------------------------------------------------------------- ledger

    def spent(self) -> float:
        """Sum of the ε of all messages that left or may have left, of those that were erased too."""
        rows = self._db.execute("SELECT epsilon FROM message WHERE sent IS NOT NULL").fetchall()
        return math.fsum([self.get("spent") or 0.0, *(row[0] for row in rows)])

    def ledger(self) -> list[LedgerRow]:
        """All messages that left or may have left, oldest first."""
        columns = "sent, round, length(body), epsilon, words, outcome"
        rows = self._db.execute(f"SELECT {columns} FROM message WHERE sent IS NOT NULL ORDER BY number").fetchall()
        out, all_epsilon = [], [self.get("spent") or 0.0]
        for sent, round_, size, epsilon, words, outcome in rows:
            all_epsilon.append(epsilon)
            when = datetime.fromtimestamp(sent, UTC).isoformat(timespec="seconds")
            out.append(LedgerRow(when, round_, size, epsilon, math.fsum(all_epsilon), words, outcome or _NONE_YET))
        return out

    def close(self) -> None:
        """Close the file; the outbox cannot be used afterwards."""
        self._db.close()


def exceeds(spent: float, epsilon: float, lifetime: float) -> bool:
    """True if one more message would exceed what a lifetime allows; sums that differ by rounding alone are equal."""
    return spent + epsilon > lifetime * (1 + 1e-9)


def _something_there(path: Path) -> bool:
    """True if there is a file with something in it, or that cannot be known."""
    try:
        return os.stat(path).st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _open_database(path: str | Path) -> sqlite3.Connection:
    """The database at ``path``; raises sqlite3.Error where it cannot be written, or is not a device's."""
    return open_database(path, STEPS, synchronous="NORMAL", busy_seconds=_BUSY, secure_delete=True)
