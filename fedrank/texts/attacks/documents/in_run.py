"""The attack of another silo on the documents of a run: what it reads of them, and whether it finds a text there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from fedrank.texts.attacks.documents.collection import Holdings
from fedrank.texts.attacks.documents.sketches import Shown, insider, is_there
from fedrank.texts.attacks.documents.told import interval_of, interval_of_auc
from fedrank.texts.data.silos import Federation
from fedrank.texts.silo_sketch.setup import SketchSetup
from fedrank.texts.sketch import encode, hash_terms

#: Documents that are read, texts that are looked for, and documents among which they are looked for, at most.
_TARGETS, _TEXTS, _AMONG = 50, 200, 400
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
        found: Area under the curve of its test whether a text is among the second's documents; 0.5 is chance.
        found_low: Lower end of a 99 % interval.
        found_high: Upper end.
        texts: Number of texts that it looked for; half of them are there.
    """

    share: float
    low: float
    high: float
    precision: float
    documents: int
    found: float
    found_low: float
    found_high: float
    texts: int


def insider_reads(setup: SketchSetup, federation: Federation) -> InsiderReads | None:
    """Attack bodies as the run shows them, with noise drawn once more; None where a silo has none.

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
    if not len(targets) or not len(held.of(0)) or not len(held.vocabulary):
        return None
    shown = Shown(hash_terms(held.vocabulary, setup.shape, rng.bytes(32)), setup.noise, setup.allowed)
    clean = encode(held.counts[targets], shown.hashes, setup.shape)
    reading = insider(held, clean, shown, targets, rng)
    low, high = interval_of(reading)
    read = (float(reading.share.mean()), low, high, float(reading.precision.mean()), len(targets))
    # The first silo's own documents are the texts that are not there: as many of them as of the second's.
    mine = held.of(0)
    half = min(_TEXTS // 2, len(theirs), len(mine))
    part = np.concatenate([rng.permutation(theirs)[:_AMONG], rng.permutation(mine)[:half]])
    some = Holdings([], [], held.vocabulary, csr_array(held.counts[part]), owner[part])
    area, texts = is_there(some, encode(some.counts, shown.hashes, setup.shape), shown, 2 * half, rng)
    return InsiderReads(*read, area, *interval_of_auc(area, texts), texts)
