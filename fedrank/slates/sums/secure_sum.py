"""Secure sums of platforms' integers over users: the coordinator sees nothing but their total, modulo 2³².

In a deployment each platform's vector is masked, and the masks cancel in the total (:mod:`fedrank.privacy.secure_sum`).
The simulator leaves the masks out: :func:`total` is all that it does with the vectors.

**Noise.** Every platform adds the noise that its vector would need if it were seen alone. A user who comes to all n
platforms changes the total by n clips, and noise of √n σ on it is n times as far as that of one vector of σ / √n: the
secure sum lets no platform add less. So ε does not rest on the secure sum, and what any n − 1 platforms add hides what
they put in, with the ε of n − 1 messages, from the last one too, which knows its own noise. What the secure sum adds is
that no party sees the sums of one platform.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from jaxtyping import Bool, Int, Int32, UInt32

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.arrays import module_of
from fedrank.core.errors import ConfigError
from fedrank.core.messages import Layout

#: With fewer platforms, a total without one's own part is another platform's.
MIN_PLATFORMS = 3
#: Standard deviations that discrete Gaussian noise exceeds with a probability below e⁻⁸⁰⁰.
TAIL = 40.0
#: Largest absolute value of a total that 32 bits tell from its negative.
_LARGEST = 2**31 - 1


def check(platforms: int, users: int, steps: int, sigma: float) -> None:
    """Refuse what cannot be summed in secret.

    Args:
        platforms: Platforms with feedback, which send vectors.
        users: Most users whose vectors one platform adds up.
        steps: Largest absolute value that a user adds to an integer.
        sigma: σ of each platform's noise, in steps; 0: none.

    Raises:
        ConfigError: Fewer than three platforms send, or a total may exceed 32 bits.
    """
    if platforms < MIN_PLATFORMS:
        raise ConfigError(
            f"a secure sum needs {MIN_PLATFORMS} platforms with feedback or more, got {platforms}: of two, each can "
            "subtract its own sums from the total, and what is left are the other's. Let more platforms have feedback "
            "(slates.feedback = all, world.platforms), or leave sharing.secure_sum out."
        )
    largest = platforms * (users * steps + TAIL * sigma)
    if largest > _LARGEST:
        most = int((_LARGEST / platforms - TAIL * sigma) / steps)
        at_most = f"Take at most {most:,} users for each release" if most > 0 else "Take a larger epsilon"
        raise ConfigError(
            f"the total of {platforms} platforms with {users:,} users each can reach {largest:,.0f} steps, beyond the "
            f"{_LARGEST:,} that 32 bits hold. {at_most}, or leave sharing.secure_sum out."
        )


def total(
    summands: UInt32[Array, "platforms numbers"], arrived: Bool[Array, " platforms"], asked: Bool[Array, " platforms"]
) -> tuple[Int32[Array, " numbers"], Int[Array, ""]]:
    """All that a coordinator may use of vectors: their total, of all that were asked or of none.

    Args:
        summands: Vectors modulo 2³².
        arrived: Whose vector came.
        asked: Who sends one.

    Returns:
        The total as integers with a sign, and how many platforms are in it; zeros unless every platform was heard.
    """
    xp = module_of(summands)
    complete = xp.all(arrived | ~asked)
    summed = xp.sum(xp.where(asked[:, None], summands, 0), axis=0, dtype=xp.uint32)
    return xp.where(complete, summed.view(xp.int32), 0), xp.where(complete, xp.sum(asked), 0)


def as_vector(message: Any) -> UInt32[np.ndarray, " integers"]:
    """The integers of one message as one vector, for a secure sum."""
    return np.concatenate([np.asarray(getattr(message, f.name), np.uint32).reshape(-1) for f in fields(message)])


def from_vector(layout: Layout, vector: UInt32[np.ndarray, " integers"]) -> Any:
    """The inverse of :func:`as_vector`: a sum of vectors as one message."""
    values, position = {}, 0
    for field in layout.fields:
        size = int(np.prod(field.shape))
        values[field.name] = vector[position : position + size].reshape(field.shape)
        position += size
    return layout.message(**values)
