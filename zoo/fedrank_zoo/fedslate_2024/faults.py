"""Faults of the published code of FedSlate (Deng et al., arXiv 2409.14872, 2024; TianYaDY/FedSlate), one by one.

Two of them are values of settings that have others: ``slates.choice = "published"`` and ``slates.reward_scale = 1``. No
array is here: settings and help texts read it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Fault(StrEnum):
    """A fault of the published code."""

    #: One network over all candidates at once, with an output for each place, although candidates change places.
    POSITIONAL = "positional"
    #: A hyperbolic tangent at the end of a network over places, although targets are about 15.
    TANH = "tanh"
    #: The candidates' numbers, which count up without end, are features of the candidates.
    ITEM_NUMBERS = "item-numbers"
    #: Features are given to networks as they come, not centred and scaled. Where values start at 0 and have to grow, a
    #: feature that is never negative is learnt to be good before anything has been learnt from it.
    RAW_FEATURES = "raw-features"
    #: The state holds the engagement with the last five slates instead of traces of the whole episode.
    SHORT_MEMORY = "short-memory"
    #: A platform with feedback is never told that an episode is over.
    ENDLESS_EPISODE = "endless-episode"
    #: A platform sees the user as its own last turn left it, not as the round begins.
    STALE_VIEW = "stale-view"
    #: In the targets of equation 13 the others' part is of their online networks at the transition itself, not of their
    #: target networks one round later.
    ONLINE_OTHERS = "online-others"
    #: Targets are no constants: the gradient of equation 15 passes through them, too.
    MOVING_TARGETS = "moving-targets"


#: What the settings of ``[slates]`` are in the published code, where nothing else is given.
PUBLISHED: dict[str, Any] = {
    "memory": 2000,
    "burn_in": 5000,
    "explore": 1.0,
    "decay": 0.99995,
    "floor": 0.0,
    "snap": 0.1,
    "choice": "published",
    "others": "aligned",
    "centred": False,
    "local_widths": (64,) * 5,
    "head_widths": (32,) * 4,
    "reward_scale": 1.0,
    "faults": tuple(Fault),
}
#: The settings among them whose published value is a fault; the others are choices that can be defended.
FAULTY_SETTINGS = ("choice", "reward_scale")
#: Step size of the three Adam optimisers.
PUBLISHED_RATE = 0.01
#: Widths of the published networks: of a platform's own and of the federated one.
PUBLISHED_WIDTHS = ((4096,) * 5, (2048,) * 4)
#: Slates whose engagement the published agents keep in their state (Section V-B: "the user's previous 5 engages").
PAST = 5

#: How reports call each fault, and what it is: the settings of :data:`FAULTY_SETTINGS`, then every :class:`Fault`.
FAULTS: dict[str, tuple[str, str]] = {
    "choice": (
        "wrong choice model",
        "Platforms believe that users prefer a high kaleness and may choose nothing; RecSim's users do neither.",
    ),
    "reward_scale": ("unscaled rewards", "Engagement, about 15 a round, is learnt as it is."),
    Fault.POSITIONAL: (
        "networks over places",
        "A network has an input and an output for each place of the list, although candidates change places.",
    ),
    Fault.TANH: ("tanh on values", "Values go through tanh, so that none is above 1, although targets are about 15."),
    Fault.ITEM_NUMBERS: ("raw ids", "Networks see the numbers of items, which count up for ever."),
    Fault.RAW_FEATURES: ("raw features", "Features are neither centred nor scaled."),
    Fault.SHORT_MEMORY: (
        "short past",
        "Networks see the engagement with the last slates in place of the whole stay's.",
    ),
    Fault.ENDLESS_EPISODE: (
        "users without end",
        "No platform is told that a user has left; what follows is another user's.",
    ),
    Fault.STALE_VIEW: (
        "stale views",
        "Platforms see the user as their own last turn left it, not as the round begins.",
    ),
    Fault.ONLINE_OTHERS: (
        "others' moving values",
        "Targets take the others' values from networks that learn, of the round before.",
    ),
    Fault.MOVING_TARGETS: ("moving targets", "Gradients pass through the targets."),
}
