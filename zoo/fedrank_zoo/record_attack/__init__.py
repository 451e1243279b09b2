"""Was a record among a silo's rows? Membership inference against what a silo sends.

Here are the settings of the attack: flags of ``fedrank privacy attack records``, arguments in Python.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting

#: What is attacked: how it is called, and what it is.
MODES = {
    "model": "a logistic model as it is",
    "network": "a network as it is, after as many epochs as a run of silos trains",
    "statistics-exact": "sums of squares and products as they are",
    "noisy-statistics": "the sums with noise: fedrank silos send",
    "noisy-model": "a logistic model with noise on its coefficients",
    "noisy-network": "a network trained by DP-SGD, with as many epochs",
    "study": "the answers of a study's logistic model: sums at the coefficients of each round",
}


@dataclass(frozen=True)
class RecordAttack:
    """Targets and strength of an attack on records.

    Raises:
        ConfigError: A setting is out of range.
    """

    epsilon: tuple[float, ...] = setting((1.0, 4.0, 8.0), "ε of a record of what has noise.")
    delta: float = setting(1e-6, "δ.")
    modes: tuple[str, ...] = setting(tuple(MODES), "What is attacked.")
    shadows: int = setting(64, "Models of random halves of the rows by which the attacker learns what is usual.")
    penalty: float = setting(1.0, "L2 penalty of the logistic model as it is.")
    seed: int = setting(0, "Seed of everything random.")

    def __post_init__(self) -> None:
        if not self.epsilon or not all(0 < one <= 100 for one in self.epsilon):
            raise ConfigError(f"epsilon must be above 0 and at most 100, got {list(self.epsilon)}.")
        if not 0 < self.delta < 0.1:
            raise ConfigError(f"delta must be above 0 and below 0.1, got {self.delta:g}.")
        if not 8 <= self.shadows <= 10_000:
            raise ConfigError(f"shadows must be in 8..10,000, got {self.shadows}.")
        if not 0 < self.penalty < 1e6:
            raise ConfigError(f"penalty must be above 0, got {self.penalty:g}.")
        for mode in self.modes:
            if mode not in MODES:
                raise ConfigError(f"there is no mode {mode!r}; there are {', '.join(MODES)}.")
