"""A hub's store: every table of a hub, in one SQLite file or in a PostgreSQL database that several processes share.

=====================  ==========================================================================================
hub, secret            name and settings; what its processes alone have to know alike
device, admission, …   SHA-256 of the devices' tokens, the day of enrolment, what they were admitted with
issuer, purchase       keys and draws of the tokens of the open epochs, and who bought one
challenge              challenges that statements of a device's platform have used
round, report          rounds, and the messages that count
judgement, watch, …    what checks said, and when the hub halted
entry, node            the public log: terms, models, keys; hashes of its tree
rotation               changes of the log's, the gateway's and the issuer's key, with the new private keys
state                  the newest states of the server
=====================  ==========================================================================================

What it holds about people: of each device the SHA-256 of its token and the day it enrolled; of each report the round,
the device's number and the message as it came (a seed and privatised sums). No address, no time of a report, no query.

A report is acknowledged after it was committed: with ``synchronous = FULL`` in SQLite's write-ahead mode, with
``synchronous_commit`` in PostgreSQL, so that neither a killed process nor a power cut loses it. One connection writes;
it belongs to one thread.

**Several processes.** Every one enrols devices, sells tokens and writes reports. What counts once has a unique key; a
report counts while its round is open: who writes holds a lock that whoever closes the round waits for, and so does who
admits devices under a cap. One process leads: it holds a lock of its connection and loses it with the connection. Only
the leader applies rounds, writes states and appends to the public log as a round goes on. With SQLite the folder's lock
lets one process in, which leads.

**Statements are written once**, in the SQL that both systems understand; :mod:`fedrank.deploy.hub.postgres` has the
differences, which are the names of types and the marks of parameters. SQLAlchemy Core would do that too: measured here,
its import costs .39 CPU-s at each start, a query of one row 73 µs where sqlite3 takes 13, an insert 86 where it takes
7. That is half of what a whole report may cost, for some sixty statements.
"""

from __future__ import annotations

import contextlib
import io
import secrets
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedrank.core.arrays import PyTree
from fedrank.core.errors import RunError
from fedrank.core.trees import Json
from fedrank.deploy.checkpoints import Checkpoints, read_states
from fedrank.deploy.database import Connection, VersionError, open_database, transaction
from fedrank.deploy.log.tree import (
    MODEL,
    RECOVERY,
    ROTATION,
    TERMS,
    choose_notices,
    grown,
    leaf_hash,
    place_after,
    recovery_entry,
    root,
    round_of,
    wrong_models,
)
from fedrank.engine import checkpoint


class StoreError(RunError):
    """The log cannot be read or written (full disk, wrong permissions, damaged file). Nothing was written in part."""


class CountedError(StoreError):
    """The log has the entry already: another process wrote it."""


class RepeatedError(StoreError):
    """The public log has a model of this round or of a later one, and another: devices would use neither."""


class ClosedError(Exception):
    """The round of a report is not open any more: nothing was written."""


class DeposedError(StoreError):
    """This process does not lead any more: nothing was written."""


class Server(NamedTuple):
    """A PostgreSQL database.

    Attributes:
        url: As libpq takes it, such as ``postgresql://fedrank@db.example.org/hub``; without a password.
        password: The password; None: libpq's own ways, such as ``PGPASSFILE`` and ``PGPASSWORD``.
    """

    url: str
    password: str | None = None


@dataclass(frozen=True)
class RoundRow:
    """A row of the table of rounds, without the question; columns as in the tables above."""

    number: int
    state: str
    opened: float
    closed: float | None
    seconds: float | None
    model: bytes | None
    reports: int | None
    reward: float | None
    error: float | None


@dataclass(frozen=True)
class Judgement:
    """Result of a round's checks.

    Attributes:
        round: The round.
        best: Round of the model that its own was compared with.
        checks: Number of checks.
        mean: Their mean: how much better the round's model was, from −1 to 1.
        error: Standard error of the mean; None for one check.
        promoted: The round's model is the best from now on.
        sinks: The hub is to halt.
    """

    round: int
    best: int
    checks: int
    mean: float
    error: float | None
    promoted: bool = False
    sinks: bool = False


@dataclass(frozen=True)
class Halt:
    """A halt: the model sank, and the best one is served.

    Attributes:
        round: The round that was not opened.
        best: Round of the model that it goes on from.
        halted: When, in seconds since 1970.
        resumed: When an operator resumed it; None: not yet.
    """

    round: int
    best: int
    halted: float
    resumed: float | None


@dataclass(frozen=True)
class Admitted:
    """Record of one device's admission in the log, beside the device.

    Attributes:
        credential: Number of its credential; None where the hub's own token enrolled it.
        keys: What it counts under.
        code: SHA-256 of the code that it used up; None without one.
    """

    credential: int | None = None
    keys: tuple[bytes, ...] = ()
    code: bytes | None = None


class KeyRow(NamedTuple):
    """A change of a key.

    Attributes:
        number: In order, from 1.
        entry: The entry of the public log.
        private: The new private key; empty where the row has none, None after it was destroyed.
        ends: When the old key is over, in seconds since 1970; None: the change is still to be made.
    """

    number: int
    entry: bytes
    private: bytes | None
    ends: float | None


@dataclass(frozen=True)
class Purchase:
    """A token that a device wants to buy.

    Attributes:
        epoch: Number of the epoch.
        device: Number of the device.
        digest: SHA-256 of its token request.
        round: The open round, in whose epoch the tokens of the next are sold; None: they are not sold now, and what was
            bought may be asked for again.
        offer: What is sold of the epoch.
    """

    epoch: int
    device: int
    digest: bytes
    round: int | None = None
    offer: bytes = b""


class Store:
    """The tables of a hub. All methods but the constructor may raise :class:`StoreError`.

    Args:
        place: The file, or the database; made with ``name`` if there is none.
        name: Name of a new hub; None: it must be there.
        settings: Settings that a new hub's log belongs to, as text; later starts compare theirs with it.
        collect: Whether a coordinator opens the rounds of a new hub, including the first.
        start: Weights that a new hub starts from, little-endian float32; empty: its ranker's own start.
        terms: Terms of a new hub as the first entry of its public log; empty: it has none.
        read_only: Open it for reading only; the hub may be running.

    Attributes:
        path: The file; of a database, words for it.
        shared: Other processes may write to it.

    Raises:
        StoreError: It holds no hub, one of a later version, or cannot be reached.
        ConfigError: The URL of a database cannot be read, or holds a password.
        MissingExtraError: psycopg is not installed.
    """

    def __init__(
        self,
        place: Path | Server,
        *,
        name: str | None = None,
        settings: str = "",
        collect: bool = False,
        start: bytes = b"",
        terms: bytes = b"",
        read_only: bool = False,
    ):
        self._place, self.shared = place, isinstance(place, Server)
        self.path = Path("database") if isinstance(place, Server) else Path(place)  # a URL names machines and users
        self._db: Any

        def fill(db: Connection) -> None:
            db.execute("INSERT INTO hub VALUES (?, ?)", (name, settings))
            if terms:
                _append(db, TERMS, terms)
            if start:
                db.execute("INSERT INTO state VALUES (?, 0, ?)", (_START, start))
            if not collect:
                _open_round(db, 0)

        try:
            if isinstance(place, Server):
                from fedrank.deploy.hub.postgres import open_server

                made = None if name is None else fill
                self._db = open_server(place.url, place.password, STEPS, fill=made, read_only=read_only)
            elif name is None and not self.path.exists():
                raise StoreError(f"{self.path}: there is no hub here. Make one: fedrank hub serve {self.path.parent}")
            else:
                self._db = open_database(
                    self.path,
                    STEPS,
                    make=name is not None,
                    secure_delete=True,  # a token that is forgotten leaves no hash behind
                    read_only=read_only,
                    keep_copy=True,
                    fill=fill,
                )
            self.name, self.settings = self._db.execute("SELECT name, settings FROM hub").fetchone()
        except VersionError as error:
            raise StoreError(f"{self.path}: is {self._what_to_do(error)}") from error
        except (sqlite3.Error, OSError, TypeError) as error:
            raise StoreError(f"{self.path}: cannot be opened as a hub's log ({error}).") from error

    def _what_to_do(self, error: VersionError) -> str:
        if not error.found:
            return "not a hub's log: it has no tables. Put the log back from a backup, or make a hub: fedrank hub serve"
        if self.shared and error.found < error.known:
            return f"of version {error.found}. Stop all processes of the hub, and start one of the newest version."
        copies = sorted(self.path.parent.glob(f"{self.path.name}.version-*"))
        back = f", or go back to {copies[-1].name} beside it, without the reports since then" if copies else ""
        return (
            f"of version {error.found}, and this program reads versions up to {error.known}. Use the version of "
            f"fedrank that wrote it, or a later one{back}. Nothing was changed."
        )

    def reader(self) -> Store:
        """A second connection that only reads, for another thread."""
        return Store(self._place, read_only=True)

    # ------------------------------------------------------------------------------------------------ several processes

    def lead(self) -> bool:
        """True if this process leads; it does if no other one does."""
        if not self.shared:
            return True
        with self._reading():
            return self._db.lead()

    @property
    def leads(self) -> bool:
        """True if this process leads, as far as it knows."""
        return not self.shared or self._db.leading

    @property
    def connections(self) -> int:
        """Number of times it was connected: what :meth:`take_departed` told before is not complete."""
        return self._db.connections if self.shared else 1

    @contextlib.contextmanager
    def alone(self, task: str) -> Iterator[None]:
        """No other process writes reports (``"close"``) or admits devices (``"admit"``) while the block runs."""
        if not self.shared:
            yield
            return
        with self._writing(), self._db.alone(task):
            yield

    def take_departed(self) -> list[int]:
        """Numbers of devices that left at other processes since this was last called."""
        if not self.shared:
            return []
        heard, self._db.heard = self._db.heard, []
        return [int(number) for number in heard]

    def has_standby(self) -> bool:
        """True if a commit waits for another server of the database that has it on its disk."""
        return self.shared and bool(self.query("SHOW synchronous_standby_names")[0][0])

    # ------------------------------------------------------------------------------------------------------ devices

    def devices(self, above: int = 0) -> list[tuple[int, bytes]]:
        """Number and SHA-256 of the token of every enrolled device above a number."""
        return self.query("SELECT number, token FROM device WHERE number > ?", (above,))

    def find(self, digest: bytes) -> int | None:
        """Number of the device whose token has this SHA-256; None if there is none."""
        return self._value("SELECT number FROM device WHERE token = ?", (digest,))

    def start(self) -> bytes:
        """Weights that the hub started from, little-endian float32; empty: its ranker's own start."""
        return self._value("SELECT data FROM state WHERE kind = ?", (_START,)) or b""

    def used(self) -> bool:
        """True if any device has enrolled, or any report was counted."""
        return bool(self.query("SELECT 1 FROM device LIMIT 1") or self.query("SELECT 1 FROM report LIMIT 1"))

    def secret(self, name: str) -> bytes:
        """32 random bytes that all processes of the hub have alike; made if they are not there."""
        with self.transaction() as db:
            db.execute("INSERT INTO secret VALUES (?, ?) ON CONFLICT DO NOTHING", (name, secrets.token_bytes(32)))
            return db.execute("SELECT value FROM secret WHERE name = ?", (name,)).fetchone()[0]

    def copied_to(self) -> tuple[str, str]:
        """The folder of the hub's copy that was begun last, and the mark that it got; empty: none was begun."""
        written = self._value("SELECT value FROM secret WHERE name = ?", (_COPY,)) or b""
        mark, _, folder = written.decode().partition("\n")
        return folder, mark

    def begin_copy(self, folder: str, mark: str) -> None:
        """Write where the hub's copy is from now on, and the mark that the folder has."""
        with self.transaction() as db:
            db.execute("DELETE FROM secret WHERE name = ?", (_COPY,))
            db.execute("INSERT INTO secret VALUES (?, ?)", (_COPY, f"{mark}\n{folder}".encode()))

    def use_challenge(self, digest: bytes, until: float, now: float) -> bool:
        """Use a challenge up; False if it was used before.

        Args:
            digest: SHA-256 of the challenge.
            until: When it ends, in seconds since 1970; it is kept until then.
            now: Seconds since 1970.
        """
        with self.transaction() as db:
            db.execute("DELETE FROM challenge WHERE good_until <= ?", (now,))
            done = db.execute("INSERT INTO challenge VALUES (?, ?) ON CONFLICT DO NOTHING", (digest, until))
            return bool(done.rowcount)

    # ------------------------------------------------------------------------------------------- tokens of an epoch

    def issuer_keys(self) -> list[tuple[int, bytes, bytes | None, bytes, bytes | None, int | None]]:
        """Epochs: number, offer, private key (None where it is over), secret, hash of reports and number of sales.

        The last two are None before the epoch is drawn.
        """
        return self.query("SELECT epoch, public, private, secret, reports, sales FROM issuer ORDER BY epoch")

    def add_issuer_key(self, epoch: int, offer: bytes, private: bytes, secret: bytes) -> None:
        """Write the key and the secret of an epoch, unless there are some."""
        with self.transaction() as db:
            insert = "INSERT INTO issuer (epoch, public, private, secret) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
            db.execute(insert, (epoch, offer, private, secret))

    def draw_epoch(self, epoch: int, reports: bytes) -> None:
        """Write the reports of an epoch's beacon and its number of sales, unless they are there.

        Args:
            epoch: Number of the epoch.
            reports: Hash of the reports of the round before it.
        """
        with self.transaction(leads=True) as db:
            db.execute(
                "UPDATE issuer SET reports = ?, sales = (SELECT count(*) FROM purchase WHERE epoch = ?) "
                "WHERE epoch = ? AND reports IS NULL",
                (reports, epoch, epoch),
            )

    def end_epochs(self, before: int) -> None:
        """Delete what belongs to epochs before this one: private keys, and who bought."""
        with self.transaction() as db:
            db.execute("DELETE FROM issuer WHERE epoch < ?", (before - 1,))
            db.execute("UPDATE issuer SET private = NULL WHERE epoch < ? AND private IS NOT NULL", (before,))
            db.execute("DELETE FROM purchase WHERE epoch < ?", (before,))

    # --------------------------------------------------------------------------------------------- what changes state

    def write(
        self,
        new: Sequence[bytes],
        gone: Sequence[int],
        reports: Iterable[tuple[int, int, bytes]],
        admitted: Sequence[Admitted] = (),
        purchases: Sequence[Purchase] = (),
    ) -> tuple[list[int], list[str]]:
        """Write new devices, devices that leave, reports and purchases in one transaction (group commit).

        Args:
            new: SHA-256 of the tokens of new devices.
            gone: Numbers of devices whose tokens are forgotten.
            reports: Round, device, message; none of them is in the log yet.
            admitted: What is kept of the admission of each new device; nothing for those beyond its end.
            purchases: Tokens that devices buy.

        Returns:
            Numbers of the new devices, and of each purchase why there is none: ``"other-purchase"`` where the device
            bought another token of the epoch, ``"wrong-epoch"`` where they are not sold now; empty if there is one.

        Raises:
            ClosedError: The round of a report or of a purchase is not open any more.
            CountedError: A report is in the log already.
        """
        day, reports = int(time.time() // 86400), list(reports)
        with self.transaction() as db:
            selling = {one.round for one in purchases if one.round is not None}
            for round_ in {number for number, _, _ in reports} | selling:
                row = db.execute("SELECT state FROM round WHERE number = ?", (round_,)).fetchone()
                if row is None or row[0] != "open":
                    raise ClosedError(round_)
            insert = "INSERT INTO device (token, day) VALUES (?, ?) RETURNING number"
            numbers = [db.execute(insert, (token, day)).fetchone()[0] for token in new]
            for number, one in zip(numbers, admitted, strict=False):
                self._admit(number, one, day)
            if gone:
                db.executemany("DELETE FROM device WHERE number = ?", [(n,) for n in gone])
                db.executemany("DELETE FROM member WHERE device = ?", [(n,) for n in gone])
                for number in gone if self.shared else ():
                    self._db.tell(str(number))
            if reports:
                db.executemany("INSERT INTO report VALUES (?, ?, ?)", reports)
            return numbers, [self._buy(one) for one in purchases]

    def _buy(self, one: Purchase) -> str:
        """Write a purchase, or find it; the reason why there is none."""
        if one.round is None:
            there = "SELECT digest FROM purchase WHERE epoch = ? AND device = ?"
            row = self._db.execute(there, (one.epoch, one.device)).fetchone()
            return "wrong-epoch" if row is None else "" if row[0] == one.digest else "other-purchase"
        sold = "SELECT 1 FROM issuer WHERE epoch = ? AND public = ?"
        if self._db.execute(sold, (one.epoch, one.offer)).fetchone() is None:
            return "wrong-epoch"  # another process changed the issuer's key
        row = self._db.execute(
            "INSERT INTO purchase VALUES (?, ?, ?) ON CONFLICT (epoch, device) DO UPDATE SET epoch = excluded.epoch "
            "RETURNING digest",
            (one.epoch, one.device, one.digest),
        ).fetchone()
        return "" if row[0] == one.digest else "other-purchase"

    def _admit(self, device: int, one: Admitted, day: int) -> None:
        """Count a new device under what admitted it, and use up its code."""
        for key in one.keys:
            self._db.execute(
                "INSERT INTO admission VALUES (?, ?, 1) ON CONFLICT (name, day) "
                "DO UPDATE SET devices = admission.devices + 1",
                (key, day),
            )
        if one.credential is not None:
            self._db.execute("INSERT INTO member VALUES (?, ?)", (device, one.credential))
        if one.code is not None:
            self._db.execute("DELETE FROM code WHERE secret = ?", (one.code,))

    def close_round(self, round_: int, seconds: float, unused: Sequence[int] = (), checks: int = 0) -> None:
        """Close an open round (OPEN → CLOSED), unless that was done before: no report is added to it any more.

        Args:
            round_: Number of the round.
            seconds: Seconds for which it was open.
            unused: Numbers of devices whose messages are not used. They are deleted; that the device sent one stays.
            checks: Number of its messages that are checks of the model, from which it does not learn.
        """
        with self.transaction():
            closed = self._db.execute(
                "UPDATE round SET state = 'closed', closed = :now, seconds = :seconds, "
                "reports = (SELECT count(*) FROM report WHERE round = :round) - :unused "
                "WHERE number = :round AND state = 'open'",
                {"now": time.time(), "seconds": seconds, "round": round_, "unused": len(unused) + checks},
            )
            if closed.rowcount:
                update = "UPDATE report SET message = x'' WHERE round = ? AND device = ?"
                self._db.executemany(update, [(round_, device) for device in unused])

    def apply_round(
        self,
        round_: int,
        reward: float | None,
        error: float | None,
        *,
        next_model: bytes | None,
        judged: tuple[Judgement, str] | None = None,
        entry: bytes | None = None,
    ) -> None:
        """Mark a closed round as applied (CLOSED → APPLIED) and open the next one, unless that was done before.

        Args:
            round_: Number of the round.
            reward: Mean reward of its reports; None where it cannot be estimated.
            error: Its standard error.
            next_model: SHA-256 of the weights that the next round asks about; None: no further round is opened.
            judged: What its checks said, and the state of the tests after it. Where the model sinks, the next round is
                not opened.
            entry: What the public log says of the model that is handed out from now on; None: there is no log.
        """
        with self.transaction(leads=True):
            update = "UPDATE round SET state = 'applied', reward = ?, error = ? WHERE number = ? AND state = 'closed'"
            done = self._db.execute(update, (reward, error, round_))
            if not done.rowcount:
                return
            if judged is not None:
                self._judge(*judged)
            if next_model is not None and not (judged is not None and judged[0].sinks):
                _open_round(self._db, round_ + 1, next_model)
            _append_model(self._db, entry)

    def _judge(self, found: Judgement, state: str) -> None:
        """Write what the checks of a round said."""
        insert = "INSERT INTO judgement VALUES (?, ?, ?, ?, ?, ?)"
        self._db.execute(insert, (found.round, found.best, found.checks, found.mean, found.error, int(found.promoted)))
        self._db.execute("DELETE FROM watch")
        self._db.execute("INSERT INTO watch VALUES (?)", (state,))
        if found.sinks:
            row = (found.round + 1, found.best, time.time())
            self._db.execute("INSERT INTO halt (round, best, halted) VALUES (?, ?, ?)", row)

    def resume(self, state: str, number: int, model: bytes, entry: bytes | None = None) -> None:
        """End a halt and open the round that was not opened.

        Args:
            state: State of the tests, which begin anew.
            number: Number of the round.
            model: SHA-256 of its weights.
            entry: As of :meth:`apply_round`.
        """
        with self.alone("close"), self.transaction():
            self._db.execute("UPDATE halt SET resumed = ? WHERE round = ?", (time.time(), number))
            self._db.execute("DELETE FROM watch")
            self._db.execute("INSERT INTO watch VALUES (?)", (state,))
            _open_round(self._db, number, model)
            _append_model(self._db, entry)

    def open_round(self, number: int, model: bytes, question: bytes | None = None, entry: bytes | None = None) -> None:
        """Open a round when none is open: training continues after its end, or a coordinator asks.

        Args:
            number: Number of the round.
            model: SHA-256 of the weights that devices are asked about.
            question: The coordinator's request as it is handed out.
            entry: As of :meth:`apply_round`.

        Raises:
            CountedError: Another process opened it.
        """
        with self.alone("close"), self.transaction():
            _open_round(self._db, number, model, question)
            _append_model(self._db, entry)

    def set_model(self, number: int, model: bytes, entry: bytes | None = None) -> None:
        """Write the SHA-256 of the first round's weights, which are not known when the log is made."""
        with self.transaction(leads=True):
            _append_model(self._db, entry)
            self._db.execute("UPDATE round SET model = ? WHERE number = ? AND model IS NULL", (model, number))

    def append_model(self, entry: bytes) -> None:
        """Append a model to the public log, if it is not the newest there.

        Args:
            entry: Data of its entry.

        Raises:
            StoreError: The newest model there is of this round or a later one, and another.
        """
        with self.transaction(leads=True):
            _append_model(self._db, entry)

    def append_entry(self, entry: bytes) -> None:
        """Append an entry to the public log; kinds are in :mod:`fedrank.deploy.log.tree`."""
        with self.transaction(leads=True):
            _append(self._db, entry[0], entry[1:])

    def recover(self, epoch: int, when: int, sign: Callable[[bytes, bytes], bytes] = lambda entry, place: b"") -> int:
        """Say in the public log that it was put back, and void the tokens of epochs that are open.

        Args:
            epoch: First epoch whose tokens, sold and spent ones, are void; new ones are sold for the next.
            when: Seconds since 1970.
            sign: Makes the operator's signature of the entry and the place that it has
                (:func:`~fedrank.deploy.log.tree.place_after`); empty where the terms name none.

        Returns:
            The time that the log says: it is above that of a recovery before.
        """
        with self.transaction() as db:
            for table in ("issuer", "purchase"):
                db.execute(f"DELETE FROM {table} WHERE epoch >= ?", (epoch,))
            if (before := self.newest_entry(RECOVERY)) is not None:
                when = max(when, int.from_bytes(before[1:9], "big") + 1)
            if size := db.execute(_SIZE).fetchone()[0]:
                entry = recovery_entry(when)
                entry += sign(entry, place_after(size, root(lambda *at: _node(db, *at), size)))
                _append(db, entry[0], entry[1:])
        return when

    def notices(self, size: int) -> list[tuple[int, bytes]]:
        """Number and bytes of the entries that every answer proves (:mod:`fedrank.deploy.log.proof`), by log's size."""
        found = "SELECT number, kind, data FROM entry WHERE kind IN (?, ?) AND number < ? ORDER BY number"
        rows = self.query(found, (RECOVERY, ROTATION, size))
        return choose_notices((number, bytes([kind]) + data) for number, kind, data in rows)

    # --------------------------------------------------------------------------------------------------- its own keys

    def rotations(self) -> list[KeyRow]:
        """Changes of keys, in their order."""
        return [KeyRow(*row) for row in self.query("SELECT number, entry, private, ends FROM rotation ORDER BY number")]

    def ask_rotation(self, make: Callable[[list[KeyRow]], tuple[bytes, bytes]]) -> None:
        """Write a change of a key that the leader is to make; nothing else is written between the look and the write.

        Args:
            make: Returns, of all earlier changes, the entry of the public log and the new private key; of an
                issuer's key, which the hub makes, no more than what it is, and none.
        """
        with self.alone("close"), self.transaction() as db:
            db.execute("INSERT INTO rotation (entry, private) VALUES (?, ?)", make(self.rotations()))

    def drop_rotation(self, number: int) -> None:
        """Delete a change that was asked for and cannot be made."""
        with self.transaction(leads=True) as db:
            db.execute("DELETE FROM rotation WHERE number = ? AND ends IS NULL", (number,))

    def rotate(self, row: KeyRow, ends: float, offer: tuple[int, bytes, bytes, bytes] | None = None) -> None:
        """Make a change of a key: append its entry to the public log.

        Args:
            row: The change that was asked for, with its whole entry.
            ends: When the old key is over, in seconds since 1970.
            offer: Epoch, offer, private key and secret that take the place of those of this epoch, whose tokens are
                void; None: it is no issuer's key.
        """
        with self.alone("close"), self.transaction(leads=True) as db:  # a purchase is of the old offer or of the new
            _append(db, row.entry[0], row.entry[1:])
            db.execute("UPDATE rotation SET entry = ?, ends = ? WHERE number = ?", (row.entry, ends, row.number))
            if offer is not None:
                db.execute("DELETE FROM purchase WHERE epoch = ?", offer[:1])
                set_ = "UPDATE issuer SET public = ?, private = ?, secret = ? WHERE epoch = ?"
                db.execute(set_, (*offer[1:], offer[0]))

    def destroy_keys(self, numbers: Iterable[int]) -> None:
        """Delete the private keys of changes, which later ones took the place of."""
        with self.transaction() as db:
            db.executemany("UPDATE rotation SET private = NULL WHERE number = ?", [(number,) for number in numbers])

    def newest_entry(self, kind: int) -> bytes | None:
        """The newest entry of a kind in the public log; None if there is none."""
        data = self._value("SELECT data FROM entry WHERE kind = ? ORDER BY number DESC LIMIT 1", (kind,))
        return None if data is None else bytes([kind]) + data

    def probe(self) -> None:
        """Write without changing anything, to find out whether the log can be written again."""
        with self.transaction():
            self._db.execute("UPDATE hub SET name = name")

    # ----------------------------------------------------------------------------------------------- the public log

    def log_size(self) -> int:
        """Number of entries of the public log; 0 where there is none."""
        return self._value(_SIZE)

    def log_entries(self, start: int, end: int) -> list[bytes]:
        """Entries of the public log by number: a byte for the kind, then the data."""
        rows = self.query("SELECT kind, data FROM entry WHERE number >= ? AND number < ? ORDER BY number", (start, end))
        return [bytes([kind]) + data for kind, data in rows]

    def newest_model(self) -> tuple[int, bytes] | None:
        """Number and data of the newest model in the public log; None if there is none."""
        rows = self.query("SELECT number, data FROM entry WHERE kind = ? ORDER BY number DESC LIMIT 1", (MODEL,))
        return rows[0] if rows else None

    def log_node(self, level: int, number: int) -> bytes:
        """Hash of a complete subtree of the public log; see :mod:`fedrank.deploy.log.tree`."""
        try:
            with self._reading():
                return _node(self._db, level, number)
        except LookupError as error:
            raise StoreError(f"{self.path}: its public log is damaged; put it back from a copy.") from error

    # -------------------------------------------------------------------------------------------------------- reading

    def last_round(self) -> RoundRow | None:
        """The newest round; None before the first."""
        return next(iter(self._rounds("ORDER BY number DESC LIMIT 1")), None)

    def round(self, number: int) -> RoundRow | None:
        """The row of a round; None if it was never opened."""
        return next(iter(self._rounds("WHERE number = ?", (number,))), None)

    def question(self, number: int) -> bytes | None:
        """The coordinator's question of a round; None where there is none."""
        return self._value("SELECT question FROM round WHERE number = ?", (number,))

    def round_before(self, number: int) -> int:
        """The last round below this number; −1 if there is none."""
        return self._value("SELECT coalesce(max(number), -1) FROM round WHERE number < ?", (number,))

    def rounds(self) -> list[RoundRow]:
        """The rows of all rounds, by number."""
        return self._rounds("ORDER BY number")

    def reports(self, round_: int) -> list[tuple[int, bytes]]:
        """Device and message of each report of a round that is used, by device: the order in which they are applied."""
        used = "round = ? AND message != x''"
        return self.query(f"SELECT device, message FROM report WHERE {used} ORDER BY device", (round_,))

    def count_reports(self, round_: int, without: bytes) -> int:
        """Number of reports of a round but for those whose first byte is ``without``, if that is not empty."""
        query = "SELECT count(*) FROM report WHERE round = ? AND substr(message, 1, 1) != ?"
        return self._value(query, (round_, without))

    def reporters(self, round_: int) -> list[int]:
        """Numbers of the devices that reported in a round, whether their messages are used or not."""
        return [device for (device,) in self.query("SELECT device FROM report WHERE round = ?", (round_,))]

    def reports_of_devices(self) -> dict[int, int]:
        """Number of reports of each device in rounds that were applied, used or not."""
        applied = "SELECT number FROM round WHERE state = 'applied'"
        return dict(self.query(f"SELECT device, count(*) FROM report WHERE round IN ({applied}) GROUP BY device"))

    def watch(self) -> str | None:
        """The state of the sequential tests after the last applied round; None before the first checks."""
        return self._value("SELECT state FROM watch")

    def judgements(self) -> list[Judgement]:
        """Results of the checks, by round."""
        columns = "round, best, checks, mean, error, promoted"
        rows = self.query(f"SELECT {columns} FROM judgement ORDER BY round")
        return [Judgement(*row[:5], promoted=bool(row[5])) for row in rows]

    def halts(self) -> list[Halt]:
        """The halts, by round."""
        return [Halt(*row) for row in self.query("SELECT round, best, halted, resumed FROM halt ORDER BY round")]

    def last_device_before(self, round_: int) -> int:
        """The highest number of a device when a round was opened; 0 where that is not known."""
        return self._value("SELECT devices FROM round WHERE number = ?", (round_,)) or 0

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        self._db.close()

    def query(self, query: str, values: tuple = ()) -> list[tuple]:
        """All rows of a query."""
        with self._reading():
            return self._db.execute(query, values).fetchall()

    def _value(self, query: str, values: tuple = ()) -> Any:
        """First value of the first row of a query; None where there is none."""
        rows = self.query(query, values)
        return rows[0][0] if rows else None

    def _rounds(self, which: str, values: tuple = ()) -> list[RoundRow]:
        columns = "number, state, opened, closed, seconds, model, reports, reward, error"
        return [RoundRow(*row) for row in self.query(f"SELECT {columns} FROM round {which}", values)]

    @contextlib.contextmanager
    def transaction(self, *, leads: bool = False) -> Iterator[Any]:
        """Commit what the block writes, or undo it and raise :class:`StoreError`.

        Args:
            leads: For the leader only: :class:`DeposedError` where this process is not.
        """
        with self._writing(), transaction(self._db):
            if leads and not self.leads:
                raise DeposedError(f"{self.path}: another process leads.")
            yield self._db

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise CountedError(f"{self.path}: holds already what is to be added ({error}).") from error
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: cannot be written ({error}). Nothing of it was counted.") from error

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: cannot be read ({error}).") from error


class States:
    """The newest states of the server. Every process serves the very model that the leader made.

    Args:
        store: The store.
        kind: What the states are for.
        about: What they belong to, JSON-able.
        folder: Folder where earlier versions kept them in files; they are read after those of the store, and removed
            when a state is written.
        keep: Number of states that are kept.
    """

    def __init__(self, store: Store, kind: str, about: dict[str, Json], folder: Path, keep: int = 3):
        self._store, self._kind, self._about, self._keep = store, kind, about, keep
        self._files = Checkpoints(folder, about)

    def save(self, round_: int, state: PyTree) -> None:
        """Write the state before a round, and drop the oldest; for the leader."""
        data = checkpoint.pack_arrays(state, {"of": self._about, "round": round_})
        with self._store.transaction(leads=True) as db:
            insert = "INSERT INTO state VALUES (?, ?, ?) ON CONFLICT (kind, round) DO UPDATE SET data = excluded.data"
            db.execute(insert, (self._kind, round_, data))
            # States beyond this round are of a future that did not happen.
            delete = "DELETE FROM state WHERE kind = ? AND (round > ? OR round <= ?)"
            db.execute(delete, (self._kind, round_, round_ - self._keep))
        if self._files.folder.exists():
            shutil.rmtree(self._files.folder, ignore_errors=True)

    def states(self, like: PyTree, before: int | None = None) -> Iterator[tuple[int, Any]]:
        """Rounds and states, newest first; a damaged one is passed over with a warning.

        Args:
            like: A pytree of the same structure, shapes and types.
            before: Largest round; None: no limit.

        Raises:
            RunError: A state belongs to other settings.
        """
        select = "SELECT round, data FROM state WHERE kind = ? AND round <= ? ORDER BY round DESC"
        rows = self._store.query(select, (self._kind, 2**62 if before is None else before))
        kept = ((n, io.BytesIO(data), f"{self._store.path}: state of round {n}") for n, data in rows)
        yield from read_states(kept, like, self._about)
        yield from self._files.states(like, before)


def _open_round(db: Connection, number: int, model: bytes | None = None, question: bytes | None = None) -> None:
    db.execute(
        "INSERT INTO round (number, state, opened, model, question, devices) "
        "VALUES (?, 'open', ?, ?, ?, (SELECT coalesce(max(number), 0) FROM device))",
        (number, time.time(), model, question),
    )


_START = "start"
#: Row of the secrets that says where the hub is copied to.
_COPY = "copy"
_SIZE = "SELECT coalesce(max(number) + 1, 0) FROM entry"


def _append_model(db: Connection, entry: bytes | None) -> None:
    """Append a model to the public log, within the caller's transaction; each round has one."""
    if entry is None:
        return
    newest = db.execute("SELECT data FROM entry WHERE kind = ? ORDER BY number DESC LIMIT 1", (MODEL,)).fetchone()
    if newest is not None and newest[0] == entry:
        return
    if wrong := wrong_models([bytes([MODEL]) + entry], None if newest is None else round_of(newest[0])):
        raise RepeatedError(
            f"the public log cannot go on with this model of round {round_of(entry)}: {wrong}. Put the checkpoints "
            "back from a copy."
        )
    _append(db, MODEL, entry)


def _append(db: Connection, kind: int, data: bytes) -> None:
    """Append an entry to the public log, within the caller's transaction."""
    size = db.execute(_SIZE).fetchone()[0]
    made = grown(lambda level, number: _node(db, level, number), size, leaf_hash(bytes([kind]) + data))
    db.execute("INSERT INTO entry VALUES (?, ?, ?)", (size, kind, data))
    for one in made[1:]:  # of level 0 are the entries themselves
        db.execute("INSERT INTO node VALUES (?, ?, ?)", one)


def _node(db: Connection, level: int, number: int) -> bytes:
    if level:
        row = db.execute("SELECT hash FROM node WHERE (level, number) = (?, ?)", (level, number)).fetchone()
    else:
        row = db.execute("SELECT kind, data FROM entry WHERE number = ?", (number,)).fetchone()
    if row is None:
        raise LookupError(f"the public log has no node ({level}, {number})")
    return row[0] if level else leaf_hash(bytes([row[0]]) + row[1])


# Versions of the tables: each step leads from one to the next. A log of an earlier version is brought to the present
# one when a hub starts, in one transaction, after a copy of it was put beside it; ``fedrank hub replay`` reads it as it
# is. To change the tables, append a step, and never touch those that are here: logs exist that were made by them. A
# step is SQL that SQLite runs, each statement ended by a semicolon at the end of a line.

_1_DEVICES_ROUNDS_REPORTS = """
CREATE TABLE hub (name TEXT NOT NULL, settings TEXT NOT NULL) STRICT;
CREATE TABLE device (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice
    token   BLOB NOT NULL UNIQUE,               -- SHA-256
    day     INTEGER NOT NULL                    -- of enrolment, days since 1970
) STRICT;
CREATE TABLE round (
    number  INTEGER PRIMARY KEY,
    state   TEXT NOT NULL CHECK (state IN ('open', 'closed', 'applied')),
    opened  REAL NOT NULL,                      -- seconds since 1970
    closed  REAL,
    seconds REAL,                               -- how long it was open, by a clock that does not jump
    model   BLOB,                               -- SHA-256 of the weights that are asked about
    question BLOB,                              -- a coordinator's, which devices are asked; else the hub makes it
    reports INTEGER,
    reward  REAL,                               -- mean privatised reward, privatisation's shift taken out
    error   REAL                                -- its standard error
) STRICT;
CREATE TABLE report (
    round   INTEGER NOT NULL REFERENCES round(number),
    device  INTEGER NOT NULL,
    message BLOB NOT NULL,
    PRIMARY KEY (round, device)
) STRICT, WITHOUT ROWID
"""

_2_CREDENTIALS_CHECKS = """
ALTER TABLE round ADD COLUMN devices INTEGER;
CREATE TABLE credential (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    name    TEXT NOT NULL UNIQUE,
    secret  BLOB NOT NULL UNIQUE,               -- SHA-256
    devices INTEGER NOT NULL,                   -- most that may enrol with it within its window
    days    INTEGER NOT NULL,                   -- its window; 0: of all time
    code_minutes INTEGER NOT NULL,              -- how long its codes are good; 0: it has none
    made    INTEGER NOT NULL,                   -- day, days since 1970
    revoked INTEGER                             -- day
) STRICT;
CREATE TABLE code (                             -- single use: deleted when a device enrols with it
    secret  BLOB PRIMARY KEY,                   -- SHA-256
    credential INTEGER NOT NULL REFERENCES credential(number),
    good_until REAL NOT NULL                    -- seconds since 1970
) STRICT, WITHOUT ROWID;
CREATE TABLE admission (                        -- devices that enrolled, those that have left included
    name    BLOB NOT NULL,                      -- of a credential, or hash of an attested identity
    day     INTEGER NOT NULL,
    devices INTEGER NOT NULL,
    PRIMARY KEY (name, day)
) STRICT, WITHOUT ROWID;
CREATE TABLE member (                           -- the credential of each enrolled device that had one
    device  INTEGER PRIMARY KEY,
    credential INTEGER NOT NULL REFERENCES credential(number)
) STRICT;
CREATE TABLE judgement (                        -- what the checks of an applied round said
    round   INTEGER PRIMARY KEY REFERENCES round(number),
    best    INTEGER NOT NULL,                   -- round of the model that the newest was compared with
    checks  INTEGER NOT NULL,
    mean    REAL NOT NULL,                      -- how much better the newest was, -1 to 1
    error   REAL,                               -- its standard error
    promoted INTEGER NOT NULL                   -- 1: the newest is the best from then on
) STRICT;
CREATE TABLE watch (                            -- one row: the sequential tests after the last applied round
    state   TEXT NOT NULL
) STRICT;
CREATE TABLE halt (
    round   INTEGER PRIMARY KEY,                -- the round that was not opened
    best    INTEGER NOT NULL,                   -- it goes on from the model of this round
    halted  REAL NOT NULL,                      -- seconds since 1970
    resumed REAL
) STRICT
"""

_3_LOG = """
CREATE TABLE entry (
    number  INTEGER PRIMARY KEY,                -- from 0
    kind    INTEGER NOT NULL,                   -- 1: terms, 2: SHA-256 of a model message, 3: an issuer's key
    data    BLOB NOT NULL
) STRICT;
CREATE TABLE node (
    level   INTEGER NOT NULL,                   -- of a complete subtree of 2 to this power leaves; 1 or more
    number  INTEGER NOT NULL,
    hash    BLOB NOT NULL,
    PRIMARY KEY (level, number)
) STRICT, WITHOUT ROWID
"""

_4_TOKENS_STATES = """
CREATE TABLE issuer (
    epoch   INTEGER PRIMARY KEY,
    public  BLOB NOT NULL,                      -- as published
    private BLOB                                -- PKCS #8; NULL when the epoch is over
) STRICT;
CREATE TABLE purchase (
    epoch   INTEGER NOT NULL,
    device  INTEGER NOT NULL,
    digest  BLOB NOT NULL,                      -- SHA-256 of the token request
    PRIMARY KEY (epoch, device)
) STRICT, WITHOUT ROWID;
CREATE TABLE challenge (                        -- used by a statement of a device's platform
    digest  BLOB PRIMARY KEY,                   -- SHA-256
    good_until REAL NOT NULL                    -- seconds since 1970
) STRICT, WITHOUT ROWID;
CREATE TABLE secret (
    name    TEXT PRIMARY KEY,
    value   BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (              -- databases had it before files did
    kind    TEXT NOT NULL,
    round   INTEGER NOT NULL,                   -- the state is the one before it
    data    BLOB NOT NULL,
    PRIMARY KEY (kind, round)
) STRICT
"""

# Of an epoch: its secret, whose SHA-256 follows the key in what is published; the hash of the reports before it, NULL
# while it was not drawn; and how many tokens were sold for it when it was.
_5_DRAWS_OF_EPOCHS = """
ALTER TABLE issuer ADD COLUMN secret BLOB;
ALTER TABLE issuer ADD COLUMN reports BLOB;
ALTER TABLE issuer ADD COLUMN sales INTEGER
"""

_6_ROTATIONS = """
CREATE TABLE rotation (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    entry   BLOB NOT NULL,                      -- of the public log
    private BLOB,                               -- the new key; NULL: destroyed
    ends    REAL                                -- when the old one is, seconds since 1970; NULL: still to be made
) STRICT
"""

#: The steps in their order. The version of a log is the number of steps it has seen: ``PRAGMA user_version`` in a file,
#: the table ``version`` in a database.
STEPS: tuple[str, ...] = (
    _1_DEVICES_ROUNDS_REPORTS,
    _2_CREDENTIALS_CHECKS,
    _3_LOG,
    _4_TOKENS_STATES,
    _5_DRAWS_OF_EPOCHS,
    _6_ROTATIONS,
)
