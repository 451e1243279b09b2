"""Reading documents from sketches.

* :func:`insider`: another owner has the secret of the hashes. For each word he compares the noisy cells with what they
  would be with and without the word, weighed by how many of his own documents hold it; each cell is given to the
  likeliest of the words that fall into it.
* :func:`insider_asks`: the same, where owners answer questions instead: as many as their budget lasts for, about the
  words that are likeliest.
* :func:`guesser`: the server passes on sealed bytes, and has some of the documents from elsewhere. A guess is left.
* :func:`server`: what it would read if sketches were not sealed. A word's cell is the one that goes up and down with
  the word's count in the documents that it has; with the cells found, it reads as the insider does.
* :func:`is_there`: is a given text among an owner's documents? The likelihood ratio of the text's cells, at the
  document where it is largest.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64, Integer, Shaped

from fedrank.texts.attacks.documents.collection import Holdings
from fedrank.texts.attacks.documents.settings import DocumentAttack
from fedrank.texts.attacks.documents.told import Reading, auc, finding_of_auc, finding_of_reading
from fedrank.texts.attacks.world import Finding
from fedrank.texts.sketch import Hashes, SketchShape, encode, hash_terms
from fedrank.texts.sketch.noise import SketchNoise

#: Counts of a word that are considered, and how much rarer each is than the one below.
_COUNTS, _RARER = 6, 0.35
#: Scale that an attacker takes where cells have no noise: other words still fall into them.
_UNNOISED = 0.2
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
        finding_of_reading("insider reads", how, insider(held, published[targets], hashes, noise, targets),
                           "an owner with the secret and his own documents reads another's"),
    ]  # fmt: skip
    known = rng.permutation(len(held.documents))
    known = np.setdiff1d(known[: max(2, round(s.known * len(known)))], targets)
    has = f"has {len(known)} of {len(held.documents)} documents from elsewhere"
    found.append(
        finding_of_reading("server reads", f"{how}, sealed", guesser(held, known, targets),
                           f"who passes on sealed bytes of one length {has}, and guesses")
    )  # fmt: skip
    found.append(
        finding_of_reading("server reads", f"{how}, not sealed", server(held, published, noise, known, targets),
                           f"who would see sketches and lacks the secret {has}")
    )  # fmt: skip
    evidence = is_there(held, clean, published, noise, s.trials, rng)
    found.append(finding_of_auc("is it there?", how, *evidence, "an owner with the secret looks for a text"))
    return found


def insider(
    held: Holdings,
    published: Integer[np.ndarray, "targets z w"],
    hashes: Hashes,
    noise: SketchNoise,
    targets: Integer[np.ndarray, " targets"],
) -> Reading:
    """The owner 0 reads documents of others, from the sketches that these published of them."""
    prior = held.prior(held.of(0))
    return _read(held, published, hashes, np.ones(len(prior), np.bool_), _spread(noise), prior, targets)


def insider_asks(
    held: Holdings,
    clean: Integer[np.ndarray, "targets z w"],
    hashes: Hashes,
    noise: SketchNoise,
    targets: Integer[np.ndarray, " targets"],
    questions: int,
    rng: np.random.Generator,
) -> Reading:
    """The owner 0 asks about the words that he thinks likeliest, and reads documents of others from the answers.

    Args:
        held: Whose documents are whose.
        clean: Sketches of the targets without noise, from which an owner answers.
        hashes: Hashes of the vocabulary.
        noise: Noise of an answer, in a mode in which questions are asked.
        targets: Documents to read.
        questions: Questions that an owner answers about a document.
        rng: Generator of the noise.
    """
    prior = held.prior(held.of(0))
    usable = np.zeros(len(prior), np.bool_)
    unsure = np.flatnonzero(prior < 0.5)  # the others are a guess
    usable[unsure[np.argsort(-prior[unsure], kind="stable")[:questions]]] = True
    words, z = np.flatnonzero(usable), clean.shape[1]
    shared = noise.mode == "paper"  # one variable for all cells of an answer: half of them are asked for that
    own = z - z // 2 if shared else z
    seen = np.zeros((len(targets), len(prior), own), np.float32)
    for place, sketch in enumerate(clean):
        rows = hashes.rows[words].copy()
        if shared:
            rows[:, own:] = rng.integers(0, sketch.shape[1], (len(words), z - own))
        answers = noise.answer(np.take_along_axis(sketch.T, rows, axis=0)[:, None, :], rng)[:, 0]
        if shared:  # the cells of others hold little, and as often more than nothing as less
            answers = answers - np.median(answers[:, own:], axis=1, keepdims=True)
        seen[place, words] = answers[:, :own]
    spread = _UNNOISED if shared else _spread(noise)
    mine = Hashes(hashes.rows[:, :own], hashes.signs[:, :own])
    return _read(held, seen, mine, usable, spread, prior, targets, looked_up=True)


def guesser(held: Holdings, known: Integer[np.ndarray, " known"], targets: Integer[np.ndarray, " targets"]) -> Reading:
    """Who passes sealed bytes on, and has some documents: the words that most of these hold are named of each."""
    prior = held.prior(known)
    reading = Reading.empty()
    for target in targets.tolist():
        reading = reading.with_document(held, target, np.flatnonzero(prior >= 0.5), prior)
    return reading


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
    return _read(held, published[targets], Hashes(rows, signs), certain, _spread(noise), prior, targets)


def _spread(noise: SketchNoise) -> float:
    """Scale of the noise in a cell, as the attacker takes it."""
    return noise.scale() or _UNNOISED


def _read(
    held: Holdings,
    sketches: Shaped[np.ndarray, "targets z_or_words w_or_z"],
    hashes: Hashes,
    usable: Bool[np.ndarray, " vocabulary"],
    scale: float,
    prior: Float64[np.ndarray, " vocabulary"],
    targets: Integer[np.ndarray, " targets"],
    looked_up: bool = False,
) -> Reading:
    """Read the words of targets: those that are likelier there than not, one a cell.

    Args:
        held: Whose documents are whose.
        sketches: The targets' sketches; where ``looked_up``, each word's cells in them.
        hashes: Cells and signs of the vocabulary.
        usable: Which words the attacker can look for.
        scale: Scale of the noise in a cell.
        prior: How likely each word is in a document.
        targets: Their numbers.
        looked_up: Whether each word's cells were answered by themselves.
    """
    z, words = hashes.rows.shape[1], np.flatnonzero(usable)
    reading = Reading.empty()
    for place, target in enumerate(targets):
        odds = np.log(prior[words]) - np.log1p(-prior[words])
        if looked_up:
            cells = sketches[place, words].astype(np.float64)
        else:
            own = [sketches[place, row, hashes.rows[words, row]] for row in range(z)]
            cells = np.stack(own, axis=1).astype(np.float64)
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
