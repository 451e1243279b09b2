"""Noise of simulated devices without JAX: what :mod:`fedrank.privacy.noise.simulated` draws from a party's second key.

Logarithms and quantiles are rounded by other libraries than JAX's, so that one draw in thousands may be another by one
step where σ is thousands of steps.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int32, UInt32

from fedrank.core.kernels import normal_of, party_words
from fedrank.privacy.noise.simulated import ROUNDED_FROM, laplace_of, polya_jumps, polya_tails, small_gaussian_of


class PartyNoise:
    """Noise of some parties in a round.

    Args:
        keys: Both words of each run's key.
        number: Number of the round.
        first: Number of the first party.
        parties: How many parties.
    """

    def __init__(self, keys: UInt32[np.ndarray, "runs 2"], number: int, first: int, parties: int):
        self._asked = keys, number, first, parties

    def _words(self, size: int, *folds: int) -> UInt32[np.ndarray, "runs parties {size}"]:
        """The first key of ``jax.random.split`` is a fold of 0, the second one of 1; ``fold_in(key, 1)`` is that."""
        return party_words(*self._asked, size, folds=(1, *folds))

    def laplace(self, scale: float, size: int) -> Int32[np.ndarray, "runs parties {size}"]:
        """Discrete Laplace noise: scale in steps, draws of a party."""
        words = self._words(2 * size)
        return laplace_of(np.moveaxis(words.reshape(*words.shape[:2], 2, size), 2, 0), scale, np)

    def gaussian(self, sigma: float, size: int) -> Int32[np.ndarray, "runs parties {size}"]:
        """Discrete Gaussian noise: σ in steps, draws of a party."""
        if sigma >= ROUNDED_FROM:
            return np.round(np.float32(sigma) * normal_of(self._words(size))).astype(np.int32)
        return small_gaussian_of(self._words(size, 0), self._words(size, 1), sigma, np)

    def laplace_shares(self, scale: float, enough: int, size: int) -> Int32[np.ndarray, "runs parties {size}"]:
        """Shares of discrete Laplace noise, of which ``enough`` have the scale; draws of a party."""
        tails, log_rest = polya_tails(scale, enough, size)
        counts, signs = self._words(1, 0)[..., 0], self._words(tails.size, 2)
        sizes = self._words(2 * tails.size, 3).reshape(*signs.shape[:2], 2, tails.size)
        jumps = polya_jumps(counts, signs, np.moveaxis(sizes, 2, 0), tails, log_rest, np)
        where = _below(self._words(tails.size, 1, 0), self._words(tails.size, 1, 1), size)
        out = np.zeros((*signs.shape[:2], size), np.int32)
        runs, parties = (np.arange(n) for n in jumps.shape[:2])
        np.add.at(out, (runs[:, None, None], parties[:, None], where), jumps)
        return out


def _below(
    high: UInt32[np.ndarray, "*shape"], low: UInt32[np.ndarray, "*shape"], bound: int
) -> UInt32[np.ndarray, "*shape"]:
    """``jax.random.randint`` from 0 to below ``bound``, of words from both its keys."""
    span = np.uint32(bound)
    factor = np.uint32((2**16 % bound) ** 2 % 2**32 % bound)  # JAX multiplies in 32 bits
    return (high % span * factor + low % span) % span
