"""How much of owners' documents do others read, from sketches and from a search that is served?

Here are the settings of the attack: flags of ``fedrank privacy attack documents``, arguments in Python.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.fields import setting
from fedrank.texts.config import MODES, Sketch


@dataclass(frozen=True)
class DocumentAttack:
    """The documents to attack, and their protection.

    Raises:
        ConfigError: A setting is out of range.
    """

    sketch_mode: str = setting(Sketch().mode, f"How owners show their documents: {', '.join(MODES)}.")
    sketch_epsilon: float | None = setting(None, "ε as sketch.epsilon of a run has it; without it the mode's default.")
    z: int = setting(0, "Rows of a sketch; 0: the mode's default.")
    w: int = setting(0, "Cells of a row; 0: the mode's default.")
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
            ("z", 0, 100),
            ("w", 0, 1 << 20),
            ("owners", 2, 100),
            ("questions", 1, 10**6),
            ("targets", 1, 10**6),
            ("trials", 4, 10**6),
            ("seed", 0, 2**63),
        ):
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"{name} must be in {low}..{high}, got {getattr(self, name)}.")
        for name in ("sketch_epsilon", "statistics_epsilon"):
            if getattr(self, name) is not None and not 0 < getattr(self, name) < 1000:
                raise ConfigError(f"{name} must be above 0 and below 1000, got {getattr(self, name)}.")
        if self.sketch_mode not in MODES:
            raise UnknownNameError("sketch_mode", self.sketch_mode, MODES)
        if self.sketch_mode == "plain" and self.sketch_epsilon is not None:
            raise ConfigError("sketch_mode = 'plain' has no noise; leave sketch_epsilon out.")
        if not 0 < self.known <= 0.5:
            raise ConfigError(f"known must be above 0 and at most 0.5, got {self.known}.")
        if not 0 <= self.step <= 100:
            raise ConfigError(f"step must be in 0..100, got {self.step}.")

    def sketch(self) -> Sketch:
        """The settings of a run in which documents are shown so, with the defaults of the mode."""
        return Sketch(
            mode=self.sketch_mode,  # type: ignore[arg-type]
            epsilon=self.sketch_epsilon,
            z=self.z,
            w=self.w,
        ).with_defaults()
