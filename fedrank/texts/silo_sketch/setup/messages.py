"""Messages of the setup: keys, masked sums, sketches, moments.

No word of a document or query crosses. What crosses of documents is a sketch that carries noise
(:mod:`fedrank.texts.sketch.noise`); of queries, nothing. Sketches cross sealed under keys of the silos' common secret
(:mod:`fedrank.texts.sketch.key`): the server passes on bytes of one length. What stands inside a seal is a message,
too, so that it is laid out and checked as one. The messages of the secure sum are those of
:mod:`fedrank.privacy.secure_sum.messages`.

Names of the sizes that a layout is given (:attr:`fedrank.texts.silo_sketch.setup.settings.SetupSettings.sizes`):

* ``silos``;
* ``document_fields``, fields of a document;
* ``sketches``, documents of a silo;
* ``sketch_cells``, cells of a document's sketch; ``largest_cell``, the largest value of one;
* ``sealed_sketches``, bytes of what is sealed;
* ``totals``, numbers in the summed statistics;
* ``features``, features of a query-document pair.
"""

from __future__ import annotations

from fedrank.core.messages import Array, f4, field, i2, i4, message, u1, u4
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


@message(kind=12)
class Sketches:
    """Server to one silo: the sealed sketches of the other silos.

    The receiver's own row and those of silos that were not heard are zeros.
    """

    sealed: Array = field(
        u1["silos", "bytes":"sealed_sketches"], "sketches that the others published, sealed for silos"
    )


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
