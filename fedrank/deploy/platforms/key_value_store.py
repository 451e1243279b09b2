"""What a process must not forget, in one SQLite file: named pieces, written together or not at all.

Write-ahead mode with ``synchronous = NORMAL``: a process that is killed loses nothing that it has acknowledged. A power
cut may take back the last moments; platforms and coordinator notice, and go on as after any pause.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.core.errors import RunError

#: Version of the file, in ``PRAGMA user_version``.
_VERSION = 1


class Shelf:
    """The file. One thread at a time.

    Args:
        path: Made if it is not there.
        about: What it belongs to, in words; a file that belongs to something else is refused.

    Raises:
        RunError: Not such a file, of something else, or the disk does not let it be written.
    """

    def __init__(self, path: Path, about: str):
        self.path = Path(path)
        with self._said():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite gives its other files the rights of this one: what users did is nobody else's business.
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600))
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            try:
                self._open(about)
            except BaseException:
                self._db.close()
                raise

    def _open(self, about: str) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("CREATE TABLE piece (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID")
            self._db.execute(f"PRAGMA user_version = {_VERSION}")
            self._db.execute("INSERT INTO piece VALUES ('about', ?)", (about.encode(),))
            self._db.execute("COMMIT")
        elif version != _VERSION:
            raise RunError(f"{self.path}: written by another version of this program. Use that one.")
        found = (self.get("about") or b"").decode(errors="replace")
        if found != about:
            raise RunError(
                f"{self.path}: belongs to {found}, and not to {about}. Give another folder, or the settings it was "
                "made with."
            )

    def get(self, name: str) -> bytes | None:
        """A piece, or None."""
        with self._said():
            row = self._db.execute("SELECT value FROM piece WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def below(self, prefix: str) -> list[tuple[str, bytes]]:
        """All pieces whose names begin with ``prefix``, which is left out of them; by name."""
        with self._said():
            rows = self._db.execute(
                "SELECT name, value FROM piece WHERE name >= ? AND name < ? ORDER BY name", (prefix, prefix + "\x7f")
            ).fetchall()
        return [(name[len(prefix) :], value) for name, value in rows]

    def put(self, pieces: Mapping[str, bytes], without: Iterable[str] = ()) -> None:
        """Write pieces and remove others, all of them or none.

        Raises:
            RunError: The disk is full, or the file cannot be written; it is as it was.
        """
        with self._said():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany("DELETE FROM piece WHERE name = ?", [(name,) for name in without])
                self._db.executemany("INSERT OR REPLACE INTO piece VALUES (?, ?)", list(pieces.items()))
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def shut(self) -> None:
        """Close the file."""
        self._db.close()

    @contextlib.contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise RunError(f"{self.path}: cannot be used ({error}). Make room, or mend its permissions.") from error


def packed(tree: Any) -> bytes:
    """The arrays of a pytree, one after the other; of typed keys, their words."""
    return b"".join(np.asarray(_plain(leaf)).tobytes() for leaf in jax.tree.leaves(tree))


def unpacked(data: bytes, like: Any) -> Any:
    """The inverse of :func:`packed`.

    Args:
        data: The bytes.
        like: A pytree of the same shapes and types.

    Raises:
        RunError: Another number of bytes.
    """
    leaves, structure = jax.tree.flatten(like)
    plain = [np.asarray(_plain(leaf)) for leaf in leaves]
    if sum(one.nbytes for one in plain) != len(data):
        raise RunError(f"what was kept has {len(data)} bytes, and not as many as these settings need.")
    found, at = [], 0
    for leaf, one in zip(leaves, plain, strict=True):
        array = jnp.asarray(np.frombuffer(data[at : at + one.nbytes], one.dtype).reshape(one.shape))
        found.append(jax.random.wrap_key_data(array, impl=jax.random.key_impl(leaf)) if _is_key(leaf) else array)
        at += one.nbytes
    return jax.tree.unflatten(structure, found)


def _plain(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
