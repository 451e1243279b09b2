"""The coordinator of a study: sends rounds, takes answers, and ends with the results of the plan's questions.

A study in a folder has the rounds that were sent, the answers that came back, and the results.

::

    codebook.toml                    what all agreed on
    key                              the coordinator's private key, where the codebook names its public one
    rounds/001/round.json            the asks of a round, to be sent to all silos
    rounds/001/answers/SILO.json     what came back
    rounds/001/closed.json           whose answers were taken, once the round is over

Nothing else is kept: the state of the analyses is what the closed rounds make of it, so that a coordinator that is
stopped goes on where it was.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.errors import ConfigError, DataError, FormatError, RunError
from fedrank.engine.checkpoint import lock_folder, write_atomically
from fedrank.silos.studies.codebook import COORDINATOR, Codebook, read_codebook
from fedrank.silos.studies.keys import KEY, is_signed, read_key, unmask
from fedrank.silos.studies.messages import Answer, Round, read_message, write_message
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

    Attributes:
        simulated: Whether the rows of all silos lay in one place.
        notes: Sentences that stand with the result of each question.

    Raises:
        ConfigError: A question's formula or model does not fit the codebook.
    """

    def __init__(self, codebook: Codebook, questions: Sequence[str] = ()):
        self.codebook, self.simulated, self.notes = codebook, False, ()
        wanted = [codebook.question(name) for name in questions] or list(codebook.questions)
        if not wanted:
            raise ConfigError(
                "the codebook's plan has no question; add one at its end: [[plan.questions]], below it a name and a "
                'formula, such as name = "risk" and formula = "ill ~ age + strata(site)".'
            )
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
        # Small cells, silos without a fit, and the times of fewer events than most are told as lacking numbers.
        may_lack = self._prepared[name].by_silo or (one.ask is not None and one.ask.step == "times")
        for silo in taking:
            if silo not in told:
                fallen[silo] = "it did not answer"
            elif (reply := told[silo].replies[name]).refused:
                fallen[silo] = reply.refused
            elif np.isnan(reply.numbers).any() and not may_lack:
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


@contextlib.contextmanager
def open_study(path: Path, codebook: Path | None = None) -> Iterator[StudyFolder]:
    """A study in a folder, of which no other process takes answers meanwhile.

    Args:
        path: As of :class:`StudyFolder`.
        codebook: As of :class:`StudyFolder`.

    Raises:
        RunError: Another process is at work on it.
        FedrankError: As of :class:`StudyFolder`.
    """
    if codebook is not None:
        read_codebook(codebook)  # no folder is made for a file that is none
        path.mkdir(parents=True, exist_ok=True)
    with lock_folder(path, "is at work on this study") if path.is_dir() else contextlib.nullcontext():
        yield StudyFolder(path, codebook)


class StudyFolder:
    """A study in a folder.

    Args:
        path: The folder; made where there is none.
        codebook: File of the codebook, where the study begins; it is copied into the folder.

    Raises:
        ConfigError: The folder has no codebook and none is given, or another one.
        FormatError: A file in the folder is damaged.
    """

    def __init__(self, path: Path, codebook: Path | None = None):
        self.path = path
        kept = path / "codebook.toml"
        if codebook is None and not kept.exists():
            raise ConfigError(f"{path} holds no study; begin one with --codebook FILE.")
        if codebook is not None:
            book = read_codebook(codebook)
            if kept.exists() and read_codebook(kept).sha != book.sha:
                raise ConfigError(f"{path} holds a study with another codebook; take another folder.")
            if not kept.exists():
                path.mkdir(parents=True, exist_ok=True)
                write_atomically(kept, codebook.read_bytes())
        self.codebook: Codebook = read_codebook(kept)
        self.coordinator = Coordinator(self.codebook)
        while (place := self._place(self.coordinator.number + 1)).joinpath("closed.json").exists():
            self._replay(place)

    def _replay(self, place: Path) -> None:
        asked: Round = read_message(place / "round.json", Round)
        if (own := self.coordinator.open) is None or set(own.asks) != set(asked.asks) or asked.number != own.number:
            raise FormatError("the file is not the round that the answers before it lead to.", place / "round.json")
        try:
            taken = [str(name) for name in json.loads((place / "closed.json").read_bytes())["silos"]]
        except (ValueError, KeyError, TypeError) as cause:
            raise FormatError(f"the file is damaged ({cause}).", place / "closed.json") from cause
        self.coordinator.take([read_message(place / "answers" / f"{name}.json", Answer) for name in taken], asked)

    @property
    def round(self) -> Round | None:
        """The open round, written to its file where it is new; None at the end of the study."""
        if self.coordinator.open is None:
            return None
        file = self.round_file
        if not file.exists():
            write_message(self._sign(self.coordinator.open), file)
        return read_message(file, Round)

    def _sign(self, asked: Round) -> Round:
        """A round with the coordinator's signature, where the codebook has its key."""
        if (public := self.codebook.keys.get(COORDINATOR)) is None:
            return asked
        if (key := read_key(self.path / KEY)).public != public:
            raise ConfigError(f"{self.path / KEY} is not the coordinator's key that the codebook names.")
        return asked.sign(key)

    @property
    def round_file(self) -> Path:
        """Path of the open round's JSON file, which is sent to all silos."""
        return self._place(self.coordinator.number + 1) / "round.json"

    def receive(self, answer: Answer) -> None:
        """Keep an answer to the open round.

        Raises:
            DataError: It is no answer to the open round (:meth:`.Coordinator.check`).
            RunError: The round has another answer of that silo.
        """
        asked = self.round
        if asked is None:
            raise DataError("the study has ended; no answers are expected.")
        self.coordinator.check(answer, asked)
        into = self.round_file.parent / "answers" / f"{answer.silo}.json"
        if into.exists() and read_message(into, Answer).as_json() != answer.as_json():
            raise RunError(f"{into} is another answer of {answer.silo}; a round takes one answer a silo.")
        write_message(answer, into)

    @property
    def waiting(self) -> list[str]:
        """Silos whose answers to the open round are still missing."""
        if (asked := self.coordinator.open) is None:
            return []
        gone = [set(self.coordinator.progress[name].left) for name in asked.asks]
        folder = self.round_file.parent / "answers"
        return [
            name
            for name in self.codebook.silos
            if not (folder / f"{name}.json").exists() and not all(name in of for of in gone)
        ]

    def close(self, without: Sequence[str] = ()) -> None:
        """Close the open round with the answers that came.

        Args:
            without: Silos that are not waited for any longer.

        Raises:
            ConfigError: Answers of others are still missing; says whose.
        """
        missing = [name for name in self.waiting if name not in without]
        if missing:
            raise ConfigError(f"the round waits for {', '.join(missing)}; --without NAME goes on without a silo.")
        asked, place = self.round, self.round_file.parent
        if asked is None:
            return
        taken = [
            name
            for name in self.codebook.silos
            if name not in without and (place / "answers" / f"{name}.json").exists()
        ]
        answers = [read_message(place / "answers" / f"{name}.json", Answer) for name in taken]
        self.coordinator.take(answers, asked)
        write_atomically(place / "closed.json", json.dumps({"silos": taken}).encode())

    def _place(self, number: int) -> Path:
        return self.path / "rounds" / f"{number:03d}"
