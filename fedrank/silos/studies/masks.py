"""Secure sums of answers: masks that cancel in the sum of all silos, so that no silo's own answer can be read.

Each pair of silos agrees on a secret by X25519, from the public keys in the codebook, and of it and the ask on a mask:
the one adds it, the other subtracts it, modulo 2³². A number is rounded to a multiple of 2⁻⁸⁰ and cut into signed
digits of 16 bits in words of 32, so that digits of up to 32,767 silos add up without running over. Protected is a
silo's own answer, from the coordinator and from all silos but those who all work together against it; digits are not
carried, so that their sums tell a little more than the sum. Not protected is the sum; and where a silo falls away and
the others answer again, the difference of two sums, if both came about.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from jaxtyping import Float, UInt32

from fedrank.core.errors import ConfigError, DataError, FormatError
from fedrank.privacy.secure_sum.crypto import public_key
from fedrank.privacy.secure_sum.party import pair_mask
from fedrank.silos.studies.codebook import FEWEST, from_text, to_text
from fedrank.silos.studies.protocol import Ask

#: Digits of a number, bits of a digit, and bits after the point.
DIGITS, BITS, AFTER = 12, 16, 80


def make_key(path: Path) -> str:
    """Make a silo's private key in a file that only its owner reads; return the public one.

    Raises:
        ConfigError: There is a key.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    key = X25519PrivateKey.generate()
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(key.private_bytes_raw())
    except FileExistsError:
        raise ConfigError(f"{path} exists; a silo's key is not written over.") from None
    return to_text(public_key(key))


def read_key(path: Path) -> X25519PrivateKey:
    """A silo's private key.

    Raises:
        ConfigError: There is none.
        FormatError: The file holds no key.
    """
    try:
        return X25519PrivateKey.from_private_bytes(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{path}: this silo has no key; fedrank silos key makes one.") from None
    except ValueError as cause:
        raise FormatError("this is no key of a silo.", path) from cause


def add_masks(
    numbers: Float[np.ndarray, " numbers"],
    silo: str,
    key: X25519PrivateKey,
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
        keys: Public keys by name.
        context: What the sum is of (:func:`context_of`), the same at all silos and never twice.

    Raises:
        ConfigError: The silos are too few, this one is not among them, or its key is not the codebook's.
    """
    if silo not in silos or len(silos) < FEWEST:
        raise ConfigError(f"a secure sum of {', '.join(silos)} hides nothing of {silo}; {FEWEST} silos are needed.")
    if to_text(public_key(key)) != keys[silo]:
        raise ConfigError(f"the key of {silo} is not the one that the codebook names.")
    out = to_words(numbers)
    for other in silos:
        if other != silo:
            shared = pair_mask(key, from_text(keys[other]), context, len(out))
            out = out + shared if silo < other else out - shared
    return out


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


def unmask(words: Sequence[UInt32[np.ndarray, " words"]]) -> Float[np.ndarray, " numbers"]:
    """The sum of the answers of all silos of a sum."""
    return from_words(np.asarray(np.sum(words, axis=0, dtype=np.uint32)))


def to_words(values: Float[np.ndarray, " numbers"]) -> UInt32[np.ndarray, " words"]:
    """Numbers as signed digits modulo 2³², the lowest first.

    Raises:
        DataError: A number is not finite or too large.
    """
    words = np.zeros((len(values), DIGITS), np.int64)
    for row, value in enumerate(values.tolist()):
        if not math.isfinite(value) or abs(value) >= 2.0 ** (DIGITS * BITS - AFTER):
            raise DataError(f"a number of a secure sum must be finite and below 10^33, got {value:g}.")
        whole = round(math.ldexp(value, AFTER))
        sign, rest = (-1 if whole < 0 else 1), abs(whole)
        for digit in range(DIGITS):
            words[row, digit] = sign * (rest & (2**BITS - 1))
            rest >>= BITS
    return (words.reshape(-1) % 2**32).astype(np.uint32)


def from_words(words: UInt32[np.ndarray, " words"]) -> Float[np.ndarray, " numbers"]:
    """The inverse of :func:`to_words`, also of sums."""
    signed = words.astype(np.int32).astype(np.int64).reshape(-1, DIGITS)
    whole = [sum(int(digit) << (BITS * place) for place, digit in enumerate(row)) for row in signed]
    # A whole number of more than 1024 bits does not occur; dividing integers rounds once.
    return np.array([number / 2**AFTER for number in whole])
