"""A silo's key: it signs the silo's answers, and agrees with the other silos' keys on the masks of secure sums.

One file holds 32 random bytes. By HKDF-SHA256 two private keys follow from them: that of Ed25519 signs, that of X25519
agrees. The public line in the codebook holds both public keys. What is signed is a message without its signature as
JSON with sorted keys. It names its kind, codebook, round and silo, so that the signature is good for no other message.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrank.core.errors import ConfigError, FormatError
from fedrank.core.trees import Json
from fedrank.privacy.secure_sum.crypto import derive, public_key
from fedrank.silos.studies.codebook import HALF_KEY, from_text, to_text


@dataclass(frozen=True)
class Key:
    """A private key.

    Attributes:
        seed: 32 random bytes; without them a new key.
    """

    seed: bytes = field(default_factory=lambda: secrets.token_bytes(HALF_KEY), repr=False)

    @functools.cached_property
    def _signing(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(derive(self.seed, _SALT, "signatures"))

    @functools.cached_property
    def masking(self) -> X25519PrivateKey:
        """The key by which silos agree on masks."""
        return X25519PrivateKey.from_private_bytes(derive(self.seed, _SALT, "masks"))

    @functools.cached_property
    def public(self) -> str:
        """The line of the codebook: the public keys of Ed25519 and X25519, 64 bytes in base64."""
        return to_text(self._signing.public_key().public_bytes_raw() + public_key(self.masking))

    def sign(self, content: Mapping[str, Json]) -> str:
        """The signature of a message without its signature, 64 bytes in base64; the same one each time."""
        return to_text(self._signing.sign(canonical(content)))


#: File of the private key in the folder of a silo, and of a coordinator.
KEY = "key"
_SALT = b"fedrank study"


def is_signed(content: Mapping[str, Json], signature: str, public: str) -> bool:
    """True if the owner of a public line signed this content.

    Args:
        content: A message without its signature.
        signature: In base64.
        public: The line of the codebook.
    """
    try:
        signing = Ed25519PublicKey.from_public_bytes(from_text(public)[:HALF_KEY])
        signing.verify(from_text(signature), canonical(content))
    except (InvalidSignature, ValueError):  # no base64, or no point of the curve
        return False
    return True


def masking_key(public: str) -> bytes:
    """The public X25519 key in a line of the codebook."""
    return from_text(public)[HALF_KEY:]


def canonical(content: Mapping[str, Json]) -> bytes:
    """The bytes that are hashed and signed; numbers are written so that they are read back to the last bit."""
    return json.dumps(content, sort_keys=True).encode()


def make_key(path: Path) -> Key:
    """Make a private key in a file that only its owner reads.

    Raises:
        ConfigError: There is a key.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    key = Key()
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(key.seed)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise ConfigError(f"{path} exists; a key is not written over.") from None
    return key


def read_key(path: Path) -> Key:
    """A private key from its file.

    Raises:
        ConfigError: There is none.
        FormatError: The file holds no key.
    """
    try:
        seed = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no key; fedrank silos key makes one.") from None
    if len(seed) != HALF_KEY:
        raise FormatError(f"a key has {HALF_KEY} bytes, got {len(seed)}.", path)
    return Key(seed)
