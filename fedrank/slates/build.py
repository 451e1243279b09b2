"""From settings to platforms that share users: their world, their networks, their protocol."""

from __future__ import annotations

import dataclasses
import string
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Key

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError, ModelError, UnknownNameError
from fedrank.core.lazy import jax
from fedrank.core.protocol import Party
from fedrank.engine.model import read_model
from fedrank.engine.simulator import Conditions, run_keys
from fedrank.slates.config import BASELINES, SlatesRun
from fedrank.slates.learner import SlateLearner
from fedrank.slates.protocol import PlatformProtocol
from fedrank.slates.sums.stays import plays_stays
from fedrank.slates.world.choice import CHOICES
from fedrank.slates.world.departures import DEPARTURES
from fedrank.slates.world.satisfaction import PRESETS, Satisfaction, preset

#: Fold of a run's key that gives the platforms' first networks.
PLATFORMS = 0xFFFFFFF2


@dataclass(frozen=True, eq=False)
class SlateExperiment:
    """Users and protocol of a configuration of platforms.

    Attributes:
        config: The configuration, resolved.
        world: The users.
        protocol: The protocol, with its networks.
        conditions: What happens to replies on their way: nothing.
    """

    config: SlatesRun
    world: Satisfaction
    protocol: PlatformProtocol
    conditions: Conditions = field(default_factory=Conditions)

    @property
    def n_parties(self) -> int:
        """Number of simulated platforms."""
        return self.world.platforms

    @property
    def parties(self) -> Party:
        """The platforms of the first run before its first user: leaves of ``own`` are [K, ...]."""
        if self.together:
            numbers = np.arange(self.n_parties, dtype=np.int32)
            return Party(None, self.protocol.platform(None, numbers))  # type: ignore[attr-defined]
        party = self.first_parties(run_keys([self.config.seed]))
        return party._replace(own=jax.tree.map(lambda leaf: leaf[0], party.own))

    def first_parties(self, keys: Key[Array, " runs"]) -> Party:
        """The platforms of several runs before their first users: leaves of ``own`` are [runs, K, ...].

        Args:
            keys: The runs' keys, typed [runs].
        """
        return self.protocol.parties(jax.vmap(lambda key: jax.random.fold_in(key, PLATFORMS))(keys))

    @property
    def together(self) -> bool:
        """True if NumPy plays all users of a run at once, and it needs no JAX."""
        return plays_stays(self.protocol) and self.world == self.protocol.world

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the platforms: A, B, C and so on."""
        return tuple(string.ascii_uppercase[: self.n_parties])

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that a reader of the results must know."""
        w, notes = self.config.world, ["Users and what they like are made up by a program.", *self.protocol.notes]
        if w.preset == "recsim" and w.semantics is None:
            notes.append("A high kaleness engages like chocolate, and users prefer a low one: RecSim's code has it so.")
        return tuple(notes)

    @property
    def citations(self) -> tuple[str, ...]:
        """Keys of the publications that this experiment rests on."""
        w = self.config.world
        presets = PRESETS.entry(w.preset).citation, CHOICES.entry(w.choice).citation
        keys = self.protocol.paper, "ie2019slateq", "ie2019recsim", *presets, *self.protocol.cites
        return tuple(dict.fromkeys(key for key in keys if key))


def experiment_of(
    config: SlatesRun,
    protocol: PlatformProtocol | None = None,
    world: Satisfaction | None = None,
    *,
    warm: bool = True,
) -> SlateExperiment:
    """Set up everything; there is no data to load.

    Args:
        config: The configuration, resolved.
        protocol: A protocol of the caller's own instead of the one that ``config.protocol`` names.
        world: Users of the caller's own instead of the protocol's or of those that ``config.world`` describes.
        warm: Whether the model that ``config.start_from`` names is read.

    Raises:
        ConfigError: Settings contradict each other.
        ModelError: The model to start from is none of this kind.
    """
    for name in config.evaluation.baselines:
        if name not in BASELINES:
            raise UnknownNameError("baseline of platforms", name, BASELINES)
    protocol = config.own if protocol is None else protocol
    own = None if protocol is None else protocol.world
    if world is not None and own is not None and world != own:
        raise ConfigError(
            "the protocol was made for other users than data: it would learn from the one and be judged by the others. "
            "Leave data out, or make the protocol for the same users."
        )
    users = world or own or world_of(config)
    made: Any = config.method.bind(users) if own is None and config.method is not None else protocol
    if users.features > 1 and not plays_stays(made):
        raise ConfigError(
            f"world.features = {users.features} is for planned-slates whose users choose by a multinomial, got "
            f"{config.protocol}. Leave world.features out."
        )
    if config.start_from and warm:
        if not hasattr(made, "start"):
            raise ConfigError(f"start_from: runs of {config.protocol} start from no model. Leave start_from out.")
        made = dataclasses.replace(made, start=read_start(config.start_from, made.learner))
    return SlateExperiment(config, users, made)


def read_start(file: str, learner: SlateLearner) -> Any:
    """The model that a run starts from, a class of :mod:`fedrank.slates.model`.

    Args:
        file: Its file.
        learner: The run's learner, of which it must be a model.

    Raises:
        ModelError: There is no such file, or it is no model of slates.
        ConfigError: It was made by another learner, or for platforms, items or stays of other numbers.
    """
    model: Any = read_model(file)
    if model.task != "slates":
        raise ModelError(f"{file}: is a {type(model).__name__}; a run of slates starts from a model of slates.")
    theirs, ours = model.learner.sizes_of_model, learner.sizes_of_model
    if theirs != ours:
        other = [name for name in theirs | ours if theirs.get(name) != ours.get(name)]
        found, wanted = ({name: of[name] for name in other if name in of} for of in (theirs, ours))
        raise ConfigError(f"start_from: {file} is for {found}, and the run has {wanted}.")
    return model


def world_of(config: SlatesRun) -> Satisfaction:
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
        features=w.features,
        departure=None if w.departure is None else DEPARTURES.get(w.departure),
        fresh=config.played.fresh,
        **given,
    )
