"""Folders and files of platforms and of their coordinator.

::

    config.toml          the configuration that all agreed on, resolved
    platform.db          a platform's sessions, sums, items and plan (coordinator.db: the coordinator's state)
    coordinator.token    token with which the coordinator asks the platform: give it to the coordinator
    application.token    token of the platform's own application
    coordinator.url      URLs at which the platform listens for each of them, while it runs
    application.url

The state is one SQLite file of named values, written together or not at all, in write-ahead mode with ``synchronous =
NORMAL``: a process that is killed loses nothing that it has acknowledged. A power cut may undo the last commits;
platforms and coordinator notice this and continue as after any interruption.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.arrays import PyTree
from fedrank.core.errors import RunError
from fedrank.deploy.database import VersionError, create_private, open_database, transaction
from fedrank.deploy.folder import ServedFolder, read_token
from fedrank.deploy.platforms.terms import Terms
from fedrank.engine.checkpoint import leaves_of, plain_array, tree_like, write_atomically
from fedrank.engine.settings import to_toml

#: SQL that leads from each version of the file to the next; append, and change none that was released.
_STEPS = ("CREATE TABLE piece (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID",)


class KeyValueStore:
    """Named values in one SQLite file; for one thread at a time.

    Args:
        path: The file, made if it is not there.
        about: What it belongs to, as text; a file that belongs to something else is refused.

    Raises:
        RunError: It is not such a file, belongs to something else, or cannot be written.
    """

    def __init__(self, path: Path, about: str):
        self.path = Path(path)

        def fill(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO piece VALUES ('about', ?)", (about.encode(),))

        with self._errors():
            create_private(self.path)  # what users did must not be readable for others
            self._db = open_database(self.path, _STEPS, synchronous="NORMAL", fill=fill)
        try:
            found = (self.get("about") or b"").decode(errors="replace")
            if found != about:
                raise RunError(
                    f"{self.path}: belongs to {found}, and not to {about}. Give another folder, or the settings it was "
                    "made with."
                )
        except BaseException:
            self._db.close()
            raise

    def get(self, name: str) -> bytes | None:
        """The value of a name; None if there is none."""
        with self._errors():
            row = self._db.execute("SELECT value FROM piece WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def below(self, prefix: str) -> list[tuple[str, bytes]]:
        """Names that begin with ``prefix``, without it, and their values; sorted by name."""
        with self._errors():
            rows = self._db.execute(
                "SELECT name, value FROM piece WHERE name >= ? AND name < ? ORDER BY name",
                (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)),
            ).fetchall()
        return [(name[len(prefix) :], value) for name, value in rows]

    def put(self, values: Mapping[str, bytes], without: Iterable[str] = ()) -> None:
        """Write values and remove others, all of them or none.

        Args:
            values: New values by name.
            without: Names to remove first.

        Raises:
            RunError: The disk is full, or the file cannot be written; nothing has changed.
        """
        with self._errors(), transaction(self._db):
            self._db.executemany("DELETE FROM piece WHERE name = ?", [(name,) for name in without])
            self._db.executemany("INSERT OR REPLACE INTO piece VALUES (?, ?)", list(values.items()))

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        self._db.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of SQLite and of the file system into :class:`RunError`."""
        try:
            yield
        except VersionError as error:
            raise RunError(f"{self.path}: written by a later version of this program. Use that one.") from error
        except (sqlite3.Error, OSError) as error:
            raise RunError(f"{self.path}: cannot be used ({error}). Make room, or mend its permissions.") from error


def pack_tree(tree: PyTree) -> bytes:
    """The arrays of a pytree, one after the other; of typed keys, their words."""
    return b"".join(plain_array(leaf).tobytes() for leaf in leaves_of(tree))


def unpack_tree(data: bytes, like: PyTree) -> Any:
    """The inverse of :func:`pack_tree`.

    Args:
        data: The bytes.
        like: A pytree of the same shapes and types.

    Raises:
        RunError: Another number of bytes.
    """
    plain = [plain_array(leaf) for leaf in leaves_of(like)]
    if sum(one.nbytes for one in plain) != len(data):
        raise RunError(f"what was kept has {len(data)} bytes, and not as many as these settings need.")
    found, at = [], 0
    for one in plain:
        found.append(np.frombuffer(data[at : at + one.nbytes], one.dtype).reshape(one.shape))
        at += one.nbytes
    return tree_like(like, found)


#: Those who have a token of a platform, and a URL to ask it at.
CLIENTS = ("coordinator", "application")


class PlatformFolder(ServedFolder):
    """Paths of a platform's files, or of a coordinator's; arguments as of the base class."""

    kind, command = "platform", "fedrank slates serve"

    def open_store(self, name: str, terms: Terms, seeded: bool) -> KeyValueStore:
        """Open the database of ``"platform 0"``, ``"coordinator"`` and so on; it is made if it is not there.

        Raises:
            RunError: It belongs to something else, or cannot be written.
        """
        seed = f", draws from seed {terms.config.seed}" if seeded else ""
        store = KeyValueStore(self.path / f"{name.split()[0]}.db", f"{name} of terms {terms.fingerprint}{seed}")
        try:
            write_atomically(self.path / "config.toml", to_toml(terms.config).encode())
        except BaseException:
            store.close()
            raise
        return store

    def token_or_new(self, client: str, given: str | os.PathLike[str] | None = None) -> str:
        """The token of the ``"coordinator"`` or the ``"application"``.

        Args:
            client: Whose token.
            given: A file that holds it; None: the one in the folder, which is made if it is not there.

        Raises:
            RunError: The file cannot be read or written, or holds no token.
        """
        if given is not None:
            return read_token(Path(given))
        if not self.token_path(client).exists():
            self.make_token(client)
        return self.token(client)
