"""Privacy budget of mode per-query: each new answer costs, repeated ones do not, and beyond the budget none is given.

One answer is the z cells of one question about one sketch, each with noise of its own. It costs an occurrence in that
document and field ε. Answers add up over all queriers, who may talk to each other, and over all questions, which may be
chosen in view of earlier answers:

* basic composition: n answers cost n ε;
* concentrated differential privacy: Laplace noise of ε has ρ = ε²/2 (Bun and Steinke, TCC 2016), Gaussian noise its own
  ρ, and n answers cost the ε that n ρ has at δ.

The smaller of the two counts. A sketch is one field of one document, and an occurrence lies in one field: questions
about titles cost bodies nothing.

A question that was answered before gets the same answer again, which costs nothing: its noise must not be averaged
away. Two questions are the same if all their z cells are: a querier that redraws decoys pays, and shows more of
himself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, Int64, Integer, Real

from fedrank.core.errors import ConfigError, DataError
from fedrank.core.privacy_report import DELTA
from fedrank.privacy.calibration import concentrated_epsilon, gaussian_sigma
from fedrank.texts.sketch.noise import MECHANISMS

#: Most answers that a ledger counts.
_MOST = 2**40


def answer_rho(epsilon: float, mechanism: str = "laplace", delta: float = DELTA) -> float:
    """ρ of one answer: ε²/2 for Laplace noise; for Gaussian noise that of the σ which has ε at δ."""
    _check(epsilon, mechanism, delta)
    return 0.5 * epsilon**2 if mechanism == "laplace" else 0.5 / gaussian_sigma(epsilon, delta, 1.0) ** 2


@functools.lru_cache(maxsize=4096)
def composed(epsilon: float, answers: int, mechanism: str = "laplace", delta: float = DELTA) -> float:
    """ε at δ of an occurrence after a number of answers, the smaller of basic and concentrated composition.

    Args:
        epsilon: ε of one answer; for Gaussian noise at ``delta``.
        answers: Answers, ≥ 0.
        mechanism: ``"laplace"`` or ``"gaussian"``.
        delta: δ in (0, 1) of the whole. Where basic composition is the smaller, Laplace noise has δ = 0.

    >>> composed(0.5, 4200, delta=1e-6) < 0.5 * 4200 / 3
    True
    """
    if answers <= 0:
        return 0.0
    by_rho = concentrated_epsilon(answers * answer_rho(epsilon, mechanism, delta), delta)
    return min(by_rho, answers * epsilon) if mechanism == "laplace" else by_rho


def answers_within(limit: float, epsilon: float, mechanism: str = "laplace", delta: float = DELTA) -> int:
    """Number of answers, ε each, that keep an occurrence's total within a limit.

    Args:
        limit: Largest total ε, > 0.
        epsilon: ε of one answer.
        mechanism: As in :func:`composed`.
        delta: As in :func:`composed`.

    >>> answers_within(2.0, 0.5)
    4
    """
    _check(limit, mechanism, delta)
    fits, fails = 0, 1
    while composed(epsilon, fails, mechanism, delta) <= limit and fails < _MOST:
        fits, fails = fails, 2 * fails
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (middle, fails) if composed(epsilon, middle, mechanism, delta) <= limit else (fits, middle)
    return fits


def plan(limit: float, questions: int, mechanism: str = "laplace", delta: float = DELTA) -> float:
    """The ε of one answer that makes a budget last for a number of questions about one sketch.

    Args:
        limit: Largest total ε of an occurrence, > 0.
        questions: Different questions of all queriers together, ≥ 1.
        mechanism: As in :func:`composed`.
        delta: As in :func:`composed`.

    Returns:
        ε such that ``composed(ε, questions)`` is within the limit, and no more than a part in 10⁹ below it.

    Raises:
        ConfigError: An argument is out of range.

    >>> plan(8.0, 4)
    2.0
    """
    if questions < 1:
        raise ConfigError(f"questions must be at least 1, got {questions}.")
    _check(limit, mechanism, delta)
    # One answer cannot have more than the whole, and by basic composition may have this much.
    low, high = (limit / questions if mechanism == "laplace" else 0.0), limit
    if mechanism == "laplace" and composed(high, questions, mechanism, delta) <= limit:
        return high
    while high - low > 1e-10 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if composed(middle, questions, mechanism, delta) <= limit else (low, middle)
    return low


class BudgetSpentError(ConfigError):
    """The privacy budget of a sketch does not allow another answer."""


class QueryBudget:
    """Answers that a silo has given about each of its sketches, to each querier, and how many it may still give.

    Args:
        epsilon: ε of one answer.
        limit: Largest total ε of an occurrence over all queriers.
        sketches: Number of sketches: documents times fields.
        queriers: Number of queriers.
        mechanism: ``"laplace"`` or ``"gaussian"``.
        delta: δ of the total.

    Attributes:
        given: int64 [queriers, sketches]: number of different answers that each querier has.
        answers: int64 [sketches]: number of different answers given to anybody.
        allowed: Number of different answers about one sketch within the limit.

    Raises:
        ConfigError: A number is out of range, or not even one answer fits the limit.
    """

    def __init__(
        self,
        epsilon: float,
        limit: float,
        sketches: int,
        queriers: int = 1,
        mechanism: str = "laplace",
        delta: float = DELTA,
    ):
        if sketches < 1 or queriers < 1:
            raise ConfigError(f"sketches and queriers must be at least 1, got {sketches} and {queriers}.")
        self.epsilon, self.limit, self.mechanism, self.delta = epsilon, limit, mechanism, delta
        self.allowed = answers_within(limit, epsilon, mechanism, delta)
        if not self.allowed:
            raise ConfigError(
                f"an answer costs ε = {epsilon:.4g}, and a limit of {limit:.4g} leaves room for none. Lower the ε of "
                "an answer; fedrank.texts.sketch.query_budget.plan gives one that lasts."
            )
        self.given = np.zeros((queriers, sketches), np.int64)
        self.answers = np.zeros(sketches, np.int64)
        self._cache: dict[bytes, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def ask(
        self,
        querier: int,
        rows: Integer[np.ndarray, " z"],
        sketches: Integer[np.ndarray, " n"],
        draw: Callable[[np.ndarray], np.ndarray],
    ) -> Real[np.ndarray, "n z"]:
        """Answer a question about some sketches, with earlier answers where there are any.

        All of it is answered or nothing: a refusal charges nothing and draws no noise.

        Args:
            querier: Number of the querier.
            rows: The cells asked for, one in each row.
            sketches: Numbers of different sketches, of one field or of several.
            draw: Makes noisy answers [m, z] for the sketches int [m] without an earlier answer. Called at most once.

        Returns:
            The answers, in the order of ``sketches``.

        Raises:
            BudgetSpentError: The budget of a sketch is spent.
            DataError: There is no such querier or sketch, or a sketch is named twice.
        """
        total = self.answers.size
        if not 0 <= querier < len(self.given):
            raise DataError(f"querier must be in 0..{len(self.given) - 1}, got {querier}.")
        if sketches.size and (
            sketches.min() < 0 or sketches.max() >= total or np.unique(sketches).size < sketches.size
        ):
            raise DataError(f"sketches must be different numbers in 0..{total - 1}.")
        question = np.ascontiguousarray(rows, np.int64).tobytes()
        known, told, kept = self._cache.get(question) or (
            np.zeros(total, bool),
            np.zeros(self.given.shape, bool),
            np.empty((total, 0)),
        )
        new = sketches[~known[sketches]]
        spent = new[self.answers[new] >= self.allowed]
        if spent.size:
            raise BudgetSpentError(
                f"the budget of sketch {spent[0]} is spent ({spent.size} of the {sketches.size} asked about): "
                f"{self.allowed:,} answers of ε = {self.epsilon:.4g} make up the limit of {self.limit:.4g}. Nothing "
                "was answered. Repeat earlier questions, plan for more with a smaller ε, or publish sketches once."
            )
        if new.size:
            drawn = draw(new)
            if not kept.size:
                kept = np.zeros((total, rows.size), drawn.dtype)
            kept[new] = drawn
            known[new] = True
            self.answers[new] += 1
            self._cache[question] = (known, told, kept)
        first = sketches[~told[querier, sketches]]
        told[querier, first] = True
        self.given[querier, first] += 1
        return kept[sketches]

    def spent(self, querier: int | None = None, basic: bool = False) -> Float64[np.ndarray, " sketches"]:
        """ε of an occurrence so far.

        Args:
            querier: Against this querier alone; None for all of them together, who may pool their answers.
            basic: By adding up: at δ = 0 with Laplace noise, else at δ for each answer.
        """
        counts = self.answers if querier is None else self.given[querier]
        if basic:
            return counts * self.epsilon
        different, place = np.unique(counts, return_inverse=True)
        return np.array([composed(self.epsilon, int(n), self.mechanism, self.delta) for n in different])[place]

    def left(self) -> Int64[np.ndarray, " sketches"]:
        """Number of different answers that may still be given about each sketch."""
        return self.allowed - self.answers


def _check(epsilon: float, mechanism: str, delta: float) -> None:
    if mechanism not in MECHANISMS:
        raise ConfigError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {mechanism!r}.")
    if not 0.0 < epsilon < math.inf or not 0.0 < delta < 1.0:
        raise ConfigError(f"ε must be positive and finite and δ in (0, 1), got {epsilon} and {delta}.")
