"""Sells the tokens of a hub's epochs, and verifies them when they are spent.

An epoch is a number of rounds. It has one key, which is made before the epoch before it begins, so that
devices can buy ahead, and whose private half is deleted when the epoch is over. Each device buys one token an epoch.
The hash of what it asked for is kept until then, so that the same question has the same answer after a crash of either
side, and another question has none.

All of it is in one file, ``tokens.db``. A copy of the log holds no key and says nothing about who bought; and
losing this file loses no report. But without the keys that the public log names, devices use no model for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fedrank.core.errors import WireError
from fedrank.deploy.database import VersionError, create_private, open_database, transaction
from fedrank.deploy.hub.stages import OpenRound, Outcome, Stage
from fedrank.deploy.hub.store import Store, StoreError
from fedrank.deploy.oblivious.blind_rsa import EXPONENT, PublicKey, Signer, Verifier
from fedrank.deploy.oblivious.tokens import (
    MODULUS,
    blinded_in,
    content_of,
    decode_key,
    encode_key,
    epoch_challenge,
    key_id,
    key_id_in,
)

_log = logging.getLogger("fedrank.hub")

#: Name of the file in the hub's folder.
FILE = "tokens.db"
_1_ISSUERS_PURCHASES = """
CREATE TABLE issuer (
    epoch   INTEGER PRIMARY KEY,
    public  BLOB NOT NULL,       -- as published
    private BLOB                 -- PKCS #8; NULL when the epoch is over
) STRICT;
CREATE TABLE purchase (
    epoch   INTEGER NOT NULL,
    device  INTEGER NOT NULL,
    digest  BLOB NOT NULL,       -- SHA-256 of the token request
    PRIMARY KEY (epoch, device)
) STRICT, WITHOUT ROWID
"""
_2_HUB = "CREATE TABLE hub (name TEXT NOT NULL) STRICT"
#: SQL that leads from each version of the file to the next; append, and change none that was released.
_STEPS = (_1_ISSUERS_PURCHASES, _2_HUB)
#: Most purchases that are committed together.
_BATCH = 256
#: Answers that are kept to be given again without signing anew.
_KEPT = 4096


class _Purchase(NamedTuple):
    epoch: int
    device: int
    request: bytes
    digest: bytes
    waits: asyncio.Future
    loop: asyncio.AbstractEventLoop


class _Epoch(NamedTuple):
    """An epoch whose tokens are verified."""

    number: int
    verifier: Verifier
    challenge: bytes


class Issuer:
    """Sells and verifies a hub's tokens.

    Args:
        path: The file; made if it is not there.
        hub: Name of the hub.
        rounds: Rounds of an epoch.

    Raises:
        StoreError: The file cannot be used.
        MissingExtraError: gmpy2 is not installed.
    """

    def __init__(self, path: Path, hub: str, rounds: int):
        self._path, self._hub, self._rounds = path, hub, rounds
        self._lock = threading.RLock()
        self._open: dict[int, tuple[bytes, Signer]] = {}  # epochs whose tokens are sold
        self._verified: dict[bytes, _Epoch] = {}  # by the key's identifier
        self._kept: dict[bytes, bytes] = {}  # digest of a request → answer
        self._jobs: queue.SimpleQueue[_Purchase | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        try:
            create_private(path)
            self._db = open_database(path, _STEPS, secure_delete=True)
        except (OSError, VersionError, sqlite3.Error) as error:
            raise StoreError(f"{path}: cannot be opened as a hub's tokens ({error}).") from error
        with self._errors(), self._lock:
            self._check_hub()
            for epoch, public, private in self._db.execute("SELECT epoch, public, private FROM issuer").fetchall():
                self._use(epoch, public, private)

    def _check_hub(self) -> None:
        """Write down whose file this is; refuse that of another hub, whose purchases would be taken for this one's."""
        with transaction(self._db):
            found = self._db.execute("SELECT name FROM hub").fetchone()
            if found is None:  # new, or of an earlier version
                self._db.execute("INSERT INTO hub VALUES (?)", (self._hub,))
        if found is not None and found[0] != self._hub:
            self._db.close()
            raise StoreError(
                f"{self._path}: belongs to the hub {found[0][:8]}, and not to {self._hub[:8]}. Put this hub's own file "
                "back from a backup; of a new hub, move that one away."
            )

    # ------------------------------------------------------------------------------------------------------- epochs

    def epoch_of(self, round_: int) -> int:
        """The epoch of a round."""
        return round_ // self._rounds

    def prepare(self, round_: int) -> None:
        """Have the keys of a round's epoch, and of the next; called before anybody sees the round.

        Raises:
            StoreError: They cannot be written.
        """
        first = self.epoch_of(round_)
        with self._lock, self._errors():
            for epoch in (first, first + 1):
                found = self._db.execute("SELECT public FROM issuer WHERE epoch = ?", (epoch,)).fetchone()
                public, private = _new_key() if found is None else (found[0], None)
                if found is None:
                    with transaction(self._db):
                        self._db.execute("INSERT INTO issuer VALUES (?, ?, ?)", (epoch, public, private))
                    self._use(epoch, public, private)

    def begin(self, round_: int) -> None:
        """Delete what belongs to epochs before that of a round: private keys, and who bought.

        Raises:
            StoreError: It cannot be written.
        """
        first = self.epoch_of(round_)
        with self._lock, self._errors():
            over = [epoch for epoch in self._open if epoch < first]
            if over:
                with transaction(self._db):
                    self._db.execute("UPDATE issuer SET private = NULL WHERE epoch < ?", (first,))
                    self._db.execute("DELETE FROM purchase WHERE epoch < ?", (first,))
            self._open = {epoch: sold for epoch, sold in self._open.items() if epoch >= first}
            self._kept.clear()
            # The epoch before may be asked about once more.
            self._verified = {name: one for name, one in self._verified.items() if one.number >= first - 1}

    def keys(self) -> dict[int, bytes]:
        """The published keys by epoch, of those that are sold."""
        return {epoch: public for epoch, (public, _) in sorted(self._open.items())}

    def _use(self, epoch: int, public: bytes, private: bytes | None) -> None:
        key = decode_key(public)
        # The loop reads these while this writes: they are replaced, never changed.
        one = _Epoch(epoch, Verifier(key), epoch_challenge(self._hub, epoch))
        self._verified = {**self._verified, key_id(public): one}
        if private is not None:
            from cryptography.hazmat.primitives.serialization import load_der_private_key

            loaded: Any = load_der_private_key(private, None)
            self._open = {**self._open, epoch: (public, Signer(loaded))}

    # ------------------------------------------------------------------------------------------------------ spending

    def epoch_in(self, token: bytes) -> int | None:
        """The epoch that a token is good for; None if it is not one of this hub's tokens."""
        epoch = self._verified.get(key_id_in(token))
        content = content_of(token)
        if epoch is None or content[34:66] != epoch.challenge:
            return None
        return epoch.number if epoch.verifier.accepts(content, token[-MODULUS:]) else None

    # ------------------------------------------------------------------------------------------------------- selling

    def start(self) -> None:
        """Start the thread that sells."""
        self._thread = threading.Thread(target=self._sell, name="fedrank-issuer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answer what is waiting, and close the file."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        with self._lock:
            self._db.close()

    async def sell(self, epoch: int, device: int, request: bytes) -> bytes | str:
        """The answer to a token request.

        Args:
            epoch: Number of the epoch.
            device: Number of the device that buys.
            request: Token request of RFC 9578.

        Returns:
            The token response; or why there is none: ``"malformed"``, ``"wrong-epoch"``, ``"other-purchase"``.

        Raises:
            StoreError: Nothing can be written.
        """
        sold = self._open.get(epoch)
        if sold is None:
            return "wrong-epoch"
        try:
            usable = sold[1].usable(blinded_in(request, sold[0]))
        except WireError:
            usable = False
        if not usable:
            return "malformed"
        loop = asyncio.get_running_loop()
        waits = loop.create_future()
        self._jobs.put(_Purchase(epoch, device, request, hashlib.sha256(request).digest(), waits, loop))
        return await waits

    def _sell(self) -> None:
        while (first := self._jobs.get()) is not None:
            jobs, last = [first], False
            with contextlib.suppress(queue.Empty):
                while len(jobs) < _BATCH and not last:
                    job = self._jobs.get_nowait()
                    last = job is None
                    jobs += [] if job is None else [job]
            self._sell_all(jobs)
            if last:
                return

    def _sell_all(self, jobs: list[_Purchase]) -> None:
        """Write purchases in one transaction, then sign what was bought."""
        try:
            with self._lock, self._errors():
                good = self._write(jobs)
        except StoreError as error:
            for job in jobs:
                _answer(job, error)
            return
        for job, bought in zip(jobs, good, strict=True):
            _answer(job, self._sign(job) if bought else "other-purchase")

    def _write(self, jobs: list[_Purchase]) -> list[bool]:
        """True if each purchase is the device's only one of the epoch; it is on the disk when this returns."""
        good = []
        with transaction(self._db):
            for job in jobs:
                self._db.execute("INSERT OR IGNORE INTO purchase VALUES (?, ?, ?)", (job.epoch, job.device, job.digest))
                query = "SELECT digest FROM purchase WHERE (epoch, device) = (?, ?)"
                good.append(self._db.execute(query, (job.epoch, job.device)).fetchone()[0] == job.digest)
        return good

    def _sign(self, job: _Purchase) -> bytes | str | Exception:
        with self._lock:
            sold, kept = self._open.get(job.epoch), self._kept.get(job.digest)
        if kept is not None:
            return kept
        if sold is None:  # the epoch ended while it waited
            return "wrong-epoch"
        try:
            signed = sold[1].sign(blinded_in(job.request, sold[0]))
        except (WireError, ArithmeticError) as error:
            return error
        with self._lock:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept[job.digest] = signed
        return signed

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: cannot be written ({error}).") from error


def _answer(job: _Purchase, answer: bytes | str | Exception) -> None:
    def tell() -> None:
        if not job.waits.done():  # a client that has gone cancelled it
            if isinstance(answer, Exception):
                job.waits.set_exception(answer)
            else:
                job.waits.set_result(answer)

    with contextlib.suppress(RuntimeError):  # the loop has closed: no client waits any more
        job.loop.call_soon_threadsafe(tell)


def _new_key() -> tuple[bytes, bytes]:
    """A new key: as published, and its private half."""
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = generate_private_key(EXPONENT, 8 * MODULUS)
    private = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return encode_key(PublicKey(key.public_key().public_numbers().n)), private


class Tokens(Stage):
    """The stage that takes single-use tokens in place of devices' own: each counts once in its epoch.

    Args:
        issuer: Sells and verifies the tokens.
        store: The log, which has the tokens that were spent.
    """

    def __init__(self, issuer: Issuer, store: Store):
        self.issuer, self._store = issuer, store
        self._spent: set[int] = set()  # in this epoch, at least in its earlier rounds

    def start(self) -> None:
        """Start to sell."""
        self.issuer.start()

    def stop(self) -> None:
        """Stop to sell."""
        self.issuer.stop()

    def recover(self, number: int) -> None:
        """Read which tokens of a round's epoch were spent up to it, in reports that are used or not."""
        self.prepare(number)
        rows = [row.number for row in self._store.rounds() if row.number <= number]
        rows = [one for one in rows if self.issuer.epoch_of(one) == self.issuer.epoch_of(number)]
        self._spent = {token for one in rows for token in self._store.reporters(one)}

    def refuse(self, device: int, message: bytes) -> Outcome | None:
        """SPENT for a token of an earlier report."""
        return Outcome.SPENT if device in self._spent else None

    def prepare(self, number: int) -> None:
        """Have the keys of a round's epoch and of the next."""
        self.issuer.prepare(number)

    def begin(self, number: int, ended: OpenRound) -> None:
        """Delete what belongs to epochs that are over; where that cannot be written, the next epoch does it."""
        same = self.issuer.epoch_of(number) == self.issuer.epoch_of(ended.number)
        self._spent = self._spent | ended.counted.keys() if same else set()
        try:
            self.issuer.begin(number)
        except StoreError as error:
            _log.warning("%s", error)
