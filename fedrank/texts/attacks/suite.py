"""All attacks on sketches, for one mode or for all."""

from __future__ import annotations

import numpy as np

from fedrank.texts.attacks.counts import cancel, distinguish, distinguish_unscaled, repeat
from fedrank.texts.attacks.settings import ATTACKED, SketchAttack
from fedrank.texts.attacks.terms import dictionary, intersection, two_silos
from fedrank.texts.attacks.world import Finding, make_world
from fedrank.texts.sketch import SketchShape
from fedrank.texts.sketch.noise import SketchNoise

#: How often a question is repeated.
_TIMES = 200

#: ε of the ledger, in answers by basic composition.
_LEDGER = 8.0

#: Most trials of attacks that repeat questions, and of those on terms: each takes about as long as hundreds.
_MOST_REPEATED, _MOST_TERMS = 2_000, 200

#: Questions about one term that are compared.
_REQUESTS = 2


def attack_sketches(settings: SketchAttack = SketchAttack()) -> list[Finding]:  # noqa: B008 - frozen
    """Attack generated documents and the questions about them.

    Args:
        settings: The mode, or all of them, and the sketches. Where mode publish-once is attacked alone, z₁ is at most
            z, and where it is z, no cells are left for :func:`~fedrank.texts.attacks.counts.cancel` to take noise off
            with. Paper mode has Laplace noise whatever the mechanism is.

    Returns:
        What was found, by mode in the order of :data:`~fedrank.texts.attacks.settings.ATTACKED`; controls are marked.
    """
    s = settings
    z1, trials = s.z1 if s.asks else min(s.z1, s.z), s.trials
    world = make_world(SketchShape(s.z, s.w), s.vocabulary, s.seed)
    found: list[Finding] = []
    for name in s.modes:
        # What a mode gives does not depend on which others are attacked.
        rng = np.random.default_rng((s.seed, 1, ATTACKED.index(name)))
        noise = SketchNoise(name, s.epsilon, s.z, "laplace" if name == "paper" else s.mechanism, s.delta)
        found += [distinguish(world, noise, z1, trials, rng)]
        if name == "per-query":
            found += [distinguish_unscaled(world, s.epsilon, z1, trials, rng)]
        if z1 < s.z:
            found += [cancel(world, noise, z1, trials, rng)]
        if name != "paper":
            found += repeat(world, noise, _TIMES, _LEDGER * s.epsilon, min(trials, _MOST_REPEATED), rng)
        if name == "publish-once":  # no question leaves the querier
            continue
        terms = min(trials, _MOST_TERMS)
        published = name == "paper"
        for scheme in ("icde", "jos") if published else ("jos",):
            found += [dictionary(world, z1, scheme, terms, rng)]
        found += [intersection(world, z1, _REQUESTS, published, terms, rng), two_silos(world, z1, terms, rng)]
    return found
