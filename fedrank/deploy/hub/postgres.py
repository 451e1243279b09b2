"""A hub's log in a PostgreSQL database that several hub processes share.

Every process writes reports; a report counts once by the table's primary key, and only while its round is open: who
writes holds a lock that whoever closes the round waits for. One process leads: it holds a lock of its connection, and
loses it with the connection. Only the leader applies rounds and writes the server's states, which all read.

The connection runs the SQL that :mod:`fedrank.deploy.hub.store` has for SQLite, and raises :class:`sqlite3.Error` where
it fails. After the server was lost it connects again at the next statement outside a transaction.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError, MissingExtraError, RunError
from fedrank.core.trees import Json
from fedrank.deploy.database import transaction
from fedrank.deploy.hub.store import STEPS, Store, StoreError, open_first_round
from fedrank.engine import checkpoint

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus
except ImportError as error:
    raise MissingExtraError("psycopg", "postgres", "a hub's log on PostgreSQL") from error

#: Seconds after which a new connection is given up, and until another is tried.
_CONNECT_SECONDS, _AGAIN_SECONDS = 5, 1.0
#: A host that vanished without a word is noticed after about 20 seconds.
_KEEPALIVE = {"keepalives_idle": 5, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000}
#: First half of the keys of advisory locks; the second is made from the schema, so that each may hold a hub.
_LEAD, _WRITE = 0x66656472, 0x66656473
_KEY = "({}, hashtext(current_schema()))"


class PostgresConnection:
    """One connection; for one thread at a time.

    Args:
        url: As libpq takes it, such as ``postgresql://fedrank@db.example.org/hub``; without a password.
        password: The password; None: libpq's own ways, such as ``PGPASSFILE`` and ``PGPASSWORD``.
        read_only: Refuse to write.
        channel: Name of notifications to hear.

    Attributes:
        leading: Whether this connection holds the lock of the process that leads.
        connections: How often it was connected: what was known from notifications before is not complete.
        heard: Payloads of notifications that came with answers to statements; for the caller to empty.

    Raises:
        ConfigError: The URL cannot be read, or holds a password.
        sqlite3.OperationalError: The server cannot be reached, or refuses.
    """

    def __init__(self, url: str, password: str | None = None, *, read_only: bool = False, channel: str = ""):
        self._arguments = {**_KEEPALIVE, "connect_timeout": _CONNECT_SECONDS, "application_name": "fedrank"}
        self._arguments |= parse_url(url)
        if password is not None:
            self._arguments["password"] = password
        self._read_only, self._channel = read_only, channel
        self._server: psycopg.Connection[Any] | None = None
        self._on_begin: Callable[[], None] | None = None
        self._tried = -_AGAIN_SECONDS
        self.leading, self.connections = False, 0
        self.heard: list[str] = []
        self._connect()

    # ---------------------------------------------------------------------------------- what sqlite3's connection has

    @property
    def in_transaction(self) -> bool:
        """True if a transaction is open."""
        server = self._server
        return server is not None and not server.closed and server.info.transaction_status != TransactionStatus.IDLE

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """Run one statement; ``BEGIN IMMEDIATE`` begins a transaction that writes."""
        if statement == "BEGIN IMMEDIATE":
            return self._begin()
        with self._errors():
            server = self._server if self.in_transaction else self._connect()
            assert server is not None
            done = server.execute(translate(statement).encode(), values or None)
            if statement == "COMMIT" and done.statusmessage != "COMMIT":  # a failed transaction ends without an error
                raise sqlite3.OperationalError("the server rolled the transaction back")
            return done

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row."""
        rows = list(rows)
        if not rows:
            return
        with self._errors():
            server = self._server if self.in_transaction else self._connect()
            assert server is not None
            if statement == "INSERT INTO report VALUES (?, ?, ?)":  # one statement for all: a fifth of the time
                columns = [list(column) for column in zip(*rows, strict=True)]
                server.execute(
                    "INSERT INTO report SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[])", columns
                )
            else:
                with server.cursor() as cursor:
                    cursor.executemany(translate(statement).encode(), rows)

    def close(self) -> None:
        """Close the connection."""
        if self._server is not None:
            self._server.close()

    # ------------------------------------------------------------------------------------------------ several processes

    def lead(self) -> bool:
        """True if this process leads; it does if no other one does."""
        if not self.leading or self._server is None or self._server.closed:
            self.leading = bool(self.execute(f"SELECT pg_try_advisory_lock{_KEY.format(_LEAD)}").fetchone()[0])
        return self.leading

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """No other process writes reports while the block runs; waits for those that do."""
        self.execute(f"SELECT pg_advisory_lock{_KEY.format(_WRITE)}")
        try:
            yield
        finally:
            with contextlib.suppress(sqlite3.Error):  # the lock went with the connection
                self.execute(f"SELECT pg_advisory_unlock{_KEY.format(_WRITE)}")

    @contextlib.contextmanager
    def beginning(self, check: Callable[[], None]) -> Iterator[None]:
        """Transactions that the block begins call ``check`` first; what it raises ends them."""
        self._on_begin = check
        try:
            yield
        finally:
            self._on_begin = None

    def _begin(self) -> Any:
        with self._errors():
            begun = self._connect().execute("BEGIN")
        try:
            self.execute(f"SELECT pg_advisory_xact_lock_shared{_KEY.format(_WRITE)}")
            if self._on_begin is not None:
                self._on_begin()
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self.execute("ROLLBACK")
            raise
        return begun

    # ----------------------------------------------------------------------------------------------------- connecting

    def _connect(self) -> psycopg.Connection[Any]:
        """The connection, made again if it was lost."""
        if self._server is not None and not self._server.closed:
            return self._server
        self.leading = False
        if time.monotonic() < self._tried + _AGAIN_SECONDS:
            raise sqlite3.OperationalError("the database's server cannot be reached")
        with self._errors():
            self._tried = time.monotonic()
            server = psycopg.connect(**self._arguments, autocommit=True)
            try:
                self._prepare(server)
            except BaseException:
                server.close()
                raise
            self._server, self._tried = server, -_AGAIN_SECONDS
            self.connections += 1
            return server

    def _prepare(self, server: psycopg.Connection[Any]) -> None:
        # A commit is on the disk before it is acknowledged, whatever the database's own setting is.
        row = server.execute("SHOW synchronous_commit").fetchone()
        if row is None or row[0] in ("off", "local"):
            server.execute("SET synchronous_commit TO on")
        server.execute("SET idle_in_transaction_session_timeout TO '30s'")  # a stopped process blocks others for 30 s
        if self._read_only:
            server.execute("SET default_transaction_read_only TO on")
        if self._channel:
            server.add_notify_handler(lambda notice: self.heard.append(notice.payload))
            server.execute(f"LISTEN {self._channel}".encode())

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn psycopg's errors into those of sqlite3; a connection that is in doubt is given up."""
        try:
            yield
        except psycopg.IntegrityError as error:
            raise sqlite3.IntegrityError(_text(error)) from error
        except psycopg.Error as error:
            if isinstance(error, psycopg.OperationalError) and self._server is not None:
                self._server.close()
                self.leading = False
            raise sqlite3.OperationalError(_text(error)) from error


def parse_url(url: str) -> dict[str, Any]:
    """The parts of a database's URL.

    Raises:
        ConfigError: It cannot be read, or holds a password, which any user of the machine could read from it.
    """
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error as error:
        raise ConfigError(f"database: cannot be read as a URL of PostgreSQL ({_text(error)}).") from error
    if "password" in parts:
        raise ConfigError(
            "database: holds a password, which any user of this machine could read. Leave it out, and put it into the "
            "file database.password in the hub's folder, or into PGPASSWORD or a file that PGPASSFILE names."
        )
    return parts


@functools.cache
def translate(statement: str) -> str:
    """A statement of SQLite as PostgreSQL takes it: its parameters, types and blobs."""
    statement = (
        statement.replace("x''", "''::bytea")
        .replace("PRIMARY KEY AUTOINCREMENT", "GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY")
        .replace(" WITHOUT ROWID", "")
    )
    statement = re.sub(r"\)\s*STRICT\b,?", ")", statement)
    for theirs, ours in (("INTEGER", "BIGINT"), ("BLOB", "BYTEA"), ("REAL", "DOUBLE PRECISION")):
        statement = re.sub(rf"\b{theirs}\b", ours, statement)
    return re.sub(r"(?<!:):([a-z_]+)", r"%(\1)s", statement.replace("?", "%s"))


def _text(error: Exception) -> str:
    return " ".join(str(error).split())


_log = logging.getLogger("fedrank.hub")

#: Name of the notifications of devices that leave.
_CHANNEL = "fedrank_gone"
#: Tables that only a shared log has, beside those of every log.
_SHARED = (
    "CREATE TABLE version (number BIGINT NOT NULL)",
    "INSERT INTO version VALUES (0)",
    "CREATE TABLE last_device (number BIGINT NOT NULL)",
    "INSERT INTO last_device VALUES (0)",
    "CREATE TABLE state (kind TEXT NOT NULL, round BIGINT NOT NULL, data BYTEA NOT NULL, PRIMARY KEY (kind, round))",
)
#: Look-ups of unknown tokens in a second: more are answered that the hub is not available.
_LOOKUPS = 500


class DeposedError(Exception):
    """This process does not lead any more: nothing was written."""


class ClosedError(Exception):
    """The round of a report is not open any more: nothing was written."""


class SharedStore(Store):
    """The log of a hub in a database; methods as of :class:`~fedrank.deploy.hub.store.Store`.

    Args:
        url: URL of the database, without a password.
        password: Its password; None: as libpq finds it.
        name: Name of a new hub, made where the database has none; None: it must be there.
        settings: Settings that a new hub's log belongs to, as text.
        read_only: Open it for reading only.

    Raises:
        StoreError: It cannot be reached, holds no hub, or a hub of a later version.
        ConfigError: The URL cannot be read, or holds a password.
    """

    def __init__(
        self,
        url: str,
        password: str | None = None,
        *,
        name: str | None = None,
        settings: str = "",
        read_only: bool = False,
    ):
        self.path = Path("the hub's database")  # for messages; the URL names machines and users
        self._second, self._lookups = 0, 0
        try:
            self._db: Any = PostgresConnection(url, password, read_only=read_only, channel=_CHANNEL)
            self._finder = PostgresConnection(url, password, read_only=True)  # of the event loop's thread
            if not read_only:
                self._make(name, settings)
            self._check_version()
            self.name, self.settings = self._db.execute("SELECT name, settings FROM hub").fetchone()
        except (sqlite3.Error, TypeError) as error:
            raise StoreError(f"database: cannot be opened as a hub's log ({error}).") from error

    def _make(self, name: str | None, settings: str) -> None:
        """Make the tables, or bring those of an earlier version to the present one; one process does it."""
        db = self._db
        with db.alone(), transaction(db):
            there = db.execute("SELECT to_regclass('version') IS NOT NULL").fetchone()[0]
            if not there and name is None:
                return
            if not there:
                for statement in _SHARED:
                    db.execute(statement)
            found = db.execute("SELECT number FROM version").fetchone()[0]
            for statements in STEPS[found:]:
                for statement in statements.split(";\n"):
                    db.execute(statement)
            if not found:
                db.execute("INSERT INTO hub VALUES (?, ?)", (name, settings))
                open_first_round(db)
            db.execute("UPDATE version SET number = ?", (max(found, len(STEPS)),))

    def _check_version(self) -> None:
        if not self._db.execute("SELECT to_regclass('version') IS NOT NULL").fetchone()[0]:
            raise StoreError("database: there is no hub in it. Make one: fedrank hub serve FOLDER --database URL")
        found = self._db.execute("SELECT number FROM version").fetchone()[0]
        if found != len(STEPS):
            raise StoreError(
                f"database: is of version {found}, and this program reads version {len(STEPS)}. Stop all processes of "
                "the hub, and start one of the newest version."
            )

    # ---------------------------------------------------------------------------------------------- several processes

    def lead(self) -> bool:
        """True if this process leads; it does if no other one does."""
        with self._reading():
            return self._db.lead()

    @property
    def leading(self) -> bool:
        """True if this process leads, as far as it knows."""
        return self._db.leading

    @property
    def connections(self) -> int:
        """Number of times that the database was connected."""
        return self._db.connections

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """No process adds a report while the block runs."""
        with self._reading(), self._db.alone():
            yield

    def take_departed(self) -> list[int]:
        """Numbers of devices that left since the last call, by any process."""
        heard, self._db.heard[:] = [int(number) for number in self._db.heard], ()
        return heard

    def came(self, round_: int) -> int:
        """Number of reports in a round, whoever took them."""
        with self._reading():
            return self._db.execute("SELECT count(*) FROM report WHERE round = ?", (round_,)).fetchone()[0]

    def find(self, digest: bytes) -> int | None:
        """Number of the device whose token has this SHA-256; None if there is none. Called by the event loop.

        Raises:
            StoreError: The database cannot be asked, or was asked too often in this second.
        """
        now = int(time.monotonic())
        self._lookups = self._lookups + 1 if now == self._second else 1
        self._second = now
        if self._lookups > _LOOKUPS:
            raise StoreError("database: too many unknown tokens in a second.")
        with self._reading():
            row = self._finder.execute("SELECT number FROM device WHERE token = ?", (digest,)).fetchone()
            return None if row is None else row[0]

    def devices_after(self, number: int) -> list[tuple[int, bytes]]:
        """Number and SHA-256 of the token of every device above a number."""
        with self._reading():
            return self._db.execute("SELECT number, token FROM device WHERE number > ?", (number,)).fetchall()

    # ------------------------------------------------------------------------------------------ as of every hub's log

    def last_device(self) -> int:
        """The highest number that any device was given; 0 before the first."""
        with self._reading():
            return self._db.execute("SELECT number FROM last_device").fetchone()[0]

    def reserve(self, first: int, count: int) -> int:
        """The first of ``count`` numbers for new devices, which no other process gives."""
        with self._reading():
            row = self._db.execute("UPDATE last_device SET number = number + ? RETURNING number", (count,)).fetchone()
            return row[0] - count + 1

    def write(
        self,
        devices: Sequence[tuple[int, bytes]],
        gone: Sequence[int],
        reports: Iterable[tuple[int, int, bytes]],
        *more: Any,
    ) -> None:
        """As of every store; raises :class:`ClosedError` where the round of a report is not open any more."""
        reports = list(reports)

        def check() -> None:
            for round_ in {number for number, _, _ in reports}:
                row = self._db.execute("SELECT state FROM round WHERE number = ?", (round_,)).fetchone()
                if row is None or row[0] != "open":
                    raise ClosedError(round_)
            for number in gone:
                self._db.execute("SELECT pg_notify(?, ?)", (_CHANNEL, str(number)))

        with self._db.beginning(check):
            super().write(devices, gone, reports, *more)

    def apply_round(self, *values: Any, **named: Any) -> None:
        """As of every store; raises :class:`DeposedError` where this process does not lead."""
        with self._db.beginning(self._must_lead):
            super().apply_round(*values, **named)

    def open_round(self, *values: Any, **named: Any) -> None:
        """As of every store; raises :class:`DeposedError` where this process does not lead."""
        with self._db.beginning(self._must_lead):
            super().open_round(*values, **named)

    def set_model(self, number: int, model: bytes, entry: bytes | None = None) -> None:
        """As of every store, for the leader; the others leave it to it."""
        if self._db.leading:
            super().set_model(number, model, entry)

    def _must_lead(self) -> None:
        if not self._db.leading:
            raise DeposedError

    def states(self, folder: Path, about: dict[str, Json]) -> SharedStates:
        """The server's states, in the database."""
        return SharedStates(self, folder.name, about)

    def close(self) -> None:
        """Close the connections; another process leads then."""
        self._finder.close()
        super().close()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"database: cannot be used ({error}).") from error


class SharedStates:
    """The newest states of the server in the database; methods as of :class:`~fedrank.deploy.checkpoints.Checkpoints`.

    Every process serves the very model that the leader made, whatever its own processor would have rounded.

    Args:
        store: The log.
        kind: What the states are for.
        about: What they belong to, JSON-able.
        keep: Number of states that are kept.
    """

    def __init__(self, store: SharedStore, kind: str, about: dict[str, Json], keep: int = 3):
        self._store, self._kind, self._about, self._keep = store, kind, about, keep

    def sweep(self) -> None:
        """Do nothing: nothing is ever half-written."""

    def save(self, round_: int, state: PyTree) -> None:
        """Write the state before a round, and drop the oldest; for the leader."""
        store, db = self._store, self._store._db
        data = checkpoint.pack_arrays(state, {"of": self._about, "round": round_})
        try:
            with db.beginning(store._must_lead), transaction(db):
                db.execute(
                    "INSERT INTO state VALUES (?, ?, ?) ON CONFLICT (kind, round) DO UPDATE SET data = excluded.data",
                    (self._kind, round_, data),
                )
                # States beyond this round are of a future that did not happen.
                db.execute(
                    "DELETE FROM state WHERE kind = ? AND (round > ? OR round <= ?)",
                    (self._kind, round_, round_ - self._keep),
                )
        except sqlite3.Error as error:
            raise StoreError(f"database: the server's state cannot be written ({error}).") from error

    def states(self, like: PyTree, before: int | None = None) -> Iterator[tuple[int, Any]]:
        """Rounds and states, newest first; a damaged one is passed over with a warning."""
        with self._store._reading():
            rows = self._store._db.execute(
                "SELECT round, data FROM state WHERE kind = ? AND round <= ? ORDER BY round DESC",
                (self._kind, 2**62 if before is None else before),
            ).fetchall()
        for number, data in rows:
            try:
                state, about = checkpoint.unpack_arrays(io.BytesIO(data), like, f"state of round {number}")
            except RunError as error:
                _log.warning("%s; the one before it is used", error)
                continue
            if about.get("of") != self._about or about.get("round") != number:
                raise RunError(f"database: the state of round {number} belongs to other settings than those here.")
            yield number, state
