"""Worlds by name.

``recsim`` is what published runs were made in, ``paper`` what the publication's text describes, ``tension`` a world in
which greed does not pay, ``stock`` RecSim's own long-term satisfaction as it comes: a user clicks what stands first, so
that a slate is one item, forgets sooner, and shows nothing of how satisfied they are. All but ``tension`` have almost
none of it: with a sensitivity of 0.01 the satisfaction never leaves
[0.475, 0.525], so that serving chocolate for ever is optimal.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fedrank.core.errors import ConfigError
from fedrank.core.registry import Registry
from fedrank.slates.world.satisfaction import Satisfaction

#: Sensitivity at which serving only chocolate loses to moderation.
TENSION = 0.03

#: Noise on an observed satisfaction beside which a user's own is nothing; what is observed stays within ± 1.
NOTHING_SEEN = 100.0

#: Presets by name.
PRESETS: Registry[Satisfaction] = Registry("world")

PRESETS.register(
    "recsim",
    summary="Choc and Kale as RecSim's code and FedSlate's experiments have it: users prefer what does them good.",
    citation="ie2019recsim",
)(Satisfaction())
PRESETS.register(
    "paper",
    summary="Choc and Kale as the publications describe it: users prefer chocolate.",
    citation="deng2024fedslate",
)(Satisfaction(semantics="paper"))
PRESETS.register(
    "tension",
    summary="Satisfaction follows consumption three times as closely, so that short-sighted service loses.",
)(Satisfaction(sensitivity=TENSION))

PRESETS.register(
    "stock",
    summary="Long-term satisfaction as RecSim has it: a slate is one item, the past fades faster, nothing is seen.",
    citation="ie2019recsim",
)(Satisfaction(slate=1, platforms=1, memory_discount=0.7, time_budget=60, observation_noise=NOTHING_SEEN))


def preset(name: str, **overrides: Any) -> Satisfaction:
    """The world of that name, with some settings replaced.

    Args:
        name: ``"recsim"``, ``"paper"``, ``"tension"`` or ``"stock"``.
        overrides: Fields of :class:`~fedrank.slates.world.satisfaction.Satisfaction`.

    Raises:
        UnknownNameError: No such preset.
        ConfigError: No such setting, or a value is out of range.

    >>> preset("tension", candidates=100, slate=10).sensitivity
    0.03
    """
    world = PRESETS.get(name)
    known = [field.name for field in dataclasses.fields(world)]
    if unknown := sorted(set(overrides) - set(known)):
        raise ConfigError(f"A world has no setting {', '.join(unknown)}. Known: {', '.join(known)}.")
    return dataclasses.replace(world, **overrides)
