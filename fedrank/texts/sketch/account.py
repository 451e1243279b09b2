"""Privacy account of sketches: the ε of one occurrence of a word in the noisy counts that a silo hands out.

The unit is one appearance of one word in one document, added or removed (:mod:`fedrank.texts.sketch.noise`). What
silos do with each other's counts, features and training included, is post-processing of what was handed out. What a
silo computes from its *own* documents and judgements without noise, as the models that it sends in training, is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from fedrank.core.errors import ConfigError
from fedrank.privacy.calibration import concentrated_epsilon
from fedrank.texts.sketch.noise import SketchNoise
from fedrank.texts.sketch.query_budget import answer_rho

#: From this ε on, a bound says little by itself: odds may change twentyfold and more.
_LITTLE = 3.0


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
PAPER_ATTACK = MeasuredAttack("fedrank attack sketch --mode paper", 0.5, 4_000, 1.0, 0.622)

_NOT_COVERED = (
    "Whole documents, and anything that many words of a document show together: for that, multiply by the number of "
    "occurrences.",
    "How many documents, queries, query words, training rows and cross pairs a silo has, which documents there are, "
    "and when they are added or taken away.",
    "Noise whose random numbers somebody else knows. In a simulation all noise follows from the run's seed, so a "
    "simulated run protects nobody and only shows what a deployed one would promise.",
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


@dataclass(frozen=True)
class SketchReport:
    """The privacy of one occurrence in what a silo hands out about its documents. All ε in nats.

    Attributes:
        mode: As in :data:`fedrank.texts.sketch.noise.MODES`.
        mechanism: The noise.
        scale: Scale of Laplace noise, or σ, in each cell of a sketch; None without noise.
        sensitivity: Distance by which one occurrence changes what gets that noise, in L1, for Gaussian noise in L2.
        epsilon_published: ε as the paper states it, in mode paper; else None.
        epsilon_published_total: What that number would add up to over ``answers``, if it held, which it does not; None
            in other modes.
        epsilon_answer: ε of one answer, in mode per-query; infinite where nothing bounds it; else None.
        epsilon_parts: ε of what is handed out once, by name; at δ each, for Gaussian noise.
        epsilon_basic: ε of an occurrence after all that is counted here, by adding up.
        epsilon_occurrence: The same at ``delta``; the smaller of adding up and concentrated differential privacy.
        epsilon_querier: The same against one querier who has only his own answers.
        epsilon_replaced: ε of a word that is replaced by another: two occurrences.
        epsilon_document: What the bound of a whole document of ``occurrences`` words would be, which is not covered.
        occurrences: Words of that document.
        answers: Different answers about one sketch, to all queriers together.
        answers_of_querier: Different answers about one sketch to one querier.
        training: Whether silos also send models trained on their own documents, which no number here bounds.
        delta: δ; Laplace noise that is published once has δ = 0 whatever this is.
        covers: What the numbers promise, in sentences.
        not_covered: What no number here promises, in sentences.
    """

    mode: str
    mechanism: str
    scale: float | None
    sensitivity: float
    epsilon_published: float | None
    epsilon_published_total: float | None
    epsilon_answer: float | None
    epsilon_parts: dict[str, float]
    epsilon_basic: float
    epsilon_occurrence: float
    epsilon_querier: float
    epsilon_replaced: float
    epsilon_document: float
    occurrences: int
    answers: int
    answers_of_querier: int
    training: bool
    delta: float
    covers: tuple[str, ...]
    not_covered: tuple[str, ...]

    @property
    def epsilon_round(self) -> float:
        """ε of an occurrence in everything a silo sends; infinite where nothing bounds it.

        It is infinite where silos send models that they trained on their own documents without noise, however well the
        sketches are protected. Otherwise it is that of the sketches, which go out before the first round.
        """
        return math.inf if self.training else self.epsilon_occurrence

    def as_json(self) -> dict[str, Any]:
        """The content of ``privacy.json``; what is infinite is null."""
        content = {f.name: getattr(self, f.name) for f in fields(self)}
        content |= {"unit": "one occurrence of a word in a document", "epsilon_round": self.epsilon_round}
        content = {
            name: None if isinstance(value, float) and math.isinf(value) else value for name, value in content.items()
        }
        parts = {name: None if math.isinf(value) else value for name, value in self.epsilon_parts.items()}
        lists = {"covers": list(self.covers), "not_covered": list(self.not_covered), "words": [self.in_words()]}
        return {**content, "epsilon_parts": parts, **lists}

    def in_words(self) -> str:
        """A paragraph for people who decide whether this may be deployed."""
        end = (
            f" Not covered, among other things: whole documents (of {self.occurrences:,} words, the bound would be "
            f"ε = {self.epsilon_document:.4g})"
            + (
                ", and the models that silos train on their own documents and send without noise."
                if self.training
                else "."
            )
        )
        if self.mode == "plain":
            return "Sketches have no noise. Whoever knows the secret of the hashes reads the counts of every word."
        if self.mode == "paper":
            assert self.epsilon_published is not None and self.epsilon_published_total is not None
            return (
                f"This is the paper's noise as printed, and it does not protect the document owner from the querier. "
                f"One variable is added to all {round(self.sensitivity):,} cells of an answer, so that differences "
                "between cells are exact, and the querier takes it off with the cells of his own decoys. There is no "
                f"bound on what one answer reveals. The published number is ε = {self.epsilon_published:.3g} for one "
                f"answer; over the {self.answers:,} answers that are given about a sketch it would add up to "
                f"{self.epsilon_published_total:,.4g}, if it held. {PAPER_ATTACK.in_words()} Use publish-once."
            )
        at = f" at δ = {self.delta:.0e}"
        gaussian = "Gaussian" in self.mechanism
        low, high = self.epsilon_occurrence, self.epsilon_basic
        if self.mode == "publish-once":
            how = (
                f"Every sketch is published once with {self.mechanism} of "
                f"{'σ' if gaussian else 'scale'} {self.scale:.4g} in each cell, and so are sizes and statistics. "
                f"Whatever is looked up in them, by whom and how often, one occurrence of a word makes it at most e^ε "
                f"times as likely, with ε = {low:.4g}{at if gaussian else ''}, once and for all."
            )
        else:
            how = (
                f"Every answer has {self.mechanism} of {'σ' if gaussian else 'scale'} {self.scale:.4g} of its own in "
                f"each cell, and an occurrence costs ε = {self.epsilon_answer:.4g}{at if gaussian else ''} in one "
                f"answer. After {self.answers:,} different answers about a sketch, and sizes and statistics beside "
                f"them, it has cost ε = {high:.4g} by adding up, and {low:.4g}{at}; against a single querier with "
                f"{self.answers_of_querier:,} of them, {self.epsilon_querier:.4g}."
            )
        little = " An ε of this size is a formal bound with little meaning of its own." if low > _LITTLE else ""
        return f"{how} A replaced word costs {self.epsilon_replaced:.4g}.{little}{end}"


def sketch_account(
    noise: SketchNoise,
    *,
    answers: int = 0,
    answers_of_querier: int | None = None,
    occurrences: int = 0,
    training: bool = True,
) -> SketchReport:
    """The privacy account of a mode.

    Args:
        noise: The mode and its settings.
        answers: Number of different answers about one sketch, to all queriers together, where questions are answered.
            The sketch with most answers counts: :class:`fedrank.texts.sketch.query_budget.QueryBudget`.
        answers_of_querier: Number of those to one querier; all of them if None.
        occurrences: Number of words of the longest document.
        training: Whether silos send models trained on their own documents.

    Raises:
        ConfigError: A number is negative, or one querier has more answers than all.

    >>> from fedrank.texts.sketch.noise import SketchNoise
    >>> report = sketch_account(SketchNoise("publish-once", epsilon=8.0, z=30), occurrences=300)
    >>> report.scale, report.epsilon_occurrence, report.epsilon_replaced, report.epsilon_document
    (4.6875, 8.0, 16.0, 2400.0)
    """
    own = answers if answers_of_querier is None else answers_of_querier
    if occurrences < 0 or not 0 <= own <= answers:
        raise ConfigError(
            "occurrences must be at least 0, and a querier's answers between 0 and all of them, got "
            f"{occurrences}, {own} and {answers}."
        )
    gaussian = noise.mechanism == "gaussian"
    bounded = noise.mode in ("publish-once", "per-query")
    kind = {"plain": "no noise", "paper": "continuous Laplace noise, one variable for all cells of an answer"}
    once = ("sketches", "sizes", "statistics") if noise.mode == "publish-once" else ("sizes", "statistics")
    distance = noise.change("sketches")
    return SketchReport(
        mode=noise.mode,
        mechanism=kind.get(noise.mode, f"discrete {'Gaussian' if gaussian else 'Laplace'} noise"),
        scale=noise.scale(),
        sensitivity=math.sqrt(distance) if gaussian else float(distance),
        epsilon_published=noise.epsilon if noise.mode == "paper" else None,
        epsilon_published_total=noise.epsilon * answers if noise.mode == "paper" and noise.epsilon else None,
        epsilon_answer={"per-query": noise.epsilon, "paper": math.inf}.get(noise.mode),
        epsilon_parts={what: _part(noise, what) for what in once},
        epsilon_basic=_total(noise, answers, 1)[0],
        epsilon_occurrence=_total(noise, answers, 1)[1],
        epsilon_querier=_total(noise, own, 1)[1],
        epsilon_replaced=_total(noise, answers, 2)[1],
        epsilon_document=_total(noise, answers, occurrences)[1],
        occurrences=occurrences,
        answers=answers,
        answers_of_querier=own,
        training=training,
        delta=noise.delta,
        covers=_covers(noise) if bounded else (),
        not_covered=(*_first(noise), *((_TRAINING,) if training else ()), *_NOT_COVERED),
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
