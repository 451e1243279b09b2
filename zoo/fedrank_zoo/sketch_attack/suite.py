"""Attacks on the counts in sketches, by a querier against the owner of documents.

They compare what a mode promises about one occurrence of a word with what an attacker finds out. The attacker knows the
hashes and, at worst, every other word of the document, as the promise assumes.

* :func:`distinguish`: is the document d, or d′ with one more occurrence of the term? By the likelihood ratio, the most
  powerful test (Neyman and Pearson). Under (ε, δ) it is right with probability (e^ε + δ)/(1 + e^ε) at most.
* :func:`cancel`: with no knowledge of the document at all, the noise of an answer is estimated as the median of the
  cells that belong to the querier's own decoys, which mostly hold little else, and taken off.
* :func:`repeat`: the same number looked up again and again, so that noise might average out.

Everything is simulated with seeded noise, which has the distribution of the real one. Of CS-F-LTR (Shi et al. 2021,
Algorithm 2 line 4 and equation 5), the first two break the privacy that is printed.

Attacks on the words of a query, by the owner of documents against the querier.

The owner knows the hashes and a dictionary. A question has z cells, of which z₁ belong to the term and the others to
decoys (:mod:`fedrank_zoo.decoys`).

* :func:`dictionary`: count for every word in how many positions it fits, and name one of those that fit as a term does.
* :func:`intersection`: compare two questions about a term. If only the decoys are drawn anew, the positions on which
  they agree are the private index set PK.
* :func:`two_silos`: compare the questions of two silos about a term. Each has separate decoys, so that hardly any
  word but the term fits both questions.

All attacks on sketches, for one mode or for all.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Float64, Integer, Real

from fedrank.privacy.noise.arrays import drawn
from fedrank.texts.insider import mean_interval
from fedrank.texts.sketch import SketchShape, estimate
from fedrank.texts.sketch.noise import SketchNoise, statistics_noise
from fedrank_zoo.cs_f_ltr_icde_2021 import IcdeObfuscator
from fedrank_zoo.decoys import Obfuscator, decoys_of, fits
from fedrank_zoo.findings import Finding
from fedrank_zoo.silo_sketch_2021 import PrintedNoise
from fedrank_zoo.sketch_attack.settings import ATTACKED, SketchAttack
from fedrank_zoo.sketch_attack.world import Questions, World, ask, make_world, share_interval

#: An attack on noise counts as successful if errors get below this part of what the noise costs.
_CANCELLED = 0.9


def distinguish(world: World, noise: SketchNoise, z1: int, trials: int, rng: np.random.Generator) -> Finding:
    """Tell d from d′, which has one more occurrence of the term, from one answer or from everything published.

    Published once: the querier reads the z cells of the term, the document's sizes and the silo's statistics, of which
    he knows the rest. Paper: one answer with decoys; with one variable for all cells, the right document is the one
    that leaves the same remainder in all of them.

    Args:
        world: Documents and hashes.
        noise: The mode.
        z1: Own positions of a question in paper mode.
        trials: Trials, half of them with d′.
        rng: Generator.
    """
    printed = isinstance(noise, PrintedNoise)
    asked = ask(world, z1 if printed else world.shape.z, trials, rng)
    truth = rng.random(trials) < 0.5
    cells = asked.cells + truth[:, None] * asked.change
    if printed:
        remainder = noise.answer(cells[:, None], rng)[:, 0] - asked.cells
        evidence = np.ptp(remainder, axis=1) - np.ptp(remainder - asked.change, axis=1)
        how = "one answer: all its cells carry the same noise, so that their differences are exact"
    else:
        evidence = _publish(noise, cells[:, :, None], truth, asked, rng)
        how = "the published sketch, sizes and statistics together, by likelihood ratio"
    return _accuracy("distinguish", noise, noise.mode, evidence, truth, rng, how)


def distinguish_unscaled(world: World, noise: SketchNoise, z1: int, trials: int, rng: np.random.Generator) -> Finding:
    """The attack if only the shared variable were corrected: independent noise of scale 1/ε in each cell.

    An occurrence changes many cells, so that noise of scale z/ε is needed.
    """
    assert noise.epsilon is not None
    scale = 1.0 / noise.epsilon  # one cell's worth of noise
    asked = ask(world, z1, trials, rng)
    truth = rng.random(trials) < 0.5
    cells = asked.cells + truth[:, None] * asked.change
    rest = cells + drawn(rng, "laplace", scale, cells.shape) - asked.cells
    evidence = ((np.abs(rest) - np.abs(rest - asked.change)) / scale).sum(axis=1)
    how = f"independent noise of scale 1/ε in each cell, {z1} of them the term's: it is z/ε that is needed"
    return replace(_accuracy("distinguish", noise, "independent 1/ε", evidence, truth, rng, how), control=True)


def cancel(world: World, noise: SketchNoise, z1: int, trials: int, rng: np.random.Generator) -> Finding:
    """Subtract the noise that the cells of the querier's own decoys show, without knowledge of the document.

    The measure is the mean absolute error of a count of a term that is present. In mode publish-once the same cells are
    read from the published sketch.

    Args:
        world: Documents and hashes.
        noise: The mode.
        z1: Own positions of a question; below z.
        trials: Number of questions.
        rng: Generator.
    """
    asked = ask(world, z1, trials, rng, inside=True)
    true = np.asarray(world.counts[asked.documents, asked.terms]).ravel()
    if isinstance(noise, PrintedNoise):
        answers = noise.answer(asked.cells[:, None], rng)[:, 0]
    else:
        answers = noise.publish(asked.cells[:, :, None], rng)[:, :, 0]
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


def repeat(world: World, noise: SketchNoise, times: int, trials: int, rng: np.random.Generator) -> Finding:
    """Look the same number of a published sketch up again and again.

    Args:
        world: Documents and hashes.
        noise: Mode publish-once.
        times: Number of repetitions.
        trials: Number of documents, half of them d′.
        rng: Generator.
    """
    asked = ask(world, world.shape.z, trials, rng)
    truth = rng.random(trials) < 0.5
    cells = asked.cells + truth[:, None] * asked.change
    once = _publish(noise, cells[:, :, None], truth, asked, rng)
    how = f"looked up {times:,} times: a published number does not change"
    return _accuracy("repeat", noise, noise.mode, times * once, truth, rng, how)


def accuracy_bound(epsilon: float, delta: float = 0.0) -> float:
    """Largest probability of telling two equally likely neighbours apart under (ε, δ): (e^ε + δ)/(1 + e^ε).

    >>> round(accuracy_bound(0.5), 3)
    0.622
    """
    return (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon))


def _publish(
    noise: SketchNoise,
    cells: Integer[np.ndarray, "trials z 1"],
    truth: Bool[np.ndarray, " trials"],
    asked: Questions,
    rng: np.random.Generator,
) -> Float64[np.ndarray, " trials"]:
    """Log likelihood ratio of all that is published, of which the attacker knows all but the occurrence."""
    sketch = noise.publish(cells, rng)[:, :, 0] - asked.cells
    total = _evidence(noise, "sketches", sketch, asked.change)
    for what in ("sizes", "statistics"):  # both grow by 1 everywhere if the word is new in the document
        change = np.ones((truth.size, noise.change(what)), np.int64)
        grown = truth[:, None] * change
        noisy = noise.sizes(grown, rng) if what == "sizes" else grown + statistics_noise(noise, grown.shape, rng)
        total += _evidence(noise, what, noisy, change)
    return total


def _evidence(
    noise: SketchNoise, what: str, rest: Real[np.ndarray, "trials cells"], change: Integer[np.ndarray, "trials cells"]
) -> Float64[np.ndarray, " trials"]:
    """Log likelihood ratio log P(rest | d′) − log P(rest | d) under independent noise."""
    scale = noise.scale(what)
    assert scale is not None
    if noise.mechanism == "laplace":
        return ((np.abs(rest) - np.abs(rest - change)) / scale).sum(axis=1)
    return ((2.0 * rest - change) * change / (2.0 * scale**2)).sum(axis=1)


def _accuracy(
    attack: str,
    noise: SketchNoise,
    mode: str,
    evidence: Float[np.ndarray, " trials"],
    truth: Bool[np.ndarray, " trials"],
    rng: np.random.Generator,
    words: str,
) -> Finding:
    """Share of trials in which the sign of the evidence is right; where it is 0, the guess is random."""
    guess = np.where(evidence == 0, rng.random(truth.size) < 0.5, evidence > 0)
    right = float((guess == truth).mean())
    low, high = share_interval(right, truth.size)
    assert noise.epsilon is not None
    promised = accuracy_bound(noise.epsilon, noise.delta if noise.mechanism == "gaussian" else 0.0)
    return Finding(attack, mode, "accuracy", right, low, high, promised, low > promised, truth.size, words)


#: Room for rounding in a comparison of two equal probabilities.
_ROUNDING = 1e-9


def dictionary(world: World, z1: int, scheme: str, trials: int, rng: np.random.Generator) -> Finding:
    """Find the term of a question among all words of a dictionary.

    The measure is the probability of naming the right word. With "icde" the attacker chooses at random among the words
    that fit best. With "jos" term and decoys fit in exactly z₁ positions, and he chooses among all words that do. The
    promise is one over the number of words that should look alike: all decoys and the term.

    Args:
        world: Its vocabulary is the dictionary.
        z1: Own positions of a question.
        scheme: ``"icde"`` (a different word for every other position) or ``"jos"`` (whole decoys).
        trials: Questions, each about another term if there are enough.
        rng: Generator.
    """
    querier = (IcdeObfuscator if scheme == "icde" else Obfuscator)(
        world.shape, z1, world.terms, world.hashes, rng.bytes(32)
    )
    alike = 1 + (world.shape.z - z1 if scheme == "icde" else decoys_of(world.shape.z, z1, 0))
    named, candidates = np.zeros(trials), np.zeros(trials)
    for trial, term in enumerate(rng.choice(len(world.terms), trials, replace=trials > len(world.terms))):
        fitting = fits(querier.ask(world.terms[term]).rows, world.hashes)
        best = fitting == (z1 if scheme == "jos" else fitting.max())
        named[trial] = best[term] / np.count_nonzero(best)
        candidates[trial] = np.count_nonzero(best)
    low, high = np.clip(mean_interval(named), 0.0, 1.0).tolist()
    words = (
        f"a question is meant to fit {alike} words; of {len(world.terms):,} in the dictionary, {candidates.mean():.3g} "
        "are left on average to choose from"
    )
    broken = low > 1.0 / alike + _ROUNDING
    return Finding(
        "dictionary", scheme, "term named", float(named.mean()), low, high, 1.0 / alike, broken, trials, words
    )


def two_silos(world: World, z1: int, trials: int, rng: np.random.Generator) -> Finding:
    """Find the term that two silos ask about.

    Each silo has its own secret, so its own positions and whole decoys ("jos"). The owner takes the words of his
    dictionary that fit both questions in z₁ positions, and chooses among them at random. The measure is the probability
    of naming the term; the promise is that of one question, one over the number of decoys and the term.

    Args:
        world: Its vocabulary is the dictionary.
        z1: Own positions of a question.
        trials: Terms that both silos ask about, different ones if there are enough.
        rng: Generator.
    """
    silos = [Obfuscator(world.shape, z1, world.terms, world.hashes, rng.bytes(32)) for _ in range(2)]
    candidates = np.zeros(trials)
    for trial, term in enumerate(rng.choice(len(world.terms), trials, replace=trials > len(world.terms))):
        both = [fits(silo.ask(world.terms[term]).rows, world.hashes) == z1 for silo in silos]
        candidates[trial] = np.count_nonzero(both[0] & both[1])  # the term is always among them
    named = 1.0 / candidates
    low, high = np.clip(mean_interval(named), 0.0, 1.0).tolist()
    promised = 1.0 / silos[0].among
    words = (
        f"two silos with different decoys ask about one word: of {len(world.terms):,} in the dictionary, "
        f"{candidates.mean():.3g} are left on average that fit both questions; decoys protect no word that two silos "
        "ask about"
    )
    broken = low > promised + _ROUNDING
    return Finding(
        "intersection", "jos, two silos", "term named", float(named.mean()), low, high, promised, broken, trials, words
    )


def intersection(world: World, z1: int, requests: int, redrawn: bool, trials: int, rng: np.random.Generator) -> Finding:
    """Find the private index set from several questions about one term.

    The owner takes the positions on which all questions agree; where they are more than z₁ he chooses among them at
    random. The measure is the probability that his set is PK, and the promise is that of a guess.

    Args:
        world: Hashes and vocabulary.
        z1: Own positions of a question.
        requests: Questions about the same term.
        redrawn: PK stays and decoys are drawn anew, as published; otherwise the silo keeps one partition of positions
            and one set of decoys for each term.
        trials: Terms.
        rng: Generator.
    """
    z = world.shape.z
    found = np.zeros(trials)
    secret = rng.bytes(32)
    querier = Obfuscator(world.shape, z1, world.terms, world.hashes, secret)
    again = Obfuscator(world.shape, z1, world.terms, world.hashes, secret)  # the same silo, after a restart
    for trial, term in enumerate(rng.integers(len(world.terms), size=trials)):
        if redrawn:
            own = np.isin(np.arange(z), rng.choice(z, z1, replace=False))
            decoys = world.hashes.rows[rng.integers(len(world.terms), size=(requests, z)), np.arange(z)]
            asked = np.where(own, world.hashes.rows[term], decoys)
        else:
            silos = [querier if request % 2 == 0 else again for request in range(requests)]
            asked = np.stack([silo.ask(world.terms[term]).rows for silo in silos])
        # PK is always among the positions that agree.
        agree = np.count_nonzero((asked == asked[0]).all(axis=0))
        found[trial] = 1.0 / math.comb(agree, z1)
    low, high = np.clip(mean_interval(found), 0.0, 1.0).tolist()
    promised = 1.0 / math.comb(z, z1)
    how = "decoys drawn anew, PK kept" if redrawn else "one partition kept per term"
    return Finding(
        "intersection",
        how,
        "PK found",
        float(found.mean()),
        low,
        high,
        promised,
        low > promised * (1.0 + _ROUNDING),
        trials,
        f"{requests} questions about the same term",
    )


#: How often a question is repeated.
_TIMES = 200

#: Most trials of attacks that repeat questions, and of those on terms: each takes about as long as hundreds.
_MOST_REPEATED, _MOST_TERMS = 2_000, 200

#: Questions about one term that are compared.
_REQUESTS = 2


def attack_sketches(settings: SketchAttack = SketchAttack()) -> list[Finding]:  # noqa: B008 - frozen
    """Attack generated documents and the questions about them.

    Args:
        settings: The mode, or all of them, and the sketches. Where mode publish-once is attacked alone, z₁ is at most
            z, and where it is z, no cells are left for :func:`cancel` to take noise off with. Paper
            mode has Laplace noise whatever the mechanism is.

    Returns:
        What was found, by mode in the order of ``ATTACKED``; controls are marked.
    """
    s = settings
    z1, trials = s.z1 if s.asks else min(s.z1, s.z), s.trials
    world = make_world(SketchShape(s.z, s.w), s.vocabulary, s.seed)
    found: list[Finding] = []
    for name in s.modes:
        # What a mode gives does not depend on which others are attacked.
        rng = np.random.default_rng((s.seed, 1, ATTACKED.index(name)))
        printed = name == "paper"
        noise = (
            PrintedNoise(name, s.epsilon, s.z) if printed else SketchNoise(name, s.epsilon, s.z, s.mechanism, s.delta)
        )
        found += [distinguish(world, noise, z1, trials, rng)]
        if z1 < s.z:
            found += [cancel(world, noise, z1, trials, rng)]
        if not printed:  # no question leaves the querier
            found += [repeat(world, noise, _TIMES, min(trials, _MOST_REPEATED), rng)]
            continue
        terms = min(trials, _MOST_TERMS)
        found += [dictionary(world, z1, scheme, terms, rng) for scheme in ("icde", "jos")]
        found += [intersection(world, z1, _REQUESTS, True, terms, rng), two_silos(world, z1, terms, rng)]
        # The parts of it mended one by one: independent noise of the same scale; one set of decoys for each term.
        found += [distinguish_unscaled(world, noise, z1, trials, rng)]
        found += [intersection(world, z1, _REQUESTS, False, terms, rng)]
    return found
