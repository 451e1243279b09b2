"""Faults of a simulation: drop-outs, stragglers, attackers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedrank.core.errors import ConfigError
from fedrank.engine.attackers import Attack


@dataclass(frozen=True)
class Conditions:
    """Faults that happen to replies in a simulation; by default none.

    Attributes:
        dropout: Probability that a party is not heard in a round, in [0, 1).
        late: Probability that a party's reply is to the question of ``delay`` rounds ago, in [0, 1]: a straggler.
        delay: Rounds that stragglers are behind, at least 1 where ``late`` is above 0.
        attack: Rule for the attackers' replies; None: no party attacks.
        attackers: Which parties attack, bool per party.
        absent: Which parties are never heard, bool per party; empty: none.
    """

    dropout: float = 0.0
    late: float = 0.0
    delay: int = 0
    attack: Attack | None = None
    attackers: tuple[bool, ...] = field(default=(), repr=False)
    absent: tuple[bool, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, devices: Any) -> Conditions:
        """Faults of a run whose settings of parties, ``devices``, know drop-outs only."""
        return cls(dropout=devices.dropout)

    def __post_init__(self):
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout must be in [0, 1), got {self.dropout}.")
        if not 0 <= self.late <= 1:
            raise ConfigError(f"late must be in [0, 1], got {self.late}.")
        if not (1 if self.late else 0) <= self.delay <= 1000:
            raise ConfigError(
                f"delay must be in 0..1000 rounds, and at least 1 where replies are late; got {self.delay}."
            )
