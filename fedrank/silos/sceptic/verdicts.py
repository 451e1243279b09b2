"""Verdicts on help and harm to a silo, from one division of its rows, with the smallest visible effect.

For each other silo: the AUC of a logistic model of the target's rows and the other's, minus that of the target's alone,
on all of the target's rows by cross-fitting, with DeLong's error of a paired difference. Of the other silo's rows the
model has their log-likelihood to second order, from one message. p-values are multiplied by the
number of silos (Bonferroni), so that a verdict about any of them is wrong with a probability of at most 5 %. Where
nothing is found, what would have been seen is said: a harm that a test of this size finds in four of five cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import special

from fedrank.core.trees import Json
from fedrank.silos.sceptic.auc import Estimate
from fedrank.silos.sceptic.learners import Own, choose_penalty, fit_alone, folds
from fedrank.silos.sceptic.probes import LEVEL
from fedrank.silos.sceptic.summary import Summary, fit_with

#: Probability with which a harm that is said to be visible would have been seen.
POWER = 0.8
#: Folds of the target's rows.
FOLDS = 5


class Verdict(NamedTuple):
    """Verdict on one silo for the target.

    Attributes:
        silo: Its number.
        gain: AUC with its rows minus AUC without.
        p: Two-sided p-value, corrected for the number of silos.
        visible: Harm in AUC that would have been seen with a probability of :data:`POWER`; NaN without an error.
    """

    silo: int
    gain: Estimate
    p: float
    visible: float

    @property
    def word(self) -> str:
        """``helps``, ``harms`` or ``no evidence``."""
        return "no evidence" if not self.p < LEVEL else "helps" if self.gain.value > 0 else "harms"

    @property
    def text(self) -> str:
        """The verdict as a sentence without the silo's name."""
        if self.word != "no evidence":
            return f"{self.word}: {self.gain.value:+.3f} AUC".replace("-", "−")
        if not np.isfinite(self.visible):
            return "no evidence: there are too few rows of one label for an error"
        return f"no evidence, and a harm of more than {self.visible:.3f} AUC would have been seen"

    def as_json(self) -> dict[str, Json]:
        """As it stands in a file."""
        low, high = self.gain.interval()
        numbers = {"gain": self.gain.value, "low": low, "high": high, "p": self.p, "visible_harm": self.visible}
        return {"verdict": self.word, "text": self.text} | {
            name: float(value) if np.isfinite(value) else None for name, value in numbers.items()
        }


def verdict_of(silo: int, gain: Estimate, many: int) -> Verdict:
    """The verdict that a difference of AUCs gives.

    Args:
        silo: The other silo's number.
        gain: AUC with its rows minus AUC without, with its error.
        many: Number of silos that are judged.
    """
    seen = float(special.ndtri(1 - LEVEL / 2 / many) + special.ndtri(POWER))
    return Verdict(silo, gain, min(1.0, gain.p * many), seen * gain.error)


def verdicts(mine: Own, others: Mapping[int, Summary], rng: np.random.Generator) -> list[Verdict]:
    """A verdict about every other silo.

    Args:
        mine: The target's rows.
        others: The messages of the other silos, by number.
        rng: Draws the folds, and those by which penalties are chosen.
    """
    if mine.rarer < 2:
        return [Verdict(silo, Estimate(float("nan"), float("nan")), 1.0, float("nan")) for silo in others]
    fold = folds(mine, FOLDS, rng)
    alone, together = np.empty(mine.rows), {silo: np.empty(mine.rows) for silo in others}
    for number in np.unique(fold):
        test = fold == number
        own = mine[~test]
        penalty = choose_penalty(own, rng)
        alone[test] = fit_alone(own, penalty)(mine.x[test])
        for silo, one in others.items():
            together[silo][test] = fit_with(own, [one], penalty)(mine.x[test])
    many = max(1, len(others))
    return [verdict_of(silo, mine.difference(scores, alone, fold), many) for silo, scores in together.items()]
