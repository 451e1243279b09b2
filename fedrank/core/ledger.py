"""The ledger: everything that crossed between parties, counted.

One entry per round, exchange and message type. Bytes come from the message's :class:`~fedrank.core.messages.Layout`,
never from a formula beside it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from fedrank.core.errors import RunError
from fedrank.core.messages import Layout


@dataclass(frozen=True)
class Entry:
    """The messages of one type that crossed in one round.

    Attributes:
        round: Number of the round, from 0.
        exchange: Name of the exchange.
        message: Name of the message type.
        sender: ``"server"`` or ``"parties"``.
        receiver: The other of the two.
        messages: How many messages.
        bytes_each: Bytes of one message, header included, before transport overhead.
    """

    round: int
    exchange: str
    message: str
    sender: str
    receiver: str
    messages: int
    bytes_each: int

    @property
    def bytes(self) -> int:
        """Bytes of all messages of this entry."""
        return self.messages * self.bytes_each

    def as_json(self) -> dict[str, int | str]:
        """The entry as it stands in ``ledger.jsonl``."""
        return {**asdict(self), "bytes": self.bytes}


class Ledger:
    """Entries in the order in which they happened.

    >>> from fedrank.core.messages import Array, Layout, field, message, u2
    >>> @message(kind=1)
    ... class Ping:
    ...     number: Array = field(u2, "a number")
    >>> ledger = Ledger()
    >>> ledger.record(0, "hello", Layout(Ping), sender="server", messages=5)
    >>> ledger.bytes_from("server")
    15
    """

    def __init__(self, entries: Iterable[Entry] = ()):
        self.entries = list(entries)

    def record(self, round_: int, exchange: str, layout: Layout, *, sender: str, messages: int) -> None:
        """Write down that ``messages`` messages of this layout crossed."""
        receiver = "parties" if sender == "server" else "server"
        self.entries.append(Entry(round_, exchange, layout.name, sender, receiver, messages, layout.nbytes))

    def bytes_from(self, sender: str) -> int:
        """All bytes that ``"server"`` or ``"parties"`` sent."""
        return sum(e.bytes for e in self.entries if e.sender == sender)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the ledger as JSON lines."""
        Path(path).write_text(self.text(), encoding="utf-8")

    def text(self) -> str:
        """The ledger as JSON lines."""
        return "".join(json.dumps(e.as_json()) + "\n" for e in self.entries)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Ledger:
        """Read what :meth:`write` wrote.

        Raises:
            RunError: A line is not an entry.
        """
        entries = []
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
            try:
                row = json.loads(line)
                row.pop("bytes")
                entries.append(Entry(**row))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise RunError(f"{os.fspath(path)}:{number}: not a ledger entry ({error}).") from error
        return cls(entries)
