"""The settings of an attack on platforms: flags of ``fedrank privacy attack slates``, arguments in Python."""

from __future__ import annotations

from dataclasses import dataclass

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.fields import setting

#: Modes to attack whose platforms send sums over users: names of protocols.
SUMS = ("planned-slates",)
#: Modes to attack, and a description of each.
MODES = {
    "published": "the published code: targets are engagement and at most 0.9 more",
    "corrected": "values without bounds, engagement scaled and centred",
    "extended": "all platforms see engagement, and each learns from its own targets",
    "team": "all platforms see engagement, and all learn from the mean of their targets",
    "noisy-values": "as corrected, and Q-values carry noise",
    "noisy-targets": "as corrected, and engagement carries noise before it enters a target",
    "planned-slates": "sums over all explorers cross once, and each platform plans; without noise and with",
}


@dataclass(frozen=True)
class SlateAttack:
    """The modes to attack, and the runs whose messages are recorded: small enough to be trained in seconds.

    Raises:
        UnknownNameError: No such mode.
        ConfigError: A setting is out of range.
    """

    modes: tuple[str, ...] = setting(tuple(MODES), "Modes to attack.")
    seeds: int = setting(4, "Runs of each mode, whose seeds follow on the first; 2 or more give intervals.")
    seed: int = setting(0, "The first one's seed.")
    episodes: int = setting(30, "Users of each run; attackers that are fitted know every other one's engagement.")
    candidates: int = setting(10, "N, items that a platform can choose from.")
    slate: int = setting(3, "n, items that it shows.")
    platforms: int = setting(2, "K; the first is attacked by the last.")
    time_budget: int | None = setting(None, "Ticks of a user; by default 61 rounds.")
    local_widths: tuple[int, ...] = setting((64, 64), "Widths of the hidden layers of a platform's network.")
    federated_widths: tuple[int, ...] = setting((32, 32), "Widths of the hidden layers of the federated network.")
    batch: int = setting(32, "B, transitions of a batch.")
    epsilon: float = setting(8.0, "ε of a vector of values in mode noisy-values, at δ = 1e-06.")
    clip: float = setting(1.0, "Values are cut to ± this there.")
    target_epsilons: tuple[float, ...] = setting(
        (8.0, 1.0), "ε of one engagement, by noise on it before it enters a target, in mode noisy-targets."
    )
    release_epsilons: tuple[float, ...] = setting(
        (8.0, 2.0),
        "ε of a user's whole stay, by noise on sums, in mode planned-slates; also without noise.",
    )
    targets: int = setting(
        1000, "Users who are attacked in each run of planned-slates; half of them only teach the attacker."
    )
    set: tuple[str, ...] = setting(
        (), "Settings of planned-slates as fedrank run has them, NAME=VALUE, such as world.preset=tension."
    )

    def __post_init__(self):
        for mode in self.modes:
            if mode not in MODES:
                raise UnknownNameError("mode of slates to attack", mode, MODES)
        if self.seeds < 1 or self.seed < 0 or self.episodes < 4 or not self.modes:
            raise ConfigError(
                "an attack needs at least one mode, one seed, a first seed of at least 0 and 4 users; got "
                f"{list(self.modes)}, {self.seeds}, {self.seed} and {self.episodes}."
            )
        if self.targets < 8:
            raise ConfigError(f"targets must be at least 8, got {self.targets}: half of them teach the attacker.")
        if self.set and not any(mode in SUMS for mode in self.modes):
            raise ConfigError(
                f"--set is for the modes {' and '.join(SUMS)}, got it for {', '.join(self.modes)}; leave it out."
            )
        if self.platforms < 2:
            raise ConfigError(f"one platform attacks another, so platforms must be at least 2, got {self.platforms}.")
