"""Reading documents from sketches that were published once.

* :func:`insider`: another owner has the secret of the hashes. For each word he compares the noisy cells with what they
  would be with and without the word, weighed by how many of his own documents hold it; each cell is given to the
  likeliest of the words that fall into it.
* :func:`server`: whoever passes the sketches on lacks the secret, but has some of the documents from elsewhere. A
  word's cell is the one that goes up and down with the word's count in these; with the cells found, it reads as the
  insider does.
* :func:`is_there`: is a given text among an owner's documents? The likelihood ratio of the text's cells, at the
  document where it is largest.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64, Integer

from fedrank.texts.attacks.documents.collection import Holdings
from fedrank.texts.attacks.documents.settings import DocumentAttack
from fedrank.texts.attacks.documents.told import Reading, auc, finding_of_auc, finding_of_reading
from fedrank.texts.attacks.world import Finding
from fedrank.texts.sketch import Hashes, SketchShape, encode, hash_terms
from fedrank.texts.sketch.noise import SketchNoise

#: Counts of a word that are considered, and how much rarer each is than the one below.
_COUNTS, _RARER = 6, 0.35
#: Correlation of a word's counts with a cell from which the server believes that it is the word's.
_BELIEVED = 0.5


def attack_sketched(held: Holdings, s: DocumentAttack, rng: np.random.Generator) -> list[Finding]:
    """All attacks on sketches of one collection."""
    shape, noise = SketchShape(s.z, s.w), SketchNoise("publish-once", s.sketch_epsilon, s.z)
    hashes = hash_terms(held.vocabulary, shape, rng.bytes(32))
    clean = encode(held.counts, hashes, shape)
    published = noise.publish(clean, rng)
    targets = rng.permutation(held.of(1))[: s.trials]
    how = f"sketches, ε = {s.sketch_epsilon:g}"
    found = [
        finding_of_reading("insider reads", how, insider(held, published, hashes, noise, targets),
                           "an owner with the secret and his own documents reads another's"),
    ]  # fmt: skip
    known = rng.permutation(len(held.documents))
    known = np.setdiff1d(known[: max(2, round(s.known * len(known)))], targets)
    found.append(
        finding_of_reading("server reads", how, server(held, published, noise, known, targets),
                           f"who passes sketches on has {len(known)} of {len(held.documents)} documents from elsewhere")
    )  # fmt: skip
    evidence = is_there(held, clean, published, noise, s.trials, rng)
    found.append(finding_of_auc("is it there?", how, *evidence, "an owner with the secret looks for a text"))
    return found


def insider(
    held: Holdings,
    published: Integer[np.ndarray, "documents z w"],
    hashes: Hashes,
    noise: SketchNoise,
    targets: Integer[np.ndarray, " targets"],
) -> Reading:
    """The owner 0 reads documents of others."""
    prior = held.prior(held.of(0))
    return _read(held, published[targets], hashes, np.ones(len(prior), np.bool_), noise, prior, targets)


def server(
    held: Holdings,
    published: Integer[np.ndarray, "documents z w"],
    noise: SketchNoise,
    known: Integer[np.ndarray, " known"],
    targets: Integer[np.ndarray, " targets"],
) -> Reading:
    """Whoever sees the sketches and has some documents reads others."""
    z = published.shape[1]
    counts = held.counts[known].toarray().astype(np.float32)
    counts -= counts.mean(axis=0)
    deviation = np.linalg.norm(counts, axis=0)
    seen = (deviation > 0) & (held.present(known).sum(axis=0) >= 2)  # of a word that stands once, any cell is likely
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
    return _read(held, published[targets], Hashes(rows, signs), certain, noise, prior, targets)


def _read(
    held: Holdings,
    sketches: Integer[np.ndarray, "targets z w"],
    hashes: Hashes,
    usable: Bool[np.ndarray, " vocabulary"],
    noise: SketchNoise,
    prior: Float64[np.ndarray, " vocabulary"],
    targets: Integer[np.ndarray, " targets"],
) -> Reading:
    """Read the words of targets: those that are likelier there than not, one a cell."""
    scale = noise.scale()
    assert scale is not None
    z, words = sketches.shape[1], np.flatnonzero(usable)
    reading = Reading.empty()
    for place, target in enumerate(targets):
        odds = np.log(prior[words]) - np.log1p(-prior[words])
        cells = np.stack([sketches[place, row, hashes.rows[words, row]] for row in range(z)], axis=1).astype(np.float64)
        signs = hashes.signs[words]
        # log Σ_c P(c) Π_a f(x_a − g_a c) / f(x_a), the noise's density f being Laplace's
        terms = [
            np.log(1 - _RARER) + (count - 1) * np.log(_RARER)
            + ((np.abs(cells) - np.abs(cells - signs * count)) / scale).sum(axis=1)
            for count in range(1, _COUNTS + 1)
        ]  # fmt: skip
        odds = odds + np.logaddexp.reduce(terms, axis=0)
        order = words[np.argsort(-odds, kind="stable")[: np.count_nonzero(odds > 0)]]
        taken, read = [set() for _ in range(z)], []  # type: ignore[var-annotated]
        for word in order.tolist():
            at = [int(cell) for cell in hashes.rows[word]]
            if all(cell in used for cell, used in zip(at, taken, strict=True)):
                continue  # likelier words explain its cells
            for cell, used in zip(at, taken, strict=True):
                used.add(cell)
            read.append(word)
        reading = reading.with_document(held, int(target), np.array(read, np.int64), prior)
    return reading


def is_there(
    held: Holdings,
    clean: Integer[np.ndarray, "documents z w"],
    published: Integer[np.ndarray, "documents z w"],
    noise: SketchNoise,
    trials: int,
    rng: np.random.Generator,
) -> tuple[float, int]:
    """The area under the curve of a test whether texts are among the documents of owner 1, and the number of texts."""
    theirs = held.of(1)
    scale = noise.scale()
    assert scale is not None
    inside = rng.permutation(theirs)[: trials // 2]
    outside = rng.permutation(held.of(0))[: trials // 2]
    published_cells = published[theirs].reshape(len(theirs), -1)
    values = []
    for text in (*inside, *outside):
        own = clean[text].ravel()
        at = np.flatnonzero(own)
        cells = published_cells[:, at].astype(np.float64)
        ratio = ((np.abs(cells) - np.abs(cells - own[at])) / scale).sum(axis=1)
        values.append(float(ratio.max()))
    return auc(np.array(values[: len(inside)]), np.array(values[len(inside) :])), len(values)
