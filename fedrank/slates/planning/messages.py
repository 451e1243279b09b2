"""What crosses between platforms that plan by themselves and their coordinator: sums over users, and a small model."""

from __future__ import annotations

from fedrank.core.messages import Array, f4, field, i4, message, u4


@message(kind=0)
class RoundStart:
    """Coordinator to platforms: a round begins."""

    round: Array = field(u4, "number of the round")


@message(kind=1)
class Done:
    """Platform to coordinator: it has done so. Has no field."""


@message(kind=2)
class Statistics:
    """Platform with feedback to coordinator: sums over its users' stays, once.

    Of each user's stay a vector, shortened to the clip and rounded towards zero; of those the sum, with noise if the
    settings say so.
    """

    sums: Array = field(i4["parameters":3], "whitened features times log-engagement, in steps of the clip / 2^14")


@message(kind=3)
class EngagementModel:
    """Coordinator to platforms: the model of engagement that the sums of all give."""

    weights: Array = field(f4["parameters":3], "weight of each feature in the logarithm of engagement")
