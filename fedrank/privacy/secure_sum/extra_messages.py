"""The messages that a secure sum adds to a round, for ledgers: all but the masked vector itself."""

from __future__ import annotations

from fedrank.core.messages import Layout
from fedrank.privacy.secure_sum.messages import message_sizes

#: Parties that each party of a secure sum masks with, at most: all of a small cohort, a sparse graph of a large one.
NEIGHBOURS = 20


def extra_messages(parameters: int, parties: int, neighbours: int = NEIGHBOURS) -> tuple[tuple[str, str, Layout], ...]:
    """The additional messages of a secure sum: keys, sealed shares, and what the server needs to remove the masks.

    Args:
        parameters: Number of weights.
        parties: Parties of the round; one by itself has no other to sum with.
        neighbours: Parties that each masks with, at most.

    Returns:
        Name of the step, sender and layout.
    """
    if parties < 2:
        return ()
    keys, shares, vectors, unmasking = message_sizes(parameters, min(parties - 1, neighbours))
    out: list[tuple[str, str, Layout]] = []
    for step in (keys, shares, unmasking):
        name = f"secure sum: {step.name}"
        out += [(name, "server", step.request), (name, "parties", step.reply)]
    # The masked vector itself is the reply.
    return (*out, (f"secure sum: {vectors.name}", "server", vectors.request))
