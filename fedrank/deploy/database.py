"""SQLite databases of hubs, platforms and devices: opening, versions, transactions. Standard library only."""

from __future__ import annotations

import contextlib
import filecmp
import itertools
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

#: Tries of a pragma that another process may refuse for a moment, and seconds between them.
_TRIES, _PAUSE = 5, 0.05


def create_private(path: Path, *, exclusive: bool = False) -> None:
    """Create a file that only its owner can read, if it is not there; SQLite gives its other files the same rights.

    Args:
        path: The file; its folder is made as well.
        exclusive: Do not open a file that exists. To close it would drop the locks of whoever has it open in this
            process.

    Raises:
        OSError: It cannot be created.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(*((FileExistsError,) if exclusive else ())):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | (os.O_EXCL if exclusive else 0), 0o600))


def open_database(
    path: str | Path,
    steps: Sequence[str],
    *,
    make: bool = True,
    synchronous: str = "FULL",
    busy_seconds: float = 5.0,
    secure_delete: bool = False,
    read_only: bool = False,
    keep_copy: bool = False,
    fill: Callable[[sqlite3.Connection], None] | None = None,
) -> sqlite3.Connection:
    """Open a database in write-ahead mode, in which every statement is one transaction.

    A database of an earlier version is brought to the present one first, in one transaction: a process that dies in it
    leaves the earlier version as it was.

    Args:
        path: The file; ``":memory:"`` for none.
        steps: SQL statements that lead from each version of the tables to the next. The first makes the tables of
            version 1; the version, kept in ``PRAGMA user_version``, is the number of steps that were done.
        make: Make the tables if there are none; else the database must be there.
        synchronous: ``"FULL"``: a commit survives a power cut. ``"NORMAL"``: it survives the end of the process.
        busy_seconds: How long to wait for another process that writes.
        secure_delete: Overwrite what is deleted with zeros.
        read_only: Open it for reading; a process that writes may have it open. What is read of an earlier version is a
            copy in the present one, made for this connection.
        keep_copy: Keep a copy of a database of an earlier version beside it, as ``NAME.version-1``.
        fill: Writes the first rows of a new database, in the transaction that makes its tables.

    Raises:
        VersionError: The database has tables of a later version, or none although it should.
        OSError: The copy cannot be kept. The database is as it was.
        sqlite3.Error: The file cannot be read or written, or is not a database.
    """
    where = str(path)
    if where != ":memory:":
        where = f"{Path(path).absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    db = sqlite3.connect(where, timeout=busy_seconds, uri=True, isolation_level=None, check_same_thread=False)
    try:
        if read_only:
            db = _in_present_version(db, steps)
        else:
            if secure_delete:
                db.execute("PRAGMA secure_delete = ON")
            db.execute("PRAGMA temp_store = MEMORY")
            _write_ahead(db)
            db.execute(f"PRAGMA synchronous = {synchronous}")
            if _version(db) < len(steps) and (make or _version(db)):
                with transaction(db):  # all of it: a process that dies here leaves what there was
                    found = _version(db)  # another process may have been faster
                    if found and keep_copy:
                        _keep_copy(Path(path), found)
                    _upgrade(db, steps)
                    if not found and fill is not None:
                        fill(db)
        if (found := _version(db)) != len(steps):
            raise VersionError(found, len(steps))
    except BaseException:
        db.close()
        raise
    return db


def _upgrade(db: sqlite3.Connection, steps: Sequence[str]) -> None:
    """Do the steps that a database has not seen yet; the caller's transaction holds them together."""
    for statements in steps[_version(db) :]:
        for statement in statements.split(";\n"):
            db.execute(statement)
    db.execute(f"PRAGMA user_version = {max(_version(db), len(steps))}")


def _in_present_version(db: sqlite3.Connection, steps: Sequence[str]) -> sqlite3.Connection:
    """The database itself, or a copy in the present version, in a file without a name that goes with the connection."""
    if not 0 < _version(db) < len(steps):
        return db
    copy = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    try:
        with contextlib.closing(db):
            db.backup(copy)
        with transaction(copy):
            _upgrade(copy, steps)
    except BaseException:
        copy.close()
        raise
    return copy


def _keep_copy(path: Path, version: int) -> None:
    """Copy a database whose version is about to change; it cannot be written to meanwhile, and no copy is lost."""
    partial = path.with_name(f"{path.name}.version-{version}.partial")
    partial.unlink(missing_ok=True)
    copy_database(path, partial)
    for again in itertools.count(1):
        kept = path.with_name(f"{path.name}.version-{version}{f'.{again}' if again > 1 else ''}")
        if kept.exists() and filecmp.cmp(kept, partial, shallow=False):  # made by a process that died afterwards
            partial.unlink()
            return
        if not kept.exists():
            partial.replace(kept)
            sync_folder(path.parent)
            return


def copy_database(path: Path, copy: Path) -> None:
    """Copy a database as one file that only its owner can read; another process may be writing to it meanwhile.

    Args:
        path: The database.
        copy: The copy, which must not be there. It is on the disk when this returns.

    Raises:
        OSError: The copy cannot be written.
        sqlite3.Error: The database cannot be read.
    """
    create_private(copy)
    with (
        contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source,
        contextlib.closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)  # all pages in one step: of one moment, whatever is committed meanwhile
        target.execute("PRAGMA journal_mode = DELETE")  # one file, without others beside it
    with open(copy, "rb+") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Have the names in a folder on the disk, where the system can do that."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@runtime_checkable
class Connection(Protocol):
    """A connection as a transaction needs it: SQLite's, or another one in its shape."""

    @property
    def in_transaction(self) -> bool:
        """True if a transaction is open."""
        ...

    def execute(self, statement: str, values: Any = (), /) -> Any:
        """Run one statement."""
        ...


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
def transaction(db: Connection) -> Iterator[None]:
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
