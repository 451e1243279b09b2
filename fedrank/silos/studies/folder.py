"""A study in a folder: the rounds that were sent, the answers that came back, and the results.

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
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedrank.core.errors import ConfigError, DataError, FormatError, RunError
from fedrank.engine.checkpoint import lock_folder, write_atomically
from fedrank.silos.studies.codebook import COORDINATOR, Codebook, read_codebook
from fedrank.silos.studies.coordinator import Coordinator
from fedrank.silos.studies.keys import KEY, read_key
from fedrank.silos.studies.messages import Answer, Round, read_message, write_message


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
        """File of the open round."""
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
