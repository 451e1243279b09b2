"""Models of platforms that share users, as objects that value candidates and put slates together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Float32, Int
from typing_extensions import override

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import DataError, ModelError, UnknownNameError
from fedrank.core.lazy import jax, jit, jnp
from fedrank.core.registry import class_name
from fedrank.core.trees import Json
from fedrank.engine.layers import Layer
from fedrank.engine.model import Model, ModelParts, tensor
from fedrank.engine.settings import from_dict
from fedrank.slates.build import experiment_of
from fedrank.slates.config import SlatesRun
from fedrank.slates.fedslate.learner import SlateQ, ValueLearner, joint_values, others_mean
from fedrank.slates.fedslate.settings import Slates
from fedrank.slates.fedslate.state import PlatformState, View, empty_view
from fedrank.slates.sums import SummedSlates
from fedrank.slates.sums.learner import PlatformState as SummedState
from fedrank.slates.sums.learner import SumLearner
from fedrank.slates.sums.learner import View as SummedView
from fedrank.slates.world.satisfaction import Satisfaction, Turn


@dataclass(frozen=True, eq=False, repr=False)
class SlateModel(Model):
    """The federated network Ω, and each platform's own network and choice model.

    A platform values its candidates by :meth:`own_values`, sends the values to the others, and gets the mean of theirs;
    :meth:`score` and :meth:`slate` take it as ``others``.

    Attributes:
        settings: What the platforms have agreed on.
        federated: Weights of Ω, float32 [H].
        platforms: Name of each platform -> weights of its network, float32 [weights].
        choices: Name of each platform -> its choice model, float32 [2]: slope, logit of no click.
        config: Settings of the run as a nested dictionary, of which ``settings`` are made.
        about: Where the model comes from.
        critic: Makes the learner from the settings: it values candidates, and puts slates together.
    """

    task: ClassVar[str] = "slates"

    settings: Slates
    federated: Float32[np.ndarray, " parameters"]
    platforms: Mapping[str, Float32[np.ndarray, " weights"]]
    choices: Mapping[str, Float32[np.ndarray, "2"]]
    config: Mapping[str, Json] = field(default_factory=dict)
    about: Mapping[str, Json] = field(default_factory=dict)
    critic: Callable[[Slates], ValueLearner] = SlateQ

    def __post_init__(self):
        s, wanted = self.settings, jax.eval_shape(lambda: _first(self.learner, jnp.int32(0))).weights.shape
        if np.shape(self.federated) != (s.federated_network.size,):
            raise ModelError(
                f"federated weights must have shape ({s.federated_network.size},), got {np.shape(self.federated)}."
            )
        if len(self.platforms) != s.platforms or list(self.platforms) != list(self.choices):
            raise ModelError(f"needs weights and a choice model of each of {s.platforms} platforms.")
        for name, weights in self.platforms.items():
            if np.shape(weights) != wanted:
                raise ModelError(f"weights of {name} must have shape {wanted}, got {np.shape(weights)}.")

    @property
    def learner(self) -> ValueLearner:
        """The learner, which values candidates and puts slates together."""
        return self.critic(self.settings)

    @property
    @override
    def architecture(self) -> dict[str, Json]:
        return {
            "n_features": self.settings.user_features + self.settings.item_features,
            "platforms": list(self.platforms),
            "config": dict(self.config),
            "critic": class_name(type(self.learner)),
        }

    @property
    @override
    def tensors(self) -> dict[str, np.ndarray]:
        own = {f"platform {name}": weights for name, weights in self.platforms.items()}
        return {"federated": self.federated, **own, **{f"choice {name}": two for name, two in self.choices.items()}}

    @classmethod
    @override
    def from_parts(cls, parts: ModelParts) -> SlateModel | SumModel:
        config, protocol = parts.architecture["config"], _protocol_of(parts)
        if isinstance(protocol, SummedSlates):
            names, model = tuple(parts.architecture["platforms"]), parts.tensors["federated"]
            learnt = {n: v for n, v in parts.tensors.items() if n != "federated"}
            return SumModel(protocol.learner, model, names, learnt, config, parts.about)
        if not protocol.scores:
            raise ModelError(f"its protocol is a {type(protocol).__name__}, which does not say how it values items.")
        # A critic that came as an object is not among the settings: by another one its weights would mean nothing.
        here = class_name(type(protocol.learner))
        trained = parts.architecture.get("critic", here)
        if trained != here:
            raise ModelError(
                f"its networks are those of the critic {trained}, got {here}. Hand over the protocol that the run was "
                "made with: fedrank.load(..., own=protocol)."
            )
        names = parts.architecture["platforms"]
        platforms, choices = ({n: parts.tensors[f"{kind} {n}"] for n in names} for kind in ("platform", "choice"))
        joint = parts.tensors["federated"]
        return cls(protocol.slates, joint, platforms, choices, config, parts.about, protocol.critic)

    @property
    def n_candidates(self) -> int:
        """Number of candidates that a platform values at once."""
        return self.settings.world.candidates

    @override
    def layers(self) -> tuple[Layer, ...]:
        raise ModelError(
            "federated values are no chain of layers over the rows of a table: a candidate's value depends on the "
            "values of the other platforms and on the means over all candidates. Call score or slate where they are "
            "needed; tensors has the weights of all networks."
        )

    def _platform(self, name: str | None) -> str:
        if name is None:
            return next(iter(self.platforms))
        if name not in self.platforms:
            raise UnknownNameError("platform", name, self.platforms)
        return name

    # ------------------------------------------------------------------------------------------------------- scoring

    def view(
        self,
        documents: Any,
        *,
        observed: float = 0.5,
        smooth: float = 0.0,
        consumed: float = 0.0,
        engaged: float = 0.0,
        into: int = 0,
    ) -> View:
        """A platform's knowledge of a user, and the candidates that it can show.

        Args:
            documents: The feature of each candidate, in [0, 1].
            observed: The satisfaction that the platform observes, in [0, 1].
            smooth: The same less 0.5, smoothed over the episode; 0 for a user who has just come.
            consumed: Fading sum of the feature of what was clicked, less 0.5 each.
            engaged: Fading mean of scaled engagement, less 1.
            into: Rounds of the user's stay that are over, for networks that have a clock.

        Raises:
            DataError: There are not as many candidates as the networks are made for.
        """
        found = np.asarray(documents)
        n = self.n_candidates
        if found.shape != (n,) or found.dtype.kind not in "fiub" or not np.isfinite(found).all():
            raise DataError(f"documents must be {n} finite numbers, one a candidate, got shape {found.shape}.")
        numbers = {"observed": observed, "smooth": smooth, "consumed": consumed, "engaged": engaged}
        for name, value in numbers.items():
            if not np.isfinite(value):
                raise DataError(f"{name} must be a finite number, got {value}.")
        seen = {name: jnp.float32(value) for name, value in numbers.items()}
        stay = self.settings.world.rounds_per_episode
        if not 0 <= into < stay:
            raise DataError(f"into must be in 0..{stay - 1}, rounds of a stay that are over, got {into}.")
        documents = jnp.asarray(found, jnp.float32)
        return empty_view(self.settings)._replace(documents=documents, into=jnp.int32(into), **seen)

    def own_values(self, view: View, *, platform: str | None = None) -> Float32[np.ndarray, " candidates"]:
        """Q-values of the candidates by a platform's own network: what it sends to the others.

        Args:
            view: As :meth:`view` makes it.
            platform: The platform; by default the first.
        """
        return np.asarray(_own_values(self.learner, *self._of(platform), self._repeat(view)))[0]

    @override
    def score(
        self, features: View, others: Any = None, *, platform: str | None = None
    ) -> Float32[np.ndarray, " candidates"]:
        """Federated Q-values of a platform's candidates.

        Args:
            features: What the platform knows, as :meth:`view` makes it.
            others: Mean of the other platforms' :meth:`own_values`, [candidates].
            platform: The platform; by default the first.

        Raises:
            DataError: The others' values are missing, or not as many as there are candidates.
        """
        given = self._others(others)
        own = _own_values(self.learner, *self._of(platform), self._repeat(features))
        return np.asarray(_join_values(self.settings, jnp.asarray(self.federated), own, self._repeat(given)))[0]

    def slate(self, features: View, others: Any = None, *, platform: str | None = None) -> Int[np.ndarray, " slots"]:
        """Places of the candidates that the platform shows, in order; arguments and errors as of :meth:`score`."""
        values = jnp.asarray(self.score(features, others, platform=platform))
        choice = jnp.asarray(self.choices[self._platform(platform)])
        repeated = self._repeat((choice, features, values))
        return np.asarray(_slates(self.learner, *self._of(platform), *repeated))[0]

    def act(self, views: Sequence[View]) -> tuple[Float32[np.ndarray, "platforms candidates"], np.ndarray]:
        """Values and slates of all platforms together, without noise and without exploration.

        Args:
            views: What each platform knows, in order.

        Returns:
            Federated values, and slates int32 [platforms, slots].

        Raises:
            DataError: There are not as many views as platforms.
        """
        names = list(self.platforms)
        if len(views) != len(names):
            raise DataError(f"needs what each of {len(names)} platforms knows, got {len(views)} views.")
        seen = jax.tree.map(lambda *leaves: jnp.stack(leaves), *views)
        weights, choices = (
            jnp.stack([jnp.asarray(of[name]) for name in names]) for of in (self.platforms, self.choices)
        )
        numbers = jnp.arange(len(names))
        own = _own_values(self.learner, numbers, weights, seen)
        others = jnp.stack([others_mean(self.settings, own, place) for place in range(len(names))])
        values = _join_values(self.settings, jnp.asarray(self.federated), own, others)
        return np.asarray(values), np.asarray(_slates(self.learner, numbers, weights, choices, seen, values))

    def _repeat(self, of_one: Any) -> Any:
        """One platform's data, repeated for all: programs are compiled for all platforms side by side.

        A run computes them so; with another number of rows a product of matrices may add up in another order.
        """
        k = self.settings.platforms
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (k, *jnp.shape(leaf))), of_one)

    def _of(self, platform: str | None) -> tuple[Int[Array, " platforms"], Float[Array, "platforms weights"]]:
        """Number and weights of a platform, repeated."""
        name = self._platform(platform)
        return self._repeat((jnp.int32(list(self.platforms).index(name)), jnp.asarray(self.platforms[name])))

    def _others(self, others: Any) -> Float[Array, " candidates"]:
        n = self.n_candidates
        if others is None:
            if not (self.settings.silent or self.settings.platforms == 1):
                raise DataError("others must be the mean of the other platforms' own_values; the networks join them.")
            return jnp.zeros(n, jnp.float32)
        found = np.asarray(others)
        if found.shape != (n,) or found.dtype.kind not in "fiub":
            raise DataError(f"others must be {n} numbers, one a candidate, got {found.dtype} of shape {found.shape}.")
        return jnp.asarray(found, jnp.float32)


def _protocol_of(parts: ModelParts) -> Any:
    """The protocol of a model's settings, or of what the caller supplied."""
    own = parts.own
    users: Any = own if isinstance(own, Satisfaction) else None
    given: Any = own if users is None else None
    # A protocol without users is completed by the settings in the file; one that has its users needs none of them.
    base = None if given is None or given.world is not None else SlatesRun.of(given)
    config: Any = from_dict(dict(parts.architecture["config"]), base).resolved()
    return experiment_of(config, given, users, warm=False).protocol


@dataclass(frozen=True, eq=False, repr=False)
class SumModel(Model):
    """The model that sums over users gave, and what each platform has made of it; needs no JAX for planned slates.

    Attributes:
        learner: What values candidates by the model.
        model: Its numbers, float32 [parameters].
        names: Names of the platforms.
        learnt: Tensors of each platform, named "NAME PLATFORM".
        config: Settings of the run as a nested dictionary.
        about: Where the model comes from.
    """

    task: ClassVar[str] = "slates"

    learner: SumLearner
    model: Float32[np.ndarray, " parameters"]
    names: tuple[str, ...]
    learnt: Mapping[str, np.ndarray]
    config: Mapping[str, Json] = field(default_factory=dict)
    about: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self):
        tensor(self.tensors, "federated", (self.learner.parameters,))
        for name in self.names:
            self.fill_learnt(name)

    @property
    @override
    def architecture(self) -> dict[str, Json]:
        return {"n_features": self.learner.world.features, "platforms": list(self.names), "config": dict(self.config)}

    @property
    @override
    def tensors(self) -> dict[str, np.ndarray]:
        return {"federated": self.model, **self.learnt}

    @classmethod
    @override
    def from_parts(cls, parts: ModelParts) -> Any:
        return SlateModel.from_parts(parts)

    def view(self, documents: Any, *, observed: float = 0.5, known: Any = None, into: int = 0) -> SummedView:
        """A platform's knowledge of a user, and the candidates that it can show.

        Args:
            documents: The feature of each candidate, in [0, 1], or features [candidates, d] about as large as numbers
                in [−1, 1]; any number of candidates, a slate at least.
            observed: The satisfaction that the platform observes, in [0, 1].
            known: What it keeps of the user's clicks, as :meth:`after` returns it; None: one who has just come.
            into: Rounds of the user's stay that are over.

        Raises:
            DataError: Fewer candidates than a slate has, or a number out of range.
        """
        found, stay = np.asarray(documents), self.learner.world.rounds_per_episode
        least, d = self.learner.world.slate, self.learner.world.features
        shaped = found.ndim == 1 if d == 1 else found.shape[1:] == (d,)
        if not shaped or len(found) < least or found.dtype.kind not in "fiub" or not np.isfinite(found).all():
            raise DataError(
                f"documents must be {least} candidates or more of {d} finite features, got shape {found.shape}."
            )
        if not (0 <= into < stay and np.isfinite(observed)):
            raise DataError(f"into must be in 0..{stay - 1} and observed finite, got {into} and {observed}.")
        known = self.learner.first_known() if known is None else known
        zero, seen = np.zeros((), np.float32), np.asarray(observed, np.float32)
        return SummedView(seen, found.astype(np.float32), np.asarray(stay - into, np.int32), zero, known)

    def after(self, view: SummedView, clicked: int | None, *, platform: str | None = None) -> Any:
        """Knowledge of the user after a round: ``known`` of the next :meth:`view`.

        Args:
            view: The round's.
            clicked: Place of the candidate that was clicked; None: nothing was.
            platform: The platform; by default the first.
        """
        zero, place = np.zeros((), np.float32), np.asarray(-1 if clicked is None else clicked, np.int32)
        return self.learner.known_after(self._own(view, platform), Turn(place, place, zero, zero))

    @override
    def score(self, features: SummedView, *, platform: str | None = None) -> Float32[np.ndarray, " candidates"]:
        """Worth of a click on each candidate, now and until the user leaves.

        Args:
            features: What the platform knows, as :meth:`view` makes it.
            platform: The platform; by default the first.
        """
        values = np.asarray(self.learner.values(self._own(features, platform)), np.float32)
        return values[: len(features.documents)]

    def slate(self, features: SummedView, *, platform: str | None = None) -> Int[np.ndarray, " slots"]:
        """Places of the candidates that the platform shows, in order; arguments as of :meth:`score`.

        Where the run's trial has decided against the plan these are places at random, other ones at each call.
        """
        own = self._own(features, platform)
        if self.learner.has_fallen(own):
            places = np.random.default_rng().permutation(own.view.documents.shape[0])
            return places[: self.learner.world.slate].astype(np.int32)
        return np.asarray(self.learner.best(own, self.learner.values(own)))

    def _own(self, view: SummedView, platform: str | None) -> SummedState:
        name = self.names[0] if platform is None else platform
        if name not in self.names:
            raise UnknownNameError("platform", name, self.names)
        own = self.learner.first_state(None, np.asarray(self.names.index(name), np.int32))
        verdict = self.learnt.get(f"verdict {name}", own.verdict)
        return own._replace(view=view, model=self.model, learnt=self.fill_learnt(name), verdict=verdict)

    def fill_learnt(self, name: str) -> Any:
        """The state that a platform made of the model.

        Args:
            name: Of the platform.
        """
        first: Any = self.learner.first_learnt()
        if not first:
            return first
        found = {k: (self.learnt[f"learnt.{k} {name}"], np.shape(shape)) for k, shape in first._asdict().items()}
        return type(first)(**{k: values.reshape(shape) for k, (values, shape) in found.items()})


def _first(learner: ValueLearner, number: Int[Array, ""]) -> PlatformState:
    return learner.first_state(jax.random.key(0), number)


@functools.partial(jit, static_argnums=0)
def _own_values(
    learner: ValueLearner,
    numbers: Int[Array, " platforms"],
    weights: Float[Array, "platforms weights"],
    views: View,
) -> Float[Array, "platforms candidates"]:
    def of_platform(number, weights, view):
        return learner.values(_first(learner, number)._replace(weights=weights, view=view))

    return jax.vmap(of_platform)(numbers, weights, views)


@functools.partial(jit, static_argnums=0)
def _join_values(
    s: Slates,
    federated: Float[Array, " parameters"],
    own: Float[Array, "platforms candidates"],
    others: Float[Array, "platforms candidates"],
) -> Float[Array, "platforms candidates"]:
    return jax.vmap(functools.partial(joint_values, s, federated))(own, others)


@functools.partial(jit, static_argnums=0)
def _slates(
    learner: ValueLearner,
    numbers: Int[Array, " platforms"],
    weights: Float[Array, "platforms weights"],
    choices: Float[Array, "platforms 2"],
    views: View,
    values: Float[Array, "platforms candidates"],
) -> Int[Array, "platforms slots"]:
    def of_platform(number, weights, choice, view, values):
        return learner.best(_first(learner, number)._replace(weights=weights, choice=choice, view=view), values)

    return jax.vmap(of_platform)(numbers, weights, choices, views, values)
