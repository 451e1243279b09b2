"""Weights that the server sees as they are, clipped or not; and the messages of vectors that devices send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Float
from typing_extensions import override

from fedrank.aggregation import robust
from fedrank.core.arrays import AnyArray, module_of
from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.messages import Array, f4, field, message, u2, u4
from fedrank.core.privacy_report import PrivacyReport
from fedrank.privacy.quantise import clip_to_norm
from fedrank.ranking.mechanisms import Bounds, VectorMechanism


@message(kind=2)
class WeightsReply:
    """Device to server: weights after learning, or their change, which the server sees.

    The run's mechanism says which of the two is sent, and whether it is clipped or has a share of noise.
    """

    weights: Array = field(
        f4["parameters"], "weights after learning, or their change, with the device's share of noise if it has one"
    )
    interactions: Array = field(u2, "number of interactions learnt from", largest="interactions")


@message(kind=3)
class SumReply:
    """Device to secure sum: a vector of which the server learns nothing but the sum over devices.

    The values are clipped weights, or with an ε of a user their clipped change, times the device's part of B
    interactions, in steps of the grid, with the device's share of noise, modulo 2³². In a deployment they are masked.
    The number of interactions is public.
    """

    values: Array = field(
        u4["parameters"], "weights after learning, as integers that mean nothing until all devices' are added up"
    )
    interactions: Array = field(u2, "number of interactions learnt from", largest="interactions")


#: Norm that the change of a ranker is clipped to where ε is that of a user.
CHANGE_CLIP = 1.0


def check_clip(clip: float | None) -> None:
    """Refuse a norm that is no norm."""
    if clip is not None and not 1e-30 < clip < 1e30:
        raise ConfigError(f"privacy.clip must be positive and finite, got {clip}.")


def check_bounds_of_user(bounds: Bounds) -> None:
    """Refuse a run in which an ε of a user would not hold.

    Raises:
        ConfigError: Devices attack, come late or make unequal numbers of interactions.
    """
    if bounds.attackers:
        raise ConfigError(
            "privacy.epsilon_user is a promise to honest devices, counted with all of them: set attack.share = 0, got "
            f"{bounds.attackers}."
        )
    if bounds.late:
        raise ConfigError(
            "privacy.epsilon_user counts on one message of a device in a round, and one that is late comes beside "
            f"another: set devices.late = 0, got {bounds.late}."
        )
    if not bounds.equal:
        raise ConfigError(
            "privacy.epsilon_user does not hide how many interactions a device made, which every message says: set "
            "devices.amounts = 'equal'."
        )


@dataclass(frozen=True)
class ClearWeights(VectorMechanism):
    """Weights are sent as they are, or clipped to a norm."""

    name = "clear"

    clip: float | None = setting(None, "Largest norm of the weights that a device sends; none if nothing is said.")
    clip_norm: Literal["l1", "l2"] = setting("l1", "The norm that is clipped; the paper's is l2.")

    def __post_init__(self):
        super().__post_init__()
        check_clip(self.clip)

    @property
    @override
    def reply(self) -> type:
        return WeightsReply

    @property
    @override
    def in_the_clear(self):
        return True

    def clip_vectors(self, vectors: Float[AnyArray, "*parties n"]) -> Float[AnyArray, "*parties n"]:
        """Vectors clipped to the norm, each by itself."""
        if self.clip is None:
            return vectors
        return clip_to_norm(vectors, self.clip, self.clip_norm, module_of(vectors))

    def clipped_again(self, vectors: Float[AnyArray, "*parties n"]) -> Float[AnyArray, "*parties n"]:
        """Vectors that arrived, clipped by the server: attackers do not clip."""
        return self.clip_vectors(vectors)

    @override
    def message(self, vector, amount, noise):
        return WeightsReply(self.clip_vectors(vector), amount)

    @override
    def combine(self, state, replies, arrived, rule, byzantine):
        xp = module_of(replies.weights, arrived)
        sent = self.clipped_again(xp.asarray(replies.weights))
        heard = xp.asarray(arrived) & xp.all(xp.isfinite(replies.weights), axis=-1)
        amounts = xp.asarray(replies.interactions).astype(xp.float32)
        combine: Any = robust.rule_of(rule)
        return combine(sent, amounts, heard, byzantine), xp.any(heard, axis=-1), state.noise

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        del delta
        return PrivacyReport.none(
            rounds,
            "Nothing is noised. The server sees each device's weights as they are. What the server learns has no "
            "bound: there is no local privacy.",
        )
