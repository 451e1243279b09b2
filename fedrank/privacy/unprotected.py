"""The account of what nothing is done to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Unprotected:
    """Nothing is randomised, and there is no bound on what is revealed.

    Attributes:
        rounds: Rounds of the run.
        seen: What is seen as it is, in a sentence.
        words: Further sentences for a report.
    """

    rounds: int
    seen: str
    words: tuple[str, ...] = ()

    @property
    def epsilon_round(self) -> float:
        """Nothing is promised: infinite."""
        return math.inf

    def as_json(self) -> dict[str, Any]:
        """The content of ``privacy.json``."""
        return {
            "mechanism": "none",
            "epsilon_round": None,
            "epsilon_user_basic": None,
            "epsilon_user_pld": None,
            "local": False,
            "rounds": self.rounds,
            "covers": [],
            "not_covered": [self.seen],
            "words": [self.seen, *self.words],
        }
