"""Messages of a study as JSON: a round of asks to all silos, and one silo's answers.

A round holds one ask for each question of the plan that is still open, so that all questions advance together. Numbers
are written so that they are read back to the last bit; a number that is not told is null. Both messages name the
codebook by its hash, and an answer names the round's content by its own. Where the codebook has keys, a silo signs its
answers, and the coordinator, where it has one, its rounds (:mod:`fedrank.silos.studies.keys`).
"""

from __future__ import annotations

import abc
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt32
from typing_extensions import override

from fedrank.core.errors import FormatError, MissingDataError
from fedrank.core.trees import Json
from fedrank.engine.checkpoint import write_atomically
from fedrank.silos.studies.codebook import COORDINATOR, Codebook, from_text, to_text
from fedrank.silos.studies.keys import WORDS, Key, canonical, is_signed
from fedrank.silos.studies.protocol import Ask

_ROUND, _ANSWER, _VERSION = "fedrank-study-round", "fedrank-study-answer", 1


class _Signed(abc.ABC):
    """A message with a signature of its content."""

    signature: str

    @abc.abstractmethod
    def content(self) -> dict[str, Json]:
        """The message without its signature, which is hashed and signed."""

    def as_json(self) -> dict[str, Json]:
        """As it stands in the file."""
        return self.content() | ({"signature": self.signature} if self.signature else {})

    def sign(self, key: Key) -> Any:
        """The message with the signature of its sender."""
        return replace(self, signature=key.sign(self.content()))  # type: ignore[type-var] - messages are dataclasses


@dataclass(frozen=True, eq=False)
class Round(_Signed):
    """The asks of one round.

    Attributes:
        codebook: The study's codebook.
        number: Number of the round, from 1.
        asks: Question -> its ask; at most one of each.
        attempts: Question -> how often it has begun anew, as a silo fell away.
        silos: Question -> the silos whose answers are summed; of others no answer is expected.
        signature: The coordinator's, of :meth:`content`; empty: none.
    """

    codebook: Codebook
    number: int
    asks: Mapping[str, Ask]
    attempts: Mapping[str, int] = field(default_factory=dict)
    silos: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    signature: str = ""

    def of(self, question: str) -> tuple[str, ...]:
        """The silos whose answers to a question are summed."""
        return self.silos.get(question, self.codebook.silos)

    @property
    def is_signed(self) -> bool:
        """True if the coordinator of the codebook signed it, or the codebook has no key of the coordinator."""
        public = self.codebook.keys.get(COORDINATOR)
        return public is None or is_signed(self.content(), self.signature, public)

    @override
    def content(self) -> dict[str, Json]:
        return {
            "format": _ROUND,
            "version": _VERSION,
            "study": self.codebook.study,
            "codebook_sha256": self.codebook.sha,
            "round": self.number,
            "asks": [
                {
                    "question": name,
                    "attempt": self.attempts.get(name, 0),
                    "silos": list(self.of(name)),
                    "step": ask.step,
                    "numbers": {key: _as_lists(value) for key, value in ask.numbers.items()},
                }
                for name, ask in self.asks.items()
            ],
            "codebook": self.codebook.as_json(),
        }

    @cached_property
    def sha(self) -> str:
        """SHA-256 of the content, in hexadecimal digits."""
        return hashlib.sha256(canonical(self.content())).hexdigest()

    @classmethod
    def from_json(cls, content: Any) -> Round:
        """The inverse of :meth:`as_json`.

        Raises:
            FormatError: It is no such message, or its codebook is not the one that it names.
        """
        try:
            _check(content, _ROUND)
            book = Codebook.from_json(content["codebook"])
            if book.sha != content["codebook_sha256"]:
                raise ValueError("its codebook is not the one that its hash names")
            asks, attempts, silos = {}, {}, {}
            for one in content["asks"]:
                name = book.question(str(one["question"])).name
                numbers = {str(key): _array(value) for key, value in one["numbers"].items()}
                asks[name], attempts[name] = Ask(str(one["step"]), numbers), int(one["attempt"])
                silos[name] = tuple(map(str, one["silos"]))
                if not set(silos[name]) <= set(book.silos) or len(set(silos[name])) < len(silos[name]):
                    raise ValueError("it sums over silos that the codebook does not name, or twice")
            return cls(book, int(content["round"]), asks, attempts, silos, str(content.get("signature", "")))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise FormatError(f"this is no round of a study: {_said(error)}.") from error


@dataclass(frozen=True, eq=False)
class Reply:
    """A silo's answer to one ask.

    Attributes:
        numbers: The answer; all NaN where it is refused; words with masks (uint32) in a secure sum.
        rows: Rows that were used; None where the count may not leave.
        left_out: Rows that lack a value; None where the answer is refused.
        refused: The rule that forbids the answer, in words; empty where it is given.
    """

    numbers: Float[np.ndarray, " numbers"] | UInt32[np.ndarray, " words"]
    rows: int | None = None
    left_out: int | None = None
    refused: str = ""

    @property
    def length(self) -> int:
        """Number of numbers of the answer, masked or not."""
        return len(self.numbers) // (WORDS if self.numbers.dtype == np.uint32 else 1)


@dataclass(frozen=True, eq=False)
class Answer(_Signed):
    """One silo's answers to a round.

    Attributes:
        silo: Its name.
        codebook: Hash of the codebook.
        round: Number of the round.
        asked: Hash of the round.
        replies: Question -> its reply.
        signature: The silo's, of :meth:`content`; empty: none.
    """

    silo: str
    codebook: str
    round: int
    asked: str
    replies: Mapping[str, Reply]
    signature: str = ""

    @override
    def content(self) -> dict[str, Json]:
        return {
            "format": _ANSWER,
            "version": _VERSION,
            "codebook_sha256": self.codebook,
            "round": self.round,
            "round_sha256": self.asked,
            "silo": self.silo,
            "answers": [
                {
                    "question": name,
                    "rows": one.rows,
                    "left_out": one.left_out,
                    "refused": one.refused,
                    **_as_fields(one.numbers),
                }
                for name, one in self.replies.items()
            ],
        }

    @classmethod
    def from_json(cls, content: Any) -> Answer:
        """The inverse of :meth:`as_json`.

        Raises:
            FormatError: It is no such message.
        """
        try:
            _check(content, _ANSWER)
            replies = {}
            for one in content["answers"]:
                rows, left_out = (None if one[key] is None else int(one[key]) for key in ("rows", "left_out"))
                if "masked" in one:
                    numbers = np.frombuffer(from_text(one["masked"]), "<u4").astype(np.uint32)
                else:
                    numbers = _array(one["numbers"])
                if numbers.ndim != 1:
                    raise ValueError("numbers that are no list")
                replies[str(one["question"])] = Reply(numbers, rows, left_out, str(one["refused"]))
            silo, sha = (str(content[key]) for key in ("silo", "codebook_sha256"))
            asked, signature = str(content["round_sha256"]), str(content.get("signature", ""))
            return cls(silo, sha, int(content["round"]), asked, replies, signature)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise FormatError(f"this is no answer of a silo: {_said(error)}.") from error


def write_message(message: Round | Answer, path: Path) -> int:
    """Write a message to a file, and return its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = (json.dumps(message.as_json(), indent=1, ensure_ascii=False) + "\n").encode()
    write_atomically(path, content)
    return len(content)


def read_message(path: Path, kind: type[Round] | type[Answer]) -> Any:
    """Read a message from a file.

    Raises:
        MissingDataError: There is no such file.
        FormatError: It is no such message; says what is wrong.
    """
    try:
        return kind.from_json(json.loads(path.read_bytes()))
    except FileNotFoundError:
        raise MissingDataError("there is no such message.", path) from None
    except IsADirectoryError:
        raise MissingDataError("this is a folder; give the path of a message.", path) from None
    except FormatError as error:
        raise FormatError(str(error), path) from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"this is no message of a study: {_said(error)}.", path) from error


def _as_fields(numbers: np.ndarray) -> dict[str, Json]:
    """An answer as it stands in a message: numbers, or words with masks."""
    if numbers.dtype == np.uint32:
        return {"masked": to_text(numbers.astype("<u4").tobytes())}
    return {"numbers": _as_lists(numbers)}


def _as_lists(value: Float[np.ndarray, "..."]) -> Json:
    """An array as lists, null for NaN."""
    if value.ndim > 1:
        return [_as_lists(one) for one in value]
    listed = value.tolist()
    if value.ndim == 0:
        return None if listed != listed else listed
    return [None if one != one else one for one in listed]


def _array(value: Any) -> Float[np.ndarray, "..."]:
    made = np.array(value, dtype=float)  # None becomes NaN
    if np.isinf(made).any():
        raise ValueError("a number that is not finite")
    return made


def _check(content: Any, kind: str) -> None:
    if not isinstance(content, dict) or content.get("format") != kind:
        raise ValueError(f"its format is not {kind!r}")
    if content["version"] != _VERSION:
        raise ValueError(f"its version is {content['version']!r}, and {_VERSION} is understood")


def _said(error: BaseException) -> str:
    return f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
