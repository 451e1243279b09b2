"""A folder of documents that an owner's index follows: what is added, changed or removed there is so in the index."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fedrank.core.errors import MissingDataError, MissingExtraError, RunError
from fedrank.deploy.database import create_private, open_database
from fedrank.texts.served.documents import Document, batches
from fedrank.texts.served.files import digest_of, files_below, id_of, read_file, readers_below

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
    kept    INTEGER NOT NULL         -- 1: in the index; 0: another document has the same text; 2 and 3: the same, but
                                     -- still to be removed from the index
) STRICT, WITHOUT ROWID""",
    "CREATE INDEX of_path ON document (path)",
    "CREATE INDEX of_digest ON document (digest)",
    "CREATE INDEX of_others ON document (kept) WHERE kept <> 1",
    "UPDATE file SET stamp = '' WHERE problem LIKE '%: is a copy of %'",  # copies stood there
    "UPDATE file SET stamp = ''",  # readers that documents name were passed over
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
        self._left_out = list[str]()
        try:
            create_private(record)
            self._db = open_database(record, _STEPS, synchronous="NORMAL", secure_delete=True)
            # What lacked an extra is tried again at each start.
            self._db.execute("UPDATE file SET stamp = '' WHERE problem LIKE '%fedrank[%'")
        except (OSError, sqlite3.Error) as error:
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
            RunError: The index or the record cannot be written.
        """
        files, left_out = self._files()
        self._readers = readers_below(self._path if self._path.is_dir() else self._path.parent, left_out)
        stamps = dict[str, str]()
        for name, file in files.items():
            try:
                state = file.stat()
            except OSError as error:  # it goes just now, or cannot be reached: what the index holds of it stays
                left_out.append(f"{name}: {error.strerror}")
            else:
                stamps[name] = f"{state.st_size} {state.st_mtime_ns} {self._readers(name)}".rstrip()
        self._left_out = left_out
        try:
            self._db.execute("BEGIN IMMEDIATE")
            known = dict(self._db.execute("SELECT path, stamp FROM file").fetchall())
            gone = known.keys() - files.keys()
            changed = sorted(name for name, stamp in stamps.items() if known.get(name) != stamp)
            for name in (*gone, *changed):
                self._mark(name)
            self._db.executemany("DELETE FROM file WHERE path = ?", [(name,) for name in gone])
            removed = self._remove("kept > 1 AND path NOT IN (SELECT path FROM file)")
            added = self._add(self._read(changed, files, stamps))
            removed += self._remove("kept > 1")
            added += self._add(self._promote(files))
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
        copies = self._db.execute(
            "SELECT one.id || ': is a copy of ' || other.id FROM document AS one JOIN document AS other "
            "ON other.digest = one.digest AND other.kept = 1 WHERE one.kept <> 1 AND one.kept <> 2 ORDER BY one.id"
        )
        lines = [line for (lines,) in rows for line in lines.split("\n")]
        return [*self._left_out, *lines, *(line for (line,) in copies.fetchall())]

    def close(self) -> None:
        """Close the database of which files, rows and copies the index has; nothing can be followed then."""
        self._db.close()

    def _files(self) -> tuple[dict[str, Path], list[str]]:
        if self._path.is_file():
            return {self._path.name: self._path}, []
        files, left_out = files_below(self._path) if self._path.is_dir() else ({}, [])
        if not files:
            raise MissingDataError(f"{self._path}: has no file that can be read as documents; nothing was changed.")
        return files, left_out

    def _mark(self, path: str) -> None:
        """Have a file's documents removed at the end, unless they are read again until then, also after a stop."""
        self._db.execute("DELETE FROM document WHERE path = ? AND kept = 0", (path,))
        self._db.execute("UPDATE document SET kept = 2 WHERE path = ?", (path,))
        self._db.execute("INSERT OR REPLACE INTO file VALUES (?, '', '')", (path,))

    def _remove(self, which: str) -> int:
        """Remove documents from the index, and from the record those that are not copies."""
        ids = [id for (id,) in self._db.execute(f"SELECT id FROM document WHERE kept <> 1 AND {which}").fetchall()]
        if not ids:
            return 0
        removed = self.remove(ids)
        self._db.execute(f"UPDATE document SET kept = 0 WHERE kept = 3 AND {which}")
        self._db.execute(f"DELETE FROM document WHERE kept = 2 AND {which}")
        self._commit()
        return removed

    def _add(self, documents: Iterator[Document]) -> int:
        added = 0
        for batch in batches(documents, _AT_ONCE):
            added += self.add(batch)  # durable before the record is
            self._commit()
        return added

    def _commit(self) -> None:
        self._db.execute("COMMIT")
        self._db.execute("BEGIN IMMEDIATE")

    def _read(self, names: Sequence[str], files: Mapping[str, Path], stamps: Mapping[str, str]) -> Iterator[Document]:
        """The documents of files, which are put into the record on the way, without copies of others.

        One whose id another file's has gets its file's name before it.
        """
        for name in names:
            problems = list[str]()
            for document in self._documents(files[name], name, problems):
                held = self._held(document.id)
                if held is not None and held[0] != name and held[1] != 2:
                    document = document._replace(id=id_of(f"{name}#{document.id}"))
                    held = self._held(document.id)
                if held is not None and held[1] != 2:
                    problems.append(f"{document.id}: stands twice; the first one counts")
                    continue
                digest = digest_of(document)
                copied = self._is_kept(digest)
                kept = 1 if not copied else 0 if held is None else 3
                insert = "INSERT OR REPLACE INTO document VALUES (?, ?, ?, ?)"
                self._db.execute(insert, (document.id, name, digest, kept))
                if not copied:
                    yield document
            lines = "\n".join(problems).encode("utf-8", "backslashreplace").decode()
            self._db.execute("INSERT OR REPLACE INTO file VALUES (?, ?, ?)", (name, stamps[name], lines))

    def _promote(self, files: Mapping[str, Path]) -> Iterator[Document]:
        """One copy of each text that no document of the index has any more."""
        paths = self._db.execute(
            "SELECT DISTINCT path FROM document AS one WHERE kept <> 1 AND NOT EXISTS "
            "(SELECT 1 FROM document WHERE digest = one.digest AND kept = 1)"
        )
        for (name,) in paths.fetchall():
            for document in self._documents(files[name], name, []):
                digest = digest_of(document)
                if self._is_kept(digest):
                    continue
                row = self._db.execute(
                    "UPDATE document SET kept = 1 WHERE id = "
                    "(SELECT id FROM document WHERE path = ? AND digest = ? LIMIT 1) RETURNING id",
                    (name, digest),
                ).fetchone()
                if row is not None:
                    yield document._replace(id=row[0])

    def _held(self, id: str) -> tuple[str, int] | None:
        return self._db.execute("SELECT path, kept FROM document WHERE id = ?", (id,)).fetchone()

    def _is_kept(self, digest: bytes) -> bool:
        wanted = "SELECT 1 FROM document WHERE digest = ? AND kept = 1"
        return self._db.execute(wanted, (digest,)).fetchone() is not None

    def _documents(self, file: Path, name: str, problems: list[str]) -> Iterator[Document]:
        try:
            yield from read_file(file, name, problems, self._readers(name))
        except MissingExtraError as error:
            problems.append(f"{name}: {error}")
