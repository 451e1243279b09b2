"""An owner's folder.

::

    owner.toml          settings: what the owner gives, and how hard it searches
    owner.key           secret: private key for questions, key for tickets
    index/              the documents and their index
    askers.db           who may ask, and what was asked
    statistics          the federation's statistics, once they were made
    releases.json       how much of its documents' ε the owner has given
    broker.token        token of the broker; give it to whoever runs it
    admin.token         token of the owner's own commands
    engine.authorization  value of the header Authorization for OpenSearch or Elasticsearch, where the owner uses it
    owner.url           address of the owner while it is served
    owner.certificate   path of its certificate while it is served with TLS, which the owner's own commands trust
    federation.toml     the federation that it has joined, once its people have compared the words
    past.json           secret: past answers to questions in its name, by which owners to ask are chosen
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrank.core import registry
from fedrank.core.errors import ConfigError, RunError, WireError
from fedrank.deploy.database import create_private, open_database
from fedrank.deploy.draws import key_of as secret_digest
from fedrank.deploy.folder import ServedFolder
from fedrank.deploy.search.federation import FederationFile, federation_text, read_federation
from fedrank.engine.checkpoint import write_atomically
from fedrank.engine.settings import from_table, named_in_errors, read_toml, write_settings
from fedrank.texts.served.analyser import Analyser
from fedrank.texts.served.encoder import Encoder, load_encoder
from fedrank.texts.served.engines import Engine
from fedrank.texts.served.engines.foreign import Columns, Place
from fedrank.texts.served.engines.tantivy import TantivyEngine
from fedrank.texts.served.envelopes import Tickets, key_of, key_text
from fedrank.texts.served.owner import Admitted, Owner, OwnerSettings
from fedrank.texts.served.rights import JOINED, check_names
from fedrank.texts.served.statistics import TermTable

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
    "ALTER TABLE asker ADD COLUMN groups TEXT NOT NULL DEFAULT ''",  # with spaces between
    "ALTER TABLE asker ADD COLUMN key BLOB NOT NULL DEFAULT x''",  # by which it signs for its people
    """CREATE TABLE person (
    name     TEXT PRIMARY KEY,             -- company/name
    day      INTEGER NOT NULL,
    asked    INTEGER NOT NULL
) STRICT, WITHOUT ROWID""",
    """CREATE TABLE asked (
    at       INTEGER NOT NULL,             -- seconds since 1970
    name     TEXT NOT NULL,                -- of the asker, or company/name
    kind     TEXT NOT NULL,
    query    TEXT NOT NULL,
    given    TEXT NOT NULL                 -- ids of documents, JSON
) STRICT""",
    "CREATE INDEX asked_at ON asked (at)",
)
_COLUMNS = {"search": "searched", "fetch": "fetched"}
#: Days by which a question's may differ from the owner's: clocks differ, and midnight is not at one time.
_DAYS = 1


class Askers:
    """The askers of one owner.

    Args:
        path: The file; made if it is not there.
        a_day: Most questions of each kind (``"search"``, ``"fetch"``) of one asker in a day.
        of_person: Most questions in a day of a person for whom an asker signs.
        log_days: Days for which it is kept what was asked and given; 0: it is not.

    Raises:
        RunError: The file cannot be used.
    """

    def __init__(self, path: Path, a_day: dict[str, int], of_person: int = 200, log_days: int = 90):
        self._path, self._a_day, self._of_person, self._log_days, self._day = path, a_day, of_person, log_days, -1
        try:
            create_private(path)
            # A count that a power cut takes back is one question too many; a process that dies loses none.
            self._db = open_database(path, _STEPS, synchronous="NORMAL", secure_delete=True)
        except (OSError, sqlite3.Error) as error:
            raise RunError(f"{path}: cannot be used as a list of askers ({error}).") from error

    def allow(self, name: str, groups: Sequence[str] = (), key: bytes = b"", token: str = "") -> str:
        """Let an asker ask, with a token, which is returned and kept as its hash only.

        Args:
            name: The asker, or ``owner/NAME``, an owner that has joined.
            groups: Groups that documents may name as their readers.
            key: Public key by which it signs for its people, 32 bytes; empty: it asks for itself.
            token: Its token; empty: a new one.

        Raises:
            ConfigError: A name cannot be used.
            RunError: It cannot be written.
        """
        check_names(name.removeprefix(JOINED), *groups)
        if f"{name}/" == JOINED:
            raise ConfigError(f"an asker cannot be named {name!r}, as owners that join are {JOINED}NAME.")
        token = token or secrets.token_urlsafe(32)
        self._write(
            "INSERT INTO asker (name, token, groups, key) VALUES (?1, ?2, ?3, ?4) "
            "ON CONFLICT (name) DO UPDATE SET (token, groups, key) = (?2, ?3, ?4)",
            (name, secret_digest(token), " ".join(groups), key),
        )
        return token

    def change(self, name: str, groups: Sequence[str], key: bytes) -> bool:
        """Change an asker's groups and key, not its token; False if there is none. Others as of :meth:`allow`."""
        check_names(*groups)
        change = "UPDATE asker SET (groups, key) = (?, ?) WHERE name = ?"
        return self._write(change, (" ".join(groups), key, name)) > 0

    def forbid(self, name: str) -> bool:
        """Forget an asker; False if there is none of this name."""
        return self._write("DELETE FROM asker WHERE name = ?", (name,)) > 0

    def know(self, name: str, token: str) -> Admitted | None:
        """The asker of this name with this token; None if there is none."""
        try:
            row = self._db.execute("SELECT token, groups, key FROM asker WHERE name = ?", (name,)).fetchone()
        except sqlite3.Error as error:
            raise RunError(f"{self._path}: cannot be read ({error}).") from error
        if not hmac.compare_digest(row[0] if row else b"", secret_digest(token)):
            return None
        return Admitted(tuple(row[1].split()), row[2])

    def count(self, name: str, kind: str, identity: bytes, day: int, person: str) -> str:
        """Count a question; returns a reason where it is not to be answered, and then counts nothing.

        The reasons are ``"other-day"``, ``"replayed"`` and ``"too-many"``. Arguments as of
        :meth:`fedrank.texts.served.owner.Askers.count`.
        """
        today = int(time.time() // 86400)
        if abs(day - today) > _DAYS:
            return "other-day"
        try:
            with self._db:  # a transaction, which an error takes back
                self._db.execute("BEGIN IMMEDIATE")
                return self._count(name, kind, identity, day, today, person)
        except sqlite3.Error as error:
            raise RunError(f"{self._path}: cannot be written ({error}).") from error

    def _count(self, name: str, kind: str, identity: bytes, day: int, today: int, person: str) -> str:
        column, most = _COLUMNS[kind], self._a_day[kind]
        if self._day != today:
            self._db.execute("DELETE FROM question WHERE day < ?", (today - _DAYS,))
            self._db.execute("DELETE FROM person WHERE day < ?", (today,))
            self._db.execute("DELETE FROM asked WHERE at < ?", ((today - self._log_days + 1) * 86400,))
            self._day = today
        new_day = "UPDATE asker SET day = ?, searched = 0, fetched = 0 WHERE name = ? AND day < ?"
        self._db.execute(new_day, (today, name, today))
        if self._db.execute("SELECT 1 FROM question WHERE identity = ?", (identity,)).fetchone():
            return "replayed"
        own = "SELECT 1 FROM person WHERE name = ? AND asked >= ?"
        if person and self._db.execute(own, (person, self._of_person)).fetchone():
            return "too-many"
        count = f"UPDATE asker SET {column} = {column} + 1 WHERE name = ? AND {column} < ?"
        if not self._db.execute(count, (name, most)).rowcount:
            return "too-many"
        if person:
            more = "INSERT INTO person VALUES (?, ?, 1) ON CONFLICT (name) DO UPDATE SET asked = asked + 1"
            self._db.execute(more, (person, today))
        self._db.execute("INSERT INTO question VALUES (?, ?)", (identity, day))
        return ""

    def note(self, name: str, kind: str, query: str, documents: Sequence[str]) -> None:
        """Write down who was given which documents for which query, where that is kept."""
        if self._log_days:
            row = (int(time.time()), name, kind, query, json.dumps([*documents]))
            self._write("INSERT INTO asked VALUES (?, ?, ?, ?, ?)", row)

    def list_questions(self, name: str = "", since: int = 0) -> Iterator[dict[str, Any]]:
        """Questions of askers, oldest first: ``at`` (seconds since 1970), ``name``, ``kind``, ``query``, ``given``.

        Args:
            name: Only of this asker, its people included, or of this person; empty: of all.
            since: Only from this second on.
        """
        columns = "at, name, kind, query, given"
        rows = self._db.execute(f"SELECT {columns} FROM asked WHERE at >= ? ORDER BY at, rowid", (since,))
        for row in rows:
            if not name or row[1] == name or row[1].startswith(f"{name}/"):
                yield {**dict(zip(columns.split(", "), row, strict=True)), "given": json.loads(row[4])}

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


#: Bytes of each of the two secrets in ``owner.key``.
_SECRET = 32


class OwnerFolder(ServedFolder):
    """Paths of an owner's files; arguments as of the base class.

    Attributes:
        index: Folder of the index.
        federation: File of the federation that the owner has joined, if it has.
    """

    kind, command = "owner", "fedrank search owner serve"
    lock_name = "owner.lock"
    shortest_token = 16

    def __init__(self, path: str | os.PathLike[str]):
        super().__init__(path)
        self._settings, self._key = self.path / "owner.toml", self.path / "owner.key"
        self.index, self.federation = self.path / "index", self.path / "federation.toml"

    def prepare(self, settings: OwnerSettings | None = None) -> None:
        """Make what is missing: settings, keys, tokens.

        Args:
            settings: New settings; None: the existing ones, or the defaults.

        Raises:
            ConfigError: The existing settings cannot be used.
            RunError: The folder cannot be written.
        """
        self.make()
        if settings is not None or not self._settings.exists():
            about = "An owner of documents in a federated search; read at the start."
            write_settings(self._settings, settings or OwnerSettings(), about)
        if not self._key.exists():
            write_atomically(self._key, os.urandom(2 * _SECRET), 0o600)
        for name in ("broker", "admin"):
            self.token_or_new(name)

    def settings(self) -> OwnerSettings:
        """The owner's settings.

        Raises:
            ConfigError: They cannot be read, or one is out of range.
        """
        with named_in_errors(self._settings):
            return from_table(read_toml(self._settings), OwnerSettings)

    def public_key(self) -> str:
        """The key that questions are sealed for, as text.

        Raises:
            RunError: There is no owner here.
        """
        return key_text(self._secrets()[0].public_key())

    def private_key(self) -> X25519PrivateKey:
        """The key that opens questions; errors as :meth:`public_key`."""
        return self._secrets()[0]

    def _secrets(self) -> tuple[X25519PrivateKey, bytes]:
        try:
            both = self._key.read_bytes()
        except OSError as error:
            raise RunError(
                f"{self.path}: there is no owner here ({error.strerror}). Make one: {self.command} {self.path}"
            ) from error
        if len(both) != 2 * _SECRET:
            raise RunError(f"{self._key}: must have {2 * _SECRET} bytes, got {len(both)}. Put it back from a copy.")
        return X25519PrivateKey.from_private_bytes(both[:_SECRET]), both[_SECRET:]

    def askers(self) -> Askers:
        """The askers of the owner."""
        settings = self.settings()
        a_day = {"search": settings.questions_a_day, "fetch": settings.fetches_a_day}
        return Askers(self.path / "askers.db", a_day, settings.questions_a_person, settings.log_days)

    def keep_federation(self, file: FederationFile) -> None:
        """Keep the file of a federation: owners that are new in it may ask here, those that left may no longer.

        Others stay as they are, with their groups, and forbidden where they were. Errors as of its parts.
        """
        before = read_federation(self.federation).owners if self.federation.exists() else ()
        known, now = {(card.name, card.key) for card in before}, {card.name for card in file.owners}
        with contextlib.closing(self.askers()) as askers:
            for card in file.owners:
                if (card.name, card.key) not in known:
                    askers.allow(JOINED + card.name, token=self._shared_token(card.key, asks=False))
            for name, _ in known:
                if name not in now:
                    askers.forbid(JOINED + name)
        write_atomically(self.federation, federation_text(file).encode())

    def allow(self, name: str, groups: Sequence[str] = (), key: bytes = b"", new_token: bool = False) -> str:
        """Let an asker ask with these groups and this key, or change those of one that may.

        Args:
            name: The asker, or ``owner/NAME``, an owner that has joined.
            groups: As of :meth:`Askers.allow`.
            key: As of :meth:`Askers.allow`.
            new_token: Give an asker that has a token a new one.

        Returns:
            The token, if it is new; else empty.

        Raises:
            ConfigError: A name cannot be used, or no owner of it has joined.
            RunError: It cannot be written.
        """
        with contextlib.closing(self.askers()) as askers:
            if not name.startswith(JOINED):
                return "" if not new_token and askers.change(name, groups, key) else askers.allow(name, groups, key)
            owners = read_federation(self.federation).owners if self.federation.exists() else ()
            keys = [card.key for card in owners if JOINED + card.name == name]
            if not keys or new_token:
                why = "its token comes from both owners' keys" if keys else "no owner of this name has joined"
                raise ConfigError(f"{name!r}: {why}; owners here: {', '.join(JOINED + one.name for one in owners)}.")
            askers.allow(name, groups, key, self._shared_token(keys[0], asks=False))
            return ""

    def asker(self) -> tuple[FederationFile, tuple[str, dict[str, str]]]:
        """The federation, and this owner as one of its askers: name, and token at each owner.

        Raises:
            ConfigError: It has joined no federation.
            RunError: There is no owner here.
        """
        file, own = read_federation(self.federation), self.public_key()
        names = [card.name for card in file.owners if card.key == own]
        if not names:
            raise ConfigError(f"{self.federation}: no owner has the key of {self.path}.")
        return file, (JOINED + names[0], {card.name: self._shared_token(card.key, asks=True) for card in file.owners})

    def _shared_token(self, key: str, asks: bool) -> str:
        """The token between this owner and another, which both compute; ``asks``: this one asks the other."""
        own, other = self.public_key(), key
        shared = self.private_key().exchange(key_of(key))
        between = f"{own} {other}" if asks else f"{other} {own}"
        digest = hmac.new(shared, b"fedrank asker 1\0" + between.encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def analyser(self) -> Analyser:
        """The analyser of the languages that the settings name; errors as of its class."""
        return Analyser(tuple(self.settings().languages.split()))

    def encoder(self) -> Encoder | None:
        """The encoder that the settings name; errors as of its class."""
        name = self.settings().encoder
        return load_encoder(name) if name not in ("", "none") else None

    def engine(self, encoder: Encoder | None = None) -> Engine:
        """The index that the settings name: one in this folder, or an existing one.

        Raises:
            ConfigError: An address or a name cannot be used.
            RunError: It cannot be reached or used.
        """
        settings = self.settings()
        if not settings.engine:
            return TantivyEngine(self.index, encoder, self.analyser())
        known, scheme = registry.names("fedrank.search_engines"), urlsplit(settings.engine).scheme
        if scheme not in known:
            raise ConfigError(
                "engine must be empty or the address of an existing index, such as https://HOST:9200/INDEX, and begin "
                f"with one of {', '.join(f'{name}://' for name in known)}; got {settings.engine!r:.100}."
            )
        file = self.path / "engine.authorization"
        authorization = file.read_text().strip() if file.exists() else ""
        place = Place(settings.engine, Columns.of(settings.columns), settings.table, authorization, self.analyser())
        return registry.get("fedrank.search_engines", scheme)(place)

    def owner(self, engine: Any, askers: Askers, encoder: Encoder | None = None) -> Owner:
        """The owner over an index."""
        key, tickets = self._secrets()
        return Owner(engine, key, Tickets(tickets), askers, self.settings(), self.table(), encoder, self.analyser())

    # ------------------------------------------------------------------------------------------------- statistics

    def table(self) -> TermTable | None:
        """The federation's statistics; None until they were made.

        Raises:
            RunError: The file is damaged.
        """
        path = self.path / "statistics"
        if not path.exists():
            return None
        try:
            return TermTable.from_bytes(path.read_bytes())
        except (OSError, WireError) as error:
            raise RunError(f"{path}: {error} Delete it, and have the federation's statistics made again.") from error

    def keep_table(self, table: TermTable) -> None:
        """Keep the federation's statistics; errors as :func:`~fedrank.engine.checkpoint.write_atomically`."""
        write_atomically(self.path / "statistics", table.to_bytes(), 0o600)

    def releases(self) -> list[dict[str, Any]]:
        """Releases of the documents' statistics, oldest first: day, ε, δ, releases agreed on."""
        return self.read_json("releases.json") or []

    def add_release(self, release: dict[str, Any]) -> None:
        """Write down a release, before anything of it leaves."""
        self.write_json("releases.json", [*self.releases(), release])
