"""The settings of attacks on documents: flags of ``fedrank attack documents``."""

from __future__ import annotations

from dataclasses import dataclass

from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting


@dataclass(frozen=True)
class DocumentAttack:
    """Which documents are attacked, and what protects them.

    Raises:
        ConfigError: A setting is out of range.
    """

    sketch_epsilon: float = setting(8.0, "ε of an occurrence in the sketches that owners publish once.")
    z: int = setting(1, "Rows of a sketch.")
    w: int = setting(4096, "Cells of a row.")
    statistics_epsilon: float = setting(1.0, "ε of a document in the statistics of a search that is served.")
    owners: int = setting(4, "Owners of the documents; the first attacks, or asks, the second.")
    known: float = setting(0.05, "Part of the documents that the server of the sketches has from elsewhere.")
    step: float = setting(0.1, "What a search that is served rounds scores to.")
    questions: int = setting(2000, "Questions of an asker about one document: the budget of a day.")
    targets: int = setting(5, "Documents that the asker reads.")
    trials: int = setting(100, "Documents that are read from sketches, and texts that are looked for.")
    seed: int = setting(0, "Seed of everything random.")

    def __post_init__(self) -> None:
        for name, low, high in (
            ("z", 1, 100),
            ("w", 2, 1 << 20),
            ("owners", 2, 100),
            ("questions", 1, 10**6),
            ("targets", 1, 10**6),
            ("trials", 4, 10**6),
            ("seed", 0, 2**63),
        ):
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"{name} must be in {low}..{high}, got {getattr(self, name)}.")
        for name in ("sketch_epsilon", "statistics_epsilon"):
            if not 0 < getattr(self, name) < 1000:
                raise ConfigError(f"{name} must be above 0 and below 1000, got {getattr(self, name)}.")
        if not 0 < self.known <= 0.5:
            raise ConfigError(f"known must be above 0 and at most 0.5, got {self.known}.")
        if not 0 <= self.step <= 100:
            raise ConfigError(f"step must be in 0..100, got {self.step}.")
