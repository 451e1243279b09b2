"""A connection to PostgreSQL for a hub's store, in the shape of one to SQLite.

It runs the SQL that :mod:`fedrank.deploy.hub.store` has for SQLite, and raises :class:`sqlite3.Error` where it fails.
After the server was lost it connects again at the next statement outside a transaction.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fedrank.core.errors import ConfigError, MissingExtraError
from fedrank.deploy.database import Connection, VersionError, transaction

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
_LEAD, _LOCKS = 0x66656472, {"close": 0x66656473, "admit": 0x66656474}
_KEY = "({}, hashtext(current_schema()))"
#: Name of the notifications of devices that leave.
_CHANNEL = "fedrank_gone"


class PostgresConnection:
    """One connection; for one thread at a time.

    Args:
        url: As libpq takes it, such as ``postgresql://fedrank@db.example.org/hub``; without a password.
        password: The password; None: libpq's own ways, such as ``PGPASSFILE`` and ``PGPASSWORD``.
        read_only: Refuse to write, and hear no notifications.

    Attributes:
        leading: Whether this connection holds the lock of the process that leads.
        connections: How often it was connected: what was known from notifications before is not complete.
        heard: Payloads of notifications (:meth:`tell`) that came with answers to statements; for the caller to empty.

    Raises:
        ConfigError: The URL cannot be read, or holds a password.
        sqlite3.OperationalError: The server cannot be reached, or refuses.
    """

    def __init__(self, url: str, password: str | None = None, *, read_only: bool = False):
        self._arguments = {**_KEEPALIVE, "connect_timeout": _CONNECT_SECONDS, "application_name": "fedrank"}
        self._arguments |= parse_url(url)
        if password is not None:
            self._arguments["password"] = password
        self._read_only = read_only
        self._server: psycopg.Connection[Any] | None = None
        self._alone = 0  # number of the connection whose lock of :meth:`alone` is held
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
                insert = "INSERT INTO report SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[])"
                server.execute(insert, columns)
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
    def alone(self, task: str) -> Iterator[None]:
        """No other process is at a task while the block runs; waits for those that are.

        Args:
            task: ``"close"``, which waits for all transactions that write, or ``"admit"``.
        """
        key = _KEY.format(_LOCKS[task])
        self.execute(f"SELECT pg_advisory_lock{key}")
        self._alone = self.connections
        try:
            yield
        finally:
            self._alone = 0
            with contextlib.suppress(sqlite3.Error):  # the lock went with the connection
                self.execute(f"SELECT pg_advisory_unlock{key}")

    def tell(self, payload: str) -> None:
        """Notify the other processes once the transaction is committed."""
        self.execute("SELECT pg_notify(?, ?)", (_CHANNEL, payload))

    def _begin(self) -> Any:
        with self._errors():
            begun = self._connect().execute("BEGIN")
        try:
            if self._alone not in (0, self.connections):
                raise sqlite3.OperationalError("the connection was lost, and its lock with it")
            self.execute(f"SELECT pg_advisory_xact_lock_shared{_KEY.format(_LOCKS['close'])}")
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
        else:
            server.add_notify_handler(lambda notice: self.heard.append(notice.payload))
            server.execute(f"LISTEN {_CHANNEL}".encode())

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


def open_server(
    url: str,
    password: str | None,
    steps: Sequence[str],
    *,
    fill: Callable[[Connection], None] | None = None,
    read_only: bool = False,
) -> PostgresConnection:
    """Open a database whose tables are of the present version; one of an earlier version is brought to it first.

    Args:
        url: As of :class:`PostgresConnection`.
        password: As of :class:`PostgresConnection`.
        steps: As of :func:`fedrank.deploy.database.open_database`; the version is in the table ``version``.
        fill: Writes the first rows of a new database, in the transaction that makes its tables; None: the tables have
            to be there.
        read_only: Change nothing.

    Raises:
        ConfigError: The URL cannot be read, or holds a password.
        VersionError: The tables are of another version, 0 where there are none.
        sqlite3.Error: The server cannot be reached, or refuses.
    """
    db = PostgresConnection(url, password, read_only=read_only)
    try:
        if not read_only:
            with db.alone("close"), transaction(db):  # one process does it
                _upgrade(db, steps, fill)
        if (found := _version(db)) != len(steps):
            raise VersionError(found, len(steps))
    except BaseException:
        db.close()
        raise
    return db


def _version(db: PostgresConnection) -> int:
    there = db.execute("SELECT to_regclass('version') IS NOT NULL").fetchone()[0]
    return db.execute("SELECT number FROM version").fetchone()[0] if there else 0


def _upgrade(db: PostgresConnection, steps: Sequence[str], fill: Callable[[Connection], None] | None) -> None:
    found = _version(db)
    if found >= len(steps) or (not found and fill is None):
        return
    for statements in steps[found:]:
        for statement in statements.split(";\n"):
            db.execute(statement)
    if not found and fill is not None:
        db.execute("CREATE TABLE version (number BIGINT NOT NULL)")
        db.execute("INSERT INTO version VALUES (0)")
        fill(db)
    if db.execute("SELECT to_regclass('last_device') IS NOT NULL").fetchone()[0]:
        # Numbers of devices were counted here, beside the column's own sequence.
        sequence = "pg_get_serial_sequence('device', 'number')"
        db.execute(f"SELECT setval({sequence}, number) FROM last_device WHERE number > 0")
        db.execute("DROP TABLE last_device")
    db.execute("UPDATE version SET number = ?", (len(steps),))
