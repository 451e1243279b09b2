"""Signed heads of a log, in the formats of C2SP: signed-note, tlog-checkpoint and tlog-cosignature.

A checkpoint is three lines of text (the log's name, the number of its leaves, the hash of its tree), one more where the
log has notices (:mod:`fedrank.deploy.log.proof`), an empty line, and lines of signatures: one of the log, and one of
each witness that has seen that the log only grew. Notices follow from the entries: one size has one text. Ed25519
through ``cryptography``, which is imported when something is signed or verified.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from fedrank.core.errors import ConfigError, WireError
from fedrank.deploy.log.tree import MOST, numbered_hash

#: Types of signatures: of a log, and of a witness with its time.
LOG, WITNESS = 1, 4
#: Largest checkpoint in bytes, and most signatures that are looked at.
LARGEST, SIGNATURES = 16_384, 64
_NAME = re.compile(r"[^\s+]{1,200}")
_NOTICES = "notices "


@dataclass(frozen=True)
class Key:
    """A public key with its name: whose signature lines are looked at.

    Attributes:
        name: Without spaces and plus signs.
        kind: :data:`LOG` or :data:`WITNESS`.
        public: Ed25519, 32 bytes.
    """

    name: str
    kind: int
    public: bytes

    @property
    def id(self) -> bytes:
        """Identifier of the key in signature lines, 4 bytes."""
        return hashlib.sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.public).digest()[:4]

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{base64.b64encode(bytes([self.kind]) + self.public).decode()}"

    @classmethod
    def parse(cls, text: str, kind: int) -> Key:
        """The inverse of ``str``, a "vkey".

        Raises:
            ConfigError: It is not a key of this kind, or its identifier is not its own.
        """
        try:
            name, identifier, coded = text.strip().split("+", 2)
            raw = base64.b64decode(coded, validate=True)
            key = cls(name, raw[0], raw[1:])
            right = key.id == bytes.fromhex(identifier) and len(key.public) == 32 and _NAME.fullmatch(name)
        except (ValueError, AttributeError, IndexError):
            right = False
        if not right or key.kind != kind:
            whose = "witness" if kind == WITNESS else "log"
            raise ConfigError(
                f"{text!r:.120} is not the public key of a {whose}: NAME+HEX+BASE64, as its operator shows it."
            )
        return key


def origin_of(hub: str) -> str:
    """Name of a hub's log: the first line of its checkpoints.

    Args:
        hub: Name of the hub, 32 hexadecimal digits.
    """
    return f"fedrank/{hub}"


@dataclass(frozen=True)
class Checkpoint:
    """A head of a log, with its signatures as they came; none of them has been verified.

    Attributes:
        origin: Name of the log.
        size: Number of its leaves.
        root: Hash of its tree, 32 bytes.
        text: The text that is signed, with its last newline.
        signatures: Name and bytes of each signature: 4 bytes of the key's identifier, then the signature.
    """

    origin: str
    size: int
    root: bytes
    text: str
    signatures: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def of(cls, origin: str, size: int, root: bytes, notices: Iterable[tuple[int, bytes]] = ()) -> Checkpoint:
        """A head without signatures; notices are given by number and entry."""
        text = f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"
        return cls(origin, size, root, text + _notices_line(list(notices)))

    @classmethod
    def parse(cls, note: str) -> Checkpoint:
        """A checkpoint from its text.

        Raises:
            WireError: It is none.
        """
        try:
            if len(note) > LARGEST or any(c < " " and c != "\n" for c in note):
                raise ValueError("too long, or with control characters")
            text, _, lines = note.rpartition("\n\n")
            origin, size, root, *_ = text.split("\n")
            found = cls(origin, _size(size), decode_base64(root), text + "\n", tuple(_signatures(lines)))
            if not origin or len(found.root) != 32 or "" in text.split("\n") or not found.signatures:
                raise ValueError("a line is empty or missing")
            return found
        except ValueError as error:
            raise WireError(f"not a checkpoint of a log: {error}") from error

    def binds(self, notices: Iterable[tuple[int, bytes]]) -> bool:
        """True if these notices, by number and entry, and no others are those of the text that is signed."""
        lines = [f"{line}\n" for line in self.text.split("\n")[3:] if line.startswith(_NOTICES)]
        return "".join(lines) == _notices_line(list(notices))

    def with_lines(self, lines: str) -> str:
        """The note with these signature lines."""
        return f"{self.text}\n{lines}"

    def is_signed_by(self, key: Key) -> bool:
        """True if a log signed it; a wrong signature under its name and identifier makes the whole note wrong."""
        found = [raw[4:] for name, raw in self.signatures if (name, raw[:4]) == (key.name, key.id)]
        return bool(found) and all(verify(key.public, one, self.text.encode()) for one in found)

    def cosigned_by(self, key: Key) -> int | None:
        """Time at which a witness cosigned it, in seconds since 1970; None: it did not."""
        times = [
            int.from_bytes(raw[4:12], "big")
            for name, raw in self.signatures
            if (name, raw[:4]) == (key.name, key.id)
            and len(raw) == 76
            and verify(key.public, raw[12:], _cosignature(int.from_bytes(raw[4:12], "big"), self.text))
        ]
        return max(times, default=None)


class Signer:
    """A private key with its name.

    Args:
        name: Of the log or the witness.
        kind: :data:`LOG` or :data:`WITNESS`.
        private: Ed25519, 32 bytes.
    """

    def __init__(self, name: str, kind: int, private: bytes):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._private = Ed25519PrivateKey.from_private_bytes(private)
        self.key = Key(name, kind, self._private.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """The signature under a message, 64 bytes."""
        return self._private.sign(message)

    def line(self, checkpoint: Checkpoint, time: int = 0) -> str:
        """The signature line under a checkpoint; a witness says when, in seconds since 1970."""
        if self.key.kind == LOG:
            raw = self.sign(checkpoint.text.encode())
        else:
            raw = time.to_bytes(8, "big") + self.sign(_cosignature(time, checkpoint.text))
        return f"— {self.key.name} {base64.b64encode(self.key.id + raw).decode()}\n"


def new_private_key() -> bytes:
    """A new Ed25519 private key, 32 bytes."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.generate().private_bytes_raw()


def decode_base64(text: str) -> bytes:
    """Bytes from base64 in its one canonical form.

    Raises:
        ValueError: It is not.
    """
    raw = base64.b64decode(text, validate=True)
    if base64.b64encode(raw).decode() != text:
        raise binascii.Error("base64 in another form")
    return raw


def _cosignature(time: int, text: str) -> bytes:
    return f"cosignature/v1\ntime {time}\n{text}".encode()


def _notices_line(notices: list[tuple[int, bytes]]) -> str:
    return f"{_NOTICES}{base64.b64encode(numbered_hash(notices)).decode()}\n" if notices else ""


def _size(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 16 or (text[0] == "0" and text != "0"):
        raise ValueError("a size that is not a number")
    size = int(text)
    if size > MOST:
        raise ValueError("a size beyond all trees")
    return size


def _signatures(lines: str) -> list[tuple[str, bytes]]:
    if not lines.endswith("\n") or lines.count("\n") > SIGNATURES:
        raise ValueError("signature lines without an end, or too many")
    found = []
    for line in lines[:-1].split("\n"):
        dash, name, coded = line.split(" ")
        if dash != "—" or not _NAME.fullmatch(name):
            raise ValueError("a line that is no signature")
        found.append((name, decode_base64(coded)))
    return found


def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    """True if a signature of 64 bytes is that of an Ed25519 key of 32 bytes under a message."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
