"""A node's part in a run's setup: one party, one question after the other, each answered once.

What is shown in a setup has noise of its own, and a secure sum protects a party only if it unmasks once. So a node
never computes an answer twice: the same question gets the same answer again, another one in its place is refused, and
setups that show something anew are counted, over all runs.

Flower starts a new process for each message. What a party remembers, private keys and its data included, is one file of
the node (:class:`Store`).
"""

from __future__ import annotations

import abc
import hashlib
import io
import json
import logging
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Shaped
from typing_extensions import override

from fedrank.core.errors import RunError, WireError
from fedrank.deploy.flower.messages import Answer, Question
from fedrank.engine.checkpoint import write_atomically
from fedrank.engine.deployment import SetupSide

_log = logging.getLogger("fedrank.flower")

_ABOUT, _REPLY, _OWN = "about", "reply", "own."
#: Rights of that file: only its owner may read it.
_MODE = 0o600


class Store(abc.ABC):
    """Where a node keeps the bytes of what its party remembers."""

    @abc.abstractmethod
    def read(self) -> bytes | None:
        """The bytes that were written last; None if there are none."""

    @abc.abstractmethod
    def write(self, data: bytes) -> None:
        """Replace the bytes; raises RunError where they cannot be written."""


class NoStore(Store):
    """A memory that keeps nothing between questions, for nodes without a folder."""

    @override
    def read(self) -> bytes | None:
        return None

    @override
    def write(self, data: bytes) -> None:
        raise RunError("this node has nowhere to remember a setup; give it a state-dir.")


class FileStore(Store):
    """A file that outlives the node's process.

    Args:
        path: The file; its folder is made.
    """

    def __init__(self, path: Path):
        self.path = path

    @override
    def read(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunError(f"{self.path}: cannot be read ({error.strerror}).") from error

    @override
    def write(self, data: bytes) -> None:
        write_atomically(self.path, data, _MODE)


@dataclass(frozen=True)
class Remembered:
    """What a party remembers of the setup of a run.

    Attributes:
        done: Number of exchanges of this setup that it has answered.
        showing: Whether something with noise of its own has left the party in this setup.
        asked: SHA-256 of the last request, in hexadecimal digits.
        reply: The reply to it.
        own: The party's own state, arrays by name.
    """

    done: int = 0
    showing: bool = False
    asked: str = ""
    reply: bytes = b""
    own: dict[str, Shaped[np.ndarray, "..."]] = field(default_factory=dict)

    def packed(self) -> bytes:
        """The bytes of a NumPy archive."""
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
        """The inverse of :meth:`packed`; None: nothing. Raises RunError where the bytes are damaged."""
        if data is None:
            return cls()
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                own = {name.removeprefix(_OWN): file[name] for name in file.files if name.startswith(_OWN)}
                return cls(**json.loads(bytes(file[_ABOUT])), reply=bytes(file[_REPLY]), own=own)
        except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise RunError(
                f"what this node remembers of the run's setup is damaged ({error}). Whether its sketches were handed "
                "out is not known; ask those who run the federation for a new run."
            ) from error


def setup_answer(setup: SetupSide, number: int, question: Question, store: Store, shown: Store) -> Answer:
    """A party's answer to one question of the setup.

    Args:
        setup: The node's part in the setup.
        number: Number of the party.
        question: The server's question.
        store: Where the party's memory of this run's setup is.
        shown: Where it counts the setups, of all runs, in which it showed something.

    Raises:
        FedrankError: The question is out of turn, or the exchange refuses.
    """
    protocol, index = setup.protocol, question.exchange
    if not 0 <= index < len(protocol.exchanges) or question.round:
        raise WireError(f"the setup has no exchange {index} in a round {question.round}.")
    exchange = protocol.exchanges[index]
    party = setup.party()
    asked = hashlib.sha256(question.request).hexdigest()
    before = Remembered.unpacked(store.read())
    if index == before.done - 1 and asked == before.asked:  # the answer was lost on its way
        setup.answered(index, before.reply)
        return Answer.of(number, np.ones(1, bool), before.reply)
    if index == 0:
        before = Remembered()
    elif not before.own:
        raise RunError(f"this silo is asked {exchange.name!r} and has not taken part in this run's setup so far.")
    elif index < before.done:
        raise RunError(
            f"this silo is asked {exchange.name!r} a second time with another question, which could take off its "
            "masks or its noise; nothing is answered."
        )
    now = before
    if index >= setup.first_shown and not before.showing:
        _count(shown, setup.max_shown)  # before anything leaves: a process that dies now has counted
        now = replace(before, showing=True)
        store.write(replace(now, asked="", reply=b"").packed())
    mine = party if index == 0 else party._replace(own=now.own)
    mine, reply = exchange.respond(exchange.request.decode(question.request), mine, setup.draws(index))
    sent = exchange.reply.encode(reply)
    own = mine.own
    if index == len(protocol.exchanges) - 1:  # keys and secrets of the setup are not needed any more
        own = {name: array for name, array in own.items() if setup.keeps(name)}
    store.write(replace(now, done=index + 1, asked=asked, reply=sent, own=own).packed())
    setup.answered(index, sent)
    return Answer.of(number, np.ones(1, bool), sent)


def _count(shown: Store, most: float) -> None:
    """Count a setup that shows something; raises RunError where that is one too many."""
    times = setups_shown(shown)
    if times >= most:
        raise RunError(
            f"this silo has handed out its sketches in {times} setup(s), of this run or others, and would spend ε "
            f"once more; its node allows {most:g} (most-setups). Raise it if the documents' owners agree."
        )
    if times:
        _log.warning("this silo shows its documents for the %d. time: ε is spent each time, and adds up", times + 1)
    shown.write(str(times + 1).encode())


def setups_shown(shown: Store) -> int:
    """Number of setups in which a party has shown something. Raises RunError where it cannot be read."""
    data = shown.read()
    try:
        return int(data or b"0")
    except ValueError as error:
        raise RunError(
            f"what this node remembers of its setups is damaged ({error}); it does not take part."
        ) from error
