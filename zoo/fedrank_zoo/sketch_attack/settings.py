"""The settings of an attack on sketches: flags of ``fedrank privacy attack sketch``, arguments in Python."""

from __future__ import annotations

from dataclasses import dataclass

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.fields import setting
from fedrank.core.privacy_report import DELTA

#: Modes that make a promise, and so can be attacked.
ATTACKED = ("paper", "publish-once")


#: Words of the largest dictionary: more would ask for gigabytes.
_LARGEST_VOCABULARY = 2_000_000


@dataclass(frozen=True)
class SketchAttack:
    """The mode of sketches to attack, and the effort.

    Raises:
        UnknownNameError: No such mode.
        ConfigError: A setting is out of range.
    """

    modes: tuple[str, ...] = setting(ATTACKED, "Modes to attack.")
    epsilon: float = setting(
        0.5,
        "ε as each mode means it: of one answer as printed (paper), of an occurrence for good (publish-once).",
    )
    z: int = setting(30, "Rows of a sketch.")
    w: int = setting(200, "Cells of a row.")
    z1: int = setting(
        10,
        "Positions of a question that belong to its term; the others are decoys. Mode publish-once asks nothing.",
    )
    trials: int = setting(4_000, "Trials of each attack; fewer of those that take long.")
    seed: int = setting(0, "Seed of everything random.")
    vocabulary: int = setting(50_000, "Words of the dictionary.")
    mechanism: str = setting("laplace", "laplace or gaussian noise in mode publish-once.")
    delta: float = setting(DELTA, "δ of Gaussian noise.")

    def __post_init__(self):
        z, z1 = self.z, self.z1
        for mode in self.modes:
            if mode not in ATTACKED:
                raise UnknownNameError("mode to attack", mode, ATTACKED)
        if z < 2 and self.asks:
            raise ConfigError(
                f"a question needs z of at least 2, one position for its word and one for decoys; got {z}. Attack mode "
                "publish-once, which asks nothing."
            )
        if z1 < 1 or (z1 >= z and self.asks):
            raise ConfigError(f"z1 must be in 1..{z - 1}, so that there are decoys among the {z} positions; got {z1}.")
        if self.trials < 1 or self.seed < 0:
            raise ConfigError(f"trials must be at least 1 and seed at least 0, got {self.trials} and {self.seed}.")
        if not 1 <= self.vocabulary <= _LARGEST_VOCABULARY:
            raise ConfigError(f"vocabulary must be in 1..{_LARGEST_VOCABULARY:,}, got {self.vocabulary:,}.")

    @property
    def asks(self) -> bool:
        """True if questions leave a querier in one of the attacked modes; ``z1`` means something then."""
        return self.modes != ("publish-once",)
