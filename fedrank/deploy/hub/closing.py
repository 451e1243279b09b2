"""The stage that closes rounds: when enough reports came or time is up, and which reports are used, by lot."""

from __future__ import annotations

import secrets

from fedrank.deploy.hub.settings import MOST_REPORTS, HubSettings
from fedrank.deploy.hub.stages import OpenRound, Stage
from fedrank.deploy.hub.store import Store
from fedrank.deploy.terms import Terms


class Closing(Stage):
    """Closes rounds (OPEN → CLOSED).

    Args:
        settings: Settings of the hub.
        terms: Terms of the hub.
        store: The log.
        round_: The open round.
    """

    def __init__(self, settings: HubSettings, terms: Terms, store: Store, round_: OpenRound):
        self.settings, self.terms, self.store, self.round = settings, terms, store, round_

    @property
    def room(self) -> int:
        """Number of reports that the open round still takes."""
        most = MOST_REPORTS if self.settings.round_seconds else self.settings.cohort
        return most - self.round.learnable

    def reports(self) -> int:
        """Number of reports of the open round from which the model learns."""
        return self.round.learnable

    def seconds(self) -> float | None:
        """Seconds after its opening at which the round closes with the reports that it has; None: more must come."""
        n, s = self.reports(), self.settings
        if n >= s.cohort:
            return s.round_seconds
        # Where devices are drawn, a round in which too few are is over at its deadline: the next draws others.
        return s.deadline if s.deadline and (n >= s.least or self.terms.draws) else None

    def close(self, number: int) -> None:
        """Close a round; may be repeated.

        Raises:
            StoreError: It cannot be written.
        """
        # By lot, and not before all have come: speed brings no advantage, and the outcome cannot be foreseen.
        of_model = sorted(d for d, message in self.round.counted.items() if not self.terms.is_check(message))
        unused = secrets.SystemRandom().sample(of_model, max(0, len(of_model) - self.settings.cohort))
        self.store.close_round(number, self.round.seconds, unused, self.round.checks)
