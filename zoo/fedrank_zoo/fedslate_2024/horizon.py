"""Whose engagement, and how far ahead: from which sensitivity on kale pays in Choc and Kale, in closed form."""

from __future__ import annotations

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.slates.world.satisfaction import Satisfaction


def kale_threshold(world: Satisfaction, discount: float = 1.0, team: bool = True) -> float:
    """The sensitivity above which a little less chocolate pays in the long run, for a user in the middle.

    Around c = ½ and exposure 0 all ticks are worth the same, so logarithms can be compared. A click with dc more
    chocolate raises its log-engagement by (Δμ / 2 + σ̄ Δσ) dc, and lowers that of the j-th tick after it by
    2 β^(j−1) · τ μ̄ / 4 dc, where μ̄, σ̄ are means and Δμ, Δσ differences of chocolate and kale. With weight w_j on the
    j-th tick, moderation pays if τ > (Δμ + 2 σ̄ Δσ) / (μ̄ Σ_j w_j β^(j−1)). A platform that counts its own engagement
    only has weight γ^r at j = K r, r rounds later, and 0 between; a team counts every tick, with γ^r as well.

    Args:
        world: The world; its sensitivity is not used.
        discount: γ in [0, 1], of one round.
        team: All platforms' engagement counts, or only that of the platform that decides.

    Returns:
        τ; infinity if nothing that comes later counts, as for a platform that acts once (γ = 0) and alone.

    Raises:
        ConfigError: The discount is out of range.

    >>> round(kale_threshold(Satisfaction()), 4), round(kale_threshold(Satisfaction(), 0.9, team=False), 4)
    (0.0222, 0.0743)
    """
    if not 0.0 <= discount <= 1.0:
        raise ConfigError(f"A discount is in [0, 1], got {discount}.")
    beta, k = world.memory_discount, world.platforms
    later_round = discount * beta ** np.arange(k) / (1.0 - discount * beta**k)  # Σ_r γ^r β^(K(r−1) + i)
    if team:  # a platform at place p has K − 1 − p ticks after it in the round, and all of the rounds after
        ahead = [sum(beta**i for i in range(k - 1 - p)) + beta ** (k - 1 - p) * later_round.sum() for p in range(k)]
        weight = float(np.mean(ahead))
    else:
        weight = float(later_round[-1])
    mean, difference = (world.choc_mean + world.kale_mean) / 2, world.choc_mean - world.kale_mean
    spread = (world.choc_sd + world.kale_sd) * (world.choc_sd - world.kale_sd)
    return (difference + spread) / (mean * weight) if weight > 0 else float("inf")
