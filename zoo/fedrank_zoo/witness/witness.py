"""A witness of hubs' logs: it cosigns a head only if the log has grown from the one that it cosigned before.

The protocol is C2SP tlog-witness. A folder has the witness's key, the public keys of the logs that it watches, and a
database with the newest head of each. A head is on the disk before its cosignature leaves, so that a witness that was
killed never cosigns a log that went back. Two heads of one log that cannot both be true are kept as evidence.

A witness that only compares heads sees that a log grows, and not what with. One that reads it (``--peers``,
``--check``) finds two models of one round, whichever devices they were shown to, and cosigns no head of it any more.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fedrank.core.errors import ConfigError, RunError, WireError
from fedrank.deploy.database import create_private, open_database, transaction
from fedrank.deploy.folder import ServedFolder
from fedrank.deploy.http.app import HttpApp, RequestCounts
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.http.guard import Guard
from fedrank.deploy.http.routes import NO_SNIFF, NO_STORE, HttpRequest, HttpResponse, Route
from fedrank.deploy.log.note import (
    LARGEST,
    LOG,
    WITNESS,
    Checkpoint,
    Key,
    Signer,
    decode_base64,
    new_private_key,
)
from fedrank.deploy.log.proof import Answer, UnprovenError, is_allowed
from fedrank.deploy.log.tree import (
    EMPTY,
    LOG_KEY,
    MODEL,
    TERMS,
    Grown,
    Rotation,
    choose_notices,
    leaf_hash,
    round_of,
    verify_consistency,
    wrong_models,
)
from fedrank.deploy.terms import Terms
from fedrank.engine.checkpoint import write_atomically

#: Largest page of entries in bytes, and most pages that are read at once.
_PAGE, _PAGES = 4 << 20, 1000


@dataclass(frozen=True)
class Reading:
    """Position up to which a log was read.

    Attributes:
        size: Number of entries that were read.
        frontier: Hashes of the tree over them.
        round: Round of the newest model among them; None: there was none that said one.
        wrong: What was wrong with its models, or with what its head says of its keys; empty: nothing.
        notices: Number and bytes of the entries that its heads bind (:func:`~fedrank.deploy.log.tree.choose_notices`).
        key: The key that signs the log, after what was read; None: not known from that.
        operator: Public key that its terms name, hexadecimal; empty: they name none; None: it has no terms that can be
            read, and no change of its key is followed.
    """

    size: int = 0
    frontier: tuple[bytes, ...] = ()
    round: int | None = None
    wrong: str = ""
    notices: tuple[tuple[int, bytes], ...] = ()
    key: Key | None = None
    operator: str | None = None


def read_on(hub: HttpClient, head: Checkpoint, before: Reading, key: Key) -> Reading:
    """Read the entries of a log up to a head.

    Args:
        hub: Shows the log.
        head: A head of it, signed by it.
        before: How far it was read before.
        key: The key that signs it; entries may name others that take its place.

    Raises:
        UnprovenError: The hub does not show the entries that this head is of.
        OSError: It does not answer.
    """
    tree, last, wrong = Grown(before.size, before.frontier), before.round, before.wrong
    operator, notices = before.operator, list(before.notices)
    for _ in range(_PAGES):
        if tree.size >= head.size:
            break
        page = hub.request("GET", f"/v1/log/entries/{tree.size}", "", limit=_PAGE)
        entries = Answer.entries_in(page.body)[: head.size - tree.size] if page.status == 200 else ()
        if not entries:
            raise UnprovenError(f"its hub shows no entry from number {tree.size} on")
        wrong, last = wrong or wrong_models(entries, last), newest_round(entries, last)
        notices = choose_notices([*notices, *enumerate(entries, tree.size)])
        for entry in entries:
            operator = operator if tree.size else _operator_in(entry)
            tree.append(leaf_hash(entry))
            key = key if wrong or operator is None else _key_after(entry, key, operator)
    if tree.size != head.size or tree.root() != head.root:
        raise UnprovenError(f"its hub shows {tree.size} entries, and they are not those of its head of {head.size}")
    if not head.binds(notices):
        wrong = (
            wrong or f"the head of {head.size} entries is not about the changes of keys, or the recovery, among them"
        )
    return Reading(tree.size, tree.frontier, last, wrong, tuple(notices), key, operator)


def newest_round(entries: Iterable[bytes], last: int | None) -> int | None:
    """Round of the newest model among entries that says one; ``last`` where none does."""
    for entry in entries:
        if entry[0] == MODEL and (round_ := round_of(entry[1:])) is not None:
            last = round_
    return last


def _operator_in(first: bytes) -> str | None:
    """The operator's key by a log's first entry."""
    try:
        return Terms.from_json(first[1:]).operator if first[:1] == bytes([TERMS]) else None
    except WireError:
        return None


def _key_after(entry: bytes, key: Key, operator: str) -> Key:
    """The key that signs a log after an entry, which may name another, signed by those who have to."""
    try:
        one = Rotation.parse(entry)
    except ValueError:
        return key  # it is about something else
    followed = one.what == LOG_KEY and is_allowed(one, key.name.removeprefix("fedrank/"), operator, key.public)
    return dataclasses.replace(key, public=one.new) if followed else key


#: Most hashes in a request; most pairs of heads of one log that are kept as evidence.
_HASHES, _PAIRS = 63, 16
_1_HEADS_EVIDENCE = """
CREATE TABLE head (
    origin  TEXT PRIMARY KEY,
    size    INTEGER NOT NULL,
    root    BLOB NOT NULL,
    note    TEXT NOT NULL                       -- as the log signed it, with this witness's cosignature
) STRICT;
CREATE TABLE evidence (
    origin  TEXT NOT NULL,
    one     TEXT NOT NULL,                      -- two signed heads that cannot both be true
    other   TEXT NOT NULL,
    found   REAL NOT NULL,                      -- seconds since 1970
    PRIMARY KEY (origin, one, other)
) STRICT
"""
_2_READINGS = """
CREATE TABLE reading (                          -- how far the entries of a log were read
    origin   TEXT PRIMARY KEY,
    size     INTEGER NOT NULL,
    frontier BLOB NOT NULL,                     -- hashes of the tree over them, 32 bytes each
    round    INTEGER,                           -- of the newest model
    wrong    TEXT NOT NULL                      -- what is wrong with its models; empty: nothing
) STRICT
"""
_3_HEADS_BEFORE = """
CREATE TABLE past (                             -- of logs that were put back from a backup
    origin  TEXT NOT NULL,
    note    TEXT NOT NULL,                      -- the last head from before
    next    TEXT                                -- the first one after it; NULL: not yet
) STRICT
"""
_4_OPERATORS = """
-- the key that the log's terms name, empty for none, NULL if they cannot be read
ALTER TABLE reading ADD COLUMN operator TEXT;
DELETE FROM reading WHERE wrong = ''            -- what is right is read again, from the terms on
"""
_5_NOTICES = """
-- JSON: number and hexadecimal digits of each
ALTER TABLE reading ADD COLUMN notices TEXT NOT NULL DEFAULT '[]';
DELETE FROM reading WHERE wrong = ''
"""
#: SQL that leads from each version of the tables to the next.
STEPS = (_1_HEADS_EVIDENCE, _2_READINGS, _3_HEADS_BEFORE, _4_OPERATORS, _5_NOTICES)


class WitnessFolder(ServedFolder):
    """A witness's folder: ``witness.key``, ``witness.name``, ``logs``, ``witness.db``."""

    kind, command = "witness", "fedrank hub witness"

    def prepare(self, name: str | None, logs: Iterable[str]) -> None:
        """Make the witness, or add logs to those that it watches.

        Args:
            name: Of a new witness; None: a random one.
            logs: Public keys of logs, as ``fedrank hub log`` shows them.

        Raises:
            ConfigError: A key cannot be read, or the name would change.
            RunError: Something cannot be written.
        """
        wanted = [str(Key.parse(one, LOG)) for one in logs]
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        named = self.path / "witness.name"
        if not named.exists():
            chosen = name or f"fedrank-witness/{secrets.token_hex(4)}"
            Key.parse(str(Key(chosen, WITNESS, bytes(32))), WITNESS)  # refuses a name with spaces or plus signs
            write_atomically(named, chosen.encode() + b"\n")
        elif name not in (None, named.read_text(encoding="utf-8").strip()):
            raise ConfigError(f"{self.path}: a witness keeps its name; leave --name out.")
        if not (self.path / "witness.key").exists():
            write_atomically(self.path / "witness.key", new_private_key().hex().encode() + b"\n", 0o600)
        known = self.logs()
        if more := [one for one in wanted if one not in known]:
            write_atomically(self.path / "logs", "".join(f"{one}\n" for one in [*known, *more]).encode())

    def logs(self) -> list[str]:
        """Public keys of the logs that are watched."""
        try:
            return (self.path / "logs").read_text(encoding="utf-8").split()
        except FileNotFoundError:
            return []

    def signer(self) -> Signer:
        """Signer of the witness.

        Raises:
            RunError: Its key cannot be read.
        """
        try:
            name = (self.path / "witness.name").read_text(encoding="utf-8").strip()
            return Signer(name, WITNESS, bytes.fromhex((self.path / "witness.key").read_text("ascii").strip()))
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path}: the witness's key cannot be read ({error}). Put it back.") from error


@dataclass(frozen=True)
class Said:
    """A witness's answer: an HTTP status, a text, its content type."""

    status: int
    text: str = ""
    kind: str = "text/plain; charset=utf-8"


class Witness:
    """A witness over its folder. Methods may be called from any thread.

    Args:
        home: The folder, prepared.

    Raises:
        RunError: Its key or its database cannot be used. Without the database it must not go on: it would cosign a log
            that went back.
    """

    def __init__(self, home: WitnessFolder):
        self._home, self._signer = home, home.signer()
        self.key = self._signer.key
        self.keys = {key.name: key for key in (Key.parse(one, LOG) for one in home.logs())}
        self._lock = threading.Lock()
        self._path: Path = home.path / "witness.db"
        try:
            create_private(self._path)
            self._db = open_database(self._path, STEPS)
        except (OSError, sqlite3.Error) as error:
            raise RunError(f"{self._path}: cannot be opened ({error}). Put it back; never start without it.") from error

    def add(self, body: bytes) -> Said:
        """Answer to a request to cosign a head."""
        try:
            old, proof, here = _request_in(body)
        except (WireError, ValueError):
            return Said(400, "not a request to cosign a head\n")
        key = self.keys.get(here.origin)
        if key is None:
            return Said(404, "this log is not watched\n")
        if not here.is_signed_by(key):
            return Said(403, "not signed by the log\n")
        if old > here.size or not here.size:
            return Said(400, "the old size is above the new one\n")
        try:
            if wrong := self.reading(here.origin).wrong:
                return Said(403, f"{wrong}\n")
            with self._lock, transaction(self._db):
                return self._judge(old, proof, here)
        except sqlite3.Error:
            return Said(503, "nothing can be written\n")

    def _judge(self, old: int, proof: list[bytes], here: Checkpoint) -> Said:
        row = self._db.execute("SELECT size, root, note FROM head WHERE origin = ?", (here.origin,)).fetchone()
        size, root, note = row or (0, EMPTY, "")
        log_note = here.with_lines(_lines_of(here, self.keys[here.origin]))
        other = bool(note) and size == here.size and Checkpoint.parse(note).text != here.text
        if other:
            self._keep(here.origin, note, log_note)
        if old != size or other:
            return Said(409, f"{size}\n", "text/x.tlog.size")
        if (proof and not size) or (size and not verify_consistency(size, root, here.size, here.root, proof)):
            return Said(422, "the proof does not show that the log only grew\n")
        line = self._signer.line(here, int(time.time()))
        self._db.execute("UPDATE past SET next = ? WHERE origin = ? AND next IS NULL", (log_note + line, here.origin))
        self._db.execute(
            "INSERT OR REPLACE INTO head VALUES (?, ?, ?, ?)", (here.origin, here.size, here.root, log_note + line)
        )
        return Said(200, line)

    def begin_anew(self, log: str) -> str:
        """Go on with a log that was put back from a backup, from whatever head it shows next.

        Args:
            log: Its public key, as text.

        Returns:
            The newest head that was cosigned before; empty if there was none.

        Raises:
            ConfigError: It is no key, or of a log that is not watched.
        """
        key = Key.parse(log, LOG)
        if self.keys.get(key.name) != key:
            raise ConfigError(f"{log}: this log is not watched; name it with --logs first.")
        with self._lock, transaction(self._db):
            row = self._db.execute("SELECT note FROM head WHERE origin = ?", (key.name,)).fetchone()
            if row:
                self._db.execute("INSERT INTO past VALUES (?, ?, NULL)", (key.name, row[0]))
            for table in ("head", "reading"):
                self._db.execute(f"DELETE FROM {table} WHERE origin = ?", (key.name,))
        return row[0] if row else ""

    def heads(self) -> list[str]:
        """The newest head of each log, cosigned."""
        with self._lock:
            return [note for (note,) in self._db.execute("SELECT note FROM head ORDER BY origin").fetchall()]

    def evidence(self) -> list[tuple[str, str, str]]:
        """Name of a log, and two heads that it signed and that cannot both be true."""
        with self._lock:
            return self._db.execute("SELECT origin, one, other FROM evidence ORDER BY found").fetchall()

    def put_back(self) -> list[tuple[str, str, str]]:
        """Name of a log that was put back from a backup, the last head from before, and the first one after it."""
        with self._lock:
            return self._db.execute("SELECT origin, note, next FROM past WHERE next IS NOT NULL").fetchall()

    def reading(self, origin: str) -> Reading:
        """Position up to which the entries of a log were read."""
        with self._lock:
            row = self._db.execute(
                "SELECT size, frontier, round, wrong, operator, notices FROM reading WHERE origin = ?", (origin,)
            ).fetchone()
        if row is None:
            return Reading()
        hashes = tuple(row[1][at : at + 32] for at in range(0, len(row[1]), 32))
        notices = tuple((number, bytes.fromhex(entry)) for number, entry in json.loads(row[5]))
        return Reading(row[0], hashes, row[2], row[3], notices, operator=row[4])

    def has_read(self, origin: str, found: Reading) -> None:
        """Keep how far a log was read. Where its models are wrong, no head of it is cosigned any more.

        Where another key took the place of the one that signed it, heads need the signature of the new one from now on.
        """
        if found.key is not None and found.key != self.keys[origin]:
            self._home.prepare(None, [str(found.key)])
            self.keys[origin] = found.key
        notices = json.dumps([(number, entry.hex()) for number, entry in found.notices])
        row = (origin, found.size, b"".join(found.frontier), found.round, found.wrong, found.operator, notices)
        with self._lock, transaction(self._db):
            self._db.execute("INSERT OR REPLACE INTO reading VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def keep(self, one: str, other: str) -> bool:
        """Keep two heads as evidence if they are: of a watched log, signed by it, of one size and different.

        The first few pairs of a log are kept: one says that it shows different people different logs.

        Returns:
            Whether they are.
        """
        try:
            first, second = Checkpoint.parse(one), Checkpoint.parse(other)
        except WireError:
            return False
        key = self.keys.get(first.origin)
        if key is None or not contradict(first, second, key):
            return False
        with self._lock, transaction(self._db):
            self._keep(first.origin, one, other)
        return True

    def _keep(self, origin: str, one: str, other: str) -> None:
        (kept,) = self._db.execute("SELECT count(*) FROM evidence WHERE origin = ?", (origin,)).fetchone()
        if kept >= _PAIRS:
            return
        first, second = sorted((one, other))
        self._db.execute("INSERT OR IGNORE INTO evidence VALUES (?, ?, ?, ?)", (origin, first, second, time.time()))

    def close(self) -> None:
        """Close the database."""
        self._db.close()


def contradict(one: Checkpoint, other: Checkpoint, key: Key) -> bool:
    """True if a log signed two heads of one size with different texts, which cannot both be true.

    A text is more than the hash of the tree: it binds notices, and one that leaves them out hides changes of keys.
    """
    same = (one.origin, one.size) == (other.origin, other.size) == (key.name, other.size)
    return same and one.text != other.text and one.is_signed_by(key) and other.is_signed_by(key)


def _lines_of(here: Checkpoint, key: Key) -> str:
    """The signature lines of a log under its head; those of others are left out."""
    from base64 import b64encode

    return "".join(
        f"— {n} {b64encode(raw).decode()}\n" for n, raw in here.signatures if (n, raw[:4]) == (key.name, key.id)
    )


def _request_in(body: bytes) -> tuple[int, list[bytes], Checkpoint]:
    head, _, note = body.decode().partition("\n\n")
    first, *lines = head.split("\n")
    word, size = first.split(" ")
    if word != "old" or not size.isdigit() or not size.isascii() or len(size) > 16 or size != str(int(size)):
        raise ValueError("no old size")
    proof = [decode_base64(line) for line in lines]
    if len(proof) > _HASHES or any(len(one) != 32 for one in proof):
        raise ValueError("hashes of another length, or too many")
    return int(size), proof, Checkpoint.parse(note)


def as_json(witness: Witness) -> str:
    """Public state of a witness as JSON: its key, the newest heads, evidence, heads around logs that were put back."""
    evidence, put_back = (
        [{"log": origin, "heads": [one, other]} for origin, one, other in pairs]
        for pairs in (witness.evidence(), witness.put_back())
    )
    said = {"witness": str(witness.key), "heads": witness.heads(), "evidence": evidence, "put_back": put_back}
    return json.dumps(said)


#: Largest request in bytes: a head, and 63 hashes.
_LARGEST = LARGEST + 4096


class WitnessApp(HttpApp):
    """The HTTP application of a witness.

    =========================  ==================================================================
    ``POST /add-checkpoint``   a log's new head and a proof that it grew from the one before
    ``GET /heads``             the newest head of each log, cosigned; evidence of split views
    =========================  ==================================================================

    Args:
        witness: The witness.
    """

    def __init__(self, witness: Witness):
        super().__init__(Guard(body_bytes=_LARGEST), RequestCounts())
        self._witness = witness
        self.add_routes(
            {
                "/add-checkpoint": Route("add", ("POST",), None, self._add),
                "/heads": Route("heads", ("GET", "HEAD"), None, self._heads),
            }
        )

    async def _add(self, request: HttpRequest) -> HttpResponse:
        said = await asyncio.get_running_loop().run_in_executor(None, self._witness.add, request.body)
        reason = None if said.status == 200 else f"status-{said.status}"
        kind = said.kind.encode()
        return HttpResponse(said.status, said.text.encode(), NO_STORE, NO_SNIFF, content_type=kind, reason=reason)

    async def _heads(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, as_json(self._witness).encode(), NO_STORE, NO_SNIFF)
