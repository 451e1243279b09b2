"""All attacks on sketches, for one mode or for all."""

from __future__ import annotations

import numpy as np

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.privacy_report import DELTA
from fedrank.texts.attacks.counts import cancel, distinguish, distinguish_unscaled, repeat
from fedrank.texts.attacks.terms import dictionary, intersection, two_silos
from fedrank.texts.attacks.world import Finding, make_world
from fedrank.texts.sketch import SketchShape
from fedrank.texts.sketch.noise import SketchNoise

#: Modes that make a promise, and so can be attacked.
ATTACKED = ("paper", "per-query", "publish-once")

#: How often a question is repeated.
_TIMES = 200

#: ε of the ledger, in answers by basic composition.
_LEDGER = 8.0

#: Most trials of attacks that repeat questions, and of those on terms: each takes about as long as hundreds.
_MOST_REPEATED, _MOST_TERMS = 2_000, 200

#: Questions about one term that are compared.
_REQUESTS = 2

#: Words of the largest dictionary: more would ask for gigabytes.
_LARGEST_VOCABULARY = 2_000_000


def attack_sketches(
    mode: str = "all",
    *,
    epsilon: float = 0.5,
    z: int = 30,
    w: int = 200,
    z1: int = 10,
    trials: int = 4_000,
    seed: int = 0,
    vocabulary: int = 50_000,
    mechanism: str = "laplace",
    delta: float = DELTA,
) -> list[Finding]:
    """Attack generated documents and the questions about them.

    Args:
        mode: One of :data:`ATTACKED`, or ``"all"``.
        epsilon: ε as each mode means it: as printed, of one answer, of an occurrence in total.
        z: Rows of a sketch.
        w: Cells of a row.
        z1: Own positions of a question, below z. Mode publish-once asks nothing: there it is at most z, and where it is
            z, no cells are left for :func:`~fedrank.texts.attacks.counts.cancel` to take noise off with.
        trials: Trials of each attack; fewer of those that take long.
        seed: Of everything random.
        vocabulary: Words of the dictionary.
        mechanism: ``"laplace"`` or ``"gaussian"``; paper mode has Laplace noise whatever this is.
        delta: δ of Gaussian noise and of the ledger.

    Returns:
        What was found, by mode in the order of :data:`ATTACKED`; controls are marked.

    Raises:
        ConfigError: A setting is unknown or out of range.
    """
    if mode not in (*ATTACKED, "all"):
        raise UnknownNameError("mode to attack", mode, (*ATTACKED, "all"))
    if mode == "publish-once":
        z1 = min(z1, z)
    elif z < 2:
        raise ConfigError(
            f"a question needs z of at least 2, one position for its word and one for decoys; got {z}. Attack mode "
            "publish-once, which asks nothing."
        )
    if z1 < 1 or (z1 >= z and mode != "publish-once"):
        raise ConfigError(f"z1 must be in 1..{z - 1}, so that there are decoys among the {z} positions; got {z1}.")
    if trials < 1 or seed < 0:
        raise ConfigError(f"trials must be at least 1 and seed at least 0, got {trials} and {seed}.")
    if not 1 <= vocabulary <= _LARGEST_VOCABULARY:
        raise ConfigError(f"vocabulary must be in 1..{_LARGEST_VOCABULARY:,}, got {vocabulary:,}.")
    world = make_world(SketchShape(z, w), vocabulary, seed)
    found: list[Finding] = []
    for number, name in enumerate(ATTACKED):
        if mode not in (name, "all"):
            continue
        rng = np.random.default_rng((seed, 1, number))  # what a mode gives does not depend on which others are attacked
        noise = SketchNoise(name, epsilon, z, "laplace" if name == "paper" else mechanism, delta)
        found += [distinguish(world, noise, z1, trials, rng)]
        if name == "per-query":
            found += [distinguish_unscaled(world, epsilon, z1, trials, rng)]
        if z1 < z:
            found += [cancel(world, noise, z1, trials, rng)]
        if name != "paper":
            found += repeat(world, noise, _TIMES, _LEDGER * epsilon, min(trials, _MOST_REPEATED), rng)
        if name == "publish-once":  # no question leaves the querier
            continue
        terms = min(trials, _MOST_TERMS)
        published = name == "paper"
        for scheme in ("icde", "jos") if published else ("jos",):
            found += [dictionary(world, z1, scheme, terms, rng)]
        found += [intersection(world, z1, _REQUESTS, published, terms, rng), two_silos(world, z1, terms, rng)]
    return found
