"""Privacy account of sketches: the ε of one occurrence of a word in the noisy counts that a silo hands out.

The unit is one appearance of one word in one document, added or removed (:mod:`fedrank.texts.sketch.noise`). What
silos do with each other's counts, features and training included, is post-processing of what was handed out. What a
silo computes from its *own* documents and judgements without noise, as the models that it sends in training, is not.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import (
    BASIC,
    EVERYBODY,
    KNOWN_RANDOMNESS,
    NOBODY,
    SIMULATION,
    AuditedBy,
    PrivacyReport,
    Promise,
    Unit,
    remark,
)
from fedrank.privacy.calibration import concentrated_epsilon, gaussian_sigma
from fedrank.texts.sketch.noise import SHARES, SketchNoise

#: What no account of sketches covers.
NOT_COVERED = (
    "Whole documents, and anything that many words of a document show together: for that, multiply by the number of "
    "occurrences.",
    "How many documents, queries, query words, training rows and cross pairs a silo has, which documents there are, "
    "and when they are added or taken away.",
    KNOWN_RANDOMNESS,
    SIMULATION,
    "Documents that go out a second time: after a change, with noise drawn anew, everything here is spent again.",
)

#: What training adds to it.
TRAINING = (
    "The models and steps that a silo sends in training, and, where features are scaled by all silos, sums of its "
    "features before it. They are made from its own documents, queries and judgements, without noise."
)

_COVERS = (
    "One occurrence of a word in a document: its trace in the silo's sketches, in the document's length and number "
    "of different words, and in the silo's document frequencies and counts of all occurrences.",
    "Against all other silos together and the server, also if they know the secret of the hashes and every other "
    "word of the document, and whatever they compute from what they got.",
    "A word replaced by another, at twice ε.",
)


def sketch_account(noise: SketchNoise, *, occurrences: int = 0, training: bool = True) -> PrivacyReport:
    """The privacy account of a mode.

    Args:
        noise: The mode and its settings.
        occurrences: Number of words of the longest document.
        training: Whether silos send models trained on their own documents.

    Raises:
        ConfigError: The number of words is negative.

    >>> from fedrank.texts.sketch.noise import SketchNoise
    >>> report = sketch_account(SketchNoise("publish-once", epsilon=8.0, z=30), occurrences=300)
    >>> [report.epsilon(unit) for unit in (Unit.OCCURRENCE, Unit.REPLACED_WORD, Unit.DOCUMENT)]
    [8.0, 16.0, 2400.0]
    """
    if occurrences < 0:
        raise ConfigError(f"occurrences must be at least 0, got {occurrences}.")
    gaussian, plain = noise.mechanism == "gaussian", noise.epsilon is None
    delta, distance = noise.delta if gaussian else 0.0, noise.change("sketches")
    tight = "concentrated differential privacy" if gaussian else BASIC
    all_in_all = _total(noise, 1)
    promises = (
        *(Promise(Unit.OCCURRENCE, _part(noise, what), delta, scope=what) for what in SHARES),
        Promise(Unit.OCCURRENCE, all_in_all, delta, tight),
        Promise(Unit.REPLACED_WORD, _total(noise, 2), delta, tight),
        Promise(Unit.DOCUMENT, _total(noise, occurrences), delta, tight),
        *(() if training else (Promise(Unit.ROUND, all_in_all, delta, tight),)),
    )
    report = PrivacyReport(
        mechanism="no noise" if plain else f"discrete {'Gaussian' if gaussian else 'Laplace'} noise",
        trust=EVERYBODY if plain else NOBODY,
        promises=promises,
        covers=() if plain else _COVERS,
        not_covered=(
            *(("Anything: counts go out as they are.",) if plain else ()),
            *((TRAINING,) if training else ()),
            *NOT_COVERED,
        ),
        details={
            "mode": noise.mode,
            "scale": noise.scale(),
            "sensitivity": math.sqrt(distance) if gaussian else float(distance),
            "occurrences": occurrences,
            "training": training,
            "delta": noise.delta,
        },
    )
    audit = None if plain or gaussian else AuditedBy("published-sketch", {"epsilon": noise.epsilon})
    return replace(report, words=(_paragraph(report),), audit=audit)


def _paragraph(report: PrivacyReport) -> str:
    """A paragraph for people who decide whether this may be deployed."""
    epsilon, got = report.epsilon, report.details
    if got["mode"] == "plain":
        return "Sketches have no noise. Whoever knows the secret of the hashes reads the counts of every word."
    low, at = epsilon(Unit.OCCURRENCE), f" at δ = {got['delta']:.0e}"
    gaussian = "Gaussian" in report.mechanism
    noise = f"{report.mechanism} of {'σ' if gaussian else 'scale'} {got['scale']:.4g}"
    models = ", and the models that silos train on their own documents and send without noise"
    return (
        f"Every sketch is published once with {noise} in each cell, and so are sizes and statistics. Whatever is "
        "looked up in them, by whom and how often, one occurrence of a word makes it at most e^ε times as likely, "
        f"with ε = {low:.4g}{at if gaussian else ''}, once and for all. Another silo "
        "reads most words of a document at ε = 4 and more, and tells whether a text is there at 0.4 and more; at "
        "0.2 it was not seen to, on four collections (fedrank privacy attack documents). The server, which passes "
        "on sealed bytes, reads none. "
        f"A replaced word costs {epsilon(Unit.REPLACED_WORD):.4g}.{remark(low, limit=3.0)} Not covered, among "
        f"other things: whole documents (of {got['occurrences']:,} words, the bound would be "
        f"ε = {epsilon(Unit.DOCUMENT):.4g}){models if got['training'] else ''}."
    )


def _part(noise: SketchNoise, what: str) -> float:
    """ε of what is handed out once: sketches, sizes or statistics."""
    if noise.epsilon is None:
        return math.inf
    if noise.mechanism == "laplace":
        return noise.epsilon * noise.part(what)
    return concentrated_epsilon(noise.part(what) * _gaussian_rho(noise), noise.delta)


def _total(noise: SketchNoise, group: int) -> float:
    """ε of several occurrences at once; Laplace noise adds ε for each of a group, and ρ grows with its square."""
    if group == 0:
        return 0.0
    if noise.epsilon is None:
        return math.inf
    shares = sum(noise.shares.values())
    if noise.mechanism == "laplace":
        return group * shares * noise.epsilon
    return concentrated_epsilon(group**2 * shares * _gaussian_rho(noise), noise.delta)


def _gaussian_rho(noise: SketchNoise) -> float:
    """ρ of Gaussian noise whose σ has ε at δ."""
    assert noise.epsilon is not None
    return 0.5 / gaussian_sigma(noise.epsilon, noise.delta, 1.0) ** 2
