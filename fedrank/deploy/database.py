"""How hubs, platforms and devices open and write their SQLite databases. Needs the standard library only."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

#: Tries of a pragma that another process may refuse for a moment, and seconds between them.
_TRIES, _PAUSE = 5, 0.05


def create_private(path: Path, *, exclusive: bool = False) -> None:
    """Create a file that only its owner can read, if it is not there; SQLite gives its other files the same rights.

    Args:
        path: The file; its folder is made as well.
        exclusive: Do not open a file that is there. To close it would drop the locks of whoever has it open in this
            process.

    Raises:
        OSError: It cannot be created.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(*((FileExistsError,) if exclusive else ())):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | (os.O_EXCL if exclusive else 0), 0o600))


def open_database(
    path: str | Path,
    version: int,
    tables: str | None,
    *,
    synchronous: str = "FULL",
    busy_seconds: float = 5.0,
    secure_delete: bool = False,
    read_only: bool = False,
    fill: Callable[[sqlite3.Connection], None] | None = None,
) -> sqlite3.Connection:
    """Open a database in write-ahead mode, with every statement a transaction of its own.

    Args:
        path: The file; ``":memory:"`` for none.
        version: Version of the tables, kept in ``PRAGMA user_version``.
        tables: SQL statements that make the tables of a new database; None: the database must be there.
        synchronous: ``"FULL"``: a commit survives a power cut. ``"NORMAL"``: it survives the end of the process.
        busy_seconds: How long to wait for another process that writes.
        secure_delete: Overwrite what is deleted with zeros.
        read_only: Open it for reading; a process that writes may have it open.
        fill: Writes the first rows of a new database, in the transaction that makes its tables.

    Raises:
        VersionError: The database has tables of another version, or none although it should.
        sqlite3.Error: The file cannot be read or written, or is not a database.
    """
    where = str(path)
    if where != ":memory:":
        where = f"{Path(path).absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    db = sqlite3.connect(where, timeout=busy_seconds, uri=True, isolation_level=None, check_same_thread=False)
    try:
        if not read_only:
            if secure_delete:
                db.execute("PRAGMA secure_delete = ON")
            db.execute("PRAGMA temp_store = MEMORY")
            _write_ahead(db)
            db.execute(f"PRAGMA synchronous = {synchronous}")
        if _version(db) == 0 and tables is not None:
            with transaction(db):  # all of it: a process that dies here leaves an empty file
                if _version(db) == 0:  # else another process was faster
                    for statement in tables.split(";\n"):
                        db.execute(statement)
                    if fill is not None:
                        fill(db)
                    db.execute(f"PRAGMA user_version = {version}")
        if (found := _version(db)) != version:
            raise VersionError(found, version)
    except BaseException:
        db.close()
        raise
    return db


class VersionError(sqlite3.DatabaseError):
    """A database has another version than this program reads.

    Args:
        found: Version of the database.
        known: Version that this program reads.
    """

    def __init__(self, found: int, known: int):
        super().__init__(f"version {found}, this program reads version {known}")
        self.found, self.known = found, known


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit what the block writes when it ends, or undo all of it when it or the commit fails; does not nest."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk may have ended it already
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
        raise


def _version(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]


def _write_ahead(db: sqlite3.Connection) -> None:
    """Turn write-ahead mode on; two processes that start together may have to ask for it more than once."""
    for attempt in range(_TRIES):
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if attempt == _TRIES - 1:
                raise
            time.sleep(_PAUSE)
