"""Probes of other silos before anything is averaged: inverted or permuted labels, copies, constant models, other units.

They need one message of each silo (:class:`~fedrank.silos.sceptic.summary.Summary`), and the AUCs of the others' models
on the target's rows.

Whether two silos have the same coefficients is told by the score test at the model that fits both best, each with
its own intercept: with U the derivatives of one silo's log-likelihood there, and I₁, I₂ the information of the two
about what is not the intercept, U'(I₁ − I₁(I₁ + I₂)⁻¹I₁)⁻U is χ² with as many degrees of freedom as there are
coefficients, if the two are one population. Both log-likelihoods are taken to second order at each silo's own model.
The test holds the error of both silos' rows, so that silos of one kind are told apart as seldom as its level says,
however many rows there are.

**Verdicts** on help and harm to a silo come from one division of its rows, with the smallest visible effect. For each
other silo: the AUC of a logistic model of the target's rows and the other's, minus that of the target's alone, on all
of the target's rows by cross-fitting, with DeLong's error of a paired difference. Of the other silo's rows the model
has their log-likelihood to second order, from one message. p-values are multiplied by the number of silos (Bonferroni),
so that a verdict about any of them is wrong with a probability of at most 5 %. Where nothing is found, what would have
been seen is said: a harm that a test of this size finds in four of five cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import special

from fedrank.core.trees import Json
from fedrank.silos.data.looks import copies_text
from fedrank.silos.glm import Moments, combine_moments
from fedrank.silos.sceptic.auc import Estimate
from fedrank.silos.sceptic.learners import Own, choose_penalty, fit_alone, folds
from fedrank.silos.sceptic.shrinkage import Quadratic
from fedrank.silos.sceptic.summary import Summary, fit_with

#: Largest probability of one false alarm of a kind about any silo.
LEVEL = 0.05
#: Probability, in a federation without copies, of a pair of silos that are as alike as copies are.
_COPIES = 1e-6
#: Rows for each coefficient below which a model fits both silos so well that they always look like copies.
_ROWS_EACH = 3
#: Means that differ by more deviations, or deviations that differ by a larger factor, look like another unit.
_UNIT = 5.0


class Alarm(NamedTuple):
    """Something that looks wrong at a silo.

    Attributes:
        silo: Its number.
        kind: ``inverted``, ``permuted``, ``constant``, ``copy``, ``twice`` or ``units``.
        text: A sentence without the silo's name.
    """

    silo: int
    kind: str
    text: str


class Alike(NamedTuple):
    """Test of two silos for the same coefficients.

    Attributes:
        statistic: χ² if they have.
        degrees: Its degrees of freedom; 0 where rows say nothing.
    """

    statistic: float
    degrees: int

    @property
    def p(self) -> float:
        """Probability of a statistic at least as large, if they are of one population."""
        return float(special.chdtrc(self.degrees, self.statistic)) if self.degrees else 1.0

    @property
    def copies(self) -> float:
        """Probability of a statistic at most as large: nearly 0 of two silos with the same rows."""
        return float(special.chdtr(self.degrees, self.statistic)) if self.degrees else 1.0


def alike(first: Summary, second: Summary) -> Alike:
    """The score test that two silos have the same coefficients, each with its own intercept."""
    if not first.rarer or not second.rarer:
        return Alike(0.0, 0)
    moments = combine_moments([first.moments, second.moments])
    (score, own), (other_score, other) = (_about_slopes(one.quadratic(moments)) for one in (first, second))
    weight = own @ np.linalg.pinv(own + other, hermitian=True)
    variance = own - weight @ own
    return _test(score - weight @ (score + other_score), (variance + variance.T) / 2)


def association(own: Summary) -> Alike:
    """The score test that a silo's columns say nothing about its labels."""
    return _test(own.score, own.information) if own.rarer else Alike(0.0, 0)


def _about_slopes(of: Quadratic) -> tuple[Float[np.ndarray, " slopes"], Float[np.ndarray, "slopes slopes"]]:
    """Linear term and information of a silo's log-likelihood about the slopes, its own intercept fitted."""
    own, across = of.precision[0, 0], of.precision[1:, 0]
    share = across / own if own > 0 else np.zeros_like(across)
    return of.linear[1:] - share * of.linear[0], of.precision[1:, 1:] - np.outer(share, across)


def _test(score: Float[np.ndarray, " slopes"], variance: Float[np.ndarray, "slopes slopes"]) -> Alike:
    values, vectors = np.linalg.eigh(variance)
    kept = values > 1e-8 * max(float(values.max(initial=0.0)), 1e-12)
    along = vectors[:, kept].T @ score
    return Alike(float((along**2 / values[kept]).sum()), int(kept.sum()))


class Probes(NamedTuple):
    """Probes of the silos, seen from a target.

    Attributes:
        alarms: What looks wrong.
        scores: AUC of each other silo's own model on the target's rows, by silo.
        unlike: p-values, corrected, that a silo has the target's coefficients, by silo.
        together: For each silo those that it is not told apart from.
        shifted: Names of the columns that lie elsewhere than the target's, by silo.
    """

    alarms: tuple[Alarm, ...]
    scores: dict[int, Estimate]
    unlike: dict[int, float]
    together: dict[int, tuple[int, ...]]
    shifted: dict[int, tuple[str, ...]]

    def as_json(self, names: Sequence[str]) -> dict[str, Json]:
        """By name of the silo."""
        return {
            names[silo]: {
                "auc_as_it_is": score.value if np.isfinite(score.value) else None,
                "unlike_p": self.unlike[silo],
                "not_told_apart_from": [names[k] for k in self.together[silo]],
                "shifted": list(self.shifted[silo]),
                "alarms": [{"kind": a.kind, "text": a.text} for a in self.alarms if a.silo == silo],
            }
            for silo, score in self.scores.items()
        }


def probe(
    silos: Sequence[Summary],
    scores: Mapping[int, Estimate],
    target: int,
    columns: Sequence[str],
    names: Sequence[str] = (),
) -> Probes:
    """Probe every silo for a target.

    Args:
        silos: The messages of all silos, the target's among them.
        scores: AUC of each other silo's own model on the target's rows (:func:`score_models`).
        target: The target's number.
        columns: Names of the columns.
        names: Names of the silos, for the sentences; without them they are numbered.
    """

    def silo_name(silo: int) -> str:
        return names[silo] if names else f"silo {silo}"

    alarms: list[Alarm] = []
    for silo, own in enumerate(silos):
        if own.twice:
            said = f"it has {copies_text(own.twice, own.by_chance)}; of copies one counts"
            alarms.append(Alarm(silo, "twice", said))
    mine = silos[target]
    many = max(1, len(scores))
    unlike, shifted = {}, {}
    signal = association(mine).p < LEVEL
    pairs = len(silos) * (len(silos) - 1) / 2
    same = {(j, k): alike(silos[j], silos[k]) for j in range(len(silos)) for k in range(j)}
    for silo, found in scores.items():
        own = silos[silo]
        different = same[max(silo, target), min(silo, target)]
        unlike[silo] = min(1.0, different.p * many)
        shifted[silo] = _test_shift(mine.moments, own.moments, columns, many)
        if not own.rarer:
            alarms.append(Alarm(silo, "constant", f"all its labels are {int(own.positive > 0)}: it has no model"))
            continue
        if below_half(found, many) < LEVEL:
            said = f"its model orders the target's rows the wrong way round (AUC {found.value:.2f})"
            alarms.append(Alarm(silo, "inverted", f"{said}: labels look inverted"))
        elif signal and unlike[silo] < LEVEL and association(own).p > LEVEL:
            said = "its labels have nothing to do with its columns, where the target's have"
            alarms.append(Alarm(silo, "permuted", f"{said}: labels look permuted"))
        if units := _units(mine.moments, own.moments, columns):
            alarms.append(Alarm(silo, "units", f"{', '.join(units)} may be in another unit"))
    for (j, k), pair in same.items():
        enough = min(silos[j].rows, silos[k].rows) > _ROWS_EACH * pair.degrees
        if pair.copies * pairs < _COPIES and pair.degrees and enough:
            for silo, other in ((j, k), (k, j)):
                if silo != target:
                    said = f"it has the coefficients of {silo_name(other)} to the last digit, as with the same rows"
                    alarms.append(Alarm(silo, "copy", said))
    level = LEVEL / pairs
    together = {
        j: tuple(k for k in range(len(silos)) if k != j and same[max(j, k), min(j, k)].p >= level) for j in scores
    }
    return Probes(tuple(alarms), dict(scores), unlike, together, shifted)


def score_models(mine: Own, others: Mapping[int, Summary]) -> dict[int, Estimate]:
    """AUC of each other silo's own model, as it is, on a silo's rows."""
    return {silo: mine.auc(one.model(mine.x)) for silo, one in others.items()}


def below_half(score: Estimate, many: int) -> float:
    """One-sided p-value, corrected, that an AUC is one half or more; 1 without an error."""
    if not np.isfinite(score.error) or score.error <= 0:
        return 1.0
    return min(1.0, float(special.ndtr((score.value - 0.5) / score.error)) * many)


def _test_shift(a: Moments, b: Moments, columns: Sequence[str], many: int) -> tuple[str, ...]:
    """Columns whose means differ by half a deviation and by more than chance."""
    spread = np.sqrt((a.deviation**2 + b.deviation**2) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.abs(a.mean - b.mean) / spread
        error = np.sqrt(a.deviation**2 / a.count + b.deviation**2 / b.count)
        p = 2 * special.ndtr(-np.abs(a.mean - b.mean) / error) * many * len(columns)
    there = (a.count > 1) & (b.count > 1) & (apart > 0.5) & (p < LEVEL)
    return tuple(columns[k] for k in np.flatnonzero(there).tolist())


def _units(a: Moments, b: Moments, columns: Sequence[str]) -> list[str]:
    """Columns of numbers that lie where another unit would put them."""
    out = []
    for k, name in enumerate(columns):
        if "=" in name or min(a.count[k], b.count[k]) < 10 or min(a.deviation[k], b.deviation[k]) <= 0:
            continue
        wide = max(a.deviation[k], b.deviation[k]) / min(a.deviation[k], b.deviation[k])
        apart = abs(a.mean[k] - b.mean[k]) / max(a.deviation[k], b.deviation[k])
        if wide > _UNIT or apart > _UNIT:
            out.append(name)
    return out


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
        """Plain values for ``--json`` and the file of results, by name."""
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
