"""Attacks on the counts in sketches: a querier against the owner of documents.

What a way of answering promises about one occurrence of a word, set beside what an attacker finds out. He knows the
hashes and, at worst, every other word of the document; that is what the promise allows him.

* :func:`distinguish`: is the document d, or d′ with one more occurrence of the term? By the likelihood ratio, which no
  other test beats (Neyman and Pearson). Under (ε, δ) he is right with probability (e^ε + δ)/(1 + e^ε) at most.
* :func:`cancel`: with no knowledge of the document at all, the noise of an answer is estimated as the median of the
  cells that belong to the querier's own decoys, which mostly hold little else, and taken off.
* :func:`repeat`: the same question again and again, so that noise averages out; with a ledger that keeps answers, with
  decoys drawn anew to get round it, and on sketches that were published once.

Everything is simulated with seeded noise, which has the distribution of the real one. Of CS-F-LTR (Shi et al. 2021,
Algorithm 2 line 4 and equation 5), the first two break the privacy that is printed.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.privacy.query_budget import QueryBudget
from fedrank.privacy.sketch import Hashes, SketchShape, encode, estimate, hash_terms
from fedrank.privacy.sketch_noise import SketchNoise, statistics_noise

#: Occurrences in a generated document.
TOKENS = 300

#: Generated documents.
_DOCUMENTS = 200

#: Exponent of the generated words' frequencies.
_ZIPF = 1.07

#: Normal quantile of 99 % intervals.
_QUANTILE = 2.5758

#: An attack on noise counts as successful if errors get below this part of what the noise costs.
_CANCELLED = 0.9


@dataclass(frozen=True)
class Finding:
    """What one attack found.

    Attributes:
        attack: Its name.
        mode: The mode, and how it was asked where there are several ways.
        measure: What ``measured`` and ``promised`` are.
        measured: What the attacker gets, over ``trials`` trials.
        low: Lower end of its 99 % interval.
        high: Upper end.
        promised: What the mode promises, or what its noise is meant to cost him.
        broken: Whether the promise does not hold.
        trials: Trials.
        words: A sentence.
    """

    attack: str
    mode: str
    measure: str
    measured: float
    low: float
    high: float
    promised: float
    broken: bool
    trials: int
    words: str

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


class World(NamedTuple):
    """Generated documents and their sketches.

    Attributes:
        shape: Of the sketches.
        terms: The vocabulary.
        hashes: Of the vocabulary.
        counts: csr int32 [documents, terms].
        sketches: int32 [documents, z, w].
        chances: float64 [terms]: how often each term occurs.
    """

    shape: SketchShape
    terms: tuple[str, ...]
    hashes: Hashes
    counts: Any
    sketches: np.ndarray
    chances: np.ndarray


class Answers(NamedTuple):
    """What there is to ask about, one question a trial.

    Attributes:
        terms: int [trials]: the term.
        documents: int [trials]: the document.
        own: bool [trials, z]: positions that carry the term's own cells.
        rows: int32 [trials, z]: the cells asked for.
        cells: int32 [trials, z]: what they hold in the document.
        change: int32 [trials, z]: what one more occurrence of the term adds to them.
    """

    terms: np.ndarray
    documents: np.ndarray
    own: np.ndarray
    rows: np.ndarray
    cells: np.ndarray
    change: np.ndarray


def make_world(shape: SketchShape, vocabulary: int, seed: int) -> World:
    """Documents of 300 words from a Zipf vocabulary, and their sketches.

    Raises:
        ConfigError: The vocabulary has fewer than 2 words.
    """
    from scipy.sparse import csr_array

    if vocabulary < 2:
        raise ConfigError(f"vocabulary must have at least 2 words, got {vocabulary}.")
    rng = np.random.default_rng((seed, 0))
    chances = np.arange(1, vocabulary + 1) ** -_ZIPF
    chances /= chances.sum()
    tokens = rng.choice(vocabulary, _DOCUMENTS * TOKENS, p=chances)
    at = (np.ones(tokens.size, np.int32), (np.repeat(np.arange(_DOCUMENTS), TOKENS), tokens))
    counts = csr_array(at, shape=(_DOCUMENTS, vocabulary))
    counts.sum_duplicates()
    terms = tuple(f"word{number}" for number in range(vocabulary))
    hashes = hash_terms(terms, shape, rng.bytes(32))
    return World(shape, terms, hashes, counts, encode(counts, hashes, shape), chances)


def ask(world: World, z1: int, trials: int, rng: np.random.Generator, inside: bool = False) -> Answers:
    """Questions with z₁ own positions and a word of its own in every other (equation 4 of the ICDE version).

    Args:
        world: Documents and hashes.
        z1: Own positions; z for a querier who hides nothing and so sees most.
        trials: Questions.
        rng: Generator.
        inside: Ask for terms that the document has; otherwise for words as frequent as they are in documents.
    """
    z = world.shape.z
    documents = rng.integers(len(world.sketches), size=trials)
    terms = rng.choice(len(world.terms), trials, p=world.chances)
    if inside:
        start, end = world.counts.indptr[documents], world.counts.indptr[documents + 1]
        terms = world.counts.indices[rng.integers(start, end)]
    own = rng.random((trials, z)).argsort(axis=1) < z1
    rows = np.where(own, world.hashes.rows[terms], world.hashes.rows[_decoys(world, (trials, z), rng), np.arange(z)])
    change = np.where(rows == world.hashes.rows[terms], world.hashes.signs[terms], 0)
    return Answers(terms, documents, own, rows, world.sketches[documents[:, None], np.arange(z), rows], change)


def distinguish(world: World, noise: SketchNoise, z1: int, trials: int, rng: np.random.Generator) -> Finding:
    """Tell d from d′, which has one more occurrence of the term, from one answer or from everything published.

    Per-query: the querier asks for all z cells of the term. Published once: he reads the z cells of the term, the
    document's sizes and the silo's statistics, of which he knows the rest. Paper: one answer with decoys; with one
    variable for all cells, the right document is the one that leaves the same remainder in all of them.

    Args:
        world: Documents and hashes.
        noise: The mode.
        z1: Own positions of a question in paper mode.
        trials: Trials, half of them with d′.
        rng: Generator.
    """
    asked = ask(world, z1 if noise.mode == "paper" else world.shape.z, trials, rng)
    truth = rng.random(trials) < 0.5
    cells = asked.cells + truth[:, None] * asked.change
    if noise.mode == "paper":
        remainder = noise.answer(cells[:, None], rng)[:, 0] - asked.cells
        evidence = np.ptp(remainder, axis=1) - np.ptp(remainder - asked.change, axis=1)
        how = "one answer: all its cells carry the same noise, so that their differences are exact"
    elif noise.mode == "per-query":
        evidence = _evidence(noise, "sketches", noise.answer(cells[:, None], rng)[:, 0] - asked.cells, asked.change)
        how = "one answer, all z cells of the term, by likelihood ratio"
    else:
        evidence = _published(noise, cells[:, :, None], truth, asked, rng)
        how = "the published sketch, sizes and statistics together, by likelihood ratio"
    return _told("distinguish", noise, noise.mode, evidence, truth, rng, how)


def distinguish_unscaled(world: World, epsilon: float, z1: int, trials: int, rng: np.random.Generator) -> Finding:
    """What were left if only the shared variable were mended: independent noise of scale 1/ε in each cell.

    It leaves out that an occurrence changes many cells; noise of scale z/ε is needed.
    """
    noise = SketchNoise("per-query", epsilon, 1)  # one cell's worth of noise
    asked = ask(world, z1, trials, rng)
    truth = rng.random(trials) < 0.5
    cells = asked.cells + truth[:, None] * asked.change
    answers = noise.answer(cells.reshape(-1, 1, 1), rng).reshape(cells.shape)
    evidence = _evidence(noise, "sketches", answers - asked.cells, asked.change)
    how = f"independent noise of scale 1/ε in each cell, {z1} of them the term's: it is z/ε that is needed"
    return _told("distinguish", noise, "independent 1/ε", evidence, truth, rng, how)


def cancel(world: World, noise: SketchNoise, z1: int, trials: int, rng: np.random.Generator) -> Finding:
    """Take the noise off with the cells of the querier's own decoys, knowing nothing of the document.

    The measure is the mean absolute error of a count of a term that is there. In mode publish-once the same cells are
    read from the published sketch.

    Args:
        world: Documents and hashes.
        noise: The mode.
        z1: Own positions of a question; below z.
        trials: Questions.
        rng: Generator.
    """
    asked = ask(world, z1, trials, rng, inside=True)
    true = world.counts[asked.documents, asked.terms]
    if noise.mode == "publish-once":
        answers = noise.publish(asked.cells[:, :, None], rng)[:, :, 0]
    else:
        answers = noise.answer(asked.cells[:, None], rng)[:, 0]
    place = np.argsort(~asked.own, axis=1, kind="stable")  # own positions first
    signs = np.take_along_axis(world.hashes.signs[asked.terms], place, 1)[:, :z1]

    def errors(values: np.ndarray) -> np.ndarray:
        own = np.take_along_axis(values, place, 1)[:, :z1]
        return np.abs(estimate(own, signs, world.shape.kind) - true)

    decoys = np.take_along_axis(answers, place, 1)[:, z1:]
    without, meant = errors(asked.cells).mean(), errors(answers).mean()
    left = errors(answers - np.median(decoys, axis=1, keepdims=True))
    low, high = mean_interval(left)
    broken = bool(high < _CANCELLED * meant)
    words = f"the median of {world.shape.z - z1} decoy cells taken off; without any noise the error is {without:.3f}"
    return Finding(
        "cancel", noise.mode, "mean absolute error", float(left.mean()), low, high, float(meant), broken, trials, words
    )


def repeat(
    world: World, noise: SketchNoise, times: int, limit: float, trials: int, rng: np.random.Generator
) -> list[Finding]:
    """Ask the same again and again.

    Args:
        world: Documents and hashes.
        noise: Mode per-query or publish-once.
        times: How often a question is repeated.
        limit: Largest ε of the ledger, for a querier who redraws his decoys.
        trials: Documents, half of them d′.
        rng: Generator.

    Returns:
        Per-query: without a ledger, with one, and with one that is got round; publish-once: looked up again and again.
    """
    asked = ask(world, world.shape.z, trials, rng)
    truth = rng.random(trials) < 0.5
    cells = asked.cells + truth[:, None] * asked.change
    if noise.mode == "publish-once":
        once = _published(noise, cells[:, :, None], truth, asked, rng)
        how = f"looked up {times:,} times: a published number does not change"
        return [_told("repeat", noise, noise.mode, times * once, truth, rng, how)]

    def draw(which: np.ndarray) -> np.ndarray:
        return noise.answer(cells[which, None], rng)[:, 0]

    def evidence(answers: np.ndarray) -> np.ndarray:
        return _evidence(noise, "sketches", answers - asked.cells, asked.change)

    everything = np.arange(trials)
    fresh = sum(evidence(draw(everything)) for _ in range(times))
    assert noise.epsilon is not None
    ledger = QueryBudget(noise.epsilon, limit, trials, 1, noise.mechanism, noise.delta)
    kept = sum(evidence(ledger.ask(0, asked.rows[0], everything, draw)) for _ in range(times))
    # Other decoys make another question: a number that no cell has stands for them.
    tracked, redrawn = np.zeros(trials), 0
    ledger = QueryBudget(noise.epsilon, limit, trials, 1, noise.mechanism, noise.delta)
    while ledger.left().min() > 0 and redrawn < times:
        redrawn += 1
        tracked += evidence(ledger.ask(0, np.full(world.shape.z, -redrawn), everything, draw))
    return [
        _told(
            "repeat", noise, "per-query, no ledger", fresh, truth, rng,
            f"{times:,} fresh answers: their noise averages out, which is why a ledger must count them",
        ),
        _told(
            "repeat", noise, "per-query, ledger", kept, truth, rng,
            f"asked {times:,} times: the ledger repeats its first answer",
        ),
        _told(
            "repeat", noise, "per-query, new decoys", tracked, truth, rng,
            f"decoys drawn anew to get round the ledger, which charges each and ends at ε = {limit:.3g}: "
            f"{redrawn} answers", limit,
        ),
    ]  # fmt: skip


def accuracy_bound(epsilon: float, delta: float = 0.0) -> float:
    """How often, at most, an attacker tells two equally likely neighbours apart: (e^ε + δ)/(1 + e^ε).

    >>> round(accuracy_bound(0.5), 3)
    0.622
    """
    return (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon))


def share_interval(share: float, trials: int) -> tuple[float, float]:
    """Wilson's 99 % interval of a probability from a share of trials."""
    spread = _QUANTILE**2 / trials
    middle = (share + spread / 2) / (1 + spread)
    half = _QUANTILE * math.sqrt(share * (1 - share) / trials + spread / (4 * trials)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def mean_interval(values: np.ndarray) -> tuple[float, float]:
    """The normal 99 % interval of a mean."""
    mean, half = float(values.mean()), _QUANTILE * float(values.std()) / math.sqrt(values.size)
    return mean - half, mean + half


def _decoys(world: World, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Words in no relation to the term, uniformly from the vocabulary."""
    return rng.integers(len(world.terms), size=shape)


def _published(
    noise: SketchNoise, cells: np.ndarray, truth: np.ndarray, asked: Answers, rng: np.random.Generator
) -> np.ndarray:
    """The log likelihood ratio of all that is published, of which the attacker knows all but the occurrence."""
    sketch = noise.publish(cells, rng)[:, :, 0] - asked.cells
    total = _evidence(noise, "sketches", sketch, asked.change)
    for what in ("sizes", "statistics"):  # both grow by 1 everywhere if the word is new in the document
        change = np.ones((truth.size, noise.change(what)), np.int64)
        grown = truth[:, None] * change
        noisy = noise.sizes(grown, rng) if what == "sizes" else grown + statistics_noise(noise, grown.shape, rng)
        total += _evidence(noise, what, noisy, change)
    return total


def _evidence(noise: SketchNoise, what: str, rest: np.ndarray, change: np.ndarray) -> np.ndarray:
    """log P(rest | d′) − log P(rest | d), summed over cells, for independent noise: [trials, cells] → [trials]."""
    scale = noise.scale(what)
    assert scale is not None
    if noise.mechanism == "laplace":
        return ((np.abs(rest) - np.abs(rest - change)) / scale).sum(axis=1)
    return ((2.0 * rest - change) * change / (2.0 * scale**2)).sum(axis=1)


def _told(
    attack: str,
    noise: SketchNoise,
    mode: str,
    evidence: np.ndarray,
    truth: np.ndarray,
    rng: np.random.Generator,
    words: str,
    epsilon: float | None = None,
) -> Finding:
    """How often the sign of the evidence is right; where there is none, a coin decides."""
    guess = np.where(evidence == 0, rng.random(truth.size) < 0.5, evidence > 0)
    right = float((guess == truth).mean())
    low, high = share_interval(right, truth.size)
    assert noise.epsilon is not None
    delta = noise.delta if noise.mechanism == "gaussian" or epsilon is not None else 0.0
    promised = accuracy_bound(noise.epsilon if epsilon is None else epsilon, delta)
    return Finding(
        attack, mode, "accuracy", right, low, high, promised, low > promised, truth.size, words
    )
