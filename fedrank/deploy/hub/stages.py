"""The row of stages that a hub is made of: their common interface, and the round that they share.

A hub admits devices, checks, stores, closes, learns and publishes. Each of these is a stage, and so is each feature
that a setting adds. :func:`fedrank.deploy.hub.row.row_of` puts a hub's stages together; :class:`~fedrank.deploy.hub.
hub.Hub` calls all of them at each step of a round and does not know which ones there are.
"""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass

from fedrank.core.trees import Json
from fedrank.deploy.terms import Terms


class Outcome(enum.Enum):
    """Outcome of a report; the values are the reasons in the HTTP protocol."""

    ACCEPTED = "accepted"
    ALREADY = "already"
    CONFLICT = "conflict"
    STALE = "stale-round"
    EARLY = "early-round"
    BETWEEN = "between-rounds"
    DONE = "done"
    NOT_DUE = "not-due"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True)
class View:
    """Messages that a hub hands out; replaced as a whole.

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
        """True if reports are not wanted, whatever they say."""
        return self.state in ("done", "halted")


class OpenRound:
    """The reports of the open round that are in the log, as far as this process knows.

    Args:
        terms: Terms of the hub.

    Attributes:
        number: Number of the round.
        counted: Device → message.
        checks: Number of these messages that compare models.
        opened: When it was opened, by the monotonic clock.
        seconds: Seconds for which it was open; 0 until it is closed.
        before: Number and reports of the round before it.
    """

    def __init__(self, terms: Terms):
        self._terms = terms
        self.number, self.counted, self.checks = 0, dict[int, bytes](), 0
        self.opened, self.seconds = time.monotonic(), 0.0
        self.before: tuple[int, dict[int, bytes]] = (-1, {})

    def recount(self, counted: dict[int, bytes]) -> None:
        """Take these messages for those of the round."""
        self.counted, self.checks = counted, sum(map(self._terms.is_check, counted.values()))

    def add(self, reports: dict[int, bytes]) -> None:
        """Add reports that were committed."""
        self.counted.update(reports)
        self.checks += sum(map(self._terms.is_check, reports.values()))

    @property
    def learnable(self) -> int:
        """Number of reports from which the model learns."""
        return len(self.counted) - self.checks

    @property
    def age(self) -> float:
        """Seconds since it was opened."""
        return time.monotonic() - self.opened


class Stage:
    """One part of a hub, which does nothing at the steps that it does not override.

    The writer's thread calls all methods but :meth:`start`, :meth:`stop`, :meth:`refuse` and :meth:`status`.
    """

    def start(self) -> None:
        """Start the threads of the stage; called in the event loop before the first request."""

    def stop(self) -> None:
        """Stop the threads of the stage and close its files."""

    def recover(self, number: int) -> None:
        """Go on in a round that the log has already, after a start."""

    def refuse(self, device: int, message: bytes) -> Outcome | None:
        """Outcome of a report of the open round that does not count; None where it may. Called by any thread."""
        return None

    def settle(self, number: int) -> None:
        """Write what has to be known of a closed round before a model is made of it; may be repeated.

        Raises:
            RunError: It cannot be written.
        """

    def prepare(self, number: int) -> None:
        """Make what a round needs before it is shown; may be repeated.

        Raises:
            RunError: It cannot be written.
        """

    def show(self, number: int, question: bytes, best: bytes | None) -> None:
        """Show a round's model message and the best model's, as devices get them from now on."""

    def begin(self, number: int, ended: OpenRound) -> None:
        """Begin a round; ``ended`` is the one that was open before it."""

    def status(self) -> dict[str, Json]:
        """Entries of the hub's status; called by any thread."""
        return {}
