"""What checks say over the rounds: whether the newest model is worse than the best one, or better and the best itself.

A check is about the model of its round and the *best* one, that of an earlier round. What it tells is a number whose
mean is the difference of the two, between −1 and 1: of the privatised difference what it stands for, of two privatised
sums their difference with the lies taken out. Two tests run side by side, each valid whenever somebody looks
(:mod:`fedrank.deploy.hub.checks.evidence`):

*sinks*   The newest is worse by more than a margin. Where money reaches 1/α the hub halts. If no model is ever worse
          by more than the margin, that happens with probability at most α over the hub's whole life.
*rises*   The newest is better by more than the margin: it is the best from then on, and the test begins anew. The
          model that is promoted is one that the newest checks were about.

**The margin** keeps the noise of learning around its best model from being an alarm, and is what liars have to
overcome: a share f of checks that all lie moves the mean by at most f · (1 + ``largest``). With a margin of that they
can neither halt a hub whose model is as good as its best, nor have a worse model promoted.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from fedrank.deploy.hub.checks.evidence import Evidence
from fedrank.deploy.terms import Terms
from fedrank.privacy.randomised_response import debiased


class Estimates:
    """What checks tell: numbers whose mean is the difference of the two models, from −1 to 1.

    Args:
        terms: Terms of the hub, which have checks.

    Attributes:
        largest: Largest absolute value of such a number.
    """

    def __init__(self, terms: Terms):
        assert terms.check is not None
        self._terms, self._layout = terms, terms.check
        if terms.piecewise is not None:
            self.largest = terms.piecewise.scale
        else:
            most = np.array([float(terms.per_half * terms.metric.largest)])
            self.largest = float(self._difference(most, np.zeros(1))[0])

    def of(self, messages: Sequence[bytes]) -> Float[np.ndarray, " checks"]:
        """The number that each message stands for: float64 [checks]."""
        found = self._layout.decode_all(b"".join(messages))
        if self._terms.piecewise is not None:
            return self._terms.piecewise.estimates[np.asarray(found.report)]
        return self._difference(np.asarray(found.plus, np.float64), np.asarray(found.minus, np.float64))

    def _difference(
        self, plus: Float[np.ndarray, " checks"], minus: Float[np.ndarray, " checks"]
    ) -> Float[np.ndarray, " checks"]:
        """Difference of two mean rewards of which the largest is 1, with the lies of randomised response taken out."""
        metric, p = self._terms.metric, self._terms.p
        rewards = [sums / (self._terms.per_half * metric.scale) for sums in (plus, minus)]
        if p < 1:
            rewards = [np.asarray(debiased(each, metric.values, p)) for each in rewards]
        return (rewards[0] - rewards[1]) * metric.scale / metric.largest


@dataclass(frozen=True)
class Judgement:
    """What a round's checks came to.

    Attributes:
        round: The round.
        best: Round of the model that its own was compared with.
        checks: Number of checks.
        mean: Their mean: how much better the round's model was, from −1 to 1.
        error: Standard error of the mean; None for one check.
        promoted: The round's model is the best from now on.
        sinks: The hub is to halt.
    """

    round: int
    best: int
    checks: int
    mean: float
    error: float | None
    promoted: bool = False
    sinks: bool = False


class Watch:
    """The two tests of a hub, and which model is the best.

    Args:
        terms: Terms of the hub, which have checks.
        margin: Difference that counts for nothing, from 0 to 1.
        alpha: Chance of a false alarm over the hub's life, and of a promotion by chance.
        kept: An earlier :attr:`state`; None at the beginning.

    Attributes:
        best: Round of the best model.
    """

    def __init__(self, terms: Terms, margin: float, alpha: float, kept: str | None = None):
        self.estimates, self._margin, self._alpha = Estimates(terms), margin, alpha
        there: dict[str, Any] = {} if kept is None else json.loads(kept)
        self.best = int(there.get("best", 0))
        self._sinks, self._rises = self._tests(there)
        self._since = (int(there.get("checks", 0)), float(there.get("sum", 0.0)))  # of the newest against this best

    def _tests(self, there: dict[str, Any]) -> tuple[Evidence, Evidence]:
        largest = self.estimates.largest
        return (
            Evidence(-self._margin, largest, there.get("sinks")),
            Evidence(-self._margin, largest, there.get("rises")),  # of the numbers with the other sign
        )

    @property
    def state(self) -> str:
        """The state as text, from which another process goes on."""
        return json.dumps(
            {
                "best": self.best,
                "sinks": self._sinks.as_json(),
                "rises": self._rises.as_json(),
                "checks": self._since[0],
                "sum": self._since[1],
            }
        )

    def judge(self, round_: int, messages: Sequence[bytes]) -> Judgement | None:
        """Add the checks of a round, which may change :attr:`best`; None where there are none.

        Args:
            round_: Number of the round.
            messages: Its checks; their order does not matter.
        """
        if not messages:
            return None
        x = self.estimates.of(messages)
        error = float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else None
        found = Judgement(round_, self.best, len(x), float(x.mean()), error)
        self._sinks.add(x)
        self._rises.add(-x)
        self._since = (self._since[0] + len(x), self._since[1] + float(x.sum()))
        if self._sinks.money >= 1 / self._alpha:
            return dataclasses.replace(found, sinks=True)
        if self._rises.money >= 1 / self._alpha:
            self.best, self._since = round_, (0, 0.0)
            self._rises = self._tests({})[1]
            return dataclasses.replace(found, promoted=True)
        return found

    def resumed(self) -> None:
        """Begin anew after a halt: the model is the best one again, and a new life of the hub begins."""
        self._since = (0, 0.0)
        self._sinks, self._rises = self._tests({})

    def as_json(self) -> dict[str, Any]:
        """What the tests know, for the status page."""
        checks, total = self._since
        return {
            "best": self.best,
            "checks": checks,
            "mean": total / checks if checks else None,
            "margin": self._margin,
            "money": min(self._sinks.money, 1e12),
            "alarm_at": 1 / self._alpha,
            "money_rises": min(self._rises.money, 1e12),
        }
