"""One party of a secure sum: the only code that sees its vector and its secrets.

A party is used for one sum and goes through its four steps in order, each once::

    advertise → share → mask → unmask

What it refuses is what protects it: a step out of order or twice, another session, a roster with too few or repeated
keys, shares that were changed on the way, and to unmask for fewer survivors than agreed. After a refusal it takes no
further part. Asked once, with one mark a neighbour, it gives of each neighbour either the share of the seed or the
share of the mask key, never both.
"""

from __future__ import annotations

import json
import secrets
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from jaxtyping import Integer, Shaped, UInt8, UInt32

from fedrank.core.arrays import AnyArray
from fedrank.core.errors import ConfigError, SecureSumError
from fedrank.privacy.secure_sum import crypto
from fedrank.privacy.secure_sum.messages import (
    KEY,
    SEALED,
    Advertisement,
    Delivery,
    Invitation,
    MaskedVector,
    Roster,
    SealedShares,
    Terms,
    UnmaskReply,
    UnmaskRequest,
)

_STEPS = ("advertise", "share", "mask", "unmask")


class Party:
    """One party's part in one secure sum.

    Args:
        terms: What was agreed upon beforehand.
        number: The party's number in the cohort, in 0 .. 2³² − 1.
    """

    def __init__(self, terms: Terms, number: int):
        self.terms, self.number = terms, number
        self._done = 0
        self._session = b""
        self._seal_key, self._mask_key = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        self._seed = secrets.token_bytes(KEY)

    def advertise(self, invitation: Invitation) -> Advertisement:
        """The party's two public keys, fresh for this sum.

        Args:
            invitation: The server's first message.
        """
        self._enter("advertise", None)
        self._session = to_bytes(invitation.session)
        seal_key, mask_key = (to_array(crypto.public_key(key)) for key in (self._seal_key, self._mask_key))
        return Advertisement(invitation.session, np.uint32(self.number), seal_key, mask_key)

    def share(self, roster: Roster) -> SealedShares:
        """Shares of both secrets, one of each sealed for every neighbour.

        Raises:
            SecureSumError: The roster lists another number of neighbours, the party itself, or a key twice.
        """
        self._enter("share", roster.session)
        neighbours = np.asarray(roster.parties).tolist()
        seal_keys, mask_keys = (rows(keys, KEY) for keys in (roster.seal_keys, roster.mask_keys))
        distinct = {*neighbours, self.number}
        if len(neighbours) != self.terms.neighbours or len(distinct) != self.terms.holders:
            self._refuse(f"the roster must list {self.terms.neighbours} other parties, each once; got {neighbours}")
        own = [crypto.public_key(key) for key in (self._seal_key, self._mask_key)]
        if len({*seal_keys, *mask_keys, *own}) != 2 * self.terms.holders:
            self._refuse("a public key is listed twice: a party poses as two")
        self._seal_keys = dict(zip(neighbours, seal_keys, strict=True))
        self._mask_keys = dict(zip(neighbours, mask_keys, strict=True))

        holders = sorted(distinct)
        split = [
            crypto.split_secret(secret, self.terms.threshold, self.terms.holders)
            for secret in (self._mask_key.private_bytes_raw(), self._seed)
        ]
        shares = {holder: (split[0][i], split[1][i]) for i, holder in enumerate(holders)}
        self._own_share = shares[self.number][1]
        sealed = [
            crypto.seal(self._pair_key(other, self.number, other), b"".join(shares[other]), self._session)
            for other in sorted(neighbours)
        ]
        commitment = crypto.derive(self._seed, self._session, "commitment")
        return SealedShares(roster.session, np.uint32(self.number), to_array(commitment), to_rows(sealed))

    def mask(self, delivery: Delivery, vector: Shaped[np.ndarray, "..."]) -> MaskedVector:
        """The vector under the self mask and one mask a present neighbour, which cancels in the sum.

        Args:
            delivery: What the neighbours sealed.
            vector: uint32 [length].

        Raises:
            ConfigError: The vector is not of the agreed form.
            SecureSumError: Too few neighbours are present, or their shares are not theirs.
        """
        if vector.dtype != np.uint32 or vector.shape != (self.terms.length,):
            raise ConfigError(
                f"vector of a secure sum must be uint32 [{self.terms.length}], got {vector.dtype} "
                f"{list(vector.shape)}. Use fedrank.privacy.quantise for numbers with a point."
            )
        self._enter("mask", delivery.session)
        present = self._find_marked_neighbours(delivery.present)
        self._check_enough(len(present) + 1, "sent shares")
        sealed = dict(zip(sorted(self._seal_keys), rows(delivery.sealed, SEALED), strict=True))
        self._held: dict[int, tuple[bytes, bytes]] = {}
        masked = vector + crypto.mask(crypto.derive(self._seed, self._session, "self mask"), self.terms.length)
        for other in present:
            try:
                both = crypto.unseal(self._pair_key(other, other, self.number), sealed[other], self._session)
            except SecureSumError as error:
                self._refuse(f"from party {other}: {error}")
            self._held[other] = both[:KEY], both[KEY:]
            pair = pair_mask(self._mask_key, self._mask_keys[other], self._session, self.terms.length)
            masked = masked + pair if self.number < other else masked - pair
        return MaskedVector(delivery.session, np.uint32(self.number), masked)

    def unmask(self, request: UnmaskRequest) -> UnmaskReply:
        """Of each neighbour that shared: the share of its seed if it survived, else the share of its mask key.

        Raises:
            SecureSumError: Fewer survivors than agreed, a survivor that never shared, or asked a second time: the two
                shares of one neighbour never leave both.
        """
        self._enter("unmask", request.session)
        survived = self._find_marked_neighbours(request.survived)
        if strangers := [other for other in survived if other not in self._held]:
            self._refuse(f"the server says that {strangers} survived, who were gone before vectors were sent")
        self._check_enough(len(survived) + 1, "survived")
        shares = []
        for other in sorted(self._seal_keys):
            key_share, seed_share = self._held.get(other, (bytes(KEY), bytes(KEY)))
            shares.append(seed_share if other in survived else key_share)
        return UnmaskReply(request.session, np.uint32(self.number), to_array(self._own_share), to_rows(shares))

    def pack(self) -> bytes:
        """Everything that the party has to remember between two steps: its secrets, in the clear.

        For a party whose process ends in between. Whoever reads it can take off the party's masks.
        """
        kept: dict[str, object] = {
            "number": self.number,
            "done": self._done,
            "session": self._session.hex(),
            "seal_key": self._seal_key.private_bytes_raw().hex(),
            "mask_key": self._mask_key.private_bytes_raw().hex(),
            "seed": self._seed.hex(),
        }
        for name in ("_seal_keys", "_mask_keys"):
            kept[name] = {other: key.hex() for other, key in getattr(self, name, {}).items()}
        kept["_own_share"] = getattr(self, "_own_share", b"").hex()
        kept["_held"] = {other: [share.hex() for share in both] for other, both in getattr(self, "_held", {}).items()}
        return json.dumps(kept).encode()

    @classmethod
    def unpack(cls, terms: Terms, kept: bytes) -> Party:
        """The party as it was when it was :meth:`pack`."""
        values = json.loads(kept)
        party = cls(terms, values["number"])
        party._done, party._session = values["done"], bytes.fromhex(values["session"])
        party._seal_key, party._mask_key = (
            X25519PrivateKey.from_private_bytes(bytes.fromhex(values[name])) for name in ("seal_key", "mask_key")
        )
        party._seed, party._own_share = bytes.fromhex(values["seed"]), bytes.fromhex(values["_own_share"])
        for name in ("_seal_keys", "_mask_keys"):
            setattr(party, name, {int(other): bytes.fromhex(key) for other, key in values[name].items()})
        party._held = {
            int(other): (bytes.fromhex(pair[0]), bytes.fromhex(pair[1])) for other, pair in values["_held"].items()
        }
        return party

    def _enter(self, step: str, session: Integer[AnyArray, " bytes"] | None) -> None:
        """Begin a step; refused if it is out of order, repeated or of another session."""
        if self._done >= len(_STEPS) or _STEPS[self._done] != step:
            self._refuse(f"asked to {step} out of order or a second time")
        if session is not None and to_bytes(session) != self._session:
            self._refuse(f"asked to {step} in another session than the one it takes part in")
        self._done += 1

    def _find_marked_neighbours(self, flags: Integer[AnyArray, " neighbours"]) -> list[int]:
        """Numbers of the neighbours whose flag is set."""
        return [other for other, flag in zip(sorted(self._seal_keys), np.asarray(flags).tolist(), strict=True) if flag]

    def _check_enough(self, count: int, what: str) -> None:
        if count < self.terms.threshold:
            self._refuse(
                f"{count} of this party and its {self.terms.neighbours} neighbours {what}, "
                f"{self.terms.threshold} are needed"
            )

    def _pair_key(self, other: int, sender: int, receiver: int) -> bytes:
        """The key under which ``sender`` seals for ``receiver``; both can compute it."""
        secret = crypto.agree(self._seal_key, self._seal_keys[other])
        return crypto.derive(
            secret, self._session, "seal", sender.to_bytes(4, "little"), receiver.to_bytes(4, "little")
        )

    def _refuse(self, why: str) -> NoReturn:
        self._done = len(_STEPS)  # a party that refused once takes no further part
        raise SecureSumError(f"party {self.number} refuses: {why}.")


def pair_mask(
    private: X25519PrivateKey | bytes, public: bytes, session: bytes, length: int
) -> UInt32[np.ndarray, "{length}"]:
    """The mask that two parties share: the one of the smaller number adds it, the other subtracts it.

    Args:
        private: One of the two's private mask key.
        public: The other's public mask key.
        session: Name of the sum.
        length: Numbers in a vector.

    Returns:
        uint32 [length], the same from either side.
    """
    pair = sorted((crypto.public_key(private), public))
    return crypto.mask(crypto.derive(crypto.agree(private, public), session, "pair mask", *pair), length)


def to_bytes(octets: Integer[AnyArray, "..."]) -> bytes:
    """A message's array of bytes, of whatever integer type decoding gave it, as bytes."""
    return np.asarray(octets).astype(np.uint8).tobytes()


def to_array(octets: bytes) -> UInt8[np.ndarray, " length"]:
    """Bytes as a message holds them: uint8 [length]."""
    return np.frombuffer(octets, np.uint8)


def to_rows(pieces: list[bytes]) -> UInt8[np.ndarray, "pieces length"]:
    """Pieces of the same length as a message holds them: uint8 [pieces, length]."""
    return to_array(b"".join(pieces)).reshape(len(pieces), -1)


def rows(octets: Integer[AnyArray, "..."], width: int) -> list[bytes]:
    """A message's array of bytes, cut into pieces of ``width``."""
    whole = to_bytes(octets)
    return [whole[i : i + width] for i in range(0, len(whole), width)]
