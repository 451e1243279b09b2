"""What the best attacker can find: closed forms for Gaussian noise, and the bound of differential privacy.

**Being there.** An attacker who knows all else decides between two messages that are ‖d‖ apart under noise of standard
deviation σ. True less false positives of the best test are 2 Φ(‖d‖ / 2σ) − 1, the total variation of two normal
distributions, which is the Gaussian mechanism's δ at ε = 0 (Balle and Wang, ICML 2018, Theorem 8). Differential privacy
bounds the same number by (e^ε − 1 + 2 δ) / (e^ε + 1), whatever the mechanism and the attacker (Kairouz, Oh and
Viswanath, ICML 2015).

**A number.** Of y, linear in what a user adds up to a rest, the best linear guess from a noisy c explains
cov(y, c) (cov(c) + σ²)⁻¹ cov(c, y) of its variance: a linear channel with Gaussian noise.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float


def gaussian_advantage(distance: Float[np.ndarray, " pairs"], sigma: float) -> Float[np.ndarray, " pairs"]:
    """True less false positives of the best test of which of two vectors was sent.

    Args:
        distance: Their distance.
        sigma: Standard deviation of the noise on each coordinate; 0: none.

    >>> gaussian_advantage(np.array([0.0, 2.0]), 1.0).round(4).tolist()
    [0.0, 0.6827]
    """
    from scipy.special import erf

    distance = np.asarray(distance, np.float64)
    return erf(distance / (sigma * math.sqrt(8.0))) if sigma > 0 else (distance > 0).astype(np.float64)


def private_advantage(epsilon: float | None, delta: float = 0.0) -> float:
    """The most that (ε, δ)-differential privacy allows of true less false positives; 1 without any.

    >>> round(private_advantage(2.0), 4), private_advantage(None)
    (0.7616, 1.0)
    """
    return 1.0 if epsilon is None else min(1.0, math.tanh(epsilon / 2) + 2.0 * delta / (math.exp(epsilon) + 1.0))


def channel_r2(sent: Float[np.ndarray, "users numbers"], wanted: Float[np.ndarray, " users"], sigma: float) -> float:
    """R² of the best linear guess of a number from vectors with noise, adjusted for the numbers that are fitted.

    Args:
        sent: The vectors, without noise.
        wanted: The number of each user.
        sigma: Standard deviation of the noise on each coordinate; 0: none.

    Returns:
        R², adjusted as usual by the effective number of fitted weights, and at least 0; 0 if the number is constant.
    """
    c, y = sent - sent.mean(axis=0), wanted - wanted.mean()
    if not y.any() or not c.any():
        return 0.0
    users = len(y)
    # In the directions of what varies: singular values of c, and of y its part along each.
    left, spread, _ = np.linalg.svd(c / math.sqrt(users), full_matrices=False)
    kept = spread > 1e-9 * spread[0]
    variance, along = spread[kept] ** 2, left[:, kept].T @ y / math.sqrt(users)
    passed = variance / (variance + sigma**2)
    r2 = float(passed @ along**2 / (y @ y / users))
    fitted = float(passed.sum())
    return max(0.0, 1.0 - (1.0 - r2) * (users - 1) / max(1.0, users - 1 - fitted))
