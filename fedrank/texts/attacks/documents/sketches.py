"""Reading documents from sketches.

* :func:`insider`: another owner has the secret of the hashes. For each word he compares the noisy cells with what they
  would be with and without the word, weighed by how many of his own documents hold it; each cell is given to the
  likeliest of the words that fall into it. Where owners answer questions instead, he asks about the likeliest words, as
  many as their budget lasts for.
* :func:`guesser`: the server passes on sealed bytes, and has some of the documents from elsewhere. A guess is left.
* :func:`server`: what it would read if sketches were not sealed. A word's cell is the one that goes up and down with
  the word's count in the documents that it has; with the cells found, it reads as the insider does.
* :func:`is_there`: is a given text among an owner's documents? The likelihood ratio of the text's cells, at the
  document where it is largest. Where owners answer questions, he asks about the text's words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Integer, Shaped

from fedrank.texts.attacks.documents.collection import Holdings
from fedrank.texts.attacks.documents.settings import DocumentAttack
from fedrank.texts.attacks.documents.told import Reading, auc, finding_of_auc, finding_of_reading
from fedrank.texts.attacks.world import Finding
from fedrank.texts.sketch import Hashes, SketchShape, encode, hash_terms
from fedrank.texts.sketch.noise import SketchNoise
from fedrank.texts.sketch.query_budget import plan

#: Counts of a word that are considered, and how much rarer each is than the one below.
_COUNTS, _RARER = 6, 0.35
#: Scale that an attacker takes where cells have no noise: other words still fall into them.
_UNNOISED = 0.2
#: Correlation of a word's counts with a cell from which the server believes that it is the word's.
_BELIEVED = 0.5


class Shown(NamedTuple):
    """How owners show their documents.

    Attributes:
        hashes: Hashes of the vocabulary.
        noise: Noise of sketches that are published, or of an answer where questions are asked.
        questions: Questions that an owner answers about a document, where questions are asked.
    """

    hashes: Hashes
    noise: SketchNoise
    questions: int

    @property
    def asks(self) -> bool:
        """Whether owners answer questions instead of publishing sketches."""
        return self.noise.mode in ("per-query", "paper")

    @property
    def own(self) -> int:
        """Rows of a question that are about its word.

        The noise as printed is one variable for all rows: the attacker spends half of them on learning it.
        """
        z = self.hashes.rows.shape[1]
        return z - z // 2 if self.noise.mode == "paper" else z

    @property
    def spread(self) -> float:
        """Scale of the noise in a cell, as the attacker takes it."""
        return _UNNOISED if self.noise.mode == "paper" else self.noise.scale() or _UNNOISED

    def answers(
        self,
        sketches: Integer[np.ndarray, "documents z w"],
        words: Integer[np.ndarray, " words"],
        rng: np.random.Generator,
    ) -> Float64[np.ndarray, "documents words own"]:
        """The cells of some words in some documents, as an owner answers them to this attacker."""
        rows, z = self.hashes.rows[words].copy(), sketches.shape[1]
        rows[:, self.own :] = rng.integers(0, sketches.shape[2], (len(words), z - self.own))
        answers = self.noise.answer(sketches[:, np.arange(z), rows].transpose(1, 0, 2), rng).transpose(1, 0, 2)
        if self.own < z:  # the cells of others hold little, and as often more than nothing as less
            answers = answers - np.median(answers[:, :, self.own :], axis=2, keepdims=True)
        return answers[:, :, : self.own].astype(np.float64)


def attack_sketched(held: Holdings, s: DocumentAttack, rng: np.random.Generator) -> list[Finding]:
    """All attacks on the sketches of one collection; the server's only in modes in which it passes on sketches."""
    shown, clean, targets = _shown(held, s, rng)
    found = attack_as_owner(held, s, rng, (shown, clean, targets))
    if shown.asks:
        return found
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
    """How documents are shown, their sketches without noise, and documents of owner 1 to read."""
    sketch, epsilon = s.sketch(), s.sketch().epsilon
    if epsilon is not None and sketch.mode == "per-query":
        epsilon = plan(epsilon, s.sketch_questions + 1)  # one more, for sizes and statistics
    shape, noise = SketchShape(sketch.z, sketch.w), SketchNoise(sketch.mode, epsilon, sketch.z)
    shown = Shown(hash_terms(held.vocabulary, shape, rng.bytes(32)), noise, s.sketch_questions)
    clean = encode(held.counts, shown.hashes, shape)
    return shown, clean, rng.permutation(held.of(1))[: s.trials]


def insider(
    held: Holdings,
    clean: Integer[np.ndarray, "targets z w"],
    shown: Shown,
    targets: Integer[np.ndarray, " targets"],
    rng: np.random.Generator,
) -> Reading:
    """The owner 0 reads documents of others.

    Where questions are asked, he asks about the words that he thinks likeliest.

    Args:
        held: Whose documents are whose.
        clean: Sketches of the targets without noise.
        shown: How owners show them.
        targets: Documents to read.
        rng: Generator of the noise.
    """
    prior = held.prior(held.of(0))
    if not shown.asks:
        every = np.ones(len(prior), np.bool_)
        return _read(held, shown.noise.publish(clean, rng), shown.hashes, every, shown.spread, prior, targets)
    usable = np.zeros(len(prior), np.bool_)
    unsure = np.flatnonzero(prior < 0.5)  # the others are a guess
    usable[unsure[np.argsort(-prior[unsure], kind="stable")[: shown.questions]]] = True
    words = np.flatnonzero(usable)
    seen = np.zeros((len(targets), len(prior), shown.own), np.float32)
    for place in range(len(targets)):
        seen[place, words] = shown.answers(clean[[place]], words, rng)[0]
    mine = Hashes(shown.hashes.rows[:, : shown.own], shown.hashes.signs[:, : shown.own])
    return _read(held, seen, mine, usable, shown.spread, prior, targets, looked_up=True)


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
    shown: Shown,
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
    return _read(held, published[targets], Hashes(rows, signs), certain, shown.spread, prior, targets)


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
    shown: Shown,
    trials: int,
    rng: np.random.Generator,
) -> tuple[float, int]:
    """The area under the curve of a test whether texts are among the documents of owner 1, and the number of texts.

    Args:
        held: Whose documents are whose.
        clean: Sketches of all documents without noise.
        shown: How owners show them. Where questions are asked, the whole budget of an owner is there for each text.
        trials: Number of texts; half of them are documents of owner 1, half of owner 0.
        rng: Generator of the noise, and of which texts.
    """
    theirs, prior, z = held.of(1), held.prior(held.of(0)), clean.shape[1]
    inside = rng.permutation(theirs)[: trials // 2]
    outside = rng.permutation(held.of(0))[: trials // 2]
    published = None if shown.asks else shown.noise.publish(clean[theirs], rng).reshape(len(theirs), -1)
    values = []
    for text in (*inside, *outside):
        if published is None:  # the text's rarest words tell most
            words = held.counts.indices[held.counts.indptr[text] : held.counts.indptr[text + 1]]
            words = words[np.argsort(prior[words], kind="stable")[: shown.questions]]
            cells = shown.answers(clean[theirs], words, rng).reshape(len(theirs), -1)
            own = clean[text][np.arange(z), shown.hashes.rows[words]][:, : shown.own].ravel()
        else:
            every = clean[text].ravel()
            at = np.flatnonzero(every)
            cells, own = published[:, at].astype(np.float64), every[at]
        ratio = ((np.abs(cells) - np.abs(cells - own)) / shown.spread).sum(axis=1)
        values.append(float(ratio.max()))
    return auc(np.array(values[: len(inside)]), np.array(values[len(inside) :])), len(values)
