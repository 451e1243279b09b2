"""Who may ask an owner, how often in a day, and what of a day is used; one SQLite file.

A question counts once. Whoever carries it may send it again, now or later: so its identity, a key that the asker made
for it alone, is kept for as long as its day is accepted, and a question of another day is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import sqlite3
import time
from pathlib import Path

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.database import VersionError, create_private, open_database

#: Steps that make the tables, one a version.
_STEPS = (
    """CREATE TABLE asker (
    name     TEXT PRIMARY KEY,
    token    BLOB NOT NULL,                -- SHA-256
    day      INTEGER NOT NULL DEFAULT 0,   -- of the counts, days since 1970
    searched INTEGER NOT NULL DEFAULT 0,
    fetched  INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID""",
    """CREATE TABLE question (
    identity BLOB PRIMARY KEY,             -- of a question that was counted
    day      INTEGER NOT NULL              -- that it names
) STRICT, WITHOUT ROWID""",
)
_COLUMNS = {"search": "searched", "fetch": "fetched"}
#: A question's day may differ from the owner's by so many: clocks differ, and midnight is everywhere at another time.
_DAYS = 1
_NAME = re.compile(r"[\w.@-]{1,64}", re.ASCII)


class Askers:
    """The askers of one owner.

    Args:
        path: The file; made if it is not there.
        a_day: Most questions of each kind (``"search"``, ``"fetch"``) of one asker in a day.

    Raises:
        RunError: The file cannot be used.
    """

    def __init__(self, path: Path, a_day: dict[str, int]):
        self._path, self._a_day, self._day = path, a_day, -1
        try:
            create_private(path)
            # A count that a power cut takes back is one question too many; a process that dies loses none.
            self._db = open_database(path, _STEPS, synchronous="NORMAL", secure_delete=True)
        except (OSError, sqlite3.Error, VersionError) as error:
            raise RunError(f"{path}: cannot be used as a list of askers ({error}).") from error

    def allow(self, name: str) -> str:
        """Let an asker ask, with a new token, which is returned and kept as its hash only.

        Raises:
            ConfigError: The name cannot be used.
            RunError: It cannot be written.
        """
        if not _NAME.fullmatch(name):
            raise ConfigError(f"an asker's name has 1 to 64 letters, digits and . _ - @, got {name!r:.70}.")
        token = secrets.token_urlsafe(32)
        self._write(
            "INSERT INTO asker (name, token) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET token = ?2",
            (name, _digest(token)),
        )
        return token

    def forbid(self, name: str) -> bool:
        """Forget an asker; False if there is none of this name."""
        return self._write("DELETE FROM asker WHERE name = ?", (name,)) > 0

    def admitted(self, name: str, token: str, kind: str, number: int, identity: bytes, asked: int) -> str:
        """Count a question of this kind; returns a reason where it is not to be answered, and then counts nothing.

        The reasons are ``"unauthorised"``, ``"other-day"``, ``"replayed"`` and ``"too-many"``.

        Args:
            name: The asker.
            token: Its token.
            kind: Of the question.
            number: Questions that it counts as.
            identity: What no other question has.
            asked: The day that it names, since 1970.
        """
        try:
            row = self._db.execute("SELECT token FROM asker WHERE name = ?", (name,)).fetchone()
        except sqlite3.Error as error:
            raise RunError(f"{self._path}: cannot be read ({error}).") from error
        if not hmac.compare_digest(row[0] if row else b"", _digest(token)):
            return "unauthorised"
        day = int(time.time() // 86400)
        if abs(asked - day) > _DAYS:
            return "other-day"
        try:
            with self._db:  # a transaction, which an error takes back
                self._db.execute("BEGIN IMMEDIATE")
                return self._count(name, _COLUMNS[kind], self._a_day[kind], number, identity, asked, day)
        except sqlite3.Error as error:
            raise RunError(f"{self._path}: cannot be written ({error}).") from error

    def _count(self, name: str, column: str, most: int, number: int, identity: bytes, asked: int, day: int) -> str:
        if self._day != day:
            self._db.execute("DELETE FROM question WHERE day < ?", (day - _DAYS,))
            self._day = day
        new_day = "UPDATE asker SET day = ?, searched = 0, fetched = 0 WHERE name = ? AND day < ?"
        self._db.execute(new_day, (day, name, day))
        if self._db.execute("SELECT 1 FROM question WHERE identity = ?", (identity,)).fetchone():
            return "replayed"
        count = f"UPDATE asker SET {column} = {column} + ? WHERE name = ? AND {column} <= ?"
        if not self._db.execute(count, (number, name, most - number)).rowcount:
            return "too-many"
        self._db.execute("INSERT INTO question VALUES (?, ?)", (identity, asked))
        return ""

    def rows(self) -> list[tuple[str, int, int]]:
        """Name of each asker, and its questions and fetches of today."""
        day = int(time.time() // 86400)
        found = self._db.execute("SELECT name, day, searched, fetched FROM asker ORDER BY name").fetchall()
        return [(name, searched * (on == day), fetched * (on == day)) for name, on, searched, fetched in found]

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _write(self, statement: str, values: tuple) -> int:
        try:
            return self._db.execute(statement, values).rowcount
        except sqlite3.Error as error:
            raise RunError(f"{self._path}: cannot be written ({error}).") from error


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
