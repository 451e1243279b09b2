"""The file of a device's outbox: its tables, and how it is opened."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

#: Version of the tables, in ``PRAGMA user_version``.
VERSION = 1

_TABLES = """
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
    unanswered INTEGER NOT NULL,         -- attempts after which nobody knows whether it was counted
    outcome TEXT,                        -- NULL: none yet
    UNIQUE (hub, round)
);
"""

#: Seconds to wait while another process has the file: an app that ranks must not wait long.
_BUSY = 0.5


def something_there(path: Path) -> bool:
    """Whether there is a file with something in it, or nobody can tell."""
    try:
        return os.stat(path).st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def opened(path: str) -> sqlite3.Connection:
    """The database at ``path``, with its tables.

    Raises:
        sqlite3.Error: It cannot be written, or is not one of ours.
    """
    db = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA temp_store = MEMORY")
        _write_ahead(db)
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, VERSION):
            raise sqlite3.DatabaseError(f"version {version}, this program knows {VERSION}")
        if not version:
            db.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
    except BaseException:
        db.close()
        raise
    return db


def _write_ahead(db: sqlite3.Connection) -> None:
    """Write-ahead mode, which two processes that start together may have to ask for more than once."""
    for last in (False, False, False, False, True):
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if last:
                raise
            time.sleep(0.05)
