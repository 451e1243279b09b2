"""Messages between platforms and their coordinator in FedSlate: Q-values, gradients of Q-values, targets.

Numbers about candidates, which a network made; no feature of a candidate, no click, no engagement and no weight of a
local network. That is not to say that they tell nothing: :mod:`fedrank_zoo.slate_attacks.leakage` measures what.
"""

from __future__ import annotations

from fedrank.core.messages import Array, f4, field, message, u4

_ROUND = "number of the round"
_CHOICE = "the choice model that was learnt: slope, logit of no click"
_TARGETS = "engagement at each transition and what is expected after it: tells engagement"
_BATCH_VALUES = "how the network values each candidate of each transition"
_NEXT_VALUES = "the same of its target network, one round later"


@message(kind=0)
class RoundStart:
    """Coordinator to platforms: a round begins."""

    round: Array = field(u4, _ROUND)


@message(kind=1)
class LocalValues:
    """Platform to coordinator: its Q-values now, Q_α(s_α) or Q_β(s_β)."""

    values: Array = field(f4["candidates"], "how a platform's network values each candidate now")


@message(kind=2)
class SharedValues:
    """Coordinator to a platform: the federated Q-values of its candidates, equation 9 or 10."""

    round: Array = field(u4, _ROUND)
    values: Array = field(f4["candidates"], "how the federated network values each candidate")


@message(kind=3)
class Done:
    """Platform to coordinator: it has done so. Has no field."""


@message(kind=4)
class BatchAges:
    """Coordinator to platforms: which transitions to learn from, the same at all."""

    round: Array = field(u4, _ROUND)
    ages: Array = field(u4["transitions"], "rounds since each transition to learn from, at least 1")


@message(kind=5)
class BatchValues:
    """Platform to coordinator: its Q-values at the transitions, and its target network's one round later."""

    values: Array = field(f4["transitions", "candidates"], _BATCH_VALUES)
    following: Array = field(f4["transitions", "candidates"], _NEXT_VALUES)


@message(kind=6)
class NextValues:
    """Coordinator to a platform with feedback: the federated target network's values one round later."""

    values: Array = field(
        f4["transitions", "candidates"],
        "how the federated target network values each candidate, one round later",
    )


@message(kind=7)
class Targets:
    """Platform with feedback to coordinator: y of equation 13, and its choice model (zeros if none is learnt)."""

    targets: Array = field(f4["transitions"], _TARGETS)
    choice: Array = field(f4["parameters":2], _CHOICE)


@message(kind=9)
class LossInputs:
    """Coordinator to a platform: what the loss of equation 14 or 15 is made of."""

    values: Array = field(
        f4["transitions", "candidates"], "how the federated network values each candidate of each transition"
    )
    targets: Array = field(f4["transitions"], _TARGETS)
    choice: Array = field(f4["parameters":2], _CHOICE)


@message(kind=10)
class LossGradient:
    """Platform to coordinator: the gradient of its loss by the federated values."""

    gradient: Array = field(
        f4["transitions", "candidates"],
        "how a platform's loss changes with the value of each candidate: with feedback, other than 0 where a click was",
    )


@message(kind=11)
class ValueGradient:
    """Coordinator to a platform: the gradient of its loss, on its way back through the federated network."""

    gradient: Array = field(
        f4["transitions", "candidates"],
        "how the platform's loss changes with its own network's value of each candidate",
    )


@message(kind=12)
class NewValues:
    """Platform to coordinator: its Q-values at the transitions after its step."""

    values: Array = field(
        f4["transitions", "candidates"],
        "how the platform's network values each candidate of each transition after its step",
    )
