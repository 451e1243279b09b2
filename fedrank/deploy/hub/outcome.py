"""What a hub shows, and what it makes of what it is told."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Outcome(enum.Enum):
    """What became of a report."""

    ACCEPTED = "accepted"
    ALREADY = "already"
    CONFLICT = "conflict"
    STALE = "stale-round"
    EARLY = "early-round"
    BETWEEN = "between-rounds"
    DONE = "done"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True)
class View:
    """What the hub shows now; replaced in one step.

    Attributes:
        round: The round that is open, or the first that is not.
        state: ``"open"``, ``"between"`` or ``"done"``.
        model: The round's question, as bytes.
        etag: Its HTTP entity tag, with quotes.
    """

    round: int
    state: str
    model: bytes
    etag: str
