"""Targets of the published FedSlate: they are made of the others' online values, and the loss moves them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxtyping import Float
from typing_extensions import override

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.lazy import jax, jnp
from fedrank.core.messages import Array as Numbers
from fedrank.core.messages import Layout, f4, field, message
from fedrank.slates.fedslate.exchanges import FormTargets, SendLossGradient, arrived_rows
from fedrank.slates.fedslate.learner import joint_values, others_mean
from fedrank.slates.fedslate.messages import LossGradient, Targets
from fedrank_zoo.fedslate_2024.faults import Fault
from fedrank_zoo.fedslate_2024.settings import PublishedSlates


@message(kind=8)
class MovingTargets:
    """Platform with feedback to coordinator: y of equation 13, and how it moves with what it was made of."""

    targets: Numbers = field(
        f4["transitions"], "engagement at each transition and what is expected after it: tells engagement"
    )
    choice: Numbers = field(f4["parameters":2], "the choice model that was learnt: slope, logit of no click")
    slopes: Numbers = field(
        f4["transitions", "candidates"], "how the target changes with the values that it was made of"
    )


@message(kind=13)
class MovingGradient:
    """Platform to coordinator: the gradient of its loss by the federated values and by the targets."""

    gradient: Numbers = field(
        f4["transitions", "candidates"],
        "how a platform's loss changes with the value of each candidate: with feedback, other than 0 where a click was",
    )
    by_targets: Numbers = field(f4["transitions"], "how a platform's loss changes with each target")


class FormMovingTargets(FormTargets):
    """Platforms with feedback say what their transitions were worth, and how that moves with the values."""

    settings: PublishedSlates  # type: ignore[assignment]

    @property
    @override
    def reply(self) -> Layout:
        return self.layout(MovingTargets if self.settings.has(Fault.MOVING_TARGETS) else Targets)

    @override
    def others_values(self, state):
        return state.batch if self.settings.has(Fault.ONLINE_OTHERS) else super().others_values(state)

    @override
    def respond(self, request, party, draws):
        if not self.settings.has(Fault.MOVING_TARGETS):
            return super().respond(request, party, draws)
        (targets, slopes), choice = self.form_targets(party.own, request.values, jax.value_and_grad)
        return party._replace(own=party.own._replace(choice=choice)), MovingTargets(targets, choice, slopes)

    @override
    def tell(self, state, replies, arrived):
        after = super().tell(state, replies, arrived)
        if not self.settings.has(Fault.MOVING_TARGETS):
            return after
        return after._replace(more=arrived_rows(replies.slopes, self.heard(replies, arrived)))


class SendMovingGradient(SendLossGradient):
    """One platform compares federated values with targets; without feedback its loss passes through them."""

    settings: PublishedSlates  # type: ignore[assignment]

    @property
    def moves(self) -> bool:
        """True where the loss passes through the targets."""
        return self.settings.has(Fault.MOVING_TARGETS) and not self.settings.sees[self.platform]

    @property
    @override
    def reply(self) -> Layout:
        return self.layout(MovingGradient if self.moves else LossGradient)

    @override
    def respond(self, request, party, draws):
        if not self.moves:
            return super().respond(request, party, draws)
        party, slopes = self.compare(request, party)
        return party, MovingGradient(*slopes)

    @override
    def gradient_of_values(self, gradient, state, replies, arrived):
        if not self.moves:
            return gradient
        # Targets hold this platform's online values, so that its loss moves them as well.
        s, p = self.settings, self.platform
        told = [a for a in s.order if s.sees[a]]

        def targets_values(mine):
            values = jnp.asarray(state.batch).at[p].set(mine)
            return [joint_values(s, state.target, state.following[a], others_mean(s, values, a)) for a in told]

        by_targets = arrived_rows(replies.by_targets, arrived)[p]
        slopes = [state.more[a] for a in told]
        return gradient + gradient_through_targets(targets_values, state.batch[p], by_targets, slopes)


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
