"""Can a hub tell which reports are of one device? Real devices, a real hub and relay, and an attacker who sees all.

Here are the settings of the attack: flags of ``fedrank privacy attack links``, arguments in Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.fields import setting

#: Ways to report, and what the hub can use.
MODES = {
    "simple": "each device shows its own token",
    "tokens": "blind tokens; the hub sees addresses",
    "relay": "blind tokens through an oblivious relay",
}


@dataclass(frozen=True)
class LinkAttack:
    """Number of devices, how often they report, and how.

    Raises:
        UnknownNameError: No such mode.
        ConfigError: A setting is out of range.
    """

    modes: tuple[str, ...] = setting(tuple(MODES), "Modes to attack.")
    devices: int = setting(100, "Devices; each reports in every round.")
    rounds: int = setting(20, "Rounds; an attacker who learns has the truth about the first half.")
    batch: int = setting(20, "Reports that the relay passes on together; divides the number of devices.")
    minute: float = setting(1.0, "Seconds that a device's minute takes: all waiting is as much shorter.")
    spread: float = setting(0.0, "How different people are: 0: all alike; 1: from clicking always to never.")
    mechanism: str = setting("randomised-response", "randomised-response or piecewise.")
    p: float = setting(0.9, "Probability of the truth, for randomised response.")
    epsilon: float = setting(1.0, "ε of a message, for piecewise.")
    seed: int = setting(0, "Seed of what people search and click; the rest is the operating system's.")

    def __post_init__(self):
        for mode in self.modes:
            if mode not in MODES:
                raise UnknownNameError("mode to attack", mode, MODES)
        if self.devices < 2 or self.batch < 1 or self.devices % self.batch:
            raise ConfigError(f"batch must divide devices, at least 2; got {self.batch} and {self.devices}.")
        if self.rounds < 4:
            raise ConfigError(f"rounds must be at least 4, got {self.rounds}.")
        if not 0 <= self.spread <= 1 or not 0.01 <= self.minute <= 60:
            raise ConfigError(f"spread must be in 0..1, minute in 0.01..60; got {self.spread} and {self.minute}.")

    def hub(self, mode: str, n_features: int) -> Any:
        """The :class:`~fedrank.deploy.hub.settings.HubSettings` of the hub that is attacked.

        Args:
            mode: One of :data:`MODES`.
            n_features: Features of a document.
        """
        from fedrank.deploy.hub.settings import TRIAL, HubSettings

        piecewise = self.mechanism == "piecewise"
        settings: dict[str, Any] = dict(
            n_features=n_features,
            mechanism=self.mechanism,
            p=None if piecewise else self.p,
            epsilon=self.epsilon if piecewise else None,
            # With tokens a round is closed when all have reported and bought; in the first they only buy.
            cohort=self.devices if mode == "simple" else self.devices + 1,
            deadline=0.0,
            rounds=self.rounds if mode == "simple" else self.rounds + 1,
            tokens=0 if mode == "simple" else 1,
            batch=self.batch if mode == "relay" else 0,
        )
        return HubSettings(**{**TRIAL, **settings})
