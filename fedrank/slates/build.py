"""From settings to platforms that share users: their world, their networks, their protocol."""

from __future__ import annotations

import dataclasses
import string
from dataclasses import dataclass, field
from typing import Any

import jax
from jaxtyping import Array, Key

from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.protocol import Party
from fedrank.core.registry import Registry
from fedrank.engine.methods import method
from fedrank.engine.simulator import Conditions, run_keys
from fedrank.privacy.noisy_values import ValueNoise
from fedrank.slates.config import BASELINES, PlatformsConfig
from fedrank.slates.fedslate import FedSlate
from fedrank.slates.fedslate.learner import ValueLearner
from fedrank.slates.fedslate.settings import Exploration, SlateSettings
from fedrank.slates.fedslate_2024 import FAULTY_SETTINGS, PUBLISHED, PUBLISHED_WIDTHS, Fault
from fedrank.slates.learner import SlateLearner
from fedrank.slates.networks import (
    FederatedQ,
    IdentityHead,
    ItemHead,
    ItemLinearHead,
    ItemQ,
    LocalQ,
    PositionalHead,
    PositionalLinearHead,
    PositionalQ,
)
from fedrank.slates.protocol import PlatformProtocol
from fedrank.slates.sums import SummedSlates, SumSettings
from fedrank.slates.sums.learner import SumLearner
from fedrank.slates.world.choice import CHOICES
from fedrank.slates.world.satisfaction import PRESETS, Satisfaction, preset

#: The others' part of a federated value before anything is learnt, where their item is the same.
_SHARE = 0.5
#: Learners by name; what each needs from other platforms decides which protocol plays it.
LEARNERS: Registry[type[SlateLearner]] = Registry("learner of slates", "fedrank.slate_learners")
#: Fold of a run's key that gives the platforms' first networks.
PLATFORMS = 0xFFFFFFF2


@dataclass(frozen=True, eq=False)
class SlateExperiment:
    """Users, protocol and notes of a configuration of platforms.

    Attributes:
        config: The configuration, resolved.
        world: The users.
        protocol: The protocol, with its networks.
        notes: Sentences that a reader of the results must know.
        conditions: What happens to replies on their way: nothing.
    """

    config: PlatformsConfig
    world: Satisfaction
    protocol: PlatformProtocol
    notes: tuple[str, ...]
    conditions: Conditions = field(default_factory=Conditions)

    @property
    def n_parties(self) -> int:
        """Number of simulated platforms."""
        return self.world.platforms

    @property
    def parties(self) -> Party:
        """The platforms of the first run before its first user: leaves of ``own`` are [K, ...]."""
        party = self.first_parties(run_keys([self.config.seed]))
        return party._replace(own=jax.tree.map(lambda leaf: leaf[0], party.own))

    def first_parties(self, keys: Key[Array, " runs"]) -> Party:
        """The platforms of several runs before their first users: leaves of ``own`` are [runs, K, ...].

        Args:
            keys: The runs' keys, typed [runs].
        """
        return self.protocol.parties(jax.vmap(lambda key: jax.random.fold_in(key, PLATFORMS))(keys))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the platforms: A, B, C and so on."""
        return tuple(string.ascii_uppercase[: self.n_parties])

    @property
    def faults(self) -> tuple[str, ...]:
        """Faults of the published code that are on: keys of :data:`fedrank.slates.fedslate_2024.FAULTS`."""
        slates: Any = self.config.slates  # resolved
        return (*(name for name in FAULTY_SETTINGS if getattr(slates, name, None) == PUBLISHED[name]), *slates.faults)

    @property
    def citations(self) -> tuple[str, ...]:
        """Keys of the publications that this experiment rests on."""
        c = self.config
        keys = (
            _citation(c.protocol),
            "ie2019slateq",
            "ie2019recsim",
            PRESETS.entry(c.world.preset).citation,
            CHOICES.entry(c.world.choice).citation,
            "bonawitz2017secagg"
            if isinstance(self.protocol, SummedSlates) and self.protocol.settings.secure_sum
            else "",
        )
        return tuple(dict.fromkeys(key for key in keys if key))


def _citation(protocol: str) -> str:
    """Key of a protocol's publication; empty for a protocol that came as an object."""
    try:
        return method(protocol).citation
    except UnknownNameError:
        return ""


def experiment_of(
    config: PlatformsConfig, protocol: PlatformProtocol | None = None, world: Satisfaction | None = None
) -> SlateExperiment:
    """Set up everything; there is no data to load.

    Args:
        config: The configuration, resolved.
        protocol: A protocol of the caller's own instead of the one that ``config.protocol`` names.
        world: Users of the caller's own instead of the protocol's or of those that ``config.world`` describes.

    Raises:
        ConfigError: Settings contradict each other.
    """
    for name in config.evaluation.baselines:
        if name not in BASELINES:
            raise UnknownNameError("baseline of platforms", name, BASELINES)
    own = None if protocol is None else protocol.world
    if world is not None and own is not None and world != own:
        raise ConfigError(
            "the protocol was made for other users than data: it would learn from the one and be judged by the others. "
            "Leave data out, or make the protocol for the same users."
        )
    users = world or own or world_of(config)
    made: Any = method(config.protocol).make(config, users) if protocol is None else protocol
    return SlateExperiment(config, users, made, _notes(config))


def world_of(config: PlatformsConfig) -> Satisfaction:
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
        sensitivities=w.sensitivities,
        drift=w.drift,
        fresh=Fault.STALE_VIEW not in (config.slates.faults or ()),
        **given,
    )


def protocol_of(config: PlatformsConfig, world: Satisfaction, *, silent: bool = False) -> FedSlate:
    """The protocol of a configuration, with its networks.

    Args:
        config: The configuration, resolved.
        world: Its users.
        silent: Nothing crosses: each platform learns by itself.

    Raises:
        ConfigError: Settings contradict each other.
    """
    s: Any = config.slates  # resolved: nothing is None that the protocol knows
    federated = not silent
    sharing, privacy = getattr(config, "sharing", None), getattr(config, "privacy", None)
    settings = SlateSettings(
        world=world,
        local=ItemQ(1, 1),  # its features follow from the other settings, and are put in below
        head=_head(s, world) if federated else IdentityHead(),
        feedback=tuple(s.feedback == "all" or number == 0 for number in range(world.platforms)),
        discount=s.discount,
        learning_rate=config.learning_rate,  # type: ignore[arg-type] - resolved
        batch=s.batch,
        memory=s.memory,
        burn_in=s.burn_in,
        learn_every=s.learn_every,
        copy_every=s.copy_every,
        exploration=Exploration(s.explore, s.decay, s.floor, s.snap),
        clock=s.clock,
        optimiser=s.optimiser,
        target=s.target,
        choice=s.choice,
        objective=s.objective,
        others=s.others if federated else "aligned",
        regress=s.regress if federated else "greedy",
        reward_scale=s.reward_scale,
        centred=s.centred,
        silent=silent,
        central=silent and s.central,
        noise=None if sharing is None or privacy is None else _noise(sharing, privacy.delta),
        faults=s.faults,
    )
    local = _local(s, settings.user_features, settings.item_features, world.candidates)
    return FedSlate(dataclasses.replace(settings, local=local), _critic(getattr(s, "critic", "slateq")))


def planned_slates(config: Any, world: Satisfaction) -> SummedSlates:
    """The protocol of platforms that learn from sums over users; arguments as of :func:`protocol_of`.

    Raises:
        ConfigError: There is no such learner, or what it needs is another protocol's.
    """
    s, sharing = config.slates, config.sharing
    made: Any = LEARNERS.get(s.learner)
    if not (isinstance(made, type) and issubclass(made, SumLearner)):
        raise ConfigError(
            f"slates.learner: {s.learner} must be a class of SumLearner, got {made!r}. Learners from other platforms' "
            "values are slates.critic of the protocol vertical-slate."
        )
    each, more = divmod(s.explorers, s.releases)
    if each < 1:
        raise ConfigError(f"slates.releases must be at most slates.explorers = {s.explorers}, got {s.releases}.")
    given: dict[str, Any] = {
        "world": world,
        "feedback": tuple(s.feedback == "all" or number == 0 for number in range(world.platforms)),
        "explorers": tuple(each + (place < more) for place in range(s.releases)),
        "hold": s.hold,
        "bounders": sharing.bounders,
    }
    if sharing.clip is not None:
        given["clip"] = sharing.clip
    # Settings of a plan, which other learners have none or all of.
    known = {one.name for one in dataclasses.fields(made)}
    plan = ("scale", "design", "caution", "observed", "differ")
    given |= {name: getattr(s, name) for name in plan if set(plan) <= known}
    learner = made(**given)
    return SummedSlates(SumSettings(learner, config.sharing.epsilon, config.privacy.delta, config.sharing.secure_sum))


def _critic(name: str) -> Any:
    found: Any = LEARNERS.get(name)
    if not (isinstance(found, type) and issubclass(found, ValueLearner)):
        raise ConfigError(
            f"slates.critic: {name} is no learner from other platforms' values; take the protocol planned-slates, "
            "where it is slates.learner."
        )
    return found


def _local(s: Any, user: int, item: int, candidates: int) -> LocalQ:
    if Fault.POSITIONAL in s.faults:
        return PositionalQ(user, item, candidates, s.local_widths, Fault.TANH in s.faults)
    return ItemQ(user, item, s.local_widths)


def _head(s: Any, world: Satisfaction) -> FederatedQ:
    positional, n, share = Fault.POSITIONAL in s.faults, world.candidates, 0.0 if s.others == "pooled" else _SHARE
    if s.head == "linear":
        return PositionalLinearHead(n) if positional else ItemLinearHead(share)
    if positional:
        return PositionalHead(n, s.head_widths, Fault.TANH in s.faults)
    return ItemHead(s.head_widths, share=share)


def _noise(sharing: Any, delta: float) -> ValueNoise | None:
    if sharing.clip is None:
        return None
    return ValueNoise(sharing.clip, sharing.epsilon, delta, sharing.mechanism, sharing.centre)


def _notes(config: PlatformsConfig) -> tuple[str, ...]:
    s: Any = config.slates
    notes = ["Users and what they like are made up by a program."]
    widths = getattr(s, "local_widths", None), getattr(s, "head_widths", None)
    if Fault.POSITIONAL in s.faults and widths != PUBLISHED_WIDTHS:
        used = " and ".join(_layers(part) for part in widths)
        published = " and ".join(_layers(part) for part in PUBLISHED_WIDTHS)
        notes.append(f"Hidden layers have {used} units; those of the published networks have {published}.")
    if config.world.preset == "recsim" and config.world.semantics is None:
        notes.append("A high kaleness engages like chocolate, and users prefer a low one: RecSim's code has it so.")
    return tuple(notes)


def _layers(widths: tuple[int, ...] | None) -> str:
    return " × ".join(f"{width:,}" for width in widths or ())
