"""Messages of the setup: keys, masked sums, sketches or hashed words, moments.

No word of a document or query crosses. What crosses of documents is a sketch that carries noise, or cells of one
(:mod:`fedrank.texts.sketch.noise`); of queries, hashes among decoys (:mod:`fedrank.texts.sketch.decoys`), or nothing.
Both cross sealed under keys of the silos' common secret (:mod:`fedrank.texts.sketch.key`): the server passes on
bytes of one length. What stands inside a seal is a message, too, so that it is laid out and checked as one.
The messages of the secure sum are those of :mod:`fedrank.privacy.secure_sum.messages`.

Names of the sizes that a layout is given (:attr:`fedrank.texts.silo_sketch.setup.settings.SetupSettings.sizes`):

* ``silos``;
* ``document_fields``, fields of a document;
* ``sketches``, documents of a silo;
* ``hashes``, query words of a silo;
* ``sketch_cells``, cells of a document's sketch; ``largest_cell``, the largest value of one;
* ``question_cells``, cells that a question names, one a row of the sketch;
* ``sealed_sketches``, ``sealed_questions``, ``sealed_answers``, bytes of what is sealed;
* ``totals``, numbers in the summed statistics;
* ``features``, features of a query-document pair.
"""

from __future__ import annotations

from fedrank.core.messages import Array, f4, field, i2, i4, message, u1, u2, u4
from fedrank.texts.sketch.key import SEALED

#: Bytes of a public key, and characters of a fingerprint.
KEY, FINGERPRINT = 32, 24


@message(kind=1)
class Hello:
    """Server to silos: the setup begins."""

    silos: Array = field(u4, "number of silos")


@message(kind=2)
class PublicKey:
    """Silo to server: its public key for this setup."""

    key: Array = field(u1["bytes":KEY], "public key of this setup, X25519")


@message(kind=3)
class KeyRing:
    """Server to silos: the public keys of all silos."""

    keys: Array = field(u1["silos", "bytes":KEY], "public keys of all silos")
    present: Array = field(u1["silos"], "whether a silo sent a key", largest=1)


@message(kind=4)
class SealedParts:
    """Silo to server: its part of the common secret, encrypted for each silo.

    Zeros stand for the sender itself and for silos that are not present.
    """

    parts: Array = field(u1["silos", "bytes":SEALED], "part of the common secret, sealed for each silo")


@message(kind=5)
class DeliveredParts:
    """Server to one silo: the parts of the secret that the other silos encrypted for it."""

    parts: Array = field(u1["silos", "bytes":SEALED], "what each silo sealed for the receiver")
    present: Array = field(u1["silos"], "whether a silo's part came", largest=1)


@message(kind=6)
class Agreed:
    """Silo to server: a hash of the common secret in characters that people can read out to each other."""

    fingerprint: Array = field(
        u1["bytes":FINGERPRINT], "hash of the common secret, which says whether silos have the same"
    )


@message(kind=7)
class Totals:
    """Server to silos: the statistics of all silos' documents, summed."""

    totals: Array = field(
        i4["parameters":"totals"],
        "sketches of document frequencies and of all words, and sizes, summed over all silos, with their noise",
    )


@message(kind=8)
class Published:
    """Silo to server: its sketches, sealed for the other silos; :class:`OwnSketches` is what is in them."""

    sealed: Array = field(u1["bytes":"sealed_sketches"], "sketches and sizes of the silo's documents, sealed for silos")


@message(kind=9)
class Asked:
    """Silo to server: its questions, sealed for the other silos; :class:`OwnQuestions` is what is in them."""

    sealed: Array = field(u1["bytes":"sealed_questions"], "the silo's hashed words among decoys, sealed for silos")


@message(kind=10)
class Questions:
    """Server to one silo: the questions of the other silos, by the number of the silo that asks.

    The receiver's own row and those of silos that were not heard are zeros.
    """

    sealed: Array = field(u1["silos", "bytes":"sealed_questions"], "what each silo asks, sealed for silos")


@message(kind=11)
class Cells:
    """Silo to server: its answer to each other silo, sealed for it; :class:`OwnCells` is what is in one.

    The sender's own row and those of silos that asked nothing are zeros.
    """

    sealed: Array = field(u1["silos", "bytes":"sealed_answers"], "the cells that each silo asked for, sealed for it")


@message(kind=12)
class Sketches:
    """Server to one silo: the sealed sketches of the other silos.

    The receiver's own row and those of silos that were not heard are zeros.
    """

    sealed: Array = field(
        u1["silos", "bytes":"sealed_sketches"], "sketches that the others published, sealed for silos"
    )


@message(kind=13)
class Answers:
    """Server to one silo: the others' answers to its questions, and what they said of the sizes of their documents.

    The receiver's own row and those of silos that were not heard are zeros.
    """

    asked: Array = field(
        u1["silos", "bytes":"sealed_questions"], "what each silo asked, with its sizes, sealed for silos"
    )
    sealed: Array = field(u1["silos", "bytes":"sealed_answers"], "what each silo answered, sealed for the receiver")


@message(kind=25)
class OwnSketches:
    """Inside the seal of :class:`Published`: a noisy sketch of each field of each document, and noisy sizes.

    Documents beyond the silo's number of them are zeros.
    """

    documents: Array = field(u4, "number of documents of the silo")
    cells: Array = field(
        (i2 | i4)["fields":"document_fields", "sketches", "cells":"sketch_cells"],
        "sketch of each document's words, with the run's noise",
        largest="largest_cell",
    )
    lengths: Array = field(
        i4["fields":"document_fields", "sketches"],
        "words of each document's fields, with noise where the run has noise",
    )
    distinct: Array = field(
        i4["fields":"document_fields", "sketches"], "different words of each document's fields, likewise"
    )


@message(kind=26)
class OwnQuestions:
    """Inside the seal of :class:`Asked`: query words, hashed among decoys, and the sizes of the silo's documents.

    Rows beyond the silo's number of words are zeros.
    """

    words: Array = field(u4, "number of words asked about")
    rows: Array = field(u2["hashes", "cells":"question_cells"], "hashes of words among decoys")
    documents: Array = field(u4, "number of documents of the silo")
    lengths: Array = field(
        i4["fields":"document_fields", "sketches"],
        "words of each document's fields, with noise where the run has noise",
    )
    distinct: Array = field(
        i4["fields":"document_fields", "sketches"], "different words of each document's fields, likewise"
    )


@message(kind=27)
class OwnCells:
    """Inside the seal of :class:`Cells`: the cells that one silo asked for, with noise.

    Words beyond ``answered`` were refused because the privacy budget was spent; their cells are zeros.
    """

    answered: Array = field(u4, "number of the silo's words that were answered")
    cells: Array = field(
        f4["fields":"document_fields", "hashes", "sketches", "cells":"question_cells"],
        "the cells asked for, with the run's noise",
    )


@message(kind=14)
class Moments:
    """Silo to server: sums over its labelled training rows, from which the common feature scale is computed."""

    rows: Array = field(u4, "number of the silo's labelled training rows")
    sums: Array = field(f4["parameters":"features"], "sum of each feature over them")
    squares: Array = field(f4["parameters":"features"], "sum of each feature's square")


@message(kind=15)
class Scale:
    """Server to silos: mean and standard deviation of the features over the labelled training rows of all silos."""

    means: Array = field(f4["parameters":"features"], "mean of each feature over all silos")
    deviations: Array = field(f4["parameters":"features"], "its standard deviation")


@message(kind=24)
class Prepared:
    """Silo to server: the silo has made its rows; the rows stay with it."""

    rows: Array = field(u4, "number of the silo's labelled training rows")
    pairs: Array = field(u4, "number of its cross pairs")
