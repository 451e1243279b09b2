"""A finding: what one attacker learns from one mode's messages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedrank.core.trees import Json
from fedrank.metrics.returns import MeanInterval, mean_interval
from fedrank.slates.attacks.guesses import Accuracy
from fedrank.slates.attacks.settings import SUMS


@dataclass(frozen=True)
class Leak:
    """What one attacker learns from one mode's messages.

    Attributes:
        mode: One of :data:`~fedrank.slates.attacks.settings.MODES`; with the ε of its noise, if it has any.
        attacker: The coordinator or a platform.
        secret: What it learns about.
        means: How.
        measures: By name, with an interval over seeds. Of numbers ``r2``, ``rank``, ``error``, ``blind`` and ``exact``
            as in :class:`~fedrank.slates.attacks.guesses.Accuracy`, of sums without ``rank`` and ``exact``; of clicks
            ``exact`` and ``blind``, shares that are right; of who was there ``advantage``, true less false positives,
            and ``bound``, the most that the promised ε allows of it, 1 without one. ``ceiling``, where it is known, is
            what the best such attacker reaches.
    """

    mode: str
    attacker: str
    secret: str
    means: str
    measures: Mapping[str, MeanInterval]

    @property
    def of_sums(self) -> bool:
        """Whether it is about sums over users: such findings have tables of their own."""
        return self.mode.split(",")[0] in SUMS

    @property
    def words(self) -> str:
        """The finding as a sentence."""
        m, who = self.measures, f"{self.mode}: {self.attacker}, by {self.means}, finds {self.secret}"
        most = f"; the best attacker reaches {m['ceiling'].mean:.3f}" if "ceiling" in m else ""
        if "advantage" in m:
            allowed = m["bound"].mean
            bound = f", ε allows {allowed:.3f}" if allowed < 1 else ", nothing is promised"
            return f"{who} with an advantage of {m['advantage'].mean:.3f} (1 is certainty{bound}){most}"
        if "r2" not in m:
            return f"{who} in {_percent(m['exact'].mean)} of transitions (guessing: {_percent(m['blind'].mean)})"
        explained = "nothing to explain, it is constant" if math.isnan(m["r2"].mean) else f"R² = {m['r2'].mean:.3f}"
        exact = f"; {_percent(m['exact'].mean)} to a part in a hundred" if "exact" in m else ""
        return (
            f"{who} with {explained}; off by {m['error'].mean:.3g}, where guessing the mean is off by "
            f"{m['blind'].mean:.3g}{exact}{most}"
        )

    def as_json(self) -> dict[str, Json]:
        """For programs; what is not a number is null."""
        measures = {
            name: {end: None if math.isnan(value) else value for end, value in interval._asdict().items()}
            for name, interval in self.measures.items()
        }
        named = {name: getattr(self, name) for name in ("mode", "attacker", "secret", "means")}
        return {**named, **measures, "words": self.words}


def leak_of(mode: str, attacker: str, secret: str, means: str, each: Sequence[Accuracy]) -> Leak:
    """The finding of how accurately a number was guessed in each seed."""
    measures = {name: interval([getattr(one, name) for one in each]) for name in Accuracy._fields}
    return Leak(mode, attacker, secret, means, measures)


def interval(values: Sequence[float]) -> MeanInterval:
    """Mean and interval over seeds; NaN if one of the values is."""
    if any(math.isnan(value) for value in values):
        return MeanInterval(math.nan, math.nan, math.nan)
    return mean_interval(values)


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"
