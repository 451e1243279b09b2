"""Audits: an attack that shows from samples at least how much a mechanism reveals, with confidence.

A reader of messages wants to tell two worlds apart: one thing a user did is so, or otherwise. If a mechanism is
(ε, δ)-differentially private, every set of messages has P(first world) ≤ e^ε P(second world) + δ. An audit draws many
messages in both worlds with the code that devices run, finds in one half of them the set that tells the worlds apart
best, and bounds both probabilities from the other half with Clopper and Pearson's exact intervals: with the confidence
asked for, ε is at least ln((P − δ)/Q). It looks at the code from outside, and so notices what a proof on paper does
not: a wrong probability, randomness that is used twice, bits of a floating-point number that tell what noise was added
to (Ding et al., CCS 2018; Jagielski, Ullman and Oprea, NeurIPS 2020).

A bound below the promise proves nothing; a bound above it proves that the promise is wrong. For Gaussian noise no set
of messages that is seen often comes near the ε at a small δ. There the trade-off between the two kinds of errors is
that of two normal distributions μ apart, or better for the people (Gaussian differential privacy): a lower bound of μ
is one of ε at any δ, if the noise is Gaussian at all (Nasr et al., *Tight auditing of differentially private machine
learning*, USENIX Security 2023, Section 4.2).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64, Integer
from typing_extensions import override

from fedrank.core import registry
from fedrank.core.errors import ConfigError
from fedrank.core.registry import Registry, as_entry
from fedrank.privacy.calibration import gaussian_epsilon

#: Most sets of messages that are tried when the best one is looked for.
_TRIED = 1000
#: Messages that are drawn at a time.
_AT_ONCE = 2**16
#: Distances of normal distributions below this are none.
_APART = 1e-3


@dataclass(frozen=True)
class Audit:
    """A mechanism, what it promises, and two worlds in which what it sends should be hard to tell apart.

    Attributes:
        mechanism: Its name.
        unit: What differs between the worlds, one of :class:`fedrank.core.privacy_report.Unit` in words.
        worlds: Both, in a sentence.
        epsilon: What is promised, in nats.
        delta: δ of it.
        sample: Messages of the first world (0) or the second (1): called with the world and a number of trials, it
            returns one integer a trial, or a row of integers [trials, k].
        gaussian: The noise is Gaussian, and is judged by its trade-off curve.
        ordered: Messages are one number, and the larger it is, the more it speaks for the second world. Else what
            speaks for which is learnt from the messages, which takes more of them.
        trials: Messages of each world that are enough for a useful bound.
        holds: What is promised is meant to hold; False for what a publication printed and what is known not to.
    """

    mechanism: str
    unit: str
    worlds: str
    epsilon: float
    sample: Callable[[int, int], Integer[np.ndarray, "trials *k"]]
    delta: float = 0.0
    gaussian: bool = False
    ordered: bool = False
    trials: int = 200_000
    holds: bool = True


class _Audits(Registry[Callable[..., Audit]]):
    """The group's audits, and those of mechanisms that have one, by the audit's name."""

    @functools.cached_property
    def _of_mechanisms(self) -> dict[str, Callable[..., Audit]]:
        found = [registry.get("fedrank.mechanisms", name) for name in registry.names("fedrank.mechanisms")]
        made = [(cls.audit(), cls.audit) for cls in found]
        return {audit.mechanism: function for audit, function in made if audit is not None}

    @override
    def _names_of_group(self):
        return sorted({*super()._names_of_group(), *self._of_mechanisms})

    @override
    def _entry_of_group(self, name):
        function = self._of_mechanisms.get(name)
        return super()._entry_of_group(name) if function is None else as_entry(name, function)


#: Audits by name: functions of ε and δ that return an :class:`Audit`. A mechanism has its own
#: (:mod:`fedrank.ranking.mechanisms`); packages add others in ``fedrank.audits``.
AUDITS: Registry[Callable[..., Audit]] = _Audits("audit", "fedrank.audits")


@dataclass(frozen=True)
class Audited:
    """The result of an audit.

    Attributes:
        mechanism: As of :class:`Audit`.
        unit: As of :class:`Audit`.
        worlds: As of :class:`Audit`.
        promised: ε that is promised, in nats.
        delta: δ of it.
        shown: ε is at least this, with the confidence; 0 where nothing was shown.
        most: ε that these trials would have shown of a mechanism that hides nothing.
        confidence: Probability that the bound is right, whatever the mechanism.
        trials: Messages drawn in each world.
        holds: As of :class:`Audit`.
    """

    mechanism: str
    unit: str
    worlds: str
    promised: float
    delta: float
    shown: float
    most: float
    confidence: float
    trials: int
    holds: bool = True

    @property
    def broken(self) -> bool:
        """More was shown than is promised."""
        return self.shown > self.promised


def audit_mechanism(audit: Audit, trials: int | None = None, confidence: float = 0.99) -> Audited:
    """Audit a mechanism.

    Args:
        audit: What is audited.
        trials: Messages drawn in each world, at least 100; one half finds the attack, the other measures it. None: as
            many as the audit names.
        confidence: Probability that the bound is right, in (0, 1).

    Raises:
        ConfigError: A number is out of range.
    """
    trials = audit.trials if trials is None else trials
    if trials < 100:
        raise ConfigError(f"an audit needs at least 100 trials, got {trials}.")
    if not 0.0 < confidence < 1.0:
        raise ConfigError(f"confidence must be in (0, 1), got {confidence}.")
    half = trials // 2
    learnt, measured = (_count_messages(_drawn(audit, 0, n), _drawn(audit, 1, n)) for n in (half, trials - half))
    if audit.ordered and learnt[0].shape[1] != 1:
        raise ConfigError(f"messages of an ordered audit are one number each, got {learnt[0].shape[1]}.")
    bound = gaussian_distance if audit.gaussian else pure_bound
    # Either world may be the likelier one: two attacks, with half of the error for each.
    error, shown = (1.0 - confidence) / 2, 0.0
    for first, second in ((0, 1), (1, 0)):
        chosen = _best_set(learnt, first, audit, error, bound)
        inside = chosen(measured[0])
        hits = [int(measured[1][inside, world].sum()) for world in (first, second)]
        found = float(bound(np.array(hits[:1]), np.array(hits[1:]), trials - half, audit.delta, error)[0])
        shown = max(shown, _gaussian_epsilon(found, audit.delta) if audit.gaussian else found)
    most = float(pure_bound(np.array([trials - half]), np.array([0]), trials - half, audit.delta, error)[0])
    said = (audit.mechanism, audit.unit, audit.worlds, audit.epsilon, audit.delta)
    return Audited(*said, shown, most, confidence, trials, audit.holds)


def clopper_pearson(
    hits: Int64[np.ndarray, " sets"], trials: int, error: float
) -> tuple[Float64[np.ndarray, " sets"], Float64[np.ndarray, " sets"]]:
    """Lower and upper bounds of probabilities, each right with probability 1 − ``error`` (Clopper and Pearson 1934).

    Args:
        hits: int64 [sets], how often each happened.
        trials: Number of trials.
        error: Probability that one bound is wrong, in (0, 1).
    """
    from scipy.stats import beta

    low = np.where(hits > 0, beta.ppf(error, np.maximum(hits, 1), trials - hits + 1), 0.0)
    high = np.where(hits < trials, beta.ppf(1 - error, hits + 1, np.maximum(trials - hits, 1)), 1.0)
    return low, high


def pure_bound(
    first: Int64[np.ndarray, " sets"], second: Int64[np.ndarray, " sets"], trials: int, delta: float, error: float
) -> Float64[np.ndarray, " sets"]:
    """ε ≥ ln((P − δ)/Q), whatever the mechanism: float64 [sets], 0 where nothing is shown.

    Args:
        first: int64 [sets], messages of the first world in each set.
        second: int64 [sets], of the second world.
        trials: Messages of each world.
        delta: δ.
        error: Probability that a bound is wrong; P and Q get half of it each.
    """
    low, _ = clopper_pearson(first, trials, error / 2)
    _, high = clopper_pearson(second, trials, error / 2)
    return np.log(np.maximum(low - delta, high) / high)


def gaussian_distance(
    first: Int64[np.ndarray, " sets"], second: Int64[np.ndarray, " sets"], trials: int, delta: float, error: float
) -> Float64[np.ndarray, " sets"]:
    """The distance of two normal distributions, μ ≥ Φ⁻¹(P) − Φ⁻¹(Q): float64 [sets].

    Arguments are those of :func:`pure_bound`; δ is not used.
    """
    from scipy.special import ndtri

    low, _ = clopper_pearson(first, trials, error / 2)
    _, high = clopper_pearson(second, trials, error / 2)
    # A set that never or always happened in a world says no more than half a message would.
    least = 0.5 / trials
    return ndtri(np.clip(low, least, 1 - least)) - ndtri(np.clip(high, least, 1 - least))


def _gaussian_epsilon(distance: float, delta: float) -> float:
    """ε at δ of two normal distributions so far apart; 0 if they are not apart."""
    return gaussian_epsilon(1.0 / distance, delta, 1.0) if distance > _APART else 0.0


def _drawn(audit: Audit, world: int, trials: int) -> Int64[np.ndarray, "trials k"]:
    parts = [audit.sample(world, min(_AT_ONCE, trials - at)) for at in range(0, trials, _AT_ONCE)]
    return np.concatenate([np.asarray(part, np.int64).reshape(len(part), -1) for part in parts])


def _count_messages(
    first: Int64[np.ndarray, "n k"], second: Int64[np.ndarray, "n k"]
) -> tuple[Int64[np.ndarray, "kinds k"], Int64[np.ndarray, "kinds 2"]]:
    """Each message that was seen, sorted, and how often in each world."""
    kinds, which = np.unique(np.concatenate([first, second]), axis=0, return_inverse=True)
    counts = [np.bincount(part, minlength=len(kinds)) for part in np.split(which.ravel(), [len(first)])]
    return kinds, np.stack(counts, axis=1).astype(np.int64)


def _best_set(
    learnt: tuple[Int64[np.ndarray, "kinds k"], Int64[np.ndarray, "kinds 2"]],
    first: int,
    audit: Audit,
    error: float,
    bound: Callable[..., Float64[np.ndarray, " sets"]],
) -> Callable[[Int64[np.ndarray, "kinds k"]], Bool[np.ndarray, " kinds"]]:
    """The set of messages by which the worlds are told apart best: a function that says which messages are in it."""
    kinds, counts = learnt
    here, there = counts[:, first], counts[:, 1 - first]
    if audit.ordered:
        order = np.arange(len(kinds)) if first == 0 else np.arange(len(kinds))[::-1]
    else:  # by likelihood; half a message more in both worlds: one that was seen once says little
        order = np.argsort(-(here + 0.5) / (there + 0.5), kind="stable")
    inside, outside = np.cumsum(here[order]), np.cumsum(there[order])
    sizes = np.unique(np.linspace(0, len(order) - 1, min(_TRIED, len(order))).astype(int))
    # Each of the sets has its share of the error: the best of many bounds would else be a tail that was lucky once.
    found = bound(inside[sizes], outside[sizes], int(here.sum()), audit.delta, error / len(sizes))
    last = sizes[int(np.argmax(found))]
    if audit.ordered:
        end = kinds[order[last], 0]
        return lambda messages: messages[:, 0] <= end if first == 0 else messages[:, 0] >= end
    chosen = {row.tobytes() for row in kinds[order[: last + 1]]}
    return lambda messages: np.array([row.tobytes() in chosen for row in np.ascontiguousarray(messages)], bool)
