"""Obfuscated hashing: a question about one term that fits several terms equally well (Algorithm 1 and equation 4).

A silo that asks another one for cells would reveal its term to the owner of the documents, who knows the hashes too. So
only z₁ of the z positions, the private index set PK, carry the term's own cells; the others carry cells of decoys.

A few whole decoys take disjoint blocks of the other positions, so that each fits in exactly z₁ positions as the term
does (Journal of Software 2021, equation 4); :func:`anonymity_set` has the numbers. The
scheme of the ICDE version, which a dictionary breaks, is in :mod:`fedrank_zoo.cs_f_ltr_icde_2021`.

Everything about a term's question (PK, decoys, blocks) comes from a keyed hash of the silo's own secret and the term,
never from fresh randomness. Published as it is, PK stays and decoys are drawn anew, so the positions on which two
questions agree are PK. Here the same term asks the same question every time, and a second one reveals nothing new,
provided that the secret, the vocabulary and the candidates stay the same.

What this does not hide: how probable each of the fitting terms is (a decoy that no user would search for is recognised:
choose ``candidates`` that look like words of queries), which terms are asked together (decoys of one query's terms do
not form a sensible query), that two silos ask about the same term (their decoys differ, so the words that fit both
questions are few), and how often a question comes. Where z₁ is more than z/2 there is no room for a decoy at all:
:attr:`Obfuscator.among` is 1 then, and a dictionary finds the term.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64, Integer, UInt64

from fedrank.core.errors import ConfigError, DataError
from fedrank.texts.sketch import SECRET_BYTES, Hashes, SketchShape

_PERSON = b"fedrank decoys 1"
_DIGEST, _WORD = 64, 8
#: Words drawn at a time while decoys are looked for.
_DRAWN = 64
#: Draws after which a question is given up, as a multiple of the number of candidates.
_PATIENCE = 8


class Question(NamedTuple):
    """A question about one term.

    Attributes:
        rows: int32 [z]: a cell of each row. This is sent.
        own: int32 [z₁], ascending: the positions that belong to the term, PK. This stays at home.
        signs: int32 [z₁]: the term's signs there. They stay at home.
        among: Terms that fit in exactly as many positions, the asked one included, by construction. Stays at home.
    """

    rows: Int32[np.ndarray, " z"]
    own: Int32[np.ndarray, " z1"]
    signs: Int32[np.ndarray, " z1"]
    among: int


class Obfuscator:
    """Makes a silo's questions, one a term.

    Args:
        shape: Rows and cells of the sketches.
        z1: Positions that belong to the term, 1 … z.
        terms: The silo's vocabulary; decoys come from it, and every term asked about is in it.
        hashes: Hashes of the vocabulary, in order.
        secret: The silo's own, 16 … 64 bytes, kept as long as it asks. Not the secret of the hashes: other silos have
            that one.
        overlap: b, 0 … z₁ − 1: positions of PK that a decoy fits as well. A larger b makes room for more
            decoys and makes words that fit rare (:func:`overlap_probability`).
        candidates: Numbers of terms that decoys may be drawn from, int [n]; all where None.

    Raises:
        ConfigError: A number is out of range, or the secret too short.
        DataError: Hashes and terms do not fit.
    """

    def __init__(
        self,
        shape: SketchShape,
        z1: int,
        terms: Sequence[str],
        hashes: Hashes,
        secret: bytes,
        overlap: int = 0,
        candidates: Integer[np.ndarray, " candidates"] | None = None,
    ):
        if not 1 <= z1 <= shape.z:
            raise ConfigError(f"z1 must be in 1..{shape.z} (rows of the sketch), got {z1}.")
        if not 0 <= overlap < z1:
            raise ConfigError(f"overlap of a decoy must be in 0..{z1 - 1} (below z1), got {overlap}.")
        if not SECRET_BYTES[0] <= len(secret) <= SECRET_BYTES[1]:
            raise ConfigError(f"a silo's secret has {SECRET_BYTES[0]} to {SECRET_BYTES[1]} bytes, got {len(secret)}.")
        if hashes.rows.shape != (len(terms), shape.z):
            raise DataError(f"hashes of {len(terms)} terms in {shape.z} rows are needed, got {hashes.rows.shape}.")
        self.shape, self.z1, self.overlap = shape, z1, overlap
        self._rows, self._signs, self._secret = hashes.rows, hashes.signs, secret
        self._numbers = {term: number for number, term in enumerate(terms)}
        self._candidates = np.arange(len(terms)) if candidates is None else np.asarray(candidates)
        self._asked: dict[str, Question] = {}

    @property
    def among(self) -> int:
        """Terms that every question fits equally well, the asked one included; words that fit by chance come on top."""
        return 1 + decoys_of(self.shape.z, self.z1, self.overlap)

    def ask(self, term: str) -> Question:
        """The question about a term: the same one every time.

        Raises:
            DataError: The term is not in the vocabulary, or too few of the candidates fit as decoys. A question is
                never sent with fewer decoys than were promised.
        """
        if term not in self._asked:
            if term not in self._numbers:
                raise DataError(f"the term {term!r} is not in the vocabulary of this silo; hash it first.")
            self._asked[term] = self._question(term, self._numbers[term])
        return self._asked[term]

    def _question(self, term: str, number: int) -> Question:
        stream = _stream(self._secret, b"positions", term)
        order = np.argsort(_take(stream, self.shape.z), kind="stable")
        own, others = np.sort(order[: self.z1]), order[self.z1 :]
        sent = np.full(self.shape.z, -1, np.int32)
        sent[own] = self._rows[number, own]
        self._fill(term, number, own, others, sent, _draws(self._secret, term, self._candidates, number))
        return Question(sent, own.astype(np.int32), self._signs[number, own], self.among)

    def _fill(
        self,
        term: str,
        number: int,
        own: Integer[np.ndarray, " z1"],
        others: Integer[np.ndarray, " others"],
        sent: Int32[np.ndarray, " z"],
        drawn: Iterator[int],
    ) -> None:
        """Write decoys into their blocks of positions, and single words into the positions that are left.

        No word but the term and the decoys fits in z₁ positions by construction. A decoy already fits its own block,
        so that no word is taken twice.

        Args:
            term: The term.
            number: Its number in the vocabulary.
            own: Positions of the term.
            others: All other positions, in random order.
            sent: Cells of the question, −1 where not yet written; changed in place.
            drawn: Numbers of candidates, in random order.
        """
        width = self.z1 - self.overlap
        filled = (self.among - 1) * width
        blocks, left = others[:filled].reshape(-1, width), others[filled:]
        planted = np.empty((1 + len(blocks), self.shape.z), np.int32)
        planted[0] = self._rows[number]
        for decoy, block in enumerate(blocks, start=1):
            for candidate in drawn:
                row = self._rows[candidate]
                filled = sent >= 0
                filled[own] = False
                if (
                    np.count_nonzero(row[own] == sent[own]) == self.overlap
                    and not (row[filled] == sent[filled]).any()
                    and not (planted[:decoy, block] == row[block]).any()
                ):
                    break
            else:
                raise DataError(
                    f"only {decoy - 1} of {len(blocks)} decoys for the term {term!r} were found among "
                    f"{len(self._candidates)} words (one in {1 / self._fit_probability():,.0f} fits). Take a smaller "
                    "overlap, a larger w, a larger z1 or more candidates."
                )
            planted[decoy], sent[block] = row, row[block]
        for position in left:
            for candidate in drawn:
                if not (planted[:, position] == self._rows[candidate, position]).any():
                    break
            else:
                raise DataError(f"no word fits the last positions of the term {term!r}; take a larger w.")
            sent[position] = self._rows[candidate, position]

    def _fit_probability(self) -> float:
        """Probability that a random word fits as the first decoy."""
        rest = (1 - 1 / self.shape.w) ** (self.z1 - self.overlap)
        return overlap_probability(self.z1, self.shape.w, self.overlap) * rest


def fits(rows: Int32[np.ndarray, " z"], hashes: Hashes) -> Int64[np.ndarray, " terms"]:
    """In how many positions each word of a dictionary fits a question; what the owner of the documents can find out.

    Args:
        rows: A question as it was sent.
        hashes: Hashes of the dictionary.
    """
    return np.count_nonzero(hashes.rows == rows, axis=1)


def _draws(secret: bytes, term: str, candidates: Integer[np.ndarray, " candidates"], number: int) -> Iterator[int]:
    """Numbers of candidates other than ``number``, in an order that the secret and the term fix; ends at some time."""
    if not (candidates != number).any():
        return
    stream, left = _stream(secret, b"decoys", term), _PATIENCE * max(len(candidates), _DRAWN)
    while True:
        places = _take(stream, _DRAWN) % np.uint64(len(candidates))
        for candidate in candidates[places].tolist():
            if not left:
                return
            left -= 1
            if candidate != number:
                yield candidate


def _stream(secret: bytes, purpose: bytes, term: str) -> Iterator[UInt64[np.ndarray, " words"]]:
    """Endless 64-bit words in pieces of a digest: keyed BLAKE2b of purpose, counter and term."""
    counter = 0
    while True:
        salt = purpose[:8].ljust(8, b"\0") + counter.to_bytes(8, "little")
        digest = hashlib.blake2b(term.encode(), digest_size=_DIGEST, key=secret, salt=salt, person=_PERSON)
        yield np.frombuffer(digest.digest(), "<u8")
        counter += 1


def _take(stream: Iterator[UInt64[np.ndarray, " words"]], count: int) -> UInt64[np.ndarray, " count"]:
    """The next words of a stream; of the last digest, words beyond ``count`` are dropped."""
    return np.concatenate([next(stream) for _ in range(-(-count * _WORD // _DIGEST))])[:count]


def overlap_probability(z1: int, w: int, overlap: int) -> float:
    """Pr[cd(t, t′) = b], the probability that another term agrees with t in exactly b of t's z₁ positions."""
    return math.comb(z1, overlap) * w**-overlap * (1 - 1 / w) ** (z1 - overlap)


def match_probability(z: int, w: int, z1: int) -> float:
    """Pr[Bin(z, 1/w) ≥ z₁], the probability that an unrelated term fits a question in z₁ or more positions."""
    return sum(math.comb(z, k) * w**-k * (1 - 1 / w) ** (z - k) for k in range(z1, z + 1))


def decoys_of(z: int, z1: int, overlap: int = 0) -> int:
    """Number of decoys in a question of the Journal of Software's scheme: ⌊(z − z₁)/(z₁ − b)⌋."""
    return (z - z1) // (z1 - overlap)


def anonymity_set(z: int, w: int, z1: int, vocabulary: int, scheme: str = "jos", overlap: int = 0) -> float:
    """Number of terms among which a question's term hides from an owner of documents who tries a whole dictionary.

    The owner knows the hashes. Of every word it counts in how many positions it fits the question; the true term fits
    in z₁ or more. "icde" draws every other position from another word, so only words that fit by chance are left
    beside the term: 1 + words · Pr[Bin(z, 1/w) ≥ z₁]. "jos" adds whole decoys that fit in z₁ positions as well: ⌊z/z₁⌋
    in all for b = 0. Neither says how *likely* each word of the set is: a rare word among common ones hides nothing.

    Args:
        z: Number of rows.
        w: Number of cells of a row.
        z1: Number of positions that belong to the term.
        vocabulary: Number of words in the owner's dictionary.
        scheme: "jos" or "icde".
        overlap: b, positions of the term that each decoy of "jos" fits as well.

    Returns:
        Expected size of the set, the term included.
    """
    planted = decoys_of(z, z1, overlap) if scheme == "jos" else 0
    return 1 + planted + vocabulary * match_probability(z, w, z1)
