"""Privacy budget of mode per-query: each new answer costs, repeated ones do not, and beyond the budget none is given.

One answer is the z cells of one question about one sketch, each with separate noise. It costs an occurrence in that
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

Privacy account of sketches: the ε of one occurrence of a word in the noisy counts that a silo hands out.

The unit is one appearance of one word in one document, added or removed (:mod:`fedrank.texts.sketch.noise`). What
silos do with each other's counts, features and training included, is post-processing of what was handed out. What a
silo computes from its *own* documents and judgements without noise, as the models that it sends in training, is not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64, Integer, Real

from fedrank.core.errors import ConfigError, DataError
from fedrank.core.privacy_report import (
    BASIC,
    DELTA,
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
from fedrank.texts.config import MODES
from fedrank.texts.sketch.noise import MECHANISMS, SketchNoise

#: Most answers that a ledger counts.
_MOST = 2**40


def answer_rho(epsilon: float, mechanism: str = "laplace", delta: float = DELTA) -> float:
    """ρ of one answer: ε²/2 for Laplace noise; for Gaussian noise that of the σ which has ε at δ."""
    _check(epsilon, mechanism, delta)
    return 0.5 * epsilon**2 if mechanism == "laplace" else 0.5 / gaussian_sigma(epsilon, delta, 1.0) ** 2


@functools.lru_cache(maxsize=4096)
def compose(epsilon: float, answers: int, mechanism: str = "laplace", delta: float = DELTA) -> float:
    """ε at δ of an occurrence after a number of answers, the smaller of basic and concentrated composition.

    Args:
        epsilon: ε of one answer; for Gaussian noise at ``delta``.
        answers: Answers, ≥ 0.
        mechanism: ``"laplace"`` or ``"gaussian"``.
        delta: δ in (0, 1) of the whole. Where basic composition is the smaller, Laplace noise has δ = 0.

    >>> compose(0.5, 4200, delta=1e-6) < 0.5 * 4200 / 3
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
        mechanism: As in :func:`compose`.
        delta: As in :func:`compose`.

    >>> answers_within(2.0, 0.5)
    4
    """
    _check(limit, mechanism, delta)
    fits, fails = 0, 1
    while compose(epsilon, fails, mechanism, delta) <= limit and fails < _MOST:
        fits, fails = fails, 2 * fails
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (middle, fails) if compose(epsilon, middle, mechanism, delta) <= limit else (fits, middle)
    return fits


def plan(limit: float, questions: int, mechanism: str = "laplace", delta: float = DELTA) -> float:
    """The ε of one answer that makes a budget last for a number of questions about one sketch.

    Args:
        limit: Largest total ε of an occurrence, > 0.
        questions: Different questions of all queriers together, ≥ 1.
        mechanism: As in :func:`compose`.
        delta: As in :func:`compose`.

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
    if mechanism == "laplace" and compose(high, questions, mechanism, delta) <= limit:
        return high
    while high - low > 1e-10 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if compose(middle, questions, mechanism, delta) <= limit else (low, middle)
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
                "an answer; fedrank.texts.sketch.account.plan gives one that lasts."
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
        return np.array([compose(self.epsilon, int(n), self.mechanism, self.delta) for n in different])[place]

    def left(self) -> Int64[np.ndarray, " sketches"]:
        """Number of different answers that may still be given about each sketch."""
        return self.allowed - self.answers


def _check(epsilon: float, mechanism: str, delta: float) -> None:
    if mechanism not in MECHANISMS:
        raise ConfigError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {mechanism!r}.")
    if not 0.0 < epsilon < math.inf or not 0.0 < delta < 1.0:
        raise ConfigError(f"ε must be positive and finite and δ in (0, 1), got {epsilon} and {delta}.")


#: Parts of what a silo sends that a promise can be about, beside all of it.
ANSWER, QUERIER = "one answer", "one querier"


class MeasuredAttack(NamedTuple):
    """Result of an attack on paper mode that asks whether a document has one more occurrence of a word.

    Attributes:
        command: Command that measures it, with a fixed seed.
        epsilon: ε as printed, of one answer.
        trials: Number of answers.
        accuracy: Share of trials in which the attacker is right.
        allowed: Largest share if ε held, (e^ε)/(1 + e^ε).
    """

    command: str
    epsilon: float
    trials: int
    accuracy: float
    allowed: float

    def in_words(self) -> str:
        """The result as a sentence for a page."""
        return (
            f"Measured: from one answer an attacker tells whether a document has one more occurrence of a word in "
            f"{self.accuracy:.0%} of {self.trials:,} trials, where ε = {self.epsilon:g} would allow "
            f"{self.allowed:.1%} ({self.command})."
        ).replace("%", " %")


#: The attack on paper mode with the defaults of its command; a test measures it again.
PAPER_ATTACK = MeasuredAttack("fedrank privacy attack sketch --modes paper", 0.5, 4_000, 1.0, 0.622)

_NOT_COVERED = (
    "Whole documents, and anything that many words of a document show together: for that, multiply by the number of "
    "occurrences.",
    "How many documents, queries, query words, training rows and cross pairs a silo has, which documents there are, "
    "and when they are added or taken away.",
    KNOWN_RANDOMNESS,
    SIMULATION,
    "Documents that go out a second time: after a change, with noise drawn anew, everything here is spent again.",
)

_WORDS = (
    "The words of queries, beyond what decoys hide, which are words of the silo's other queries. Where two silos ask "
    "about the same word, the owner finds it: it is what fits both questions. The same holds for two setups."
)

_TRAINING = (
    "The models and steps that a silo sends in training, and, where features are scaled by all silos, sums of its "
    "features before it. They are made from its own documents, queries and judgements, without noise."
)


def sketch_account(
    noise: SketchNoise,
    *,
    answers: int = 0,
    answers_of_querier: int | None = None,
    occurrences: int = 0,
    training: bool = True,
) -> PrivacyReport:
    """The privacy account of a mode.

    Args:
        noise: The mode and its settings.
        answers: Number of different answers about one sketch, to all queriers together, where questions are answered.
            The sketch with most answers counts: :class:`fedrank.texts.sketch.account.QueryBudget`.
        answers_of_querier: Number of those to one querier; all of them if None.
        occurrences: Number of words of the longest document.
        training: Whether silos send models trained on their own documents.

    Raises:
        ConfigError: A number is negative, or one querier has more answers than all.

    >>> from fedrank.texts.sketch.noise import SketchNoise
    >>> report = sketch_account(SketchNoise("publish-once", epsilon=8.0, z=30), occurrences=300)
    >>> [report.epsilon(unit) for unit in (Unit.OCCURRENCE, Unit.REPLACED_WORD, Unit.DOCUMENT)]
    [8.0, 16.0, 2400.0]
    """
    own = answers if answers_of_querier is None else answers_of_querier
    if occurrences < 0 or not 0 <= own <= answers:
        raise ConfigError(
            "occurrences must be at least 0, and a querier's answers between 0 and all of them, got "
            f"{occurrences}, {own} and {answers}."
        )
    gaussian, paper = noise.mechanism == "gaussian", noise.mode == "paper"
    asked, bounded = noise.mode == "per-query", MODES[noise.mode].protects
    kind = {"plain": "no noise", "paper": "continuous Laplace noise, one variable for all cells of an answer"}
    once = ("sketches", "sizes", "statistics") if noise.mode == "publish-once" else ("sizes", "statistics")
    distance = noise.change("sketches")
    (basic, compose), (_, of_querier) = _total(noise, answers, 1), _total(noise, own, 1)
    # Laplace noise needs a δ only where answers are composed by concentrated differential privacy.
    single = noise.delta if gaussian else 0.0
    delta = single if noise.mode == "publish-once" else noise.delta
    tight = "concentrated differential privacy" if delta else BASIC
    answer = (Promise(Unit.OCCURRENCE, noise.epsilon or math.inf, single, scope=ANSWER),)
    promises = (
        *(answer if asked else ()),
        *(Promise(Unit.OCCURRENCE, _part(noise, what), single, scope=what) for what in once),
        Promise(Unit.OCCURRENCE, compose, delta, tight),
        Promise(Unit.OCCURRENCE, basic, min(1.0, single * (answers + 1 if asked else 1)), BASIC),
        Promise(Unit.OCCURRENCE, of_querier, delta, tight, QUERIER),
        Promise(Unit.REPLACED_WORD, _total(noise, answers, 2)[1], delta, tight),
        Promise(Unit.DOCUMENT, _total(noise, answers, occurrences)[1], delta, tight),
        *(() if training else (Promise(Unit.ROUND, compose, delta, tight),)),
    )
    report = PrivacyReport(
        mechanism=kind.get(noise.mode, f"discrete {'Gaussian' if gaussian else 'Laplace'} noise"),
        trust=NOBODY if bounded else EVERYBODY,
        promises=promises,
        covers=_covers(noise) if bounded else (),
        not_covered=(*_first(noise), *((_TRAINING,) if training else ()), *_NOT_COVERED),
        details={
            "mode": noise.mode,
            "scale": noise.scale(),
            "sensitivity": math.sqrt(distance) if gaussian else float(distance),
            "epsilon_published": noise.epsilon if paper else None,
            "epsilon_published_total": noise.epsilon * answers if paper and noise.epsilon else None,
            "occurrences": occurrences,
            "answers": answers,
            "answers_of_querier": own,
            "training": training,
            "delta": noise.delta,
        },
    )
    by = _AUDITS.get(noise.mode) if noise.mechanism == "laplace" else None
    audit = None if by is None else AuditedBy(by, {"epsilon": noise.epsilon})
    return replace(report, words=(_paragraph(report),), audit=audit)


#: What attacks the noise of each mode.
_AUDITS = {
    "publish-once": "published-sketch",
    "per-query": "sketch-answers",
    "paper": "sketch-answers-as-printed",
}


def _paragraph(report: PrivacyReport) -> str:
    """A paragraph for people who decide whether this may be deployed."""
    epsilon, got = report.epsilon, report.details
    if got["mode"] == "plain":
        return "Sketches have no noise. Whoever knows the secret of the hashes reads the counts of every word."
    if got["mode"] == "paper":
        return (
            "This is the paper's noise as printed, and it does not protect the document owner from the querier. One "
            f"variable is added to all {round(got['sensitivity']):,} cells of an answer, so that differences between "
            "cells are exact, and the querier takes it off with the cells of his own decoys. There is no bound on what "
            f"one answer reveals. The published number is ε = {got['epsilon_published']:.3g} for one answer; over the "
            f"{got['answers']:,} answers that are given about a sketch it would add up to "
            f"{got['epsilon_published_total']:,.4g}, if it held. {PAPER_ATTACK.in_words()} Use publish-once."
        )
    low, at = epsilon(Unit.OCCURRENCE), f" at δ = {got['delta']:.0e}"
    gaussian = "Gaussian" in report.mechanism
    noise = f"{report.mechanism} of {'σ' if gaussian else 'scale'} {got['scale']:.4g}"
    if got["mode"] == "publish-once":
        how = (
            f"Every sketch is published once with {noise} in each cell, and so are sizes and statistics. Whatever is "
            "looked up in them, by whom and how often, one occurrence of a word makes it at most e^ε times as likely, "
            f"with ε = {low:.4g}{at if gaussian else ''}, once and for all. Another silo "
            "reads most words of a document at ε = 4 and more, and tells whether a text is there at 0.4 and more; at "
            "0.2 it was not seen to, on four collections (fedrank privacy attack documents). The server, which passes "
            "on sealed bytes, reads none."
        )
    else:
        how = (
            f"Every answer has separate {noise} in each cell, and an occurrence costs "
            f"ε = {epsilon(Unit.OCCURRENCE, scope=ANSWER):.4g}{at if gaussian else ''} in one answer. After "
            f"{got['answers']:,} different answers about a sketch, and sizes and statistics beside them, it has cost "
            f"ε = {epsilon(Unit.OCCURRENCE, basis=BASIC):.4g} by adding up, and {low:.4g}{at}; against a single "
            f"querier with {got['answers_of_querier']:,} of them, {epsilon(Unit.OCCURRENCE, scope=QUERIER):.4g}."
        )
    models = ", and the models that silos train on their own documents and send without noise"
    return (
        f"{how} A replaced word costs {epsilon(Unit.REPLACED_WORD):.4g}.{remark(low, limit=3.0)} Not covered, among "
        f"other things: whole documents (of {got['occurrences']:,} words, the bound would be "
        f"ε = {epsilon(Unit.DOCUMENT):.4g}){models if got['training'] else ''}."
    )


def _part(noise: SketchNoise, what: str) -> float:
    """ε of what is handed out once: sketches, sizes or statistics."""
    if noise.epsilon is None or noise.mode == "paper":
        return math.inf
    if noise.mechanism == "laplace":
        return noise.epsilon * noise.part(what)
    return concentrated_epsilon(noise.part(what) * answer_rho(noise.epsilon, "gaussian", noise.delta), noise.delta)


def _total(noise: SketchNoise, answers: int, group: int) -> tuple[float, float]:
    """ε of several occurrences at once: by adding up, and the smaller of that and concentrated privacy at δ.

    Laplace noise adds ε for each occurrence of a group; ρ grows with its square.
    """
    if group == 0:
        return 0.0, 0.0
    if noise.epsilon is None or noise.mode == "paper":
        return math.inf, math.inf
    # Sizes and statistics cost together as much as an answer, or are in what is published.
    times = sum(noise.shares.values()) if noise.mode == "publish-once" else answers + 1
    by_rho = concentrated_epsilon(
        group**2 * times * answer_rho(noise.epsilon, noise.mechanism, noise.delta), noise.delta
    )
    if noise.mechanism == "gaussian":
        return (by_rho if noise.mode == "publish-once" else group * times * noise.epsilon), by_rho
    basic = group * times * noise.epsilon
    return (basic, basic) if noise.mode == "publish-once" else (basic, min(basic, by_rho))


def _covers(noise: SketchNoise) -> tuple[str, ...]:
    what = "sketches" if noise.mode == "publish-once" else "answers"
    return (
        f"One occurrence of a word in a document: its trace in the silo's {what}, in the document's length and number "
        "of different words, and in the silo's document frequencies and counts of all occurrences.",
        "Against all other silos together and the server, also if they know the secret of the hashes and every other "
        "word of the document, and whatever they compute from what they got.",
        "A word replaced by another, at twice ε.",
    )


def _first(noise: SketchNoise) -> tuple[str, ...]:
    if noise.mode == "plain":
        return ("Anything: counts go out as they are.",)
    if noise.mode == "paper":
        return (
            "The documents, against a querier: the noise of an answer comes off with the cells of decoys.",
            "The documents' lengths, and document frequencies over all silos, which go out as they are.",
            _WORDS,
        )
    if noise.mode == "per-query":
        return (_WORDS, "Questions beyond those counted here.")
    return ()
