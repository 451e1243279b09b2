"""The coordinator of a study: sends rounds, takes answers, and ends with the results of the plan's questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedrank.core.errors import ConfigError, DataError
from fedrank.silos.studies.codebook import Codebook
from fedrank.silos.studies.keys import is_signed
from fedrank.silos.studies.masks import unmask
from fedrank.silos.studies.messages import Answer, Round
from fedrank.silos.studies.protocol import Analysis, Answers, Ask
from fedrank.silos.studies.questions import prepare


@dataclass(eq=False)
class Progress:
    """The state of one question.

    Attributes:
        analysis: The server's half, waiting for answers.
        ask: Its ask that is open; None at the end.
        result: Its result; None while it is open, and where no result can be had.
        failed: Why there is no result.
        attempt: How often it has begun anew.
        rounds: Asks so far, those of earlier attempts among them.
        left: Silo -> why its rows are not in the result.
        rows: Silo -> rows that were used; None where the count may not leave.
        left_out: Silo -> rows that lack a value; None where the count may not leave.
        numbers: Numbers that silos have sent.
    """

    analysis: Analysis[Any]
    ask: Ask | None = None
    result: Any = None
    failed: str = ""
    attempt: int = 0
    rounds: int = 0
    left: dict[str, str] = field(default_factory=dict)
    rows: dict[str, int | None] = field(default_factory=dict)
    left_out: dict[str, int | None] = field(default_factory=dict)
    numbers: int = 0


class Coordinator:
    """Runs the questions of a plan side by side, a round at a time.

    Args:
        codebook: The study's.
        questions: Names of the questions; none: all of the plan.

    Raises:
        ConfigError: A question's formula or model does not fit the codebook.
    """

    def __init__(self, codebook: Codebook, questions: Sequence[str] = ()):
        self.codebook = codebook
        wanted = [codebook.question(name) for name in questions] or list(codebook.questions)
        if not wanted:
            raise ConfigError("the codebook's plan has no question; add one under [[plan.questions]].")
        self._prepared = {one.name: prepare(one, codebook) for one in wanted}
        self.progress = {name: Progress(made.analysis()) for name, made in self._prepared.items()}
        self.number = 0
        for one in self.progress.values():
            self._advance(one, None)

    @property
    def open(self) -> Round | None:
        """The round that waits for answers; None at the end."""
        asks = {name: one.ask for name, one in self.progress.items() if one.ask is not None}
        if not asks:
            return None
        attempts = {name: self.progress[name].attempt for name in asks}
        silos = {name: self._taking(self.progress[name]) for name in asks}
        return Round(self.codebook, self.number + 1, asks, attempts, silos)

    def _taking(self, one: Progress) -> tuple[str, ...]:
        return tuple(silo for silo in self.codebook.silos if silo not in one.left)

    def take(self, answers: Iterable[Answer], asked: Round | None = None) -> None:
        """Take the answers to the open round; a silo without one falls away.

        Args:
            answers: One a silo.
            asked: The round as it was sent, where it was written to a file.

        Raises:
            DataError: An answer is none to the round (:meth:`check`), is one of two of its silo, or has another number
                of numbers than the others.
        """
        opened = asked or self.open
        if opened is None:
            raise DataError("the study has ended; no answers are expected.")
        told: dict[str, Answer] = {}
        for one in answers:
            self.check(one, opened)
            if one.silo in told:
                raise DataError(f"there are two answers of {one.silo}.")
            told[one.silo] = one
        self.number = opened.number
        for name in opened.asks:
            self._hear(name, told)

    def check(self, answer: Answer, asked: Round) -> None:
        """Refuse an answer that is none to a round of the study.

        Args:
            answer: The answer.
            asked: The round.

        Raises:
            DataError: It is of no silo of the codebook, to another round, of another codebook, to other questions, or
                not signed by its silo.
        """
        if answer.silo not in self.codebook.silos:
            raise DataError(f"there is an answer of {answer.silo!r}, and the codebook names no such silo.")
        if (answer.codebook, answer.round, answer.asked) != (self.codebook.sha, asked.number, asked.sha):
            raise DataError(
                f"the answer of {answer.silo} is to round {answer.round} of codebook {answer.codebook[:12]}, or to "
                f"another file of it; round {asked.number} of {self.codebook.sha[:12]} is open. Ask it again."
            )
        if set(answer.replies) != set(asked.asks):
            raise DataError(f"the answer of {answer.silo} is to other questions than the round has.")
        if self.codebook.keys and not is_signed(answer.content(), answer.signature, self.codebook.keys[answer.silo]):
            raise DataError(
                f"the answer of {answer.silo} is {'signed by another key' if answer.signature else 'not signed'}, or "
                "was changed on the way; the codebook names the key that has to sign it. Ask that silo by another way."
            )

    def _hear(self, name: str, told: Mapping[str, Answer]) -> None:
        """Take the answers to one question; where a silo falls away, begin it again without that silo."""
        one = self.progress[name]
        taking, fallen = self._taking(one), {}
        for silo in taking:
            if silo not in told:
                fallen[silo] = "it did not answer"
            elif (reply := told[silo].replies[name]).refused:
                fallen[silo] = reply.refused
            elif np.isnan(reply.numbers).any() and not self._may_lack(name, one):
                fallen[silo] = "its answer lacks numbers"
        one.rounds += 1
        one.numbers += sum(told[silo].replies[name].length for silo in taking if silo in told)
        one.left |= fallen
        for silo in fallen:  # its rows may be in earlier sums, not in the result
            one.rows.pop(silo, None)
            one.left_out.pop(silo, None)
        remaining = [silo for silo in taking if silo not in fallen]
        if len(remaining) < self.codebook.fewest_silos:
            reasons = "; ".join(dict.fromkeys(one.left.values()))
            one.ask, one.failed = None, f"too few silos answered ({reasons})"
            return
        lengths = {silo: len(told[silo].replies[name].numbers) for silo in remaining}
        if len(set(lengths.values())) > 1:
            raise DataError(f"answers to question {name!r} differ in length: {lengths}; one version answers all.")
        for silo in remaining:
            one.rows[silo], one.left_out[silo] = (
                getattr(told[silo].replies[name], key) for key in ("rows", "left_out")
            )
        answers = {silo: told[silo].replies[name].numbers for silo in remaining}
        masked = self.codebook.rules.secure_sum and not self._prepared[name].by_silo
        # Earlier sums held the rows of a silo that is gone, and masks of the others cancel with its own.
        if fallen and (masked or one.rounds > 1):
            one.attempt += 1
            one.analysis = self._prepared[name].analysis()
            self._advance(one, None)
            return
        self._advance(one, {"all": unmask(list(answers.values()))} if masked else answers)

    def _may_lack(self, name: str, one: Progress) -> bool:
        """True if answers may lack numbers: small cells, silos without a fit, the times of fewer events than most."""
        return self._prepared[name].by_silo or (one.ask is not None and one.ask.step == "times")

    def _advance(self, one: Progress, answers: Answers | None) -> None:
        try:
            one.ask = next(one.analysis) if answers is None else one.analysis.send(answers)
        except StopIteration as end:
            one.ask, one.result = None, end.value
        except DataError as cause:
            one.ask, one.failed = None, str(cause)
        except (ValueError, ArithmeticError, IndexError, np.linalg.LinAlgError) as cause:  # numbers that cannot be
            one.ask, one.failed = None, f"the answers are none of this analysis ({cause!r})"


def run_study(
    codebook: Codebook,
    carry: Callable[[Round], Iterable[Answer]],
    questions: Sequence[str] = (),
) -> Coordinator:
    """Run a study to its end.

    Args:
        codebook: The study's.
        carry: Brings a round to the silos and their answers back.
        questions: Names of the questions; none: all of the plan.
    """
    made = Coordinator(codebook, questions)
    while (asked := made.open) is not None:
        made.take(carry(asked), asked)
    return made
