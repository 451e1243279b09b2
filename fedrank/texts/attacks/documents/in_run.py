"""The attack of another silo on the documents of a run: how many of their words it reads in the run's mode."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from fedrank.texts.attacks.documents.collection import Holdings
from fedrank.texts.attacks.documents.sketches import insider, insider_asks
from fedrank.texts.attacks.documents.told import interval_of
from fedrank.texts.data.silos import Federation
from fedrank.texts.silo_sketch.setup import SketchSetup
from fedrank.texts.sketch import encode, hash_terms

#: Documents that are read, at most.
_TARGETS = 50
#: Seed of the attack: which documents, and the noise of the sketches that are attacked.
_SEED = 0x5EE5


class InsiderReads(NamedTuple):
    """What the first silo reads of the second's documents.

    Attributes:
        share: Mean part of a document's words that it reads and that a guess does not name.
        low: Lower end of a 99 % interval.
        high: Upper end.
        precision: Part of the words that it names that are right.
        documents: Number of documents that it tried to read.
    """

    share: float
    low: float
    high: float
    precision: float
    documents: int


def insider_reads(setup: SketchSetup, federation: Federation) -> InsiderReads | None:
    """Attack bodies as the run shows them, with noise drawn once more; None where the second silo has no documents.

    Args:
        setup: The setup of the run.
        federation: Who has which documents.
    """
    whole, rng = federation.whole, np.random.default_rng(_SEED)
    owner = np.full(whole.n_documents, -1, np.int64)
    for number, documents in enumerate(federation.documents):
        owner[documents] = number
    held = Holdings([], [], tuple(whole.vocabulary), csr_array(whole.counts[0]), owner)
    theirs = held.of(1)
    targets = rng.permutation(theirs)[:_TARGETS]
    if not len(targets) or not len(held.vocabulary):
        return None
    shape, noise = setup.shape, setup.noise
    hashes = hash_terms(held.vocabulary, shape, rng.bytes(32))
    clean = encode(held.counts[targets], hashes, shape)
    if setup.asks:
        reading = insider_asks(held, clean, hashes, noise, targets, setup.allowed, rng)
    else:
        reading = insider(held, noise.publish(clean, rng), hashes, noise, targets)
    low, high = interval_of(reading)
    return InsiderReads(float(reading.share.mean()), low, high, float(reading.precision.mean()), len(targets))
