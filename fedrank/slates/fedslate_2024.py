"""The published code of FedSlate (Deng et al., arXiv 2409.14872, 2024; TianYaDY/FedSlate), fault by fault.

``slates.mode = "published"`` switches all of this on; everywhere else it is off. Each fault has a setting of its own
(:class:`Faults`, and the settings in :data:`FAULTS`), so that it can be switched on alone:

* *positional*, *squash*: one network over all candidates at once, with an output for each place in the list, although
  candidates are drawn anew in every round; and a hyperbolic tangent at its end, although targets are about 15.
* *choice*: the choice model prefers what users avoid, and users may choose nothing, which these users never do.
* *ids*, *raw*, *past*: networks see the candidates' numbers, which count up without end; features are neither centred
  nor scaled; the state holds the engagement with the last five slates instead of traces of the whole episode.
* *endless*: platforms with feedback never learn that an episode has ended.
* *online_others*, *moving_targets*: targets are made of the others' online values at the transition itself instead of
  their target networks' one round later, and the gradient of the loss passes through the targets.
* *reward_scale*, *fresh*: rewards are not scaled; a platform sees the user as its own last turn left it.

Widths of the networks are reduced, 4,096 × 5 to 64 × 5 and 2,048 × 4 to 32 × 4, so that a run fits a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from typing_extensions import override

from fedrank.core.messages import Array as WireArray
from fedrank.core.messages import f4, field, message
from fedrank.slates.networks import FederatedQ, LayeredNetwork, LocalQ, check_network, forward, layer_pairs, mish

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
    "positional": True,
    "squash": True,
    "ids": True,
    "raw": True,
    "past": True,
    "endless": True,
    "fresh": False,
    "online_others": True,
    "moving_targets": True,
}
#: The settings among them that are faults; the others are choices that can be defended.
FAULTS = (
    *("choice", "reward_scale", "positional", "squash", "ids", "raw", "past", "endless", "fresh"),
    *("online_others", "moving_targets"),
)
#: Step size of the three Adam optimisers.
PUBLISHED_RATE = 0.01
#: Widths of the published networks: of a platform's own and of the federated one.
PUBLISHED_WIDTHS = ((4096,) * 5, (2048,) * 4)
#: Slates whose engagement the published agents keep in their state (Section V-B: "the user's previous 5 engages").
PAST = 5


@dataclass(frozen=True)
class Faults:
    """Faults of the published code that platforms and coordinator have; all off by default.

    Attributes:
        ids: The candidates' numbers, which count up without end, are features of the candidates.
        raw: Features are given to networks as they come, not centred and scaled. Where values start at 0 and have to
            grow, a feature that is never negative is learnt to be good before anything has been learnt from it.
        online_others: In the targets of equation 13 the others' part is of their online networks at the transition
            itself, not of their target networks one round later.
        moving_targets: Targets are no constants: the gradient of equation 15 passes through them, too.
        endless: A platform with feedback is never told that an episode is over.
        past: The state holds the engagement with the last five slates instead of traces.
    """

    ids: bool = False
    raw: bool = False
    online_others: bool = False
    moving_targets: bool = False
    endless: bool = False
    past: bool = False


#: None of the faults.
NO_FAULTS = Faults()


# -- what networks see -----------------------------------------------------------------------------------------------


def choice_scores(
    observed: Float[Array, ""], kaleness: Float[Array, " candidates"]
) -> tuple[Float[Array, " candidates"], Float[Array, ""]]:
    """The published choice model (slateq.py): softmax over [observed · feature, 1].

    Args:
        observed: What the platform sees of the user's satisfaction.
        kaleness: The feature of each candidate, in [0, 1].

    Returns:
        The score of each candidate, and of no click.
    """
    v = jax.nn.softmax(jnp.append(observed * kaleness, 1.0))
    return v[:-1], v[-1]


def past_after(
    past: Float[Array, "slates slots"], slot: Int[Array, ""], engagement: Float[Array, ""]
) -> Float[Array, "slates slots"]:
    """Engagement by slot of the last slates, newest first, with one slate more; ``slot`` is the clicked one."""
    row = jnp.where(jnp.arange(past.shape[1]) == slot, engagement, 0.0)
    return jnp.concatenate([row[None], past[:-1]])


def numbered(features: Float[Array, " candidates"], first: Int[Array, ""]) -> Float[Array, "candidates 2"]:
    """Features of candidates beside their numbers, which count up from ``first``."""
    numbers = (first + jnp.arange(features.shape[0])).astype(jnp.float32)
    return jnp.stack([features, numbers], axis=1)


# -- targets that move -----------------------------------------------------------------------------------------------


@message(kind=8)
class MovingTargets:
    """Platform with feedback to coordinator: y of equation 13, and how it moves with what it was made of."""

    targets: WireArray = field(
        f4["transitions"], "engagement at each transition and what is expected after it: tells engagement"
    )
    choice: WireArray = field(f4["parameters":2], "the choice model that was learnt: slope, logit of no click")
    slopes: WireArray = field(
        f4["transitions", "candidates"], "how the target changes with the values that it was made of"
    )


@message(kind=13)
class MovingGradient:
    """Platform to coordinator: the gradient of its loss by the federated values and by the targets."""

    gradient: WireArray = field(
        f4["transitions", "candidates"],
        "how a platform's loss changes with the value of each candidate: with feedback, other than 0 where a click was",
    )
    by_targets: WireArray = field(f4["transitions"], "how a platform's loss changes with each target")


def gradient_through_targets(
    targets_values: Callable[[Float[Array, "transitions candidates"]], list[Float[Array, "transitions candidates"]]],
    values: Float[Array, "transitions candidates"],
    by_targets: Float[Array, " transitions"],
    slopes: Sequence[Float[Array, "transitions candidates"]],
) -> Float[Array, "transitions candidates"]:
    """The part of a loss's gradient that passes through the targets, which hold the platform's own online values.

    Args:
        targets_values: From a platform's online values to the federated values that each target was made of, one
            array for each platform with feedback.
        values: The platform's online values.
        by_targets: The gradient of its loss by the targets, which are means over the platforms with feedback.
        slopes: How the target of each of those platforms changes with the values that it was made of.
    """
    _, back = jax.vjp(targets_values, values)
    return back([by_targets[:, None] * slope / len(slopes) for slope in slopes])[0]


# -- networks over places --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PositionalQ(LayeredNetwork, LocalQ):
    """A platform's published network: one over [user ‖ items row by row], with an output for each place.

    Attributes:
        user_features: F.
        item_features: d.
        candidates: N.
        widths: Units of each hidden layer; published: five of 4,096.
        squash: Whether a hyperbolic tangent is applied to the outputs.
    """

    user_features: int
    item_features: int
    candidates: int
    widths: tuple[int, ...] = PUBLISHED_WIDTHS[0]
    squash: bool = True

    def __post_init__(self):
        check_network(self.widths, item_features=self.item_features, candidates=self.candidates)

    @property
    @override
    def layers(self) -> tuple[tuple[int, int], ...]:
        return layer_pairs(self.user_features + self.candidates * self.item_features, self.widths, self.candidates)

    @override
    def values(self, weights, user, items):
        together = jnp.concatenate([user, items.reshape(-1)])[None]
        out = forward(weights, self.layers, together, mish)[0]
        return jnp.tanh(out) if self.squash else out


@dataclass(frozen=True)
class PositionalHead(LayeredNetwork, FederatedQ):
    """The published federated network: one over [own ‖ others], with an output for each place.

    Attributes:
        candidates: N.
        widths: Units of each hidden layer; published: four of 2,048, where the paper says five layers.
        squash: Whether a hyperbolic tangent is applied to the outputs.
    """

    candidates: int
    widths: tuple[int, ...] = PUBLISHED_WIDTHS[1]
    squash: bool = True

    def __post_init__(self):
        check_network(self.widths, candidates=self.candidates)

    @property
    @override
    def layers(self) -> tuple[tuple[int, int], ...]:
        return layer_pairs(2 * self.candidates, self.widths, self.candidates)

    @override
    def values(self, weights, own, others):
        out = forward(weights, self.layers, jnp.concatenate([own, others])[None], mish)[0]
        return jnp.tanh(out) if self.squash else out


@dataclass(frozen=True)
class PositionalLinearHead(PositionalHead):
    """The paper's ablation of the federated network: a single linear layer over [own ‖ others]."""

    widths: tuple[int, ...] = ()
    squash: bool = False
