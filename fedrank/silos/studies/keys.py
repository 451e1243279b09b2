"""A silo's key: it signs the silo's answers, and agrees with the other silos' keys on the masks of secure sums.

One file holds 32 random bytes. By HKDF-SHA256 two private keys follow from them: that of Ed25519 signs, that of X25519
agrees. The public line in the codebook holds both public keys. What is signed is a message without its signature as
JSON with sorted keys. It names its kind, codebook, round and silo, so that the signature is good for no other message.

**Masks** cancel in the sum of all silos' answers, so that no silo's own answer can be read. Each pair of silos agrees
on a secret by X25519, from the public keys in the codebook, and of it and the ask on a mask: the one adds it, the other
subtracts it. A number is rounded to a multiple of 2⁻⁸⁰, and all is modulo 2²²⁴, which sums of 2³¹ silos do not run
over. Protected is a silo's own answer, from the coordinator and from all silos but those who all work together against
it: what they see is uniform but for the sum. Not protected is the sum; and where a silo falls away and the others
answer again, the difference of two sums, if both came about.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from jaxtyping import Float, UInt32

from fedrank.core.errors import ConfigError, DataError, FormatError
from fedrank.core.trees import Json
from fedrank.privacy.secure_sum.crypto import derive, public_key
from fedrank.privacy.secure_sum.party import pair_mask
from fedrank.silos.studies.codebook import FEWEST, HALF_KEY, from_text, to_text
from fedrank.silos.studies.protocol import Ask


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


#: Words of 32 bits of a number, its bits after the point, and before it.
WORDS, AFTER, MOST_BITS = 7, 80, 112
_MODULUS = 1 << 32 * WORDS


def add_masks(
    numbers: Float[np.ndarray, " numbers"],
    silo: str,
    key: Key,
    silos: Sequence[str],
    keys: Mapping[str, str],
    context: bytes,
) -> UInt32[np.ndarray, " words"]:
    """A silo's answer with its masks.

    Args:
        numbers: The answer.
        silo: The silo's name.
        key: Its private key.
        silos: All silos of the sum, this one among them.
        keys: Public lines of the codebook by name.
        context: What the sum is of (:func:`context_of`), the same at all silos and never twice.

    Raises:
        ConfigError: The silos are too few, or this one is not among them.
        DataError: A number is not finite or too large.
    """
    if silo not in silos or len(silos) < FEWEST:
        raise ConfigError(f"a secure sum of {', '.join(silos)} hides nothing of {silo}; {FEWEST} silos are needed.")
    whole = _to_whole(numbers)
    for other in silos:
        if other != silo:
            words = pair_mask(key.masking, from_text(keys[other])[HALF_KEY:], context, WORDS * len(whole))
            sign = 1 if silo < other else -1
            whole = [number + sign * shared for number, shared in zip(whole, _from_words(words), strict=True)]
    return _to_words(whole)


def context_of(codebook: str, question: str, attempt: int, ask: Ask, silos: Sequence[str]) -> bytes:
    """A hash of what a sum is of."""
    content = {
        "codebook": codebook,
        "question": question,
        "attempt": attempt,
        "step": ask.step,
        "numbers": {name: np.asarray(value).tolist() for name, value in ask.numbers.items()},
        "silos": list(silos),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()


def unmask(answers: Sequence[UInt32[np.ndarray, " words"]]) -> Float[np.ndarray, " numbers"]:
    """The sum of the answers of all silos of a sum."""
    sums = [sum(numbers) % _MODULUS for numbers in zip(*map(_from_words, answers), strict=True)]
    # Dividing integers rounds once.
    return np.array([(one - _MODULUS if 2 * one >= _MODULUS else one) / 2**AFTER for one in sums])


def _to_whole(values: Float[np.ndarray, " numbers"]) -> list[int]:
    """Numbers as multiples of 2⁻⁸⁰."""
    for value in values.tolist():
        if not math.isfinite(value) or abs(value) >= 2.0**MOST_BITS:
            raise DataError(f"a number of a secure sum must be finite and below 10^33, got {value:g}.")
    return [round(math.ldexp(value, AFTER)) for value in values.tolist()]


def _to_words(whole: Sequence[int]) -> UInt32[np.ndarray, " words"]:
    """Whole numbers modulo 2²²⁴ as words of 32 bits, the lowest first."""
    octets = b"".join((number % _MODULUS).to_bytes(4 * WORDS, "little") for number in whole)
    return np.frombuffer(octets, "<u4").astype(np.uint32)


def _from_words(words: UInt32[np.ndarray, " words"]) -> list[int]:
    """The inverse of :func:`_to_words`, from 0 on."""
    octets = words.astype("<u4").tobytes()
    return [int.from_bytes(octets[at : at + 4 * WORDS], "little") for at in range(0, len(octets), 4 * WORDS)]
