"""From a configuration to platforms that share users: their world, their networks, their protocol."""

from __future__ import annotations

import dataclasses
import string
from dataclasses import dataclass
from typing import Any

from fedrank.core.errors import UnknownNameError
from fedrank.experiments.config import RunConfig
from fedrank.experiments.protocols import PROTOCOLS
from fedrank.privacy.noise.values import ValueNoise
from fedrank.slates.config import PLATFORM_BASELINES, Slates
from fedrank.slates.fedslate import FedSlate
from fedrank.slates.fedslate.secure_sum import SecureSum
from fedrank.slates.fedslate.settings import Exploration, SlateSettings
from fedrank.slates.fedslate_2024 import (
    FAULTS,
    PUBLISHED,
    PUBLISHED_WIDTHS,
    Faults,
    PositionalHead,
    PositionalLinearHead,
    PositionalQ,
)
from fedrank.slates.networks import FederatedQ, IdentityHead, ItemHead, ItemLinearHead, ItemQ, LocalQ
from fedrank.slates.world.choice import CHOICES
from fedrank.slates.world.presets import PRESETS, preset
from fedrank.slates.world.satisfaction import Satisfaction

#: The others' part of a federated value before anything is learnt, where their item is the same.
_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class SlateExperiment:
    """What a configuration of platforms names.

    Attributes:
        config: The configuration, resolved.
        world: The users.
        protocol: The protocol, with its networks.
        notes: What a reader must know.
    """

    config: RunConfig
    world: Satisfaction
    protocol: FedSlate
    notes: tuple[str, ...]

    @property
    def n_parties(self) -> int:
        """How many platforms there are."""
        return self.world.platforms

    @property
    def names(self) -> tuple[str, ...]:
        """What platforms are called: A, B, C and so on."""
        return tuple(string.ascii_uppercase[: self.n_parties])

    @property
    def faults(self) -> tuple[str, ...]:
        """Faults of the published code that are switched on, by the names of their settings."""
        slates = self.config.slates
        return tuple(name for name in FAULTS if getattr(slates, name) == PUBLISHED[name])

    @property
    def citations(self) -> tuple[str, ...]:
        """Keys of the publications that this experiment rests on."""
        c = self.config
        keys = (
            PROTOCOLS.entry(c.protocol).citation,
            "ie2019slateq",
            "ie2019recsim",
            PRESETS.entry(c.world.preset).citation,
            CHOICES.entry(c.world.choice).citation,
            "bonawitz2017secagg" if c.sharing.secure_sum else "",
        )
        return tuple(dict.fromkeys(key for key in keys if key))


def build_platforms(config: RunConfig) -> SlateExperiment:
    """Set up everything; there is no data to load.

    Args:
        config: The configuration, resolved.

    Raises:
        ConfigError: Settings contradict each other.
    """
    for name in config.evaluation.baselines:
        if name not in PLATFORM_BASELINES:
            raise UnknownNameError("baseline of platforms", name, PLATFORM_BASELINES)
    world = world_of(config)
    settings = settings_of(config, world)
    return SlateExperiment(config, world, FedSlate(settings), _notes(config))


def world_of(config: RunConfig) -> Satisfaction:
    """The users of a configuration, resolved."""
    w = config.world
    given = {
        name: getattr(w, name)
        for name in ("sensitivity", "memory_discount", "observation_noise", "semantics", "turns")
        if getattr(w, name) is not None
    }
    return preset(
        w.preset,
        candidates=w.candidates,
        slate=w.slate,
        platforms=w.platforms,
        time_budget=w.ticks,
        choice=CHOICES.get(w.choice)(),
        shared_candidates=w.shared_candidates,
        fresh=config.slates.fresh,
        **given,
    )


def settings_of(config: RunConfig, world: Satisfaction) -> SlateSettings:
    """What platforms and coordinator agree on.

    Args:
        config: The configuration, resolved.
        world: Its users.

    Raises:
        ConfigError: Settings contradict each other.
    """
    s: Any = config.slates  # resolved: nothing is None that the protocol knows
    settings = SlateSettings(
        world=world,
        local=ItemQ(1, 1),  # its features follow from the other settings, and are put in below
        head=_head(s, world) if config.protocol == "vertical-slate" else IdentityHead(),
        feedback=tuple(s.feedback == "all" or number == 0 for number in range(world.platforms)),
        discount=s.discount,
        learning_rate=config.learning_rate,  # type: ignore[arg-type] - resolved
        batch=s.batch,
        memory=s.memory,
        burn_in=s.burn_in,
        learn_every=s.learn_every,
        copy_every=s.copy_every,
        exploration=Exploration(s.explore, s.decay, s.floor, s.snap),
        optimiser=s.optimiser,
        target=s.target,
        choice=s.choice,
        objective=s.objective,
        others=s.others or "aligned",
        regress=s.regress,
        reward_scale=s.reward_scale,
        centred=s.centred,
        silent=config.protocol != "vertical-slate",
        central=config.protocol == "slateq-central",
        secure_sum=SecureSum() if config.sharing.secure_sum else None,
        noise=_noise(config),
        faults=Faults(
            ids=s.ids,
            raw=s.raw,
            online_others=bool(s.online_others),
            moving_targets=bool(s.moving_targets),
            endless=s.endless,
            past=s.past,
        ),
    )
    local = _local(s, settings.user_features, settings.item_features, world.candidates)
    return dataclasses.replace(settings, local=local)


def _local(s: Slates, user: int, item: int, candidates: int) -> LocalQ:
    widths: Any = s.local_widths
    if s.positional:
        return PositionalQ(user, item, candidates, widths, bool(s.squash))
    return ItemQ(user, item, widths)


def _head(s: Slates, world: Satisfaction) -> FederatedQ:
    widths: Any = s.head_widths
    n, share = world.candidates, 0.0 if s.others == "pooled" else _SHARE
    if s.head == "linear":
        return PositionalLinearHead(n) if s.positional else ItemLinearHead(share)
    return PositionalHead(n, widths, bool(s.squash)) if s.positional else ItemHead(widths, share=share)


def _noise(config: RunConfig) -> ValueNoise | None:
    s = config.sharing
    if s.clip is None:
        return None
    return ValueNoise(s.clip, s.epsilon, config.privacy.delta, s.mechanism, s.centre)


def _notes(config: RunConfig) -> tuple[str, ...]:
    s = config.slates
    notes = ["Users and what they like are made up by a program."]
    if s.positional and (s.local_widths, s.head_widths) != PUBLISHED_WIDTHS:
        notes.append(
            f"Hidden layers have {_layers(s.local_widths)} and {_layers(s.head_widths)} units; those of the published "
            f"networks have {_layers(PUBLISHED_WIDTHS[0])} and {_layers(PUBLISHED_WIDTHS[1])}."
        )
    if config.world.preset == "recsim" and config.world.semantics is None:
        notes.append("A high kaleness engages like chocolate, and users prefer a low one: RecSim's code has it so.")
    return tuple(notes)


def _layers(widths: tuple[int, ...] | None) -> str:
    return " × ".join(f"{width:,}" for width in widths or ())
