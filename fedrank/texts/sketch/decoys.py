"""Obfuscated hashing: a question about one term that fits several terms equally well (Algorithm 1 and equation 4).

A silo that asks another one for cells would reveal its term to the owner of the documents, who knows the hashes too. So
only z₁ of the z positions, the private index set PK, carry the term's own cells; the others carry cells of decoys.

Two schemes are published. In "icde" (ICDE 2021, equation 4) every other position holds the cell of a word of its own:
an owner who counts for each word of a dictionary in how many positions it fits finds the term, as nothing else fits in
z₁. In "jos" (Journal of Software 2021, equation 4) a few whole decoys take disjoint blocks of positions, so that each
fits in exactly z₁ positions as the term does; :func:`fedrank.texts.sketch.sizing.anonymity_set` has the numbers.

Everything about a term's question (PK, decoys, blocks) comes from a keyed hash of the silo's own secret and the term,
never from fresh randomness. Published as it is, PK stays and decoys are drawn anew, so the positions on which two
questions agree are PK. Here the same term asks the same question every time, and a second one reveals nothing new,
provided that the secret, the vocabulary and the candidates stay the same.

What this does not hide: how probable each of the fitting terms is (a decoy that nobody would search for convinces
nobody: choose ``candidates`` that look like words of queries), which terms are asked together (decoys of one query's
terms do not form a sensible query), that two silos ask about the same term (their decoys differ, so the words that fit
both questions are few), and how often a question comes. Where z₁ is more than z/2 there is no room for a decoy at all:
:attr:`Obfuscator.among` is 1 then, and a dictionary finds the term.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedrank.core.errors import ConfigError, DataError, UnknownNameError
from fedrank.texts.sketch import SECRET_BYTES, Hashes, SketchShape, estimate
from fedrank.texts.sketch.sizing import chance_of_overlap, decoys_of

#: "jos": whole decoys of z₁ positions each. "icde": a word of its own for every other position.
SCHEMES = ("jos", "icde")

_PERSON = b"fedrank decoys 1"
_DIGEST, _WORD = 64, 8
#: Words drawn at a time while decoys are looked for.
_DRAWN = 64
#: Draws after which a question is given up, as a multiple of the number of candidates.
_PATIENCE = 8


class Question(NamedTuple):
    """What a silo asks about one term.

    Attributes:
        rows: int32 [z]: a cell of each row. This is sent.
        own: int32 [z₁], ascending: the positions that belong to the term, PK. This stays at home.
        signs: int32 [z₁]: the term's signs there. They stay at home.
        among: Terms that fit in exactly as many positions, the asked one included, by construction. Stays at home.
    """

    rows: np.ndarray
    own: np.ndarray
    signs: np.ndarray
    among: int


class Obfuscator:
    """A silo's questions.

    Args:
        shape: Rows and cells of the sketches.
        z1: Positions that belong to the term, 1 … z.
        terms: The silo's vocabulary; decoys come from it, and every term asked about is in it.
        hashes: Of the vocabulary, in order.
        secret: The silo's own, 16 … 64 bytes, kept as long as it asks. Not the secret of the hashes: other silos have
            that one.
        scheme: One of :data:`SCHEMES`.
        overlap: b of "jos", 0 … z₁ − 1: positions of PK that a decoy fits as well. A larger b makes room for more
            decoys and makes words that fit rare (:func:`fedrank.texts.sketch.sizing.chance_of_overlap`).
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
        scheme: str = "jos",
        overlap: int = 0,
        candidates: np.ndarray | None = None,
    ):
        if scheme not in SCHEMES:
            raise UnknownNameError("scheme of decoys", scheme, SCHEMES)
        if not 1 <= z1 <= shape.z:
            raise ConfigError(f"z1 must be in 1..{shape.z} (rows of the sketch), got {z1}.")
        if not 0 <= overlap < z1:
            raise ConfigError(f"overlap of a decoy must be in 0..{z1 - 1} (below z1), got {overlap}.")
        if not SECRET_BYTES[0] <= len(secret) <= SECRET_BYTES[1]:
            raise ConfigError(f"a silo's secret has {SECRET_BYTES[0]} to {SECRET_BYTES[1]} bytes, got {len(secret)}.")
        if hashes.rows.shape != (len(terms), shape.z):
            raise DataError(f"hashes of {len(terms)} terms in {shape.z} rows are needed, got {hashes.rows.shape}.")
        self.shape, self.z1, self.scheme, self.overlap = shape, z1, scheme, overlap
        self._rows, self._signs, self._secret = hashes.rows, hashes.signs, secret
        self._numbers = {term: number for number, term in enumerate(terms)}
        self._candidates = np.arange(len(terms)) if candidates is None else np.asarray(candidates)
        self._asked: dict[str, Question] = {}

    @property
    def among(self) -> int:
        """Terms that every question fits equally well, the asked one included; words that fit by chance come on top."""
        return 1 + (decoys_of(self.shape.z, self.z1, self.overlap) if self.scheme == "jos" else 0)

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
        words = _words(self._secret, b"positions", term)
        order = np.argsort(_take(words, self.shape.z), kind="stable")
        own, others = np.sort(order[: self.z1]), order[self.z1 :]
        sent = np.full(self.shape.z, -1, np.int32)
        sent[own] = self._rows[number, own]
        drawn = _Draws(self._secret, term, self._candidates, number)
        if self.scheme == "jos":
            decoys = self.among - 1
            width = self.z1 - self.overlap
            blocks = others[: decoys * width].reshape(decoys, width)
            others = others[decoys * width :]
            self._plant(term, number, own, blocks, others, sent, drawn)
        else:
            for position in others:
                candidate = next(drawn, None)
                if candidate is None:
                    raise DataError(f"there is no word but {term!r} to fill its question with; give more candidates.")
                sent[position] = self._rows[candidate, position]
        return Question(sent, own.astype(np.int32), self._signs[number, own], self.among)

    def _plant(self, term, number, own, blocks, left, sent, drawn) -> None:
        """Decoys into their blocks and single words into what is left, so that nothing else fits by accident.

        A word that was planted already fits its own block, and so is not taken twice.
        """
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
                    f"{len(self._candidates)} words (one in {1 / self._chance():,.0f} fits). Take a smaller overlap, a "
                    "larger w, a larger z1 or more candidates."
                )
            planted[decoy], sent[block] = row, row[block]
        for position in left:
            for candidate in drawn:
                if not (planted[:, position] == self._rows[candidate, position]).any():
                    break
            else:
                raise DataError(f"no word fits the last positions of the term {term!r}; take a larger w.")
            sent[position] = self._rows[candidate, position]

    def _chance(self) -> float:
        """How often a word fits the first decoy's place."""
        rest = (1 - 1 / self.shape.w) ** (self.z1 - self.overlap)
        return chance_of_overlap(self.z1, self.shape.w, self.overlap) * rest


def read(question: Question, answers: np.ndarray, kind: str = "count") -> np.ndarray:
    """Algorithm 2, last step: the count of the term from the answers at its own positions (equation 6, with the sign).

    Args:
        question: What was asked.
        answers: [documents, z], with or without noise.
        kind: Of the sketch.

    Returns:
        float32 [documents].
    """
    return estimate(answers[:, question.own], question.signs[None], kind)


def fits(rows: np.ndarray, hashes: Hashes) -> np.ndarray:
    """What the owner of the documents can find out: in how many positions each word of a dictionary fits a question.

    Args:
        rows: int32 [z], a question as it was sent.
        hashes: Of the dictionary.

    Returns:
        int64 [terms].
    """
    return np.count_nonzero(hashes.rows == rows, axis=1)


class _Draws:
    """Numbers of candidates in the order that the secret and the term fix, with an end."""

    def __init__(self, secret: bytes, term: str, candidates: np.ndarray, number: int):
        self._words, self._candidates, self._number = _words(secret, b"decoys", term), candidates, number
        self._left = _PATIENCE * max(len(candidates), _DRAWN) if (candidates != number).any() else 0
        self._ready: list[int] = []

    def __iter__(self) -> _Draws:
        return self

    def __next__(self) -> int:
        while self._left > 0:
            if not self._ready:
                places = _take(self._words, _DRAWN) % np.uint64(len(self._candidates))
                self._ready = self._candidates[places].tolist()[::-1]
            self._left -= 1
            if (candidate := self._ready.pop()) != self._number:
                return candidate
        raise StopIteration


def _words(secret: bytes, purpose: bytes, term: str):
    """An endless stream of 64-bit words in pieces: keyed BLAKE2b of purpose, counter and term."""
    counter = 0
    while True:
        salt = purpose[:8].ljust(8, b"\0") + counter.to_bytes(8, "little")
        digest = hashlib.blake2b(term.encode(), digest_size=_DIGEST, key=secret, salt=salt, person=_PERSON)
        yield np.frombuffer(digest.digest(), "<u8")
        counter += 1


def _take(words, count: int) -> np.ndarray:
    """The next words of a stream, whole digests at a time: uint64 [count]."""
    return np.concatenate([next(words) for _ in range(-(-count * _WORD // _DIGEST))])[:count]
