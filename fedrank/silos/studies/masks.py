"""Secure sums of answers: masks that cancel in the sum of all silos, so that no silo's own answer can be read.

Each pair of silos agrees on a secret by X25519, from the public keys in the codebook, and of it and the ask on a mask:
the one adds it, the other subtracts it. A number is rounded to a multiple of 2⁻⁸⁰, and all is modulo 2²²⁴, which sums
of 2³¹ silos do not run over. Protected is a silo's own answer, from the coordinator and from all silos but those who
all work together against it: what they see is uniform but for the sum. Not protected is the sum; and where a silo falls
away and the others answer again, the difference of two sums, if both came about.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, UInt32

from fedrank.core.errors import ConfigError, DataError
from fedrank.privacy.secure_sum.party import pair_mask
from fedrank.silos.studies.codebook import FEWEST
from fedrank.silos.studies.keys import Key, masking_key
from fedrank.silos.studies.protocol import Ask

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
            words = pair_mask(key.masking, masking_key(keys[other]), context, WORDS * len(whole))
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
