"""Targets of the published FedSlate that move with the networks: what crosses, and the gradient through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
from jaxtyping import Array, Float

from fedrank.core.messages import Array as WireArray
from fedrank.core.messages import f4, field, message


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
