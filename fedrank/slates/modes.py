"""The modes of ``[slates]``: what settings are that are left out.

A mode is a bundle: ``published`` is the published code (TianYaDY/FedSlate) fault by fault, ``corrected`` has none of
the faults. A setting that is given stands in both, so that one fault can be switched on or off alone.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fedrank.core.errors import ConfigError
from fedrank.slates.config import PLATFORM_KNOWN, PLATFORM_PROTOCOLS, PLATFORM_ROUNDS, Slates, World
from fedrank.slates.fedslate_2024 import PUBLISHED, PUBLISHED_RATE
from fedrank.slates.world.choice import CHOICES

#: Part of the rounds after which ε is at its floor, where no decay is given.
EXPLORING = 1 / 3

#: What counts as no exploration, where a decay leads to none.
_NOWHERE = 0.01

#: What is left out: corrected, and as published (TianYaDY/FedSlate, at widths that fit a CPU instead of 4,096 × 5 and
#: 2,048 × 4).
BUNDLES: dict[str, dict[str, Any]] = {
    "corrected": {
        "memory": 5000,
        "burn_in": 500,
        "explore": 0.1,
        "decay": None,  # follows from the rounds
        "floor": 0.05,
        "snap": 0.0,
        "choice": "true",
        "others": None,  # follow from the world
        "centred": None,
        "local_widths": (64, 64),
        "head_widths": (32, 32),
        "reward_scale": 15.0,
        "positional": False,
        "squash": False,
        "ids": False,
        "raw": False,
        "past": False,
        "endless": False,
        "fresh": True,
        "online_others": False,
        "moving_targets": False,
    },
    "published": PUBLISHED,
}
#: Step sizes of the two modes; the published one is of three Adams.
PLATFORM_RATES = {"corrected": 3e-4, "published": PUBLISHED_RATE}


def decay_of(explore: float, floor: float, rounds: int) -> float:
    """The factor that brings ε from its start to its floor in a third of the rounds; 1 where it is there already.

    >>> round(0.5 * decay_of(0.5, 0.05, 300) ** 100, 6)
    0.05
    """
    if floor >= explore:
        return 1.0
    return float((max(floor, _NOWHERE) / explore) ** (1 / max(1.0, rounds * EXPLORING)))


def resolved_slates(slates: Slates, rounds: int, protocol: str, world: World) -> Slates:
    """The same with what its mode says where nothing is given; what a protocol does not know stays None.

    Args:
        slates: As configured.
        rounds: Rounds of the run, for the decay of ε.
        protocol: One of :data:`PLATFORM_PROTOCOLS`.
        world: The users.

    Raises:
        ConfigError: Settings contradict each other.
    """
    given = {name: value for name, value in vars(slates).items() if value is not None}
    usual = {
        name: value
        for name, value in (_usual(slates.mode, slates.explore) | _from_world(slates.mode, world)).items()
        if protocol in PLATFORM_KNOWN.get(f"slates.{name}", PLATFORM_PROTOCOLS)
    }
    filled = dataclasses.replace(slates, **{**usual, **given})
    explore = _set(filled.explore)
    if _set(filled.floor) > explore:
        raise ConfigError(
            f"slates.floor must not be above slates.explore = {explore:g}, got {filled.floor}: ε only falls."
        )
    if filled.decay is None:
        filled = dataclasses.replace(filled, decay=decay_of(explore, _set(filled.floor), rounds))
    memory, burn_in = _set(filled.memory), _set(filled.burn_in)
    for name, value in (("slates.memory", memory), ("slates.burn_in", burn_in)):
        if value <= filled.batch:  # the newest round has no next one yet
            raise ConfigError(f"{name} must be above slates.batch = {filled.batch}, got {value}.")
    return filled


def drop_bundle(values: dict[str, Any], key: str) -> None:
    """Take out of a nested dictionary what was nobody's choice, before a setting that it follows from changes.

    Args:
        values: A configuration as :func:`~fedrank.engine.settings.as_dict` has it, resolved or not; changed in
            place.
        key: Dotted name of the setting that will change; only the mode, the rounds and the protocol matter.
    """
    slates = values.get("slates")
    if key not in ("slates.mode", "rounds", "protocol") or not isinstance(slates, dict):
        return
    mode = slates.get("mode", "corrected")
    if values.get("protocol") not in PLATFORM_PROTOCOLS or mode not in BUNDLES:
        return
    explore = slates.get("explore")
    explore = BUNDLES[mode]["explore"] if explore is None else explore
    bundle = _usual(mode, explore) | _from_world(mode, _world_of(values))
    if slates.get("decay") == decay_of(
        explore, slates.get("floor", bundle["floor"]), values.get("rounds", PLATFORM_ROUNDS)
    ):
        slates.pop("decay")
    if key == "rounds":
        return
    for name, usual in bundle.items():
        value = slates.get(name)
        if value is not None and (tuple(value) if isinstance(value, list) else value) == usual:
            slates.pop(name)
    if values.get("learning_rate") == PLATFORM_RATES[mode]:
        values.pop("learning_rate")


def _usual(mode: str, explore: float | None) -> dict[str, Any]:
    """A mode's bundle; who does not explore has no floor to fall to either."""
    bundle = BUNDLES[mode]
    return {**bundle, "floor": min(bundle["floor"], bundle["explore"] if explore is None else explore)}


def _world_of(values: dict[str, Any]) -> World:
    """What :func:`_from_world` looks at, of a nested dictionary."""
    given, names = values.get("world"), ("shared_candidates", "choice")
    return World(**{name: given[name] for name in names if name in given}) if isinstance(given, dict) else World()


def _from_world(mode: str, world: World) -> dict[str, Any]:
    """What of the corrected bundle depends on the users: whose items are the same, and who always clicks."""
    if mode != "corrected":
        return {}
    others = "aligned" if world.shared_candidates else "pooled"
    return {"others": others, "centred": CHOICES.get(world.choice)().always_clicks}


def _set(value: Any) -> Any:
    """A setting that its bundle has filled."""
    assert value is not None
    return value
