"""Attacks on the words of a query, by the owner of documents against the querier.

The owner knows the hashes and a dictionary. A question has z cells, of which z₁ belong to the term and the others to
decoys (:mod:`fedrank.texts.sketch.decoys`).

* :func:`dictionary`: count for every word in how many positions it fits, and name one of those that fit as a term does.
* :func:`intersection`: compare two questions about a term. If only the decoys are drawn anew, the positions on which
  they agree are the private index set PK.
* :func:`two_silos`: compare the questions of two silos about a term. Each has decoys of its own, so that hardly any
  word but the term fits both questions.
"""

from __future__ import annotations

import math

import numpy as np

from fedrank.texts.attacks.world import Finding, World, mean_interval
from fedrank.texts.sketch.cs_f_ltr_2021 import SCHEMES
from fedrank.texts.sketch.decoys import Obfuscator, fits
from fedrank.texts.sketch.sizing import decoys_of

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
        scheme: ``"icde"`` (a word of its own for every other position) or ``"jos"`` (whole decoys).
        trials: Questions, each about another term if there are enough.
        rng: Generator.
    """
    querier = SCHEMES[scheme](world.shape, z1, world.terms, world.hashes, rng.bytes(32))
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
        f"two silos with decoys of their own ask about one word: of {len(world.terms):,} in the dictionary, "
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
