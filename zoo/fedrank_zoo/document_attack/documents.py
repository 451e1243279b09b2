"""Reading documents from sketches: documents cut by chance among owners, and attackers who see their sketches.

* Another owner has the secret of the hashes: :func:`fedrank.texts.insider.insider` and ``is_there``.
* :func:`guesser`: the server passes on sealed bytes, and has some of the documents from elsewhere. A guess is left.
* :func:`server`: what it would read if sketches were not sealed. A word's cell is the one that goes up and down with
  the word's count in the documents that it has; with the cells found, it reads as the insider does.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Integer
from scipy.sparse import csr_array

from fedrank.core.errors import DataError
from fedrank.texts.data.collection import Texts
from fedrank.texts.insider import (
    Holdings,
    Reading,
    Shown,
    insider,
    interval_of,
    interval_of_auc,
    is_there,
    read,
)
from fedrank.texts.report.files import FOUND, READABLE
from fedrank.texts.served.documents import Document, words_of
from fedrank.texts.sketch import Hashes, SketchShape, encode, hash_terms
from fedrank.texts.sketch.noise import SketchNoise
from fedrank_zoo.document_attack import DocumentAttack
from fedrank_zoo.findings import Finding

#: Correlation of a word's counts with a cell from which the server believes that it is the word's.
_BELIEVED = 0.5


def holdings_of(texts: Texts, owners: int, rng: np.random.Generator) -> Holdings:
    """Give the documents of a collection out by chance.

    Args:
        texts: The collection.
        owners: Number of owners.
        rng: Generator.

    Raises:
        DataError: There are fewer than 20 documents for each owner.
    """
    documents = [
        Document(str(number), title, body)
        for number, (title, body) in enumerate(zip(texts.titles, texts.bodies, strict=True))
    ]
    if len(documents) < 20 * owners:
        raise DataError(
            f"{texts.name}: an attack needs 20 documents for each of {owners} owners, got {len(documents)}."
        )
    words = words_of(documents)
    vocabulary = tuple(sorted({word for one in words for word in one.body}))
    places = {word: number for number, word in enumerate(vocabulary)}
    columns = np.fromiter((places[word] for one in words for word in one.body), np.int64)
    rows = np.repeat(np.arange(len(words)), [len(one.body) for one in words])
    counts = csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=(len(words), len(vocabulary)))
    counts.sum_duplicates()
    return Holdings(documents, words, vocabulary, counts, rng.permutation(len(words)) % owners)


def finding_of_reading(attack: str, mode: str, reading: Reading, words: str) -> Finding:
    """Finding of the share of documents that is read."""
    share = float(reading.share.mean())
    low, high = interval_of(reading)
    right = f"{100 * reading.precision.mean():.0f} % of the words that it names are right"
    return Finding(
        attack, mode, "words read", share, low, high, READABLE, low > READABLE, len(reading.share), f"{words}; {right}"
    )


def finding_of_auc(attack: str, mode: str, area: float, trials: int, words: str) -> Finding:
    """Finding of the test whether a text is present."""
    low, high = interval_of_auc(area, trials)
    return Finding(attack, mode, "AUC", area, low, high, FOUND, low > FOUND, trials, words)


def attack_sketched(held: Holdings, s: DocumentAttack, rng: np.random.Generator) -> list[Finding]:
    """All attacks on the sketches of one collection."""
    shown, clean, targets = _shown(held, s, rng)
    found = attack_as_owner(held, s, rng, (shown, clean, targets))
    how, published = _how(s), shown.noise.publish(clean, rng)
    known = rng.permutation(len(held.documents))
    known = np.setdiff1d(known[: max(2, round(s.known * len(known)))], targets)
    has = f"has {len(known)} of {len(held.documents)} documents from elsewhere"
    return [
        *found,
        finding_of_reading("server reads", f"{how}, sealed", guesser(held, known, targets),
                           f"who passes on sealed bytes of one length {has}, and guesses"),
        finding_of_reading("server reads", f"{how}, not sealed", server(held, published, shown, known, targets),
                           f"who would see sketches and lacks the secret {has}"),
    ]  # fmt: skip


def attack_as_owner(
    held: Holdings,
    s: DocumentAttack,
    rng: np.random.Generator,
    made: tuple[Shown, Integer[np.ndarray, "documents z w"], Integer[np.ndarray, " targets"]] | None = None,
) -> list[Finding]:
    """The attacks of another owner: the words that it reads, and whether it finds a text.

    Args:
        held: Whose documents are whose.
        s: How documents are shown.
        rng: Generator.
        made: How documents are shown, their sketches without noise, and documents to read; None: made here.
    """
    shown, clean, targets = made or _shown(held, s, rng)
    return [
        finding_of_reading("insider reads", _how(s), insider(held, clean[targets], shown, targets, rng),
                           "an owner with the secret and his own documents reads another's"),
        finding_of_auc("is it there?", _how(s), *is_there(held, clean, shown, s.trials, rng),
                       "an owner with the secret looks for a text"),
    ]  # fmt: skip


def _how(s: DocumentAttack) -> str:
    epsilon = s.sketch().epsilon
    return s.sketch_mode if epsilon is None else f"{s.sketch_mode}, ε = {epsilon:g}"


def _shown(
    held: Holdings, s: DocumentAttack, rng: np.random.Generator
) -> tuple[Shown, Integer[np.ndarray, "documents z w"], Integer[np.ndarray, " targets"]]:
    """Protection of documents, their sketches without noise, and documents of owner 1 to read."""
    sketch = s.sketch()
    shape, noise = SketchShape(sketch.z, sketch.w), SketchNoise(sketch.mode, sketch.epsilon, sketch.z)
    shown = Shown(hash_terms(held.vocabulary, shape, rng.bytes(32)), noise)
    clean = encode(held.counts, shown.hashes, shape)
    return shown, clean, rng.permutation(held.of(1))[: s.trials]


def guesser(held: Holdings, known: Integer[np.ndarray, " known"], targets: Integer[np.ndarray, " targets"]) -> Reading:
    """Reading by a relay that has some documents: it names the words that most of these hold of each document."""
    prior = held.prior(known)
    reading = Reading.empty()
    for target in targets.tolist():
        reading = reading.with_document(held, target, np.flatnonzero(prior >= 0.5), prior)
    return reading


def server(
    held: Holdings,
    published: Integer[np.ndarray, "documents z w"],
    shown: Shown,
    known: Integer[np.ndarray, " known"],
    targets: Integer[np.ndarray, " targets"],
) -> Reading:
    """Whoever sees the sketches and has some documents reads others."""
    z = published.shape[1]
    counts = held.counts[known].toarray().astype(np.float32)
    counts -= counts.mean(axis=0)
    deviation = np.linalg.norm(counts, axis=0)
    # Any cell is likely for a word that stands in one document only.
    seen = (deviation > 0) & (held.word_presence(known).sum(axis=0) >= 2)
    rows, signs, believed = (np.zeros((len(seen), z), kind) for kind in (np.int32, np.int32, np.float32))
    for row in range(z):
        cells = published[known, row].astype(np.float32)
        cells -= cells.mean(axis=0)
        cells /= np.maximum(np.linalg.norm(cells, axis=0), 1e-9)
        alike = counts[:, seen].T @ cells / deviation[seen, None]
        rows[seen, row] = np.abs(alike).argmax(axis=1)
        best = alike[np.arange(len(alike)), rows[seen, row]]
        signs[seen, row], believed[seen, row] = np.where(best > 0, 1, -1), np.abs(best)
    certain = seen & (believed.min(axis=1) > _BELIEVED)
    prior = held.prior(known)
    return read(held, published[targets], Hashes(rows, signs), certain, shown.spread, prior, targets)
