"""Sells the tokens of a hub's epochs, and verifies them when they are spent.

An epoch is a number of rounds. It has one key, which is made before the epoch before it begins, so that
devices can buy ahead, and whose private half is deleted when the epoch is over. Each device buys one token an epoch.
The hash of what it asked for is kept until then, so that the same question has the same answer after a crash of either
side, and another question has none. A purchase is committed under a unique key before anything is signed: at whichever
process a device asks, it gets one token.

Earlier versions had keys and purchases in a file beside the log, ``tokens.db``; :func:`adopt_tokens` moves them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from fedrank.core.errors import WireError
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

#: Name of the file of earlier versions in the hub's folder.
FILE = "tokens.db"
#: Answers that are kept to be given again without signing anew.
_KEPT = 4096


class _Epoch(NamedTuple):
    """An epoch whose tokens are verified."""

    number: int
    verifier: Verifier
    challenge: bytes


class Issuer:
    """Sells and verifies a hub's tokens.

    Args:
        store: The hub's store.
        rounds: Rounds of an epoch.

    Raises:
        StoreError: The store cannot be read.
        MissingExtraError: gmpy2 is not installed.
    """

    def __init__(self, store: Store, rounds: int):
        self._store, self._rounds = store, rounds
        self._open: dict[int, tuple[bytes, Signer]] = {}  # epochs whose tokens are sold
        self._verified: dict[bytes, _Epoch] = {}  # by the key's identifier
        self._kept: dict[bytes, bytes] = {}  # digest of a request → answer; only the loop uses it
        self._pool = ThreadPoolExecutor(1, "fedrank-issuer")
        self._read()

    def _read(self) -> None:
        """Know the keys that are in the store."""
        verified: dict[bytes, _Epoch] = {}
        sold: dict[int, tuple[bytes, Signer]] = {}
        for epoch, public, private in self._store.issuer_keys():
            name = key_id(public)
            known = self._verified.get(name)
            verified[name] = known or _Epoch(
                epoch, Verifier(decode_key(public)), epoch_challenge(self._store.name, epoch)
            )
            if private is not None:
                sold[epoch] = self._open.get(epoch) or (public, _signer(private))
        # The loop reads these while the writer's thread is here: they are replaced, never changed.
        self._verified, self._open = verified, sold

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
        wanted = {first, first + 1}
        if not wanted <= self._open.keys():
            there = {epoch for epoch, _, _ in self._store.issuer_keys()}
            for epoch in sorted(wanted - there):
                self._store.add_issuer_key(epoch, *_new_key())
            self._read()

    def begin(self, round_: int) -> None:
        """Delete what belongs to epochs before that of a round: private keys, and who bought.

        Raises:
            StoreError: It cannot be written.
        """
        first = self.epoch_of(round_)
        if any(epoch < first for epoch in self._open):
            if self._store.leads:
                self._store.end_epochs(first)
            self._open = {epoch: sold for epoch, sold in self._open.items() if epoch >= first}
        # The epoch before may be asked about once more.
        self._verified = {name: one for name, one in self._verified.items() if one.number >= first - 1}

    def keys(self) -> dict[int, bytes]:
        """The published keys by epoch, of those that are sold."""
        return {epoch: public for epoch, (public, _) in sorted(self._open.items())}

    # ------------------------------------------------------------------------------------------------------ spending

    def epoch_in(self, token: bytes) -> int | None:
        """The epoch that a token is good for; None if it is not one of this hub's tokens."""
        epoch = self._verified.get(key_id_in(token))
        content = content_of(token)
        if epoch is None or content[34:66] != epoch.challenge:
            return None
        return epoch.number if epoch.verifier.accepts(content, token[-MODULUS:]) else None

    # ------------------------------------------------------------------------------------------------------- selling

    def stop(self) -> None:
        """End the threads that sign; purchases that wait are not answered, and devices ask again."""
        self._pool.shutdown(cancel_futures=True)

    def refuse(self, epoch: int, request: bytes) -> str:
        """Reason why a token request has no answer, ``"malformed"`` or ``"wrong-epoch"``; empty if it may."""
        sold = self._open.get(epoch)
        if sold is None:
            return "wrong-epoch"
        with contextlib.suppress(WireError):
            if sold[1].usable(blinded_in(request, sold[0])):
                return ""
        return "malformed"

    async def sign(self, epoch: int, request: bytes, digest: bytes) -> bytes | str:
        """The token response to a request whose purchase was committed; ``"wrong-epoch"`` where the epoch has ended.

        Args:
            epoch: Number of the epoch.
            request: Token request of RFC 9578, which is not refused.
            digest: Its SHA-256.
        """
        if digest not in self._kept:
            sold = self._open.get(epoch)
            if sold is None:  # it ended while the purchase waited
                return "wrong-epoch"
            blinded = blinded_in(request, sold[0])
            signed = await asyncio.get_running_loop().run_in_executor(self._pool, sold[1].sign, blinded)
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept[digest] = signed
            return signed
        return self._kept[digest]


def _signer(private: bytes) -> Signer:
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    loaded: Any = load_der_private_key(private, None)
    return Signer(loaded)


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

    def stop(self) -> None:
        """Stop to sell."""
        self.issuer.stop()

    def recover(self, number: int) -> None:
        """Read which tokens of a round's epoch were spent up to it, in reports that are used or not."""
        self.prepare(number)
        self.issuer.begin(number)
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
        if same:
            self._spent = self._spent.union(self._store.reporters(ended.number))
        else:
            self._spent = set()
        try:
            self.issuer.begin(number)
        except StoreError as error:
            _log.warning("%s", error)


def adopt_tokens(store: Store, file: Path) -> None:
    """Take keys and purchases from the file of earlier versions into the store; nothing where there is no such file.

    The file stays beside it under another name, for who goes back to the earlier version.

    Raises:
        StoreError: The file belongs to another hub, cannot be read, or the store cannot be written.
    """
    if not file.exists():
        return
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True)) as old:
            old.execute("PRAGMA journal_mode = DELETE")  # one file, without others beside it
            names = {name for (name,) in old.execute("SELECT name FROM sqlite_master")}
            hub = old.execute("SELECT name FROM hub").fetchone() if "hub" in names else None
            keys = old.execute("SELECT epoch, public, private FROM issuer").fetchall()
            bought = old.execute("SELECT epoch, device, digest FROM purchase").fetchall()
    except sqlite3.Error as error:
        raise StoreError(f"{file}: cannot be read as a hub's tokens ({error}).") from error
    if hub is not None and hub[0] != store.name:
        raise StoreError(
            f"{file}: belongs to the hub {hub[0][:8]}, and not to {store.name[:8]}. Put this hub's own file back from "
            "a backup; of a new hub, move that one away."
        )
    with store.transaction() as db:
        db.executemany("INSERT INTO issuer VALUES (?, ?, ?) ON CONFLICT DO NOTHING", keys)
        db.executemany("INSERT INTO purchase VALUES (?, ?, ?) ON CONFLICT DO NOTHING", bought)
    file.replace(file.with_name(f"{file.name}.version-2"))
