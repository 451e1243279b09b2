"""Sums of real numbers over silos: as they are, or by a secure sum of integers, with the same result.

A secure sum adds integers of 32 bits; numbers here need about 60 bits and lie between 10⁻²⁰ and 10³⁰. Each is rounded
to a multiple of 2⁻⁸⁰ and cut into digits of 16 bits with its sign, so that digits of up to 32,767 silos add up without
running over. The digits' sums tell a little more than the number does: which carries there were.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt32

from fedrank.core.errors import ConfigError
from fedrank.privacy.secure_sum import secure_sum

#: Digits of a number, bits of a digit, and bits after the point.
DIGITS, BITS, AFTER = 12, 16, 80
#: Fewest silos of a secure sum: of two each can subtract its own.
FEWEST = 3


def to_words(values: Float[np.ndarray, " numbers"]) -> UInt32[np.ndarray, " words"]:
    """Numbers as signed digits modulo 2³², the lowest first.

    Raises:
        ConfigError: A number is not finite or too large.
    """
    words = np.zeros((len(values), DIGITS), np.int64)
    for row, value in enumerate(values.tolist()):
        if not math.isfinite(value) or abs(value) >= 2.0 ** (DIGITS * BITS - AFTER):
            raise ConfigError(f"a number of a secure sum must be finite and below 10^33, got {value:g}.")
        whole = round(math.ldexp(value, AFTER)) if abs(value) < 2.0**900 else 0
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


@dataclass(eq=False)
class Adder:
    """Adds silos' numbers.

    Attributes:
        secure: By a secure sum: neither the server nor another silo sees a silo's numbers.
        bytes_up: Bytes that silos have sent so far, all together.
        rounds: Sums so far.
    """

    secure: bool = False
    bytes_up: int = field(default=0, init=False)
    rounds: int = field(default=0, init=False)

    def __call__(self, vectors: Sequence[Float[np.ndarray, " numbers"]]) -> Float[np.ndarray, " numbers"]:
        """The sum of one vector a silo.

        Raises:
            ConfigError: There are too few silos for a secure sum, or a number does not fit.
        """
        self.rounds += 1
        if not self.secure:
            self.bytes_up += 8 * sum(len(vector) for vector in vectors)
            return np.sum(vectors, axis=0)
        if len(vectors) < FEWEST:
            raise ConfigError(f"a secure sum of {len(vectors)} silos hides nothing from them; {FEWEST} are needed.")
        made = secure_sum(np.stack([to_words(vector) for vector in vectors]), threshold=len(vectors) // 2 + 1)
        self.bytes_up += int(made.bytes_up.sum())
        return from_words(made.total)


#: A column is constant where its deviation is below this share of its largest possible value.
_CONSTANT = 1e-12


class Moments(NamedTuple):
    """Moments of columns; what is missing (NaN) does not count.

    Attributes:
        count: Number of values.
        mean: Mean; 0 of a column without a value.
        deviation: Standard deviation (divisor: count); 0 where a column never varies.
    """

    count: Float[np.ndarray, " columns"]
    mean: Float[np.ndarray, " columns"]
    deviation: Float[np.ndarray, " columns"]

    def standardise(self, x: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows columns"]:
        """(x − mean)/deviation; 0 for what is missing and for columns that never vary."""
        varies = self.deviation > 0
        made = np.where(varies, (x - self.mean) / np.where(varies, self.deviation, 1.0), 0.0)
        return np.where(np.isnan(made), 0.0, made)


def moments_of(silos: Sequence[Float[np.ndarray, "_ columns"]], add: Adder | None = None) -> Moments:
    """Moments of the columns of all silos' rows.

    Args:
        silos: Each silo's rows.
        add: What adds; by default in the clear.
    """
    add = Adder() if add is None else add
    known = [~np.isnan(x) for x in silos]
    first = add([
        np.concatenate([there.sum(axis=0), np.where(there, x, 0.0).sum(axis=0)])
        for x, there in zip(silos, known, strict=True)
    ])  # fmt: skip
    count, total = np.split(first, 2)
    mean = total / np.maximum(count, 1)
    squares = add([
        np.where(there, (x - mean) ** 2, 0.0).sum(axis=0) for x, there in zip(silos, known, strict=True)
    ])  # fmt: skip
    deviation = np.sqrt(squares / np.maximum(count, 1))
    return Moments(count, mean, np.where(deviation > _CONSTANT * np.abs(mean), deviation, 0.0))
