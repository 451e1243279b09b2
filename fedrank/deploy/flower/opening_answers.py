"""A node's part in an opening: one silo, one question after the other, each answered once.

What is handed out in an opening has noise of its own, and a secure sum protects a silo only if it unmasks once. So a
node never works a question out twice: the same question gets the very same answer again, another one in its place is
refused, and openings that hand out sketches anew are counted, over all runs.

Flower starts a new process for each message. What a silo remembers, private keys and its rows among it, is one file of
the node (:class:`Store`).
"""

from __future__ import annotations

import abc
import hashlib
import io
import json
import logging
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.errors import RunError, WireError
from fedrank.core.protocol import Party, Protocol
from fedrank.deploy.flower.messages import Answer, Question
from fedrank.engine.checkpoint import write_atomically

_log = logging.getLogger("fedrank.flower")

_ABOUT, _REPLY, _OWN = "about", "reply", "own."
#: Nobody but the node reads what its silo remembers.
_MODE = 0o600


class Store(abc.ABC):
    """Where a node keeps the bytes of what its silo remembers."""

    @abc.abstractmethod
    def read(self) -> bytes | None:
        """What was written last; None if nothing was."""

    @abc.abstractmethod
    def write(self, data: bytes) -> None:
        """Replace it; raises RunError where it cannot be written."""


class FileStore(Store):
    """A file that outlasts the node's process.

    Args:
        path: The file; its folder is made.
    """

    def __init__(self, path: Path):
        self.path = path

    def read(self) -> bytes | None:
        """As :meth:`Store.read`."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunError(f"{self.path}: cannot be read ({error.strerror}).") from error

    def write(self, data: bytes) -> None:
        """As :meth:`Store.write`."""
        write_atomically(self.path, data, _MODE)


@dataclass(frozen=True)
class Remembered:
    """What a silo remembers of the openings of a run.

    Attributes:
        done: Exchanges of this opening that it has answered, up to the last one.
        showing: Whether something with noise of its own has left the silo in this opening.
        asked: Hash of the last question.
        reply: The answer to it.
        own: What the silo has for itself.
    """

    done: int = 0
    showing: bool = False
    asked: str = ""
    reply: bytes = b""
    own: dict[str, np.ndarray] = field(default_factory=dict)

    def packed(self) -> bytes:
        """As bytes."""
        about = {"done": self.done, "showing": self.showing, "asked": self.asked}
        arrays = {
            _ABOUT: np.frombuffer(json.dumps(about).encode(), np.uint8),
            _REPLY: np.frombuffer(self.reply, np.uint8),
            **{_OWN + name: array for name, array in self.own.items()},
        }
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        return buffer.getvalue()

    @classmethod
    def unpacked(cls, data: bytes | None) -> Remembered:
        """The inverse of :meth:`packed`; of None a silo that was never asked. Raises RunError where it is damaged."""
        if data is None:
            return cls()
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                own = {name.removeprefix(_OWN): file[name] for name in file.files if name.startswith(_OWN)}
                return cls(**json.loads(bytes(file[_ABOUT])), reply=bytes(file[_REPLY]), own=own)
        except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise RunError(
                f"what this node remembers of the run's opening is damaged ({error}). Whether its sketches were handed "
                "out is not known; ask those who run the federation for a new run."
            ) from error


def opening_answer(
    opening: Protocol,
    party: Party,
    number: int,
    question: Question,
    store: Store,
    shown: Store,
    draws: Any,
    most: float,
    shows: int,
    keeps: Callable[[str], bool],
) -> Answer:
    """A silo's answer to one question of the opening.

    Args:
        opening: The protocol.
        party: The silo as it begins.
        number: Its number.
        question: What the server asked.
        store: Where the silo's memory of this run is.
        shown: Where it counts the openings, of all runs, in which it showed something.
        draws: What the exchange draws from: None for the operating system, or a simulation's generator.
        most: How many openings may show something.
        shows: First exchange that hands out something with noise of its own.
        keeps: What the silo needs when the opening is over, by name.

    Raises:
        FedrankError: The question is out of turn, or the exchange refuses.
    """
    if not 0 <= question.exchange < len(opening.exchanges) or question.round:
        raise WireError(f"the opening has no exchange {question.exchange} in a round {question.round}.")
    exchange, step = opening.exchanges[question.exchange], question.exchange
    asked = hashlib.sha256(question.request).hexdigest()
    before = Remembered.unpacked(store.read())
    if step == before.done - 1 and asked == before.asked:  # the answer was lost on its way
        return Answer.of(number, np.ones(1, bool), before.reply)
    if step == 0:
        before = Remembered()
    elif not before.own:
        raise RunError(f"this silo is asked {exchange.name!r} and has not taken part in this run's opening so far.")
    elif step < before.done:
        raise RunError(
            f"this silo is asked {exchange.name!r} a second time with another question, which could take off its "
            "masks or its noise; nothing is answered."
        )
    now = before
    if step >= shows and not before.showing:
        _count(shown, most)  # before anything leaves: a process that dies now has counted
        now = replace(before, showing=True)
        store.write(replace(now, asked="", reply=b"").packed())
    mine = party if step == 0 else party._replace(own=now.own)
    mine, reply = exchange.respond(exchange.request.decode(question.request), mine, draws)
    sent = exchange.reply.encode(reply)
    own = mine.own
    if step == len(opening.exchanges) - 1:  # keys and secrets of the opening have done their work
        own = {name: array for name, array in own.items() if keeps(name)}
    store.write(replace(now, done=step + 1, asked=asked, reply=sent, own=own).packed())
    return Answer.of(number, np.ones(1, bool), sent)


def _count(shown: Store, most: float) -> None:
    """One opening more that shows something; raises RunError where that is one too many."""
    times = openings_shown(shown)
    if times >= most:
        raise RunError(
            f"this silo has handed out its sketches in {times} opening(s), of this run or others, and would spend ε "
            f"once more; its node allows {most:g} (most-openings). Raise it if the documents' owners agree."
        )
    if times:
        _log.warning("this silo shows its documents for the %d. time: ε is spent each time, and adds up", times + 1)
    shown.write(str(times + 1).encode())


def openings_shown(shown: Store) -> int:
    """In how many openings a silo has shown something. Raises RunError where that cannot be read."""
    data = shown.read()
    try:
        return int(data or b"0")
    except ValueError as error:
        raise RunError(
            f"what this node remembers of its openings is damaged ({error}); it does not take part."
        ) from error
