"""What crosses before silos train over each other's documents: keys, masked sums, sketches or hashed words, moments.

No word of a document or query crosses. What crosses of documents is a sketch that carries noise, or cells of one
(:mod:`fedrank.texts.sketch.noise`); of queries, hashes among decoys (:mod:`fedrank.texts.sketch.decoys`), or nothing.
The messages of the secure sum are those of :mod:`fedrank.privacy.secure_sum.messages`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedrank.core.messages import Field, Layout


@dataclass(frozen=True)
class Hello:
    """Server to silos: the opening begins.

    Attributes:
        silos: uint32, how many silos there are.
    """

    silos: Any


@dataclass(frozen=True)
class PublicKey:
    """Silo to server: its key of this opening.

    Attributes:
        key: uint8 [32], X25519.
    """

    key: Any


@dataclass(frozen=True)
class KeyRing:
    """Server to silos: everybody's keys.

    Attributes:
        keys: uint8 [silos, 32].
        present: uint8 [silos], 1 for a silo that sent one.
    """

    keys: Any
    present: Any


@dataclass(frozen=True)
class SealedParts:
    """Silo to server: its part of the common secret, sealed for each silo.

    Attributes:
        parts: uint8 [silos, octets]; zeros for the sender itself and for silos that are not present.
    """

    parts: Any


@dataclass(frozen=True)
class DeliveredParts:
    """Server to one silo: what the others sealed for it.

    Attributes:
        parts: uint8 [silos, octets].
        present: uint8 [silos], 1 for a silo whose part came.
    """

    parts: Any
    present: Any


@dataclass(frozen=True)
class Agreed:
    """Silo to server: a hash of the secret, by which silos see that they have the same.

    Attributes:
        fingerprint: uint8 [24], letters that people can compare.
    """

    fingerprint: Any


@dataclass(frozen=True)
class Totals:
    """Server to silos: sketches of document frequencies and of all words, and sizes, summed over all silos.

    Attributes:
        totals: int32 [parameters].
    """

    totals: Any


@dataclass(frozen=True)
class Published:
    """Silo to server: a sketch of each field of each document, with noise, and noisy sizes.

    Attributes:
        documents: uint32, how many documents there are; the rest is zeros.
        cells: int32 [fields, sketches, cells].
        lengths: int32 [fields, sketches], words of each document.
        distinct: int32 [fields, sketches], different words of each.
    """

    documents: Any
    cells: Any
    lengths: Any
    distinct: Any


@dataclass(frozen=True)
class Asked:
    """Silo to server: its query words, hashed among decoys; and the sizes of its documents.

    Attributes:
        words: uint32, how many words there are; the rest is zeros.
        rows: uint16 [hashes, cells]: a cell of each row of a sketch.
        documents: uint32, how many documents there are.
        lengths: int32 [fields, sketches].
        distinct: int32 [fields, sketches].
    """

    words: Any
    rows: Any
    documents: Any
    lengths: Any
    distinct: Any


@dataclass(frozen=True)
class Questions:
    """Server to one silo: what the others ask.

    Attributes:
        words: uint32 [silos], by the number of the silo that asks; 0 for itself and for who was not heard.
        rows: uint16 [silos, hashes, cells].
    """

    words: Any
    rows: Any


@dataclass(frozen=True)
class Cells:
    """Silo to server: the cells that the others asked for, of each field of each document, with noise.

    Attributes:
        answered: uint32 [silos]: how many of each silo's words were answered; the others were refused, the budget being
            spent, and their cells are zeros.
        cells: float32 [silos, fields, hashes, sketches, cells]: by the number of the silo that asked.
    """

    answered: Any
    cells: Any


@dataclass(frozen=True)
class Sketches:
    """Server to one silo: what the others published.

    Attributes:
        documents: uint32 [silos]; 0 for itself and for who was not heard.
        cells: int32 [silos, fields, sketches, cells].
        lengths: int32 [silos, fields, sketches].
        distinct: int32 [silos, fields, sketches].
    """

    documents: Any
    cells: Any
    lengths: Any
    distinct: Any


@dataclass(frozen=True)
class Answers:
    """Server to one silo: the others' answers to its questions.

    Attributes:
        documents: uint32 [silos]; 0 for itself and for who was not heard.
        answered: uint32 [silos]: how many of the receiver's words each silo answered.
        cells: float32 [silos, fields, hashes, sketches, cells].
        lengths: int32 [silos, fields, sketches].
        distinct: int32 [silos, fields, sketches].
    """

    documents: Any
    answered: Any
    cells: Any
    lengths: Any
    distinct: Any


@dataclass(frozen=True)
class Moments:
    """Silo to server: sums over its labelled training rows.

    Attributes:
        rows: uint32, how many there are.
        sums: float32 [parameters], of each feature.
        squares: float32 [parameters], of each feature's square.
    """

    rows: Any
    sums: Any
    squares: Any


@dataclass(frozen=True)
class Scale:
    """Server to silos: mean and standard deviation of the features, over all silos.

    Attributes:
        means: float32 [parameters].
        deviations: float32 [parameters].
    """

    means: Any
    deviations: Any


@dataclass(frozen=True)
class Prepared:
    """Silo to server: it has its rows.

    Attributes:
        rows: uint32, how many labelled training rows.
        pairs: uint32, how many cross pairs.
    """

    rows: Any
    pairs: Any


#: Bytes of a public key, and of a fingerprint.
KEY, FINGERPRINT = 32, 24

_DOCUMENTS = Field("documents", "u4", "number of documents of the silo")


def _marks(silos: int, meaning: str) -> Field:
    return Field("present", "u1", meaning, (("silos", silos),), largest=1)


def _sizes(silos: int | None, fields: int, sketches: int) -> tuple[Field, Field]:
    axes = (*((("silos", silos),) if silos else ()), ("fields", fields), ("sketches", sketches))
    return (
        Field("lengths", "i4", "words of each document's fields, with noise where the run has noise", axes),
        Field("distinct", "i4", "different words of each document's fields, likewise", axes),
    )


def hello_layout() -> Layout[Hello]:
    """A count."""
    return Layout(Hello, 1, (Field("silos", "u4", "number of silos"),))


def public_key_layout() -> Layout[PublicKey]:
    """A key."""
    return Layout(PublicKey, 2, (Field("key", "u1", "public key of this opening, X25519", (("bytes", KEY),)),))


def key_ring_layout(silos: int) -> Layout[KeyRing]:
    """A key a silo."""
    keys = Field("keys", "u1", "everybody's public keys", (("silos", silos), ("bytes", KEY)))
    return Layout(KeyRing, 3, (keys, _marks(silos, "whether a silo sent a key")))


def _parts(silos: int, octets: int, meaning: str) -> Field:
    return Field("parts", "u1", meaning, (("silos", silos), ("bytes", octets)))


def sealed_parts_layout(silos: int, octets: int) -> Layout[SealedParts]:
    """A sealed part a silo."""
    return Layout(SealedParts, 4, (_parts(silos, octets, "part of the common secret, sealed for each silo"),))


def delivered_parts_layout(silos: int, octets: int) -> Layout[DeliveredParts]:
    """A sealed part from each silo."""
    parts = _parts(silos, octets, "what each silo sealed for the receiver")
    return Layout(DeliveredParts, 5, (parts, _marks(silos, "whether a silo's part came")))


def agreed_layout() -> Layout[Agreed]:
    """A fingerprint."""
    meaning = "hash of the common secret, which says whether silos have the same"
    return Layout(Agreed, 6, (Field("fingerprint", "u1", meaning, (("bytes", FINGERPRINT),)),))


def totals_layout(length: int) -> Layout[Totals]:
    """The summed vector."""
    meaning = "sketches of document frequencies and of all words, and sizes, summed over all silos, with their noise"
    return Layout(Totals, 7, (Field("totals", "i4", meaning, (("parameters", length),)),))


def published_layout(fields: int, documents: int, cells: int, wide: bool) -> Layout[Published]:
    """A sketch a document and field; ``wide``: 4 bytes a cell instead of 2."""
    axes = (("fields", fields), ("sketches", documents), ("cells", cells))
    sketch = Field("cells", "i4" if wide else "i2", "sketch of each document's words, with the run's noise", axes)
    return Layout(Published, 8, (_DOCUMENTS, sketch, *_sizes(None, fields, documents)))


def asked_layout(fields: int, words: int, z: int, documents: int) -> Layout[Asked]:
    """Hashes of words, and sizes."""
    count = Field("words", "u4", "number of words asked about")
    rows = Field("rows", "u2", "hashes of words among decoys", (("hashes", words), ("cells", z)))
    return Layout(Asked, 9, (count, rows, _DOCUMENTS, *_sizes(None, fields, documents)))


def questions_layout(silos: int, words: int, z: int) -> Layout[Questions]:
    """Everybody's hashes."""
    count = Field("words", "u4", "number of words that each silo asks about", (("silos", silos),))
    rows = Field("rows", "u2", "hashes of words among decoys", (("silos", silos), ("hashes", words), ("cells", z)))
    return Layout(Questions, 10, (count, rows))


def cells_layout(silos: int, fields: int, words: int, documents: int, z: int) -> Layout[Cells]:
    """The cells asked for."""
    axes = (("silos", silos), ("fields", fields), ("hashes", words), ("sketches", documents), ("cells", z))
    answered = Field("answered", "u4", "number of each silo's words that were answered", (("silos", silos),))
    return Layout(Cells, 11, (answered, Field("cells", "f4", "the cells asked for, with the run's noise", axes)))


def sketches_layout(silos: int, fields: int, documents: int, cells: int, wide: bool) -> Layout[Sketches]:
    """Everybody's sketches."""
    axes = (("silos", silos), ("fields", fields), ("sketches", documents), ("cells", cells))
    count = Field("documents", "u4", "number of documents of each silo", (("silos", silos),))
    sketch = Field("cells", "i4" if wide else "i2", "sketches that the others published", axes)
    return Layout(Sketches, 12, (count, sketch, *_sizes(silos, fields, documents)))


def answers_layout(silos: int, fields: int, words: int, documents: int, z: int) -> Layout[Answers]:
    """The others' answers."""
    axes = (("silos", silos), ("fields", fields), ("hashes", words), ("sketches", documents), ("cells", z))
    count = Field("documents", "u4", "number of documents of each silo", (("silos", silos),))
    cells = Field("cells", "f4", "the others' cells that the receiver asked for", axes)
    answered = Field("answered", "u4", "number of the receiver's words that each silo answered", (("silos", silos),))
    return Layout(Answers, 13, (count, answered, cells, *_sizes(silos, fields, documents)))


def moments_layout(features: int) -> Layout[Moments]:
    """A count and two sums a feature."""
    axes = (("parameters", features),)
    return Layout(
        Moments,
        14,
        (
            Field("rows", "u4", "number of the silo's labelled training rows"),
            Field("sums", "f4", "sum of each feature over them", axes),
            Field("squares", "f4", "sum of each feature's square", axes),
        ),
    )


def scale_layout(features: int) -> Layout[Scale]:
    """Two numbers a feature."""
    axes = (("parameters", features),)
    return Layout(
        Scale,
        15,
        (
            Field("means", "f4", "mean of each feature over all silos", axes),
            Field("deviations", "f4", "its standard deviation", axes),
        ),
    )


def prepared_layout() -> Layout[Prepared]:
    """Two counts."""
    return Layout(
        Prepared,
        24,
        (
            Field("rows", "u4", "number of the silo's labelled training rows"),
            Field("pairs", "u4", "number of its cross pairs"),
        ),
    )
