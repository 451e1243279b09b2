"""The public view of a hub, and the outcomes of a report."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Outcome(enum.Enum):
    """Outcome of a report; the values are the reasons in the HTTP protocol."""

    ACCEPTED = "accepted"
    ALREADY = "already"
    CONFLICT = "conflict"
    SPENT = "spent"
    STALE = "stale-round"
    EARLY = "early-round"
    BETWEEN = "between-rounds"
    DONE = "done"
    NOT_DUE = "not-due"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True)
class View:
    """What the hub currently hands out; replaced as a whole.

    Attributes:
        round: Number of the open round, or of the next one.
        state: ``"open"``, ``"between"``, ``"done"`` or, because the model sank, ``"halted"``.
        model: The round's request as bytes.
        etag: Its HTTP entity tag, with quotes.
        best: The request of the best model so far, with which devices compare; None: they do not.
    """

    round: int
    state: str
    model: bytes
    etag: str
    best: bytes | None = None

    @property
    def over(self) -> bool:
        """Whether reports are not wanted, whatever they say."""
        return self.state in ("done", "halted")
