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
from fedrank.privacy.noise.values import ValueNoise
from fedrank.slates.alone import AloneSlates
from fedrank.slates.config import BASELINES, PlatformsConfig
from fedrank.slates.fedslate import FedSlate
from fedrank.slates.fedslate.learner import ValueLearner
from fedrank.slates.fedslate.secure_sum import SecureSum
from fedrank.slates.fedslate.settings import Exploration, SlateSettings
from fedrank.slates.fedslate_2024 import FAULTY_SETTINGS, PUBLISHED, PUBLISHED_WIDTHS, Fault
from fedrank.slates.fedslate_2024.networks import PositionalHead, PositionalLinearHead, PositionalQ
from fedrank.slates.learner import SlateLearner
from fedrank.slates.networks import DuellingQ, FederatedQ, IdentityHead, ItemHead, ItemLinearHead, ItemQ, LocalQ
from fedrank.slates.planning import PlanLearner
from fedrank.slates.protocol import PlatformProtocol
from fedrank.slates.sums import SummedSlates, SumSettings
from fedrank.slates.sums.learner import SumLearner
from fedrank.slates.world.choice import CHOICES
from fedrank.slates.world.presets import PRESETS, preset
from fedrank.slates.world.satisfaction import Satisfaction

#: The others' part of a federated value before anything is learnt, where their item is the same.
_SHARE = 0.5
#: Learners by name; what each needs from other platforms decides which protocol plays it.
LEARNERS: Registry[type[SlateLearner]] = Registry("learner of slates", "fedrank.slate_learners")
#: Fold of a run's key that gives the platforms' first networks.
PLATFORMS = 0xFFFFFFF2


@dataclass(frozen=True, eq=False)
class SlateExperiment:
    """What a configuration of platforms names.

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
            if isinstance(self.protocol, FedSlate | SummedSlates) and self.protocol.settings.secure_sum
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


def protocol_of(config: PlatformsConfig, world: Satisfaction, *, silent: bool, central: bool) -> FedSlate:
    """The protocol of a configuration, with its networks.

    Args:
        config: The configuration, resolved.
        world: Its users.
        silent: Nothing crosses: each platform learns by itself.
        central: Each platform sees the user as all of them do.

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
        steps=s.steps,
        double=s.double,
        polyak=s.polyak,
        choice=s.choice,
        objective=s.objective,
        others=s.others if federated else "aligned",
        regress=s.regress if federated else "greedy",
        reward_scale=s.reward_scale,
        centred=s.centred,
        silent=silent,
        central=central,
        noise=None if sharing is None or privacy is None else _noise(sharing, privacy.delta),
        secure_sum=SecureSum() if sharing is not None and sharing.secure_sum else None,
        faults=s.faults,
    )
    local = _local(s, settings.user_features, settings.item_features, world.candidates)
    return FedSlate(dataclasses.replace(settings, local=local), _critic(getattr(s, "critic", "slateq")))


def planned_slates(config: Any, world: Satisfaction) -> SummedSlates:
    """The protocol of platforms that plan; arguments as of :func:`protocol_of`."""
    s = config.slates
    given = _of_sums(config, world, (s.explorers,))
    more = {name: getattr(s, name) for name in ("scale", "design", "caution", "observed", "differ")}
    learner = PlanLearner(**given, **more)
    return SummedSlates(SumSettings(learner, config.sharing.epsilon, config.privacy.delta, config.sharing.secure_sum))


def learned_slates(config: Any, world: Satisfaction) -> PlatformProtocol:
    """The protocol of platforms with a learner by name; arguments as of :func:`protocol_of`.

    Raises:
        ConfigError: There is no such learner, it has no such settings, or what it needs is another protocol's.
    """
    s = config.slates
    made = LEARNERS.get(s.learner)
    if not issubclass(made, SlateLearner):
        raise ConfigError(f"slates.learner: {s.learner} must be a class of SlateLearner, got {made!r}.")
    if issubclass(made, ValueLearner):
        raise ConfigError(
            f"slates.learner: {s.learner} needs other platforms' values in every round; take the protocol "
            "vertical-slate, where it is slates.critic."
        )
    each, more = divmod(s.explorers, s.releases)
    if each < 1:
        raise ConfigError(f"slates.releases must be at most slates.explorers = {s.explorers}, got {s.releases}.")
    explorers = tuple(each + (place < more) for place in range(s.releases))
    given = _of_sums(config, world, explorers)
    if not issubclass(made, SumLearner):
        given = {"world": world, "feedback": given["feedback"]}
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
    known, defaults = {one.name for one in fields} - set(given) - {"clip"}, {one.name: one.default for one in fields}
    for option in s.options:
        name, equals, value = option.partition("=")
        if not equals or name not in known:
            raise ConfigError(
                f"slates.options must be NAME=VALUE, with one of {', '.join(sorted(known)) or 'no name'} of the "
                f"learner {s.learner}; got {option!r}."
            )
        given[name] = _option(option, _number(value), defaults.get(name))
    try:
        learner: Any = made(**given)
    except TypeError as error:
        raise ConfigError(f"slates.options: the learner {s.learner} cannot be made: {error}.") from error
    if not isinstance(learner, SumLearner):
        return AloneSlates(learner)
    return SummedSlates(SumSettings(learner, config.sharing.epsilon, config.privacy.delta, config.sharing.secure_sum))


def _of_sums(config: Any, world: Satisfaction, explorers: tuple[int, ...]) -> dict[str, Any]:
    """What all learners from sums are made of."""
    s, sharing = config.slates, config.sharing
    clip = {} if sharing.clip is None else {"clip": sharing.clip}
    return {
        "world": world,
        "feedback": tuple(s.feedback == "all" or number == 0 for number in range(world.platforms)),
        "explorers": explorers,
        "hold": s.hold,
        "fade": s.fade,
        "bounders": sharing.bounders,
        **clip,
    }


def _number(value: str) -> bool | int | float | str:
    """A number where it is one, yes or no where it is true or false, else the word."""
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _option(option: str, value: bool | int | float | str, default: Any) -> bool | int | float | str:
    """The value of an option, where it is of the type of the learner's default.

    Raises:
        ConfigError: It is of another.
    """
    wanted = next((kind for kind in (bool, int, float, str) if isinstance(default, kind)), None)
    if wanted is bool and value in (0, 1):
        return bool(value)
    fits = wanted is None or isinstance(value, (int, float) if wanted is float else wanted)
    if not fits or (wanted in (int, float) and isinstance(value, bool)):
        names = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
        raise ConfigError(f"slates.options: {option!r} must have {names[wanted]}, such as {default}.")  # type: ignore
    return value


def _critic(name: str) -> Any:
    found: Any = LEARNERS.get(name)
    if not (isinstance(found, type) and issubclass(found, ValueLearner)):
        raise ConfigError(
            f"slates.critic: {name} is no learner from other platforms' values; take the protocol learned-slates."
        )
    return found


def _local(s: Any, user: int, item: int, candidates: int) -> LocalQ:
    if Fault.POSITIONAL in s.faults:
        if s.network != "items":
            raise ConfigError(
                f"slates.network = {s.network!r} is for networks of single items; the fault positional has one over "
                "all places. Leave one of them out."
            )
        return PositionalQ(user, item, candidates, s.local_widths, Fault.TANH in s.faults)
    if s.network == "duelling":
        return DuellingQ(user, item, s.local_widths)
    return ItemQ(user, item, () if s.network == "linear" else s.local_widths)


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
