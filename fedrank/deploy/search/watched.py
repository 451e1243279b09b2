"""A folder of documents that an owner's index follows: what is added, changed or removed there is so in the index."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fedrank.core.errors import MissingDataError, RunError
from fedrank.deploy.database import VersionError, create_private, open_database
from fedrank.texts.served.documents import Document, batches
from fedrank.texts.served.files import digest_of, files_below, read_file

#: Steps that make the tables, one a version.
_STEPS = (
    """CREATE TABLE file (
    path    TEXT PRIMARY KEY,        -- within the folder
    stamp   TEXT NOT NULL,           -- size and time of its last change when it was read
    problem TEXT NOT NULL DEFAULT '' -- lines about what was left out of it
) STRICT, WITHOUT ROWID""",
    """CREATE TABLE document (
    id      TEXT PRIMARY KEY,
    path    TEXT NOT NULL,           -- of its file
    digest  BLOB NOT NULL,           -- of its text
    kept    INTEGER NOT NULL         -- 0: another document has the same text
) STRICT, WITHOUT ROWID""",
    "CREATE INDEX of_path ON document (path)",
    "CREATE INDEX of_digest ON document (digest)",
)
#: Documents that are added at once; each time is a commit of the index.
_AT_ONCE = 500


class WatchedFolder:
    """The documents of a folder, or of one file, and what an index holds of them.

    Args:
        path: The folder or file.
        record: Database of what was read; made if it is not there.
        add: Adds documents to the index, each in place of one of the same id.
        remove: Removes documents from the index by their ids.

    Attributes:
        add: As given.
        remove: As given.

    Raises:
        RunError: The record cannot be used.
    """

    def __init__(
        self,
        path: Path,
        record: Path,
        add: Callable[[Iterable[Document]], int],
        remove: Callable[[Iterable[str]], int],
    ):
        self.add, self.remove, self._path, self._record = add, remove, path, record
        self._stale = set[str]()
        try:
            create_private(record)
            self._db = open_database(record, _STEPS, synchronous="NORMAL", secure_delete=True)
        except (OSError, sqlite3.Error, VersionError) as error:
            raise RunError(f"{record}: cannot be used as a record of documents ({error}).") from error

    def forget(self) -> None:
        """Read all files again at the next :meth:`follow`, as where the index is a new one."""
        self._db.execute("DELETE FROM document")
        self._db.execute("DELETE FROM file")

    def follow(self) -> tuple[int, int]:
        """Bring the index to the state of the folder.

        Returns:
            Documents that were added or changed, and that were removed.

        Raises:
            MissingDataError: The folder or every file in it is gone, as where a network drive is: nothing is removed.
            MissingExtraError: A kind of file needs the extra ``documents``.
            RunError: The index or the record cannot be written.
        """
        files, added = self._files(), 0
        stamps = {
            name: f"{state.st_size} {state.st_mtime_ns}" for name, file in files.items() if (state := file.stat())
        }
        try:
            self._db.execute("BEGIN IMMEDIATE")
            removed = self._leave(self._known().keys() - files.keys())
            while changed := sorted(name for name, _ in stamps.items() - self._known().items()):
                for batch in batches(self._read(changed, files, stamps), _AT_ONCE):
                    added += self.add(batch)  # durable before the record is
                    self._db.execute("COMMIT")
                    self._db.execute("BEGIN IMMEDIATE")
                removed += self.remove(self._stale)
                self._stale.clear()
            self._db.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            raise RunError(f"{self._record}: cannot be written ({error}).") from error
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        return added, removed

    def problems(self) -> list[str]:
        """A line about each file, row or copy that is left out."""
        rows = self._db.execute("SELECT problem FROM file WHERE problem <> '' ORDER BY path").fetchall()
        return [line for (lines,) in rows for line in lines.split("\n")]

    def close(self) -> None:
        """Close the record."""
        self._db.close()

    def _files(self) -> dict[str, Path]:
        if self._path.is_file():
            return {self._path.name: self._path}
        files = files_below(self._path)[0] if self._path.is_dir() else []
        if not files:
            raise MissingDataError(f"{self._path}: has no file that can be read as documents; nothing was changed.")
        return {file.relative_to(self._path).as_posix(): file for file in files}

    def _known(self) -> dict[str, str]:
        return dict(self._db.execute("SELECT path, stamp FROM file").fetchall())

    def _leave(self, paths: Iterable[str]) -> int:
        """Remove the documents of files that are gone."""
        ids = list[str]()
        for path in paths:
            ids += self._drop(path)
            self._db.execute("DELETE FROM file WHERE path = ?", (path,))
        return self.remove(ids) if ids else 0

    def _drop(self, path: str) -> list[str]:
        """Take a file's documents from the record; files that hold the same text are read again.

        Returns:
            Ids of those that the index holds.
        """
        again = (
            "UPDATE file SET stamp = '' WHERE path IN (SELECT path FROM document WHERE kept = 0 AND path <> ?1 "
            "AND digest IN (SELECT digest FROM document WHERE path = ?1 AND kept = 1))"
        )
        self._db.execute(again, (path,))
        rows = self._db.execute("DELETE FROM document WHERE path = ? RETURNING id, kept", (path,)).fetchall()
        return [id for id, kept in rows if kept]

    def _read(self, names: Sequence[str], files: Mapping[str, Path], stamps: Mapping[str, str]) -> Iterator[Document]:
        """The documents of files, which are put into the record on the way, without copies of others."""
        for name in names:
            before, problems = set(self._drop(name)), list[str]()
            for document in read_file(files[name], name, problems):
                digest = digest_of(document)
                same = self._db.execute(
                    "SELECT id FROM document WHERE digest = ? AND kept = 1 AND id <> ?", (digest, document.id)
                )
                if copied := same.fetchone():
                    problems.append(f"{document.id}: is a copy of {copied[0]}")
                row = (document.id, name, digest, copied is None)
                self._db.execute("INSERT OR REPLACE INTO document VALUES (?, ?, ?, ?)", row)
                if copied is None:
                    before.discard(document.id)
                    yield document
            self._stale |= before
            row = (name, stamps[name], "\n".join(problems))
            self._db.execute("INSERT OR REPLACE INTO file VALUES (?, ?, ?)", row)
