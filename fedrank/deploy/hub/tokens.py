"""Sells the tokens of a hub's epochs, verifies them when they are spent, and draws by them.

An epoch is a number of rounds. The tokens of an epoch are sold in the epoch before, while a round of it is open: a
purchase is committed under a unique key, and only with an open round, before anything is signed. So a device gets one
token an epoch at whichever process it asks, and none once the last round of the epoch before has closed.

Only then the draws of the epoch's tokens are decided. The beacon (:class:`fedrank.deploy.draws.Beacon`) is
made of a secret, whose hash is published with the epoch's key, and of the reports of the round that has closed, whose
hash is in the public log before a model is made of them. A buyer knows neither: a nonce that was chosen among many
draws as one that was not.

The hash of what a device asked for is kept until the epoch is over, so that the same question has the same answer
after a crash of either side, and another question has none. Then the private key is deleted, and who bought.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from fedrank.core.errors import WireError
from fedrank.core.trees import Json
from fedrank.deploy.draws import Beacon
from fedrank.deploy.hub.stages import OpenRound, Stage
from fedrank.deploy.hub.store import Store, StoreError
from fedrank.deploy.log.tree import REPORTS, beacon_entry, numbered_hash, offer_entry, reports_entry
from fedrank.deploy.oblivious.tokens import (
    EXPONENT,
    MODULUS,
    PublicKey,
    Signer,
    Verifier,
    blinded_in,
    content_of,
    decode_key,
    encode_key,
    epoch_challenge,
    key_id,
    key_id_in,
    offer_of,
    parts_of,
)
from fedrank.deploy.terms import Terms

_log = logging.getLogger("fedrank.hub")

#: Answers that are kept to be given again without signing anew.
_KEPT = 4096


class _Epoch(NamedTuple):
    """An epoch whose tokens are verified; without a beacon it was not drawn yet."""

    number: int
    offer: bytes
    verifier: Verifier
    challenge: bytes
    beacon: Beacon | None


class Issuer(Stage):
    """Sells and verifies a hub's tokens.

    Args:
        store: The hub's store.
        terms: Terms of the hub, which have tokens.
        collects: A coordinator opens the rounds, and may leave some out.

    Raises:
        StoreError: The store cannot be read.
        MissingExtraError: gmpy2 is not installed.
    """

    def __init__(self, store: Store, terms: Terms, collects: bool = False):
        self._store, self._terms, self._collects = store, terms, collects
        self._signers: dict[int, Signer] = {}  # of epochs that are not over
        self._epochs: dict[int, _Epoch] = {}
        self._by_key: dict[bytes, _Epoch] = {}  # by the key's identifier
        self._kept: dict[bytes, bytes] = {}  # digest of a request → answer; only the loop uses it
        self._pool = ThreadPoolExecutor(1, "fedrank-issuer")
        self._round = 0

    def reread(self) -> None:
        """Know the epochs that are in the store, also where a key took the place of another."""
        epochs: dict[int, _Epoch] = {}
        signers: dict[int, Signer] = {}
        for epoch, offer, private, secret, reports, sales in self._store.issuer_keys():
            key, commitment = parts_of(offer)
            known = self._epochs.get(epoch)
            same = known is not None and known.offer == offer
            verifier = known.verifier if known is not None and same else Verifier(decode_key(key))
            beacon = None if reports is None else Beacon(secret, reports, sales or 0)
            epochs[epoch] = _Epoch(epoch, offer, verifier, epoch_challenge(self._store.name, epoch, commitment), beacon)
            if private is not None:
                signers[epoch] = (same and self._signers.get(epoch)) or _signer(private)
        # The loop reads these while the writer's thread is here: they are replaced, never changed.
        self._epochs, self._signers = epochs, signers
        self._by_key = {key_id(parts_of(one.offer)[0]): one for one in epochs.values()}

    # ------------------------------------------------------------------------------------------------------- epochs

    def recover(self, number: int) -> None:
        """Have what a round needs, and forget what earlier ones needed."""
        self.reread()
        self.prepare(number)
        self._end_epochs(number)

    def settle(self, number: int) -> None:
        """Write the reports of a closed round into the public log, before a model is made of them.

        Only those that the next epoch's beacon is made of; may be repeated.

        Raises:
            StoreError: It cannot be written.
        """
        last = self._collects or self._terms.epoch_of(number + 1) != self._terms.epoch_of(number)
        if self._terms.log and last:
            entry = reports_entry(number, numbered_hash(self._store.reports(number)))
            if self._store.newest_entry(REPORTS) != entry:
                self._store.append_entry(entry)

    def prepare(self, number: int) -> None:
        """Have the key of the epoch after a round's, and the beacon of this one, before a device sees the round.

        Raises:
            StoreError: They cannot be written.
        """
        now, store = self._terms.epoch_of(number), self._store
        self._round = number
        if now + 1 not in self._signers:
            store.add_issuer_key(now + 1, *new_offer())
            self.reread()
        here = self._epochs.get(now)
        if here is not None and here.beacon is None:
            if store.leads:
                store.draw_epoch(now, numbered_hash(store.reports(store.round_before(number))))
            self.reread()

    def begin(self, number: int, ended: OpenRound) -> None:
        """Delete what belongs to epochs that are over; where that cannot be written, the next epoch does it."""
        try:
            self._end_epochs(number)
        except StoreError as error:
            _log.warning("%s", error)

    def _end_epochs(self, number: int) -> None:
        first = self._terms.epoch_of(number)
        if any(epoch < first for epoch in self._signers):
            if self._store.leads:
                self._store.end_epochs(first)
            self._signers = {epoch: one for epoch, one in self._signers.items() if epoch >= first}

    def on_sale(self) -> tuple[int, bytes] | None:
        """Epoch and offer of the tokens that are sold now; None: there are none yet."""
        return self.offer(self._round)

    def offer(self, number: int) -> tuple[int, bytes] | None:
        """Epoch and offer of the tokens that are sold in a round; None: the key is not here yet."""
        one = self._epochs.get(self._terms.epoch_of(number) + 1)
        return None if one is None else (one.number, one.offer)

    def beacon(self, number: int) -> Beacon | None:
        """Beacon of a round's epoch; None where no token is good: in the first epoch, and in one that is void."""
        one = self._epochs.get(self._terms.epoch_of(number))
        return None if one is None or one.beacon is None or one.beacon.sales < self._terms.least_sales else one.beacon

    def status(self) -> dict[str, Json]:
        """Tokens that were sold of the open epoch, None before it was drawn; true where they are too few to count."""
        one = self._epochs.get(self._terms.epoch_of(self._round))
        sales = None if one is None or one.beacon is None else one.beacon.sales
        return {
            "sales": sales,
            "least_sales": self._terms.least_sales,
            "void": sales is not None and sales < self._terms.least_sales,
        }

    def entries(self) -> list[bytes]:
        """Entries of the public log that devices need: the offer, and the beacon of the open epoch."""
        now = self._terms.epoch_of(self._round)
        ahead, here = self._epochs.get(now + 1), self._epochs.get(now)
        entries = [] if ahead is None else [offer_entry(now + 1, ahead.offer)]
        if here is not None and here.beacon is not None:
            entries.append(beacon_entry(now, here.beacon.value, here.beacon.sales))
        return entries

    # ------------------------------------------------------------------------------------------------------ spending

    def epoch_in(self, token: bytes) -> int | None:
        """The epoch that a token is good for; None if it is not one of this hub's tokens."""
        epoch = self._by_key.get(key_id_in(token))
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
        signer, one = self._signers.get(epoch), self._epochs.get(epoch)
        if signer is None or one is None:
            return "wrong-epoch"
        with contextlib.suppress(WireError):
            if signer.usable(blinded_in(request, parts_of(one.offer)[0])):
                return ""
        return "malformed"

    async def sign(self, epoch: int, request: bytes, digest: bytes) -> bytes | str:
        """The token response to a request whose purchase was committed; ``"wrong-epoch"`` where the epoch has ended.

        Args:
            epoch: Number of the epoch.
            request: Token request of RFC 9578, which is not refused.
            digest: Its SHA-256.
        """
        signed = self._kept.get(digest)
        if signed is None:
            try:
                signer, offer = self._signers[epoch], self._epochs[epoch].offer
                blinded = blinded_in(request, parts_of(offer)[0])
            except (KeyError, WireError):  # the epoch ended or its key was changed while the purchase waited
                return "wrong-epoch"
            signed = await asyncio.get_running_loop().run_in_executor(self._pool, signer.sign, blinded)
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            self._kept[digest] = signed
        return signed


def _signer(private: bytes) -> Signer:
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    loaded: Any = load_der_private_key(private, None)
    return Signer(loaded)


def new_offer() -> tuple[bytes, bytes, bytes]:
    """A new offer of an epoch's tokens: the offer, the private key, the secret."""
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key, secret = generate_private_key(EXPONENT, 8 * MODULUS), secrets.token_bytes(32)
    private = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    published = encode_key(PublicKey(key.public_key().public_numbers().n))
    return offer_of(published, hashlib.sha256(secret).digest()), private, secret
